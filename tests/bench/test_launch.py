"""Host time per launch, on the CPU."""

from __future__ import annotations

from core.bench.launch import ALLOCATED, PASSED, host_time, launch_overhead


def test_every_way_to_launch_is_checked_and_timed():
    found = launch_overhead("cpu", rounds=7, calls=1, most_s=0.5)
    times = found["host_time_per_call"]
    assert {PASSED, ALLOCATED, "tilehal, exported, output passed", "torch, softmax"} <= set(times)
    assert all(one["low_us"] <= one["median_us"] <= one["high_us"] for one in times.values())
    assert times["python, an empty call"]["median_us"] < times[PASSED]["median_us"]


def test_rounds_are_interleaved_and_the_device_is_waited_for_outside():
    order: list[str] = []
    found = host_time(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2, 3, lambda: order.append("wait")
    )
    once = ["a"] * 3 + ["wait"] + ["b"] * 3 + ["wait"]
    assert order == once * 3  # warm-up, and two rounds
    assert set(found) == {"a", "b"}


def test_time_that_is_up_ends_the_rounds():
    rounds = 0

    def call() -> None:
        nonlocal rounds
        rounds += 1

    host_time({"a": call}, 10**6, 1, lambda: None, most_s=0.0)
    assert rounds == 1 + 7
