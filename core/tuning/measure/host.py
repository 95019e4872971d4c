"""Timing on the host's clocks: the CPU backend's kernels, simulators, whatever has finished when it returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

Call = Callable[[], Any]
#: `wall` is what a user waits; `processor` adds up the time of all threads of the process, which other processes on the
#: machine change far less.
Clock = Literal["wall", "processor"]

_CLOCKS: dict[Clock, Callable[[], int]] = {"wall": time.perf_counter_ns, "processor": time.process_time_ns}


class HostContender:
    """One function, ready to be sampled on a host clock.

    Args:
        calls: the function, or the same work on several sets of buffers, taken in turn.
        warm_up_s: how long it is called before anything is timed; once at least.
        sample_s: how long a sample should take; so many calls are timed together.
        flush: called before each sample, outside the clock; then a sample is one call.
    """

    def __init__(
        self, calls: Sequence[Call], *, clock: Clock, warm_up_s: float, sample_s: float, flush: Call | None
    ) -> None:
        self.method: str = clock
        self.floor_s = 0.0
        self._now = _CLOCKS[clock]
        self._flush = flush
        self._samples: list[float] = []
        times = self._warm_up(calls, warm_up_s)
        call_s = min(times[1:] or times)
        self.calls_per_sample = 1 if flush is not None else max(1, round(sample_s / call_s))
        self._groups = grouped(calls, self.calls_per_sample)
        self.calls_per_sample = len(self._groups[0])
        # On with the rotation where the warm-up ended: the sets before are still in the caches.
        self._next = -(-len(times) // self.calls_per_sample)
        self.estimate_s = call_s * self.calls_per_sample + (self._warm_up([flush], 0.0)[0] if flush else 0.0)
        self.detail = f"{clock} clock around {self.calls_per_sample} call{'s' * (self.calls_per_sample > 1)}"

    def _warm_up(self, calls: Sequence[Call], seconds: float) -> list[float]:
        """Calls in turn until the time is up, once at least; the wall time of each."""
        times: list[float] = []
        started = time.perf_counter()
        while True:
            before = time.perf_counter()
            calls[len(times) % len(calls)]()
            now = time.perf_counter()
            times.append(max(now - before, 1e-9))
            if now - started >= seconds:
                return times

    def prepare(self) -> None:
        """Called once before the first sample."""

    def take(self) -> None:
        """Takes one sample."""
        group = self._groups[self._next % len(self._groups)]
        self._next += 1
        if self._flush is not None:
            self._flush()
        now = self._now
        started = now()
        for call in group:
            call()
        self._samples.append((now() - started) / len(group) / 1e9)

    def results(self) -> list[float]:
        """Seconds per call of every sample, in the order they were taken."""
        return self._samples


def grouped(calls: Sequence[Call], size: int) -> list[list[Call]]:
    """Groups of about `size` calls that together are whole turns of a rotation, every group of the same size.

    So no call comes round early. Where a rotation is not much longer than a group, a group is one turn or several;
    where it is, groups may be smaller than asked, and up to a tenth of the rotation is left out.
    """
    sets = len(calls)
    if size * 4 >= sets:
        return [list(calls) * max(1, round(size / sets))]
    size = next(fitting for fitting in range(size, 0, -1) if sets % fitting <= sets / 10)
    return [list(calls[start : start + size]) for start in range(0, sets - sets % size, size)]
