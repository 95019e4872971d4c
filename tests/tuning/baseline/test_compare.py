"""Comparing snapshots: a planted slowdown is reported, the same build twice is not, and noise is called noise.

The times are drawn, so that the truth is known: a kernel's time, times a machine's drift, times what differs from pass
to pass. Seeds are fixed: a test either always passes or always fails.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import core
from core.tuning.baseline import Case, Comparison, Criteria, Row, Snapshot, Timing, compare, draw_comparison
from core.tuning.baseline.judging import Pair, judge, slower_by
from core.tuning.baseline.rendering import summary

TARGET = "cuda:h200"
KERNELS = 24


def case(index: int, target: str = TARGET) -> Case:
    return Case("kernels.py:gemm", target, {"M": 64 * (index + 1)})


def timing(draw: random.Random, seconds: float, noise: float, passes: int, drift: Sequence[float] = ()) -> Timing:
    factors = [math.exp(draw.gauss(0, noise)) * (drift[k] if drift else 1.0) for k in range(passes)]
    return Timing.of([seconds * factor for factor in factors], "graph")


def snapshot(
    draw: random.Random,
    *,
    noise: float = 0.01,
    passes: int = 5,
    slow: Mapping[int, float] | None = None,
    machine: float = 1.0,
    drift: Sequence[float] = (),
    device: str = "NVIDIA H200",
    target: str = TARGET,
) -> Snapshot:
    """KERNELS rows of 10 us and more; `slow` multiplies some, `machine` everything, yardsticks too."""
    rows = []
    for index in range(KERNELS):
        seconds = (index + 1) * 1e-5 * machine * (slow or {}).get(index, 1.0)
        cold, warm = (timing(draw, seconds * factor, noise, passes, drift) for factor in (1.2, 1.0))
        rows.append(Row(case(index, target), cold=cold, warm=warm))
    yardsticks = {name: timing(draw, 1e-4 * machine, noise / 3, passes, drift) for name in ("copy", "product")}
    return Snapshot({"targets": {target: {"device": device}}}, tuple(rows), {target: yardsticks})


def regressed(found: Comparison) -> set[int]:
    return {row.case.parameters["M"] // 64 - 1 for row in found.regressions}


# ----------------------------------------------------------------------------------------------- alarms, false and true


@pytest.mark.parametrize("noise", [0.002, 0.01, 0.05])
def test_the_same_build_twice_shows_no_regression(noise: float) -> None:
    draw = random.Random(11)
    for _ in range(20):
        found = compare(snapshot(draw, noise=noise), snapshot(draw, noise=noise))
        assert found.regressions == ()


def test_the_chance_of_a_false_alarm_in_a_whole_comparison_is_what_was_stated() -> None:
    draw = random.Random(5)
    strict = Criteria(confidence=0.9, tolerance=0.0)  # without the tolerance the statistics stand alone
    alarms = 0
    for _ in range(150):
        pairs = [
            Pair(str(i), TARGET, "warm", timing(draw, 1e-5, 0.02, 5), timing(draw, 1e-5, 0.02, 5)) for i in range(12)
        ]
        alarms += any(change.verdict == "slower" for change in judge(pairs, [], strict))
    assert 0.01 <= alarms / 150 <= 0.15  # at most 10%, give or take what 150 trials may miss by


@pytest.mark.parametrize(("noise", "passes"), [(0.003, 5), (0.01, 5), (0.02, 10)])
def test_a_planted_slowdown_of_a_tenth_is_reported_and_nothing_else(noise: float, passes: int) -> None:
    draw = random.Random(7)
    hits = 0
    for _ in range(20):
        old = snapshot(draw, noise=noise, passes=passes)
        found = compare(old, snapshot(draw, noise=noise, passes=passes, slow={3: 1.10}))
        assert regressed(found) <= {3}
        hits += regressed(found) == {3}
    assert hits >= 19


def test_a_slowdown_within_the_tolerance_is_nobodys_business() -> None:
    draw = random.Random(2)
    found = compare(snapshot(draw, noise=0.001), snapshot(draw, noise=0.001, slow={0: 1.02}))
    assert found.regressions == ()
    assert found.count("same") == KERNELS
    strict = compare(
        snapshot(draw, noise=0.001), snapshot(draw, noise=0.001, slow={0: 1.02}), Criteria(tolerance=0.005)
    )
    assert regressed(strict) == {0}


def test_a_speedup_is_told_and_fails_nothing() -> None:
    draw = random.Random(3)
    found = compare(snapshot(draw), snapshot(draw, slow={5: 0.8}))
    assert found.regressions == ()
    assert [row.case.parameters["M"] for row in found.rows if row.verdict == "faster"] == [6 * 64]


def test_noise_that_could_hide_a_slowdown_is_not_called_the_same() -> None:
    draw = random.Random(4)
    found = compare(snapshot(draw, noise=0.15, passes=4), snapshot(draw, noise=0.15, passes=4))
    assert found.regressions == ()
    assert found.count("unclear") >= KERNELS - 2
    assert "could have gone unseen" in summary(found)


def test_two_passes_that_disagree_say_nothing_and_say_so() -> None:
    wild = Timing((1e-5, 9e-5), "graph")
    (found,) = compare(of(row(cold=wild, warm=wild)), of(row(cold=wild, warm=wild))).rows
    assert found.verdict == "unclear"
    assert all(change.low < 1e-2 and change.high > 1e2 and change.detectable > 100 for change in found.changes)


def test_an_interval_holds_the_truth_and_tells_slower_from_same() -> None:
    draw = random.Random(6)
    found = compare(snapshot(draw), snapshot(draw, slow={1: 1.10}))
    row = next(row for row in found.rows if row.verdict == "slower")
    for change in row.changes:
        assert change.low <= 1.10 <= change.high
        assert change.low > 1.0
        assert change.p_slower < 0.05


# ------------------------------------------------------------------------------------------------------- the machine


def test_a_slower_machine_is_no_slower_kernel() -> None:
    draw = random.Random(8)
    found = compare(snapshot(draw), snapshot(draw, machine=1.08))
    assert found.regressions == ()
    assert all(shift.slower and shift.low <= 1.08 <= shift.high for shift in found.shifts)
    assert slower_by(found.shifts, TARGET) == pytest.approx(math.log(1.08), abs=0.02)


def test_what_is_slower_than_the_machine_became_is_still_reported() -> None:
    draw = random.Random(9)
    found = compare(snapshot(draw), snapshot(draw, machine=1.08, slow={7: 1.15}))
    assert regressed(found) == {7}


def test_a_machine_that_became_faster_hides_nothing_that_became_slower() -> None:
    draw = random.Random(10)
    found = compare(snapshot(draw), snapshot(draw, machine=0.95, slow={7: 1.15}))
    assert regressed(found) == {7}
    assert not any(shift.slower for shift in found.shifts)


def test_builds_measured_in_turn_share_their_drift() -> None:
    draw = random.Random(12)
    drift = [math.exp(draw.gauss(0, 0.2)) for _ in range(8)]
    old, new = (snapshot(draw, passes=8, drift=drift, slow=slow) for slow in ({}, {2: 1.10}))
    assert regressed(compare(old, new, Criteria(interleaved=True))) == {2}
    apart = compare(old, new)
    assert apart.regressions == ()
    assert apart.count("unclear") > 0


# ------------------------------------------------------------------------------------------------------------- rows


def row(index: int = 0, **fields: Any) -> Row:
    steady = Timing((1e-5, 1.001e-5, 0.999e-5), "graph")
    return Row(case(index), **{"cold": steady, "warm": steady, **fields})


def of(*rows: Row, device: str = "NVIDIA H200") -> Snapshot:
    return Snapshot({"targets": {TARGET: {"device": device}}}, rows)


def test_rows_that_appear_and_disappear_are_told_and_fail_nothing() -> None:
    found = compare(of(row(0), row(1)), of(row(1), row(2)))
    assert {one.case.parameters["M"]: one.verdict for one in found.rows} == {64: "gone", 128: "same", 192: "new"}
    assert found.regressions == ()


@pytest.mark.parametrize("status", ["failed", "wrong"])
def test_what_no_longer_runs_or_is_right_is_a_regression(status: str) -> None:
    bad = Row(case(1), status=status, reason="BuildFailed: no such instruction")
    found = compare(of(row(0), row(1)), of(row(0), bad))
    assert [one.verdict for one in found.regressions] == [status]
    assert found.regressions[0].notes == ("BuildFailed: no such instruction",)
    assert found.rows[0] is found.regressions[0]


def test_what_never_worked_is_no_regression_and_what_works_again_is_told() -> None:
    bad = Row(case(1), status="failed", reason="no")
    assert [one.verdict for one in compare(of(row(0), bad), of(row(0), bad)).rows] == ["broken", "same"]
    assert [one.verdict for one in compare(of(row(0)), of(row(0), bad)).rows] == ["broken", "same"]
    assert [one.verdict for one in compare(of(row(0), bad), of(row(0), row(1))).rows] == ["fixed", "same"]


def test_other_figures_that_changed_are_noted() -> None:
    old = row(error=1e-4, memory={"shared": 1024, "registers_per_thread": 64}, tiles={"block_M": 64}, compile_s=2.0)
    new = row(error=4e-4, memory={"shared": 2048, "registers_per_thread": 64}, tiles={"block_M": 128}, compile_s=5.0)
    (found,) = compare(of(old), of(new)).rows
    assert found.verdict == "same"
    assert found.notes == (
        "error 0.0001, now 0.0004",
        "shared 1,024, now 2,048",
        "tiles: block_M 64, now 128",
        "compiled in 2 s, now 5 s",
    )


def test_an_error_is_noted_where_it_more_than_doubled() -> None:
    noted = [compare(of(row(error=1e-4)), of(row(error=now))).rows[0].notes for now in (0.5e-4, 1.9e-4, 2.1e-4)]
    assert noted == [(), (), ("error 0.0001, now 0.00021",)]


def test_another_chip_or_device_is_refused_unless_that_is_meant() -> None:
    draw = random.Random(1)
    here, there = snapshot(draw), snapshot(draw, target="metax:c500")
    with pytest.raises(core.TileHALError, match="different chips: cuda:h200 and metax:c500") as caught:
        compare(here, there)
    assert "--any-chip" in caught.value.hint
    assert len(compare(here, there, any_chip=True).rows) == KERNELS
    with pytest.raises(core.TileHALError, match="was 'NVIDIA H200' in the one snapshot and 'NVIDIA H100'"):
        compare(of(row()), of(row(), device="NVIDIA H100"))


def test_a_single_pass_or_nothing_in_common_is_refused() -> None:
    with pytest.raises(core.TileHALError, match="single pass"):
        compare(of(row()), of(row(warm=Timing((1e-5,), "graph"))))
    with pytest.raises(core.TileHALError, match="no row in common"):
        compare(of(row(0)), of(row(1)))


def test_environments_that_differ_are_listed_and_dates_are_not() -> None:
    def taken(driver: str, date: str) -> Snapshot:
        facts = {"device": "NVIDIA H200", "driver": driver, "plugins": ["tilehal 0.1.0"], "clocks": {"device_mhz": 1}}
        return Snapshot({"host": {"date": date, "torch": "2.11"}, "targets": {TARGET: facts}}, (row(),))

    found = compare(taken("570.1", "2026-01-01"), taken("580.2", "2026-02-02"))
    assert found.differences == ("cuda:h200 driver: 570.1, now 580.2",)


# ---------------------------------------------------------------------------------------------------- said and drawn


def test_a_comparison_as_data_has_everything_a_program_needs() -> None:
    draw = random.Random(13)
    data = compare(snapshot(draw), snapshot(draw, slow={3: 1.2})).to_json()
    assert data["regressions"] == 1
    first = data["rows"][0]
    assert (first["verdict"], first["parameters"], first["kernel"]) == ("slower", {"M": 256}, "kernels.py:gemm")
    assert {change["l2"] for change in first["changes"]} == {"cold", "warm"}
    assert (data["confidence"], data["tolerance"]) == (0.95, 0.03)


def test_the_picture_is_the_same_for_the_same_comparison(tmp_path: Path) -> None:
    draw = random.Random(14)
    found = compare(snapshot(draw), snapshot(draw, slow={3: 1.2}))
    for name in ("one.svg", "two.svg", "three.png"):
        draw_comparison(found, tmp_path / name)
    drawn = (tmp_path / "one.svg").read_text()
    assert drawn == (tmp_path / "two.svg").read_text()
    assert "1 of 24 rows regressed" in drawn
    assert "gemm(M=256)" in drawn
    assert (tmp_path / "three.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(core.TileHALError, match="cannot be written"):
        draw_comparison(found, tmp_path / "one.what")
