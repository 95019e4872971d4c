"""The quietest of the CPUs that this process may use, and staying on it.

CPUs of one machine are not alike while others work: hardware threads that share a core take turns, and a virtual
machine does not show which of its own share one with a neighbour. Where the scheduler leaves a thread then decides its
time, for as long as it stays there. What is timed on the host alone is timed where least of that is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

#: Turns of the loop that is timed on each CPU (about half a millisecond), and how often it is timed there.
_TURNS, _TIMES = 20_000, 9


@dataclass(frozen=True, slots=True)
class QuietCpu:
    """The CPU that was chosen.

    Attributes:
        number: of the CPU, as the system counts.
        cpus: how many there were to choose from.
        loop_us, slowest_us: a loop of Python there, and on the slowest of them; medians.
    """

    number: int
    cpus: int
    loop_us: float
    slowest_us: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@contextmanager
def on_quietest_cpu() -> Iterator[QuietCpu | None]:
    """The calling thread stays on the quietest CPU inside the block, and so do threads that it starts there.

    None where a thread cannot be told where to stay.
    """
    if not hasattr(os, "sched_setaffinity"):  # Linux has it
        yield None
        return
    allowed = os.sched_getaffinity(0)
    try:
        yield _move(allowed)
    finally:
        os.sched_setaffinity(0, allowed)


def _move(allowed: set[int]) -> QuietCpu | None:
    times: dict[int, float] = {}
    try:
        for number in sorted(allowed):
            os.sched_setaffinity(0, {number})
            times[number] = median(_loop() for _ in range(_TIMES))
        quiet = min(times, key=times.__getitem__)
        os.sched_setaffinity(0, {quiet})
    except OSError:  # a container may forbid it
        return None
    return QuietCpu(quiet, len(times), round(times[quiet], 1), round(max(times.values()), 1))


def _loop() -> float:
    start = time.perf_counter_ns()
    for _ in range(_TURNS):
        pass
    return (time.perf_counter_ns() - start) / 1e3
