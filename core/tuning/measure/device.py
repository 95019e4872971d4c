"""Timing on an accelerator's own clock, without the host: what lies between two launches must not count.

Three ways, in order of preference; which one was used is in the measurement:

- `graph`: one sample is a CUDA graph of many calls between two events;
- `events`: one sample is many calls between two events, queued while the device is kept busy with something else, so
  that it finds them all there; for calls that cannot be captured, and devices without graphs;
- `flush`: one sample is one call between two events after the caches have been filled with something else.

Nothing is waited for between samples: the host runs ahead, and the device goes from one sample to the next.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from core.errors import LaunchError
from core.tuning.measure.host import Call, grouped
from core.tuning.measure.statistics import median

#: Calls in one graph, and in one sample of events: the launch queue of a CUDA stream holds about a thousand.
MOST_IN_GRAPH = 1000
MOST_IN_QUEUE = 256
#: Calls that are captured to find out how long one takes.
_PROBE_CALLS = 16
#: Calls between two looks at the clock while warming up.
_WARM_UP_CALLS = 32
_FLOOR_SAMPLES = 15


class Device(Protocol):
    """What the timing needs of a device; :class:`TorchDevice` is the real one."""

    def event(self) -> Any:
        """An event with `record()` and `elapsed_time(end)` in milliseconds."""

    def synchronize(self) -> None:
        """Waits until the device has done everything."""

    def capture(self, calls: Sequence[Call]) -> Callable[[], None] | None:
        """Records the calls into a graph and returns its replay; None where the device has no graphs.

        Raises whatever makes the calls impossible to capture.
        """

    def occupy(self, seconds: float) -> None:
        """Queues work that keeps the device busy for at least about so long."""

    def flush(self) -> None:
        """Queues work that fills the device's caches with something else, and leaves nothing to be written back."""


class TorchDevice:
    """A device that torch drives: CUDA, and what has the same interface (MetaX's torch, Ascend's `torch.npu`).

    Args:
        device: torch device with its index.
        flush_bytes: how much :meth:`flush` reads.
    """

    def __init__(self, device: Any, flush_bytes: int) -> None:
        import torch

        self._torch = torch
        self._device = torch.device(device)
        self._api: Any = getattr(torch, self._device.type)
        self._flush_bytes = flush_bytes
        self._buffer: Any = None
        self._busy: tuple[Callable[[int], None], float] | None = None

    def event(self) -> Any:
        return self._api.Event(enable_timing=True)

    def synchronize(self) -> None:
        self._api.synchronize(self._device)

    def capture(self, calls: Sequence[Call]) -> Callable[[], None] | None:
        kind = getattr(self._api, "CUDAGraph", None)
        if kind is None:
            return None
        graph = kind()
        stream = self._api.Stream(device=self._device)
        self.synchronize()
        with warnings.catch_warnings(record=True) as warned, self._api.stream(stream):
            warnings.simplefilter("always")
            calls[0]()  # what a library sets up at its first call on a stream must not be captured
            stream.synchronize()
            # Not torch.cuda.graph(...): it collects garbage and empties the allocator's cache every time.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                for call in calls:
                    call()
            finally:
                graph.capture_end()
        if any("empty" in str(warning.message) for warning in warned):
            raise LaunchError(
                "the captured graph is empty: the calls run on a stream of their own",
                hint="launch on torch's current stream, or measure with graph=False",
            )
        replay: Callable[[], None] = graph.replay
        return replay

    def occupy(self, seconds: float) -> None:
        if self._busy is None:
            self._busy = self._calibrate()
        work, seconds_per_unit = self._busy
        work(max(1, int(seconds / seconds_per_unit)))

    def flush(self) -> None:
        # Read, not written: dirty lines would have to be written back while the kernel is being timed.
        self._flush_buffer().amax()

    def clock_hz(self) -> float | None:
        """The clock that the device runs at now, by its own cycle counter; None where torch cannot read that."""
        if getattr(self._api, "_sleep", None) is None:
            return None
        return 1 / self._calibrate()[1]

    def _flush_buffer(self) -> Any:
        if self._buffer is None:
            torch = self._torch
            self._buffer = torch.zeros(self._flush_bytes // 4, dtype=torch.float32, device=self._device)
        return self._buffer

    def _calibrate(self) -> tuple[Callable[[int], None], float]:
        """Something to queue, and how long the device takes for one unit of it."""
        spin = getattr(self._api, "_sleep", None)
        units = 1_000_000 if spin is not None else 8

        def passes(count: int) -> None:
            for _ in range(count):
                self.flush()

        work: Callable[[int], None] = spin if spin is not None else passes
        work(units)
        start, end = self.event(), self.event()
        start.record()
        work(units)
        end.record()
        self.synchronize()
        return work, max(_seconds(start, end), 1e-6) / units


class DeviceContender:
    """One function, ready to be sampled on a device.

    Args:
        calls: the function, or the same work on several sets of buffers, taken in turn.
        warm_up_s: how long it is called before anything is timed; once at least.
        sample_s: how long a sample should take on the device.
        flush: fill the caches before each call.
        graph: capture calls into graphs where that is possible.
    """

    def __init__(
        self, device: Device, calls: Sequence[Call], *, warm_up_s: float, sample_s: float, flush: bool, graph: bool
    ) -> None:
        self._device = device
        self._calls = list(calls)
        self._pending: list[tuple[Any, Any]] = []
        self.floor_s = 0.0
        self._host_s = self._warm_up(warm_up_s)
        call_s = self._time_eagerly()
        self._replays: list[Callable[[], None]] = []
        why_not = ""
        if flush:
            self.method, most = "flush", 1
        else:
            call_s, why_not = self._probe_graph(call_s) if graph else (call_s, "graphs were not asked for")
            self.method, most = ("events", MOST_IN_QUEUE) if why_not else ("graph", MOST_IN_GRAPH)
        size = max(1, min(most, round(sample_s / call_s)))
        self._groups = [[call] for call in self._calls] if flush else grouped(self._calls, size)
        self.calls_per_sample = len(self._groups[0])
        # The sets that were used to warm up are the last to come round.
        self._next = -(-min(_WARM_UP_CALLS, len(self._calls)) // self.calls_per_sample)
        self.estimate_s = self._estimate(call_s, flush)
        if self.method == "graph":
            self._replays = [self._capture(group) for group in self._groups]
            self.detail = f"events around a graph of {self.calls_per_sample} calls"
        elif self.method == "events":
            self.detail = f"events around {self.calls_per_sample} queued calls ({why_not})"
        else:
            self.floor_s = self._floor()
            self.detail = f"events around one call after a flush; around none they read {self.floor_s * 1e6:.1f} us"

    def prepare(self) -> None:
        """Called once before the first sample: lets the host get ahead."""
        self._device.occupy(max(2e-3, 4 * self._host_s * (self.calls_per_sample + 1)))

    def take(self) -> None:
        """Queues one sample."""
        index = self._next % len(self._groups)
        self._next += 1
        start, end = self._device.event(), self._device.event()
        if self.method == "flush":
            self._device.occupy(2 * self._host_s + 20e-6)
            self._device.flush()
            start.record()
            self._groups[index][0]()
        else:
            if self.method == "events":
                self._device.occupy(1.5 * self._host_s * (self.calls_per_sample + 1) + 50e-6)
            # Not timed: it leaves the caches as the call before in the row would, whoever was sampled in between.
            self._groups[index - 1][-1]()
            start.record()
            if self._replays:
                self._replays[index]()
            else:
                for call in self._groups[index]:
                    call()
        end.record()
        self._pending.append((start, end))

    def results(self) -> list[float]:
        """Seconds per call of every sample, in the order they were taken. Waits for the device."""
        self._device.synchronize()
        return [_seconds(start, end) / self.calls_per_sample for start, end in self._pending]

    def _warm_up(self, seconds: float) -> float:
        """Calls until the time is up; the host's time for one call that is only queued, as the median of a few."""
        self._calls[0]()  # whatever is loaded at the first call
        self._device.synchronize()
        started = time.perf_counter()
        times: list[float] = []
        while True:
            for call in self._calls[:_WARM_UP_CALLS]:
                before = time.perf_counter()
                call()
                times.append(time.perf_counter() - before)
            self._device.synchronize()
            if time.perf_counter() - started >= seconds:
                return median(times[-256:])

    def _time_eagerly(self) -> float:
        """Device seconds of a call as it comes, launch gaps included: enough to choose what to do next."""
        start, end = self._device.event(), self._device.event()
        start.record()
        for _ in range(3):
            self._calls[0]()
        end.record()
        self._device.synchronize()
        return max(_seconds(start, end) / 3, 1e-7)

    def _probe_graph(self, call_s: float) -> tuple[float, str]:
        """Device seconds of a call in a graph, or the eager time and why it cannot be captured."""
        count = _PROBE_CALLS if call_s < 1e-3 else 1
        group = (self._calls * (count // len(self._calls) + 1))[:count]
        try:
            replay = self._device.capture(group)
        except Exception as error:  # a call may do anything that a capture forbids
            self._device.synchronize()
            reason = str(error).strip() or type(error).__name__
            return call_s, f"not capturable: {reason.splitlines()[0]}"
        if replay is None:
            return call_s, "no graphs on this device"
        self._device.occupy(1e-3)
        replay()
        start, end = self._device.event(), self._device.event()
        start.record()
        replay()
        end.record()
        self._device.synchronize()
        return max(_seconds(start, end) / count, 1e-7), ""

    def _capture(self, group: Sequence[Call]) -> Callable[[], None]:
        replay = self._device.capture(group)
        assert replay is not None  # the probe was captured
        replay()  # the first launch of a graph uploads it
        return replay

    def _estimate(self, call_s: float, flush: bool) -> float:
        """Device seconds of one sample with everything around it."""
        if not flush:
            return call_s * (self.calls_per_sample + 1)
        start, end = self._device.event(), self._device.event()
        self._device.flush()
        start.record()
        self._device.occupy(2 * self._host_s + 20e-6)
        self._device.flush()
        end.record()
        self._device.synchronize()
        return call_s + _seconds(start, end)

    def _floor(self) -> float:
        """What two events with nothing between them read."""
        pairs = []
        for _ in range(_FLOOR_SAMPLES):
            start, end = self._device.event(), self._device.event()
            self._device.occupy(20e-6)
            self._device.flush()
            start.record()
            end.record()
            pairs.append((start, end))
        self._device.synchronize()
        return median([_seconds(start, end) for start, end in pairs])


def _seconds(start: Any, end: Any) -> float:
    """Between two events that have happened."""
    return float(start.elapsed_time(end)) / 1e3
