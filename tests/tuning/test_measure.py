"""Timing: what a sample holds and what it must not, in turn, and with an interval that keeps its promise."""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Callable

import pytest
import torch

import core
from core.tuning.measure import Measurement, cache_bytes, measure, measure_together
from core.tuning.measure.device import MOST_IN_QUEUE, DeviceContender
from core.tuning.measure.host import HostContender, grouped
from core.tuning.measure.interleaved import sample_in_turn
from core.tuning.measure.statistics import (
    holm,
    median,
    median_interval,
    quantile,
    ratio_interval,
    t_probability,
    t_quantile,
    t_upper_tail,
    welch,
)
from tests.tuning.fake_device import FakeDevice

# ------------------------------------------------------------------------------------------------------ statistics


@pytest.mark.parametrize(
    ("count", "first", "last", "confidence"),
    # Ranks and coverage from the binomial distribution, as tables of the sign test have them.
    [(5, 1, 5, 0.9375), (6, 1, 6, 0.96875), (8, 1, 8, 0.9921875), (9, 2, 8, 0.9609375), (20, 6, 15, 0.9586)],
)
def test_the_median_lies_between_two_order_statistics(count: int, first: int, last: int, confidence: float) -> None:
    values = [float(value) for value in range(1, count + 1)]
    random.Random(count).shuffle(values)
    found = median_interval(values)
    assert (found.value, found.low, found.high) == ((count + 1) / 2, first, last)
    assert found.confidence == pytest.approx(confidence, abs=1e-4)


def test_the_interval_of_a_median_holds_it_as_often_as_it_says() -> None:
    draw = random.Random(3)
    held = 0
    for _ in range(1000):
        found = median_interval([draw.expovariate(1.0) ** 3 for _ in range(25)])  # as skewed as times get
        held += found.low <= math.log(2) ** 3 <= found.high
    assert 0.94 <= held / 1000 <= 0.985  # 0.957 by the binomial distribution


def test_an_outlier_moves_neither_the_median_nor_its_interval() -> None:
    steady = [1.0 + 0.001 * step for step in range(20)]
    assert median_interval([*steady[:-1], 50.0]) == median_interval(steady)


def test_a_drift_that_both_share_cancels_in_their_ratio() -> None:
    drift = [1 + 0.5 * step / 30 for step in range(30)]
    found = ratio_interval([1.1 * d for d in drift], drift)
    assert (found.low, found.high) == (pytest.approx(1.1), pytest.approx(1.1))


def test_one_sample_has_no_interval() -> None:
    found = median_interval([2.0])
    assert (found.low, found.high, found.confidence) == (2.0, 2.0, 0.0)


@pytest.mark.parametrize(
    ("tail", "freedom", "value"),
    # Published tables of Student's t.
    [(0.025, 1, 12.7062), (0.025, 8, 2.3060), (0.005, 3, 5.8409), (0.0005, 4, 8.6103), (0.05, 30, 1.6973)],
)
def test_student_agrees_with_the_tables(tail: float, freedom: float, value: float) -> None:
    assert t_quantile(tail, freedom) == pytest.approx(value, abs=1e-4)
    assert t_upper_tail(value, freedom) == pytest.approx(tail, rel=1e-3)
    assert t_probability(-value, freedom) == pytest.approx(tail, rel=1e-3)


def test_far_tails_keep_their_digits() -> None:
    assert t_upper_tail(100.0, 1) == pytest.approx(math.atan(1 / 100) / math.pi, rel=1e-9)  # one degree: Cauchy's


def test_welch_is_what_its_formula_gives() -> None:
    found = welch([1.0, 2.0, 3.0], [2.0, 4.0, 6.0, 8.0])
    assert found.value == 3.0
    assert found.error == pytest.approx(math.sqrt(1 / 3 + (20 / 3) / 4))
    shares = (1 / 3, (20 / 3) / 4)
    assert found.freedom == pytest.approx(sum(shares) ** 2 / (shares[0] ** 2 / 2 + shares[1] ** 2 / 3))
    assert found.upper_tail(3.0) == pytest.approx(0.5)
    assert found.upper_tail(3.0 - found.half_width(0.05)) == pytest.approx(0.05)


def test_values_without_spread_are_different_or_they_are_not() -> None:
    assert welch([1.0, 1.0], [1.2, 1.2]).upper_tail(0.1) == 0.0
    assert welch([1.0, 1.0], [1.05, 1.05]).upper_tail(0.1) == 1.0
    assert 0.0 < welch([1.0, 1.0], [1.2, 1.2], least_deviation=0.05).upper_tail(0.1) < 0.1


def test_holm_multiplies_by_what_is_left_and_never_goes_down() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]


def test_quantiles_interpolate() -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.25) == 1.75
    assert median([3.0, 1.0]) == 2.0


# ------------------------------------------------------------------------------------------------ groups of a rotation


@pytest.mark.parametrize(("sets", "size"), [(1, 1), (1, 7), (3, 7), (3, 3), (5, 2), (7, 3), (4, 1), (9, 2), (100, 7)])
def test_groups_are_whole_turns_so_that_no_set_comes_round_early(sets: int, size: int) -> None:
    calls = [lambda index=index: index for index in range(sets)]
    groups = [[call() for call in group] for group in grouped(calls, size)]
    assert len({len(group) for group in groups}) == 1
    assert len(groups[0]) <= max(size, 4 * size, sets)
    twice = [index for group in groups for index in group] * 2
    for place, index in enumerate(twice[: len(twice) // 2]):
        assert twice.index(index, place + 1) - place >= 0.9 * sets


# ----------------------------------------------------------------------------------------------------------- a device


def device_samples(
    device: FakeDevice, *calls: Callable[[], None], flush: bool = False, graph: bool = True
) -> tuple[DeviceContender, list[float]]:
    one = DeviceContender(device, calls, warm_up_s=0.0, sample_s=1e-3, flush=flush, graph=graph)
    return one, sample_in_turn({"": one}, 20e-3, 7, 1000)[""]


def test_launches_do_not_count_in_a_graph() -> None:
    device = FakeDevice(launch_s=50e-6)
    one, samples = device_samples(device, device.kernel(2e-6))
    assert one.method == "graph"
    assert one.calls_per_sample == 500
    assert samples == pytest.approx([2e-6] * len(samples))
    assert len(samples) == pytest.approx(20, abs=1)


def test_launches_do_not_count_where_there_are_no_graphs() -> None:
    device = FakeDevice(launch_s=50e-6, graphs=False)
    one, samples = device_samples(device, device.kernel(2e-6))
    assert one.method == "events"
    assert "no graphs" in one.detail
    assert one.calls_per_sample <= MOST_IN_QUEUE
    # The fake's host clock is not the one that the code reads to see how long to keep the device busy.
    assert median(samples) < 60e-6


def test_a_call_that_cannot_be_captured_is_queued_and_its_reason_kept() -> None:
    device = FakeDevice(launch_s=0.0)
    kernel = device.kernel(20e-6)

    def call() -> None:
        if device.capturing is not None:
            raise RuntimeError("operation not permitted when stream is capturing\nand more")
        kernel()

    one, samples = device_samples(device, call)
    assert one.method == "events"
    assert "operation not permitted when stream is capturing)" in one.detail
    assert samples == pytest.approx([20e-6] * len(samples))


def test_the_gap_between_calls_of_a_graph_counts_as_it_does_in_a_row_of_calls() -> None:
    device = FakeDevice(gap_s=1e-6)
    _, samples = device_samples(device, device.kernel(9e-6))
    assert samples == pytest.approx([10e-6] * len(samples))


def test_warm_is_warm_whoever_was_sampled_in_between() -> None:
    device = FakeDevice(graphs=False, launch_s=0.0)
    contenders = {
        name: DeviceContender(
            device, [device.kernel(2e-3, cold_s=3e-3)], warm_up_s=0.0, sample_s=1e-3, flush=False, graph=True
        )
        for name in ("one", "other")
    }
    samples = sample_in_turn(contenders, 20e-3, 7, 1000)
    assert samples["one"] == pytest.approx([2e-3] * len(samples["one"]))
    assert samples["other"] == pytest.approx([2e-3] * len(samples["other"]))


def test_a_flush_makes_every_call_cold_and_is_not_timed() -> None:
    device = FakeDevice(launch_s=0.0)
    one, samples = device_samples(device, device.kernel(2e-6, cold_s=3e-6), flush=True)
    assert (one.method, one.calls_per_sample) == ("flush", 1)
    assert samples == pytest.approx([3e-6] * len(samples))
    assert device.flushes > len(samples)


def test_a_rotation_goes_on_where_the_last_sample_ended() -> None:
    device = FakeDevice(graphs=False, launch_s=0.0)
    ran: list[int] = []
    kernel = device.kernel(0.4e-3)

    def on(index: int) -> Callable[[], None]:
        def call() -> None:
            ran.append(index)
            kernel()

        return call

    one = DeviceContender(device, [on(i) for i in range(10)], warm_up_s=0.0, sample_s=1e-3, flush=False, graph=True)
    ran.clear()
    one.take()
    one.take()
    # What leads a sample, untimed, is the call before its first: 9 | 0 1, then 1 | 2 3.
    assert ran == [9, 0, 1, 1, 2, 3]


# ------------------------------------------------------------------------------------------------------------ in turn


class Recorder:
    """A contender that writes down when it was sampled."""

    method, detail, calls_per_sample, floor_s = "wall", "", 1, 0.0

    def __init__(self, name: str, log: list[str], estimate_s: float = 1.0) -> None:
        self.name, self.log, self.estimate_s = name, log, estimate_s

    def prepare(self) -> None:
        self.log.append(f"prepare {self.name}")

    def take(self) -> None:
        assert not gc.isenabled()
        self.log.append(self.name)

    def results(self) -> list[float]:
        return [1.0] * self.log.count(self.name)


def test_contenders_take_turns_forwards_and_backwards() -> None:
    log: list[str] = []
    found = sample_in_turn({name: Recorder(name, log) for name in "ABC"}, 4.0, 2, 100)
    assert "".join(log[3:]) == "ABCCBAABCCBA"
    assert found["A"] == [1.0] * 4
    assert gc.isenabled()


@pytest.mark.parametrize(("repeat_s", "rounds"), [(1.0, 7), (50.0, 50), (5000.0, 100)])
def test_the_number_of_rounds_is_what_fits_within_its_limits(repeat_s: float, rounds: int) -> None:
    log: list[str] = []
    assert len(sample_in_turn({"A": Recorder("A", log)}, repeat_s, 7, 100)["A"]) == rounds


# ----------------------------------------------------------------------------------------------------------- the host


def sleep_ms(milliseconds: float) -> Callable[[], None]:
    return lambda: time.sleep(milliseconds / 1e3)


def test_the_wall_clock_sees_what_a_caller_waits() -> None:
    found = measure(sleep_ms(3), "cpu", warmup_ms=1, repeat_ms=30)
    assert 3e-3 <= found.low_s <= found.median_s <= found.high_s
    assert (found.method, found.l2, found.calls_per_sample) == ("wall", "warm", 1)
    assert len(found.samples) >= 7
    assert found.confidence >= 0.95


def test_the_processor_clock_does_not_see_waiting() -> None:
    found = measure(sleep_ms(3), "cpu", warmup_ms=1, repeat_ms=30, clock="processor")
    assert found.median_s < 1.5e-3
    assert found.method == "processor"


def test_short_calls_are_timed_together() -> None:
    found = measure(lambda: None, "cpu", warmup_ms=1, repeat_ms=10)
    assert found.calls_per_sample > 100
    assert found.median_s < 20e-6


def test_a_ratio_is_told_with_its_interval() -> None:
    together = measure_together({"long": sleep_ms(40), "short": sleep_ms(10)}, "cpu", warmup_ms=1, repeat_ms=40)
    found = together.ratio("long", "short")
    assert 1.5 < found.value < 5  # a busy machine wakes either some milliseconds late
    assert found.low <= found.value <= found.high
    assert found.confidence >= 0.95


def test_cold_caches_of_one_set_are_flushed_outside_the_clock() -> None:
    flushed: list[int] = []
    one = HostContender(
        [lambda: None], clock="wall", warm_up_s=0.0, sample_s=1e-3, flush=lambda: (flushed.append(1), time.sleep(2e-3))
    )
    samples = sample_in_turn({"": one}, 10e-3, 7, 1000)[""]
    assert len(flushed) >= len(samples)
    assert median(samples) < 1e-3


def test_cold_caches_of_several_sets_are_gone_round_and_warm_ones_stay_with_the_first() -> None:
    called: set[int] = set()
    calls = [lambda index=index: called.add(index) for index in range(3)]
    for cold, expected in ((True, {0, 1, 2}), (False, {0})):
        called.clear()
        found = measure(calls, "cpu", warmup_ms=0, repeat_ms=2, cold_l2=cold, l2_bytes=1024)
        assert called == expected
        assert found.l2 == ("cold" if cold else "warm")
        assert ("3 sets of buffers" in found.detail) == cold


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(core.KernelError, match="nothing to measure"):
        measure_together({}, "cpu")
    for nothing in ([], 3, [3]):
        with pytest.raises(core.KernelError, match="no function to call"):
            measure(nothing, "cpu")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"repeat_ms": -1}, "repeat_ms=-1, and it is a number of milliseconds"),
        ({"repeat_ms": math.nan}, "repeat_ms=nan"),
        ({"repeat_ms": "long"}, "repeat_ms='long'"),
        ({"warmup_ms": math.inf}, "warmup_ms=inf"),
        ({"confidence": 0}, "confidence=0, and it is a probability between 0 and 1"),
        ({"confidence": 95}, "confidence=95"),
        ({"least_samples": 0}, "least_samples=0"),
        ({"most_samples": 3}, "most_samples=3, and it is a number of samples, least_samples=7 or more"),
        ({"clock": "sun"}, "clock='sun'"),
    ],
)
def test_options_that_mean_nothing_are_refused_before_anything_is_called(options: dict[str, object], text: str) -> None:
    called: list[int] = []
    with pytest.raises(core.KernelError, match=text) as caught:
        measure(lambda: called.append(1), "cpu", **options)  # type: ignore[arg-type]
    assert (called, bool(caught.value.hint)) == ([], True)


def test_a_device_that_is_not_there_is_told() -> None:
    with pytest.raises(core.DeviceUnavailable, match="'gpu' is no device of torch's"):
        measure(lambda: None, "gpu")
    with pytest.raises(core.DeviceUnavailable, match="so cuda:99 cannot be measured"):
        measure(lambda: None, "cuda:99")


def test_a_failure_of_the_device_is_ours_and_keeps_its_cause() -> None:
    def fail() -> None:
        raise RuntimeError("an illegal memory access was encountered")

    with pytest.raises(core.LaunchError, match="illegal memory access") as caught:
        measure(fail, "cpu")
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_measurement_as_data_has_no_list_of_samples() -> None:
    data = Measurement(2.0, 1.0, 3.0, 0.95, (1.0, 2.0, 3.0), "wall", "warm").to_json()
    assert (data["samples"], data["spread"], data["median_s"]) == (3, 0.5, 2.0)


def test_the_cache_of_this_machine_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEHAL_CPU_CACHE_SIZE", "3MiB")
    assert cache_bytes("cpu") == 3 * 2**20
    monkeypatch.setenv("TILEHAL_CPU_CACHE_SIZE", "much")
    with pytest.raises(core.TileHALError, match="TILEHAL_CPU_CACHE_SIZE='much' is not a size"):
        cache_bytes("cpu")
    monkeypatch.setenv("TILEHAL_CPU_CACHE_SIZE", "")
    assert cache_bytes("cpu") >= 2**16
    monkeypatch.setattr("core.tuning.measure.caches._listed_cache_bytes", lambda: None)
    assert cache_bytes("cpu") == 64 * 2**20


@pytest.mark.gpu
@pytest.mark.alone
def test_a_device_agrees_with_itself_however_it_is_timed() -> None:
    one, other = (torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
    out = torch.empty_like(one)

    def product() -> None:
        torch.mm(one, other, out=out)

    graph = measure(product, "cuda")
    events = measure(product, "cuda", graph=False)
    cold = measure(product, "cuda", cold_l2=True)
    assert (graph.method, events.method, cold.method) == ("graph", "events", "flush")
    # A product of this size warms the chip: its clock gives way by a tenth between one measurement and the next.
    assert events.median_s == pytest.approx(graph.median_s, rel=0.15)
    assert graph.median_s * 0.85 < cold.median_s < graph.median_s * 1.4


@pytest.mark.gpu
@pytest.mark.alone
def test_a_short_call_is_not_measured_by_its_launch() -> None:
    tensor = torch.randn(1024, device="cuda")

    def add() -> None:
        tensor.add_(1.0)

    graph = measure(add, "cuda")
    events = measure(add, "cuda", graph=False)
    assert graph.median_s < 4e-6
    assert events.median_s < 6e-6
