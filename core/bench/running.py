"""A whole benchmark: everything is compiled first, in parallel; then each operator is measured in a process of its own.

Nothing is compiled while anything is timed. A contender that crashes its process or hangs is noted in its row, and the
row is measured again without it, in a new process.
"""

from __future__ import annotations

import math
import os
import queue
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.bench.bounds import MATRIX, bounded, raise_ceilings
from core.bench.case import Case, suite
from core.bench.compiling import Compiled, compile_all, contenders_to_compile
from core.bench.contenders import RAW, RULE, TUNED
from core.bench.process import Lost, Process
from core.bench.triton_rows import CONTENDERS as TRITON_ROWS
from core.bench.watching import Watch
from core.bench.workloads import workload
from core.errors import BenchError

#: Changes when the meaning of the document does.
FORMAT = 1
#: Seconds that one row may take with everything it needs.
ROW_TIMEOUT_S = 75.0
#: What a row costs beside sampling, about, and what an operator's process does before its first row; for `budget_s`.
_ROW_OVERHEAD_S, _LEAST_REPEAT_MS = 1.0, 10.0
#: Seconds past the budget after which what is being measured is given up.
_GRACE_S = 2.0
#: Share of the time that compiling may take when there is a limit.
_COMPILE_SHARE = 0.55

#: How the host's time per launch is sampled: on a device (False), and on the CPU (True), where a call lasts as long as
#: the kernel.
_LAUNCH_SAMPLING: dict[bool, dict[str, Any]] = {False: {"calls": 50, "most_s": 15.0}, True: {"calls": 2, "most_s": 2.0}}

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked of a run.

    Attributes:
        target: what is compiled for; its device must be here.
        operators: of `core.bench.case.OPERATORS`; all when empty.
        suite: a key of `core.bench.case.SUITES`.
        tuned: measure the tiles of the results store too.
        raw: measure the same kernels through tilelang itself.
        repeat_ms: how long each contender of a row is sampled, with cold and with warm caches each.
        budget_s: when the run should be over; rows that do not fit are not measured, and say so. What is under way 2 s
            after that is given up, but for what no run can do without: processes that start, and the ceilings.
        jobs: compilations at once.
        seed: of the inputs; another one each run when None.
    """

    target: str
    operators: Sequence[str] = ()
    suite: str = "standard"
    tuned: bool = False
    raw: bool = True
    repeat_ms: float = 60.0
    budget_s: float | None = None
    jobs: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    seed: int | None = None

    @property
    def ours(self) -> tuple[str, ...]:
        """The contenders of ours that take part."""
        return (RULE, *((TUNED,) if self.tuned else ()), *((RAW,) if self.raw else ()))


def run(options: Options, command: str = "", say: Say = lambda text: None) -> dict[str, Any]:
    """Runs a benchmark and returns its document (docs/performance.md says what is in it).

    Args:
        command: what the user typed, for the document.
        say: told what is going on, a line at a time.

    Raises:
        TargetNotFound, DeviceUnavailable: there is no such target, or no device of it.
        BenchError: there is no such suite or operator, or the processes that measure do not start.
    """
    from core.target import resolve

    cases = suite(options.suite, options.operators)
    resolve(options.target).require_torch_device()
    return _Run(options, cases, say).document(command)


class _Run:
    def __init__(self, options: Options, cases: list[Case], say: Say) -> None:
        self.options = options
        self.cases = cases
        self.say = say
        self.started = time.monotonic()
        self.seed = options.seed if options.seed is not None else secrets.randbits(31)
        self.processes: queue.SimpleQueue[Process] = queue.SimpleQueue()
        self.every: list[Process] = []
        self.compiled: Compiled = {}
        self.seconds: dict[str, float] = {}

    def document(self, command: str) -> dict[str, Any]:
        from core.bench.goals import judge

        try:
            found = self._measured(command)
        finally:
            for process in self.every:
                process.close()
        found["seconds"] = {**self.seconds, "total": round(time.monotonic() - self.started, 1)}
        found["goals"] = [goal.to_json() for goal in judge(found)]
        return found

    def _measured(self, command: str) -> dict[str, Any]:
        o = self.options
        self._timed("compiling", self._compile_all)
        process = self._spare()
        facts = self._ask(process, {"do": "describe", "target": o.target}, 120.0)
        on_cpu = facts["device_type"] == "cpu"
        watch = Watch(facts.get("uuid"))
        try:
            dtypes = sorted({case.dtype for case in self.cases if case.operator in MATRIX})
            request = {"do": "ceilings", "target": o.target, "dtypes": dtypes or ["float16"], "small": on_cpu}
            ceilings = self._timed("ceilings", lambda: self._ask(process, request, 60.0))
            launch = self._launch(process, on_cpu) if self._launches else None
            process.close()  # gives back what it holds of the device
            rows = self._timed("measuring", lambda: self._measure_all(watch))
            overall = watch.summary(self.started)
        finally:
            watch.close()
        raise_ceilings(ceilings, rows)
        return {
            "format": FORMAT,
            "command": command,
            "environment": facts,
            "settings": {
                "target": o.target,
                "suite": o.suite,
                "operators": list(o.operators),
                "repeat_ms": o.repeat_ms,
                "budget_s": o.budget_s,
                "seed": self.seed,
            },
            "device": overall if overall is not None else {"not_watched": watch.why_not},
            "ceilings": ceilings,
            "rows": [bounded(row, ceilings) for row in rows],
            "launch": launch,
        }

    @property
    def _launches(self) -> bool:
        return not self.options.operators or "launch" in self.options.operators

    def _compile_all(self) -> None:
        work = contenders_to_compile(self.cases, self.options.ours, launch=self._launches)
        self.say(f"compiling {len(work)} kernels, {self.options.jobs} at a time")
        limit = self.options.budget_s
        until = None if limit is None else self.started + limit * _COMPILE_SHARE
        self.compiled, left = compile_all(work, self.options.target, self.options.jobs, until, self._process)
        # Imported already: one for each operator, and one for what comes before them.
        wanted = 1 + len({case.operator for case in self.cases})
        for process in left[:wanted]:
            self.processes.put(process)
        for process in left[wanted:]:
            process.close()

    # ------------------------------------------------------------------------------------------------- measuring

    def _measure_all(self, watch: Watch) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        operator, process = "", None
        for place, case in enumerate(self.cases):
            if case.operator != operator and process is not None:
                process.close()
                process = None
            operator = case.operator
            repeat_ms = self._repeat_ms(len(self.cases) - place)
            row = self._row(case)
            if repeat_ms is None:
                row |= {"status": "not measured", "reason": "no time left", "contenders": {}, "ratios": {}}
            else:
                process = process or self._spare()
                since = time.monotonic()
                found, process = self._measure(case, process, repeat_ms)
                row |= found
                row["device"] = watch.summary(since)
                row["repeat_ms"] = repeat_ms
            rows.append(row)
            self.say(f"{place + 1}/{len(self.cases)} {case.name}: {row['status']}")
        return rows

    def _measure(self, case: Case, process: Process, repeat_ms: float) -> tuple[dict[str, Any], Process | None]:
        """The row, measured again without whoever ended the process; and the process that is left."""
        skip = {
            name: found["reason"]
            for (label, name), found in self.compiled.items()
            if label == case.name and found["status"] != "ok" and name not in TRITON_ROWS
        }
        settings = {
            "target": self.options.target,
            "ours": self.options.ours,
            "seed": self.seed,
            "repeat_ms": repeat_ms,
            "within_s": None if self._left_s == math.inf else max(0.0, self._left_s),
        }
        current: Process | None = process
        while True:
            current = current or self._process()
            request = {"do": "measure", "case": case.to_json(), "settings": settings, "skip": skip}
            try:
                found = current.ask(request, ROW_TIMEOUT_S, self._ends)
                culprit, why = found.get("spoilt_by", ""), found.get("reason", "")
            except Lost as lost:
                found, culprit, why = {"restart": True}, lost.doing, str(lost)
                if time.monotonic() >= self._ends:
                    found |= {"status": "not measured", "reason": "no time left"}
            if found.get("status") == "not measured":  # nobody's fault
                found |= {"contenders": {}, "ratios": {}}
                culprit = ""
            if culprit in (*self.options.ours, *workload(case).other_names) and culprit not in skip:
                current.close()
                current, skip[culprit] = None, why
                continue
            if "contenders" not in found:
                reason = f"{culprit or 'its inputs'}: {why}"
                found |= {"status": "failed", "reason": reason, "contenders": _left_out(skip), "ratios": {}}
            if found.pop("restart", False):
                current.close()
                current = None
            for name, entry in found["contenders"].items():
                compiled = self.compiled.get((case.name, name), {})
                # A compilation that was left out is no fault of the kernel's.
                if name in skip and compiled.get("status") == "not measured":
                    entry["status"] = "not measured"
                entry["compile_s"] = compiled.get("compile_s")
            return found, current

    def _row(self, case: Case) -> dict[str, Any]:
        work = workload(case)
        return {
            **case.to_json(),
            "label": case.label,
            "name": case.name,
            "flops": work.flops,
            "bytes_moved": work.bytes_moved,
            "status": "ok",
            "reason": "",
        }

    @property
    def _left_s(self) -> float:
        """Seconds until the run should be over."""
        limit = self.options.budget_s
        return math.inf if limit is None else self.started + limit - time.monotonic()

    @property
    def _ends(self) -> float:
        """When what is being measured is given up, by the monotonic clock."""
        limit = self.options.budget_s
        return math.inf if limit is None else self.started + limit + _GRACE_S

    def _repeat_ms(self, rows_left: int) -> float | None:
        """How long to sample each contender of the next row; None when the time is up."""
        if self.options.budget_s is None:
            return self.options.repeat_ms
        left = self._left_s
        if left < 2 * _ROW_OVERHEAD_S:
            return None
        contenders = len(self.options.ours) + 2
        share_ms = (left / rows_left - _ROW_OVERHEAD_S) * 1e3 / (2 * contenders)
        return max(_LEAST_REPEAT_MS, min(self.options.repeat_ms, share_ms))

    def _launch(self, process: Process, on_cpu: bool) -> dict[str, Any]:
        request = {"do": "launch", "target": self.options.target, "rounds": 300, **_LAUNCH_SAMPLING[on_cpu]}
        try:
            found: dict[str, Any] = self._timed("launching", lambda: process.ask(request, 180.0, self._ends))
        except Lost as lost:
            late = time.monotonic() >= self._ends
            found = {"status": "not measured" if late else "failed", "reason": "no time left" if late else str(lost)}
        self.say(f"host time per launch: {found['status']}")
        return found

    # ------------------------------------------------------------------------------------------------- processes

    def _process(self) -> Process:
        process = Process()
        self.every.append(process)
        return process

    def _spare(self) -> Process:
        """A process that has compiled, or a new one."""
        try:
            return self.processes.get_nowait()
        except queue.Empty:
            return self._process()

    def _ask(self, process: Process, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """An answer without which there is no benchmark.

        Raises:
            BenchError: it cannot be had.
        """
        try:
            found = process.ask(request, timeout_s)
        except Lost as lost:
            found = {"status": "failed", "reason": str(lost)}
        if found["status"] != "ok":
            raise BenchError(
                f"the benchmark's {request['do']} step failed: {found['reason']}", hint="`tilehal doctor` looks around"
            )
        return found

    def _timed(self, what: str, work: Callable[[], Any]) -> Any:
        began = time.monotonic()
        found = work()
        self.seconds[what] = round(time.monotonic() - began, 1)
        return found


def _left_out(skip: dict[str, str]) -> dict[str, Any]:
    return {name: {"status": "failed", "reason": reason} for name, reason in skip.items()}
