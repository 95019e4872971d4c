"""Ceilings: of every size the fastest, with cold caches."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from core.bench import ceilings
from core.bench.ceilings import measure_ceilings, memory_rates

CACHE = 2**14
CPU = torch.device("cpu")


@pytest.fixture
def timed(monkeypatch):
    """What was measured, how; a call takes as long as `seconds` says of the largest tensor that it touches."""
    asked = []
    sizes = []

    def seconds(size: int) -> float:
        return size / 4e9 if size < 2**16 else size / 1e9

    def measure(calls, device, *, cold_l2=False, **times):
        work = calls if isinstance(calls, list) else [calls]
        asked.append({"calls": len(work), "cold": cold_l2})
        sizes.clear()
        for call in work:
            call()
        return SimpleNamespace(median_s=seconds(sizes[0]) if sizes else 1.0)

    monkeypatch.setattr("core.tuning.measure.measure", measure)
    monkeypatch.setattr("core.tuning.measure.cache_bytes", lambda device: CACHE)
    copy, total = torch.Tensor.copy_, torch.sum

    def seen(call):
        def told(tensor, *others):
            sizes.append(tensor.nbytes)
            return call(tensor, *others)

        return told

    # Only what is timed counts: tensors are copied while sets are made, too, and `measure` forgets these.
    monkeypatch.setattr(torch.Tensor, "copy_", seen(copy))
    monkeypatch.setattr(torch, "sum", seen(total))
    monkeypatch.setattr(ceilings, "SMALL_SIZES", (2**14, 2**15, 2**17))
    return asked


def test_the_fastest_size_is_the_ceiling_of_copying_and_of_reading(timed):
    found = measure_ceilings("cpu", ["float16"], small=True)
    assert found["copies"] == [
        {"bytes": 2**15, "bytes_per_s": pytest.approx(8e9)},
        {"bytes": 2**16, "bytes_per_s": pytest.approx(8e9)},
        {"bytes": 2**18, "bytes_per_s": pytest.approx(2e9)},
    ]
    assert [one["bytes_per_s"] for one in found["reads"]] == pytest.approx([4e9, 4e9, 1e9])
    assert (found["bytes_per_s"], found["read_bytes_per_s"]) == (pytest.approx(8e9), pytest.approx(4e9))
    assert found["ops_per_s"] == {"float16": 2 * 256**3}


def test_memory_is_measured_with_cold_caches_going_round_four_times_their_size(timed):
    measure_ceilings("cpu", [], small=True)
    assert all(one["cold"] for one in timed)
    # 4 x 16 KiB of cache over 32, 64, 256 KiB of a copy's tensors, and 16, 32, 128 KiB of a sum's; one more each.
    assert [one["calls"] for one in timed] == [3, 2, 2, 5, 3, 2]


def test_every_set_has_tensors_of_its_own(monkeypatch):
    monkeypatch.setattr("core.tuning.measure.cache_bytes", lambda device: CACHE)
    seen = set()
    memory_rates(lambda source, into: seen.update({source.data_ptr(), into.data_ptr()}), 2, [2**13], CPU)
    assert len(seen) == 2 * (4 * CACHE // 2**14 + 1)
