"""Clocks for tests that hold a speed: processor time, which does not grow with what else runs on the machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fails when this thread needs more processor time for the block."""
    started = time.thread_time()
    yield
    spent = time.thread_time() - started
    assert spent < seconds, f"{spent:.3f} s of processor time, at most {seconds:g} s expected"


def median_s(call: Callable[[], Any], repeats: int) -> float:
    """The median processor time of a call by this thread, in seconds."""
    times = []
    for _ in range(repeats):
        started = time.thread_time()
        call()
        times.append(time.thread_time() - started)
    return sorted(times)[repeats // 2]
