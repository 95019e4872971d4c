"""Staying on a CPU that nobody else disturbs, as long as there is one.

CPUs of one machine are not alike while others work: hardware threads that share a core take turns, and a virtual
machine does not show which of its own share one with a neighbour. Where the scheduler leaves a thread then decides its
time, by a third and more, and for seconds. What is timed on the host alone is timed where least of that is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from statistics import median
from typing import Any

#: Turns of the loop that is timed (some 70 us), and how often it is timed before a CPU is judged.
_TURNS, _TIMES = 5_000, 3
#: A CPU is disturbed from this many times the least that the loop took on any: sharing a core costs more than half.
_DISTURBED = 1.15


class QuietCpu:
    """The CPU that the calling thread stays on; :meth:`settle` looks whether it still is a quiet one."""

    def __init__(self, allowed: set[int]) -> None:
        self._allowed = sorted(allowed)
        self._least = float("inf")
        self._slowest = 0.0
        self._loops: list[float] = []
        self._current: int | None = None
        self._moves = 0
        self._free = False

    def settle(self) -> None:
        """Stays where the thread is while that is quiet, else to the quietest: a quarter of a millisecond a CPU."""
        if self._free:
            return
        if self._loops and self._judge() <= _DISTURBED * self._least:
            return
        try:
            times = {number: self._on(number) for number in self._allowed}
            quiet = min(times, key=times.__getitem__)
            os.sched_setaffinity(0, {quiet})
        except OSError:  # a container may forbid it, or have lost a CPU
            self._free = True
            _allow(set(self._allowed))
            return
        self._slowest = max(self._slowest, *times.values())
        self._loops.append(times[quiet])
        self._moves += self._current not in (None, quiet)
        self._current = quiet

    def to_json(self) -> dict[str, Any] | None:
        """What a page says of it; None where threads cannot be moved, or there is one CPU.

        `cpus` to choose from, `loop_us` that the loop took where the thread was (the median) and `slowest_us` that it
        took anywhere, and how often the thread `moves` to another CPU.
        """
        if self._free or not self._loops or len(self._allowed) == 1:
            return None
        return {
            "cpus": len(self._allowed),
            "loop_us": round(median(self._loops), 1),
            "slowest_us": round(self._slowest, 1),
            "moves": self._moves,
        }

    def _on(self, number: int) -> float:
        os.sched_setaffinity(0, {number})
        took = median(_loop() for _ in range(_TIMES))
        self._least = min(self._least, took)
        return took

    def _judge(self) -> float:
        took = median(_loop() for _ in range(_TIMES))
        self._loops.append(took)
        self._least = min(self._least, took)
        return took


@contextmanager
def quiet_cpu() -> Iterator[QuietCpu | None]:
    """A choice of CPUs for the calling thread, which may run on any again after the block; None where none can be made.

    Threads that are started inside the block stay where this one is.
    """
    if not hasattr(os, "sched_setaffinity"):  # Linux has it
        yield None
        return
    allowed = os.sched_getaffinity(0)
    try:
        yield QuietCpu(allowed)
    finally:
        _allow(allowed)


def _allow(cpus: set[int]) -> None:
    # Of CPUs that are all gone from the container, the system has put the thread elsewhere.
    with suppress(OSError):
        os.sched_setaffinity(0, cpus)


def _loop() -> float:
    start = time.perf_counter_ns()
    for _ in range(_TURNS):
        pass
    return (time.perf_counter_ns() - start) / 1e3
