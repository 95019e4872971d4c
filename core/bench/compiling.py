"""Compiling every contender of every case before anything is timed, in parallel processes."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from core.bench.case import Case
from core.bench.contenders import RAW
from core.bench.launch import PARTS
from core.bench.process import Lost, Process
from core.bench.triton_rows import CONTENDERS as TRITON_ROWS
from core.bench.triton_rows import OPERATORS as TRITON_OPERATORS
from core.errors import TileHALError

#: Seconds that one compilation may take.
COMPILE_TIMEOUT_S = 150.0
#: What takes longest is started first.
_SLOWEST = ("attention", "mla", "gemm")

#: What became of the compilation of a case's contender, by the case's and the contender's name.
Compiled = dict[tuple[str, str], dict[str, Any]]


def contenders_to_compile(
    cases: Sequence[Case], ours: Sequence[str], *, launch: bool = False
) -> list[tuple[Case, str]]:
    """What there is to compile, in the order it is begun: raw tilelang last, whose tiles are known by then.

    Args:
        launch: with the kernels whose launches are timed; their case has the operator `launch`.
    """

    def rank(case: Case) -> int:
        return _SLOWEST.index(case.operator) if case.operator in _SLOWEST else len(_SLOWEST)

    ordered = sorted(cases, key=rank)
    found = [(case, name) for case in ordered for name in ours if name != RAW]
    found += [(case, name) for case in ordered if case.operator in TRITON_OPERATORS for name in TRITON_ROWS]
    found += [(Case("launch", {}), part) for part in PARTS] if launch else []
    return found + [(case, RAW) for case in ordered if RAW in ours]


def compile_all(
    work: Sequence[tuple[Case, str]],
    target: str,
    jobs: int,
    until: float | None,
    start: Callable[[], Process],
) -> tuple[Compiled, list[Process]]:
    """Compiles into the caches.

    Args:
        work: cases with the contender's name.
        jobs: compilations at once.
        until: by the monotonic clock: what is not begun by then is left out, what is not done is ended.
        start: starts a process.

    Returns:
        What became of each, and the processes that are still there.

    Raises:
        BenchError: the processes do not start.
    """
    compiled: Compiled = {}
    left: list[Process] = []
    failures: list[TileHALError] = []
    waiting: queue.SimpleQueue[tuple[Case, str]] = queue.SimpleQueue()
    for one in work:
        waiting.put(one)

    def some() -> None:
        process: Process | None = None
        try:
            while not failures:
                try:
                    case, name = waiting.get_nowait()
                except queue.Empty:
                    break
                timeout_s = COMPILE_TIMEOUT_S if until is None else min(COMPILE_TIMEOUT_S, until - time.monotonic())
                if timeout_s <= 1:
                    compiled[case.name, name] = {"status": "not measured", "reason": "no time left to compile it"}
                    continue
                process = process or start()
                began = time.monotonic()
                try:
                    request = {"do": "compile", "case": case.to_json(), "contender": name, "target": target}
                    found = process.ask(request, timeout_s)
                except Lost as lost:
                    process = None
                    late = until is not None and time.monotonic() >= until
                    status = "not measured" if late else "failed"
                    found = {"status": status, "reason": "no time left to compile it" if late else f"compiling: {lost}"}
                compiled[case.name, name] = {**found, "compile_s": round(time.monotonic() - began, 2)}
        except TileHALError as error:
            failures.append(error)
        if process is not None:
            left.append(process)

    threads = [threading.Thread(target=some) for _ in range(max(1, min(jobs, len(work))))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return compiled, left
