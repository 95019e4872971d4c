"""What-if chips."""

from __future__ import annotations

import pytest

from core.errors import DescriptorError
from core.hardware import load_chips
from core.target import resolve

KIB = 1024
C500 = load_chips("backends.metax")[0]
H200 = load_chips("backends.cuda")[0]


def test_shared_memory_of_a_block_and_what_follows_from_it():
    changed = C500.with_changes("shared=128KiB")
    assert changed.memory("shared").per_block_bytes == 128 * KIB
    assert changed.memory("shared").capacity_bytes == 128 * KIB
    assert changed.target == "metax:c500+shared=128KiB"
    assert C500.memory("shared").per_block_bytes == 64 * KIB


def test_what_the_runtime_keeps_for_itself_stays_the_same():
    shared = H200.with_changes("shared=128KiB").memory("shared")
    assert (shared.per_block_bytes, shared.capacity_bytes) == (128 * KIB, 129 * KIB)
    assert shared.static_per_block_bytes == 48 * KIB
    assert shared.carveouts_bytes[-2:] == (100 * KIB, 129 * KIB)
    assert H200.with_changes("shared=128KiB").occupancy(128, 32, 0, 128 * KIB).blocks == 1
    assert H200.with_changes("shared=128KiB").occupancy(128, 32, 0, 129 * KIB).blocks == 0


def test_peak_rates_follow_units_and_clock():
    half = H200.with_changes("sm=66")
    assert half.main_unit.count == 66
    assert half.rate("float16").ops_per_s == pytest.approx(989.5e12 / 2)
    slower = H200.with_changes("clock=990MHz")
    assert slower.rate("float32").ops_per_s == pytest.approx(67e12 / 2)
    assert slower.rate("float16").clock_hz == pytest.approx(915e6)
    assert H200.with_changes("bandwidth=9.6TB/s").memory("global").bandwidth_bytes_per_s == 9.6e12


def test_the_ratio_between_units_is_kept():
    changed = load_chips("backends.ascend")[0].with_changes("ai_core=10")
    assert [unit.count for unit in changed.units] == [10, 10, 20]


def test_several_changes_and_any_path():
    changed = resolve("metax:c500+shared=128KiB+limits.threads_per_block=512+units.ap.max_blocks=16").chip
    assert changed.limits.threads_per_block == 512
    assert changed.main_unit.max_blocks == 16
    assert changed.modified == ("shared=128KiB", "limits.threads_per_block=512", "units.ap.max_blocks=16")


def test_a_changed_figure_says_so():
    changed = C500.with_changes("shared=128KiB")
    assert changed.source_of("memories.shared.per_block_bytes").trust == "what-if"
    assert changed.source_of("units.ap.count").trust == "measured"


def test_the_fingerprint_changes_with_the_figures():
    assert len({C500.fingerprint(), C500.with_changes("shared=128KiB").fingerprint(), H200.fingerprint()}) == 3
    assert C500.with_changes("shared=128KiB").fingerprint() == C500.with_changes("shared=128 KiB").fingerprint()


def test_an_unknown_figure_lists_what_may_be_changed():
    with pytest.raises(DescriptorError, match=r"did you mean shared\?") as caught:
        C500.with_changes("sharde=128KiB")
    assert "ap, bandwidth, clock, global, l2" in caught.value.hint
    assert "limits.threads_per_block" in caught.value.details["paths"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("shared", "is not a change"),
        ("shared=", "is not a change"),
        ("shared=lots", "not a quantity"),
        ("shared=0", "not positive"),
        ("ap=many", "invalid literal"),
        ("ap=-4", "not positive"),
        ("title=9", "changes nothing"),
        ("memories.shared.owner=1", "changes nothing"),
    ],
)
def test_what_is_no_change_is_refused(change, reason):
    with pytest.raises(DescriptorError, match=reason):
        C500.with_changes(change)
