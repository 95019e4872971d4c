"""Goals: what is met, what is not, and that what was not measured is neither."""

from __future__ import annotations

import pytest

from core.bench.case import suite
from core.bench.goals import Goal, geometric_mean, judge
from core.bench.launch import ALLOCATED, PASSED
from tests.bench.documents import all_rows, document, interval, row, timed


def goal(goals: list[Goal], *words: str) -> Goal:
    (found,) = [one for one in goals if all(word in one.text for word in words)]
    return found


def host_time(passed: float, allocated: float) -> dict:
    def one(value: float) -> dict:
        return {"median_us": value, "low_us": value, "high_us": value}

    return {"host_time_per_call": {PASSED: one(passed), ALLOCATED: one(allocated)}}


def test_everything_is_met_where_everything_is_faster():
    goals = judge(document(all_rows(), host_time(3.9, 7.0)))
    judged = [one for one in goals if one.verdict != "no goal"]
    assert {one.verdict for one in judged} == {"met"}
    assert len(judged) == 1 + 3 * 2 + 1 + 2 + 2


def test_a_mean_above_one_does_not_excuse_a_row_below_the_limit():
    cases = suite("standard", ["gemm"])
    speeds = [1.2] * len(cases)
    speeds[4] = 0.92
    found = goal(judge(document([row(c, {"cublas": s}) for c, s in zip(cases, speeds, strict=True)])), "products")
    assert found.verdict == "not met"
    assert found.short == (f"{cases[4].name}: 0.920x (0.918 to 0.922)",)


def test_no_row_below_the_limit_does_not_excuse_the_mean():
    cases = suite("standard", ["attention"])
    found = goal(judge(document([row(case, {"cudnn": 0.99}) for case in cases])), "attention")
    assert found.verdict == "not met"
    assert found.value == "0.990x over 5 rows, least 0.990x"


def test_a_row_that_was_not_measured_is_not_met_and_says_why():
    cases = suite("standard", ["softmax"])
    rows = [row(case, {"triton": 1.1, "copy": 0.95}) for case in cases]
    why = {"status": "not measured", "reason": "Triton cannot be imported"}
    rows[1] = row(cases[1], {"copy": 0.95}, triton=why)
    found = goal(judge(document(rows)), "softmax", "Triton")
    assert found.verdict == "not met"
    assert found.short == (f"{cases[1].name}: Triton not measured: Triton cannot be imported",)
    none = [row(case, {}, triton=why) for case in cases]
    assert goal(judge(document(none)), "softmax", "Triton").verdict == "not measured"


def test_triton_with_launches_that_overlap_is_told_beside_the_goal_and_not_judged():
    cases = suite("standard", ["softmax"])
    rows = [row(case, {"triton": 1.1, "triton overlapped": 0.8, "copy": 0.95}) for case in cases]
    why = {"status": "not measured", "reason": "no configuration runs"}
    rows[1] = row(cases[1], {"triton": 1.1, "copy": 0.95}, **{"triton overlapped": why})
    goals = judge(document(rows))
    assert [one.verdict for one in goals] == ["met", "no goal", "met"]
    assert goals[1].text == "softmax: geometric mean beside Triton overlapped"
    assert goals[1].value == "0.800x over 3 rows, least 0.800x; 1 not measured"
    assert goals[1].warm == "0.800x over 3 rows, least 0.800x"
    assert goals[1].short == ()
    nowhere = [row(case, {"triton": 1.1, "copy": 0.95}, **{"triton overlapped": why}) for case in cases]
    assert [one.verdict for one in judge(document(nowhere))] == ["met", "met"]


def test_being_faster_than_triton_with_launches_that_overlap_does_not_excuse_being_slower_than_triton():
    rows = [row(case, {"triton": 0.9, "triton overlapped": 1.1}) for case in suite("standard", ["softmax"])]
    assert goal(judge(document(rows)), "every shape at least 1.00x Triton").verdict == "not met"


def test_small_rows_are_not_held_to_the_bandwidth_of_a_copy():
    large, small = suite("standard", ["rmsnorm"])[0], suite("small", ["rmsnorm"])[0]
    rows = [row(large, {"copy": 0.91, "triton": 1.0}), row(small, {"copy": 0.2, "triton": 1.0})]
    assert goal(judge(document(rows)), "rmsnorm", "copy").verdict == "met"


@pytest.mark.parametrize(("share", "verdict"), [(0.86, "met"), (0.84, "not met")])
def test_few_heads_are_held_to_the_bandwidth(share, verdict):
    rows = [row(case, {}, share) for case in suite("standard", ["mla"]) if case.shape["M"] <= 64]
    assert goal(judge(document(rows)), "64 heads").verdict == verdict


def test_many_heads_are_held_to_flashmla_where_there_is_one():
    case = suite("standard", ["mla"])[2]
    assert goal(judge(document([row(case, {}, 0.61)])), "compute bound").verdict == "met"
    assert goal(judge(document([row(case, {}, 0.59)])), "compute bound").verdict == "not met"
    found = goal(judge(document([row(case, {"flashmla": 0.94}, 0.9)])), "FlashMLA")
    assert (found.verdict, found.value) == ("not met", "least 0.940x of 1 row")


def test_raw_tilelang_must_be_shown_to_be_faster():
    case = suite("standard", ["gemm"])[0]
    uncertain = row(case, {"cublas": 1.1, "tilelang": 0.98})
    uncertain["ratios"]["tilehal"]["tilelang"]["cold"] = interval(0.98, 0.03)
    assert goal(judge(document([uncertain])), "raw tilelang").verdict == "met"
    assert goal(judge(document([row(case, {"tilelang": 0.98})])), "raw tilelang").verdict == "not met"


def test_host_time():
    goals = judge(document([], host_time(4.1, 6.0)))
    assert [one.verdict for one in goals] == ["not met", "met"]
    lost = judge(document([], {"status": "failed", "reason": "its process ended"}))
    assert [one.verdict for one in lost] == ["not measured"] * 2


def test_tuned_tiles_are_judged_beside_those_by_rule():
    case = suite("standard", ["gemm"])[0]
    one = row(case, {"cublas": 0.9}, tuned={"status": "ok", "cold": timed(1.0), "warm": timed(1.0)})
    one["ratios"]["tuned"] = {"cublas": {"cold": interval(1.05), "warm": interval(1.05)}}
    goals = judge(document([one]))
    assert [(g.text.startswith("tuned"), g.verdict) for g in goals] == [(False, "not met"), (True, "met")]


def test_the_cpu_has_no_goals():
    measured = document(all_rows())
    measured["environment"]["device_type"] = "cpu"
    assert judge(measured) == []


def test_geometric_mean():
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
