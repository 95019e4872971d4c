"""Recording: passes over the cases, each pass in a new process, builds in turn, resumable.

A time differs more from one process to the next (addresses, threads, clocks) than from one sample to the next. So what
a snapshot holds is one median per pass, and what a comparison counts is how passes differ.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from core.errors import BaselineError
from core.tuning.baseline import environment
from core.tuning.baseline.journal import Journal, open_journal
from core.tuning.baseline.measuring import Settings
from core.tuning.baseline.process import Build, Worker
from core.tuning.baseline.snapshot import STATES, Row, Snapshot, Timing
from core.tuning.baseline.suite import Case, resolved
from core.tuning.json_process import ProcessLost


@dataclass(frozen=True, slots=True)
class Step:
    """What has just been done, for whoever shows progress.

    Attributes:
        done, total: measurements, over all passes and builds.
        build, case: what was measured.
        pass_index: which pass, from 0.
        found: what came out, as the worker said it.
        resumed: it was found in the file of an earlier, interrupted run.
    """

    done: int
    total: int
    build: str
    case: Case
    pass_index: int
    found: Mapping[str, Any]
    resumed: bool = False


class Asked(Protocol):
    """What recording needs of a worker; :class:`core.tuning.baseline.process.Worker` is the real one."""

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The answer to a request. Raises ProcessLost when there is none."""

    def stop(self) -> None:
        """Ends it."""


def record(
    cases: Sequence[Case],
    settings: Settings | None = None,
    *,
    partial: Path | None = None,
    progress: Callable[[Step], None] | None = None,
) -> Snapshot:
    """Measures the cases with this build.

    Args:
        cases: what to measure; a target without a chip means the one that is here.
        partial: a file that keeps what has been measured, so that a run that was interrupted goes on where it stopped;
            it is removed at the end. A file of another suite, other settings or another machine is started over.
        progress: called after every measurement.

    Raises:
        BaselineError: there is nothing to measure, or the worker does not start.
    """
    return record_builds([Build()], cases, settings, partial=partial, progress=progress)[0]


def record_builds(
    builds: Sequence[Build],
    cases: Sequence[Case],
    settings: Settings | None = None,
    *,
    partial: Path | None = None,
    progress: Callable[[Step], None] | None = None,
    start: Callable[[Build], Asked] = Worker,
) -> list[Snapshot]:
    """Measures the cases with several builds, case by case in turn, so that the k-th passes of two builds are a pair.

    Arguments and errors as for :func:`record`, one snapshot for each build.
    """
    wanted = resolved(cases)
    if not wanted:
        raise BaselineError("there is nothing to measure", hint="name a kernel as FILE:FUNCTION, or give a suite")
    run = _Run(list(builds), wanted, settings or Settings(), progress or (lambda step: None), start)
    cache = Path(tempfile.mkdtemp(prefix="tilehal-baseline-"))
    try:
        return run.run(partial, cache)
    finally:
        shutil.rmtree(cache, ignore_errors=True)


class _Run:
    def __init__(
        self,
        builds: list[Build],
        cases: list[Case],
        settings: Settings,
        progress: Callable[[Step], None],
        start: Callable[[Build], Asked],
    ) -> None:
        self.builds, self.cases, self.settings = builds, cases, settings
        self.progress, self.start = progress, start
        self.targets = sorted({case.target for case in cases})
        self.total = settings.passes * len(builds) * len(cases)
        self.done = 0
        #: What each build found in each pass, by case.
        self.found: list[list[dict[str, dict[str, Any]]]] = [[{} for _ in range(settings.passes)] for _ in builds]
        self.yardsticks: list[list[dict[str, dict[str, Any]]]] = [[{} for _ in range(settings.passes)] for _ in builds]
        self.workers: list[Asked | None] = [None] * len(builds)

    def run(self, partial: Path | None, cache: Path) -> list[Snapshot]:
        # A cache of its own for every build: what is compiled in the first pass is compiled from nothing, and found
        # there in the others.
        self.builds = [
            replace(build, environment={"TILEHAL_CACHE_DIR": str(cache / str(index)), **build.environment})
            for index, build in enumerate(self.builds)
        ]
        try:
            described = [self._describe(index) for index in range(len(self.builds))]
            with open_journal(partial, self._identity(described)) as journal:
                for entry in journal.entries:
                    self._take(entry)
                for index in range(self.settings.passes):
                    self._pass(index, journal)
        finally:
            self._stop()
        if partial is not None:
            partial.unlink(missing_ok=True)
        return [self._snapshot(index, facts) for index, facts in enumerate(described)]

    def _identity(self, described: Sequence[Mapping[str, Any]]) -> str:
        """What a run must share with an interrupted one to go on with its figures."""
        content = {
            "cases": [case.to_json() for case in self.cases],
            "settings": self.settings.to_json(),
            "builds": [str(build.path) for build in self.builds],
            "environments": [environment.comparable(facts) for facts in described],
            "revisions": [facts["host"].get("revision") for facts in described],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _describe(self, build: int) -> dict[str, Any]:
        found = self._ask(build, {"do": "describe", "targets": self.targets})
        if "host" not in found:
            raise BaselineError(
                f"the build {self.builds[build].name} cannot say what it runs on: {found.get('reason')}",
                hint="`tilehal doctor` looks for what is missing",
            )
        return found

    def _pass(self, index: int, journal: Journal) -> None:
        if index:
            self._stop()  # every pass in new processes
        forwards = index % 2 == 0
        builds = range(len(self.builds)) if forwards else range(len(self.builds) - 1, -1, -1)
        for target in self.targets:
            for build in builds:
                if target not in self.yardsticks[build][index]:
                    request = {
                        "do": "yardsticks",
                        "target": target,
                        "pass": index,
                        "settings": self.settings.to_json(),
                    }
                    entry = {"build": build, "pass": index, "target": target, "found": self._ask(build, request)}
                    self._take(entry, journal)
        for case in self.cases if forwards else reversed(self.cases):
            for build in builds:
                if case.key not in self.found[build][index]:
                    entry = {
                        "build": build,
                        "pass": index,
                        "case": case.key,
                        "found": self._measure(build, index, case),
                    }
                    self._take(entry, journal)

    def _measure(self, build: int, index: int, case: Case) -> dict[str, Any]:
        earlier = [found[case.key] for found in self.found[build] if case.key in found]
        if any(found["status"] != "ok" for found in earlier):
            return earlier[0]  # it will not be better for trying again, and a hang takes its time
        request = {
            "do": "case",
            "case": case.to_json(),
            "pass": index,
            "check": not earlier,
            "settings": self.settings.to_json(),
        }
        return self._ask(build, request)

    def _ask(self, build: int, request: dict[str, Any]) -> dict[str, Any]:
        worker = self.workers[build]
        if worker is None:
            worker = self.workers[build] = self.start(self.builds[build])
        try:
            return worker.ask(request, self.settings.timeout_s)
        except ProcessLost as lost:
            worker.stop()
            self.workers[build] = None
            return {"status": "failed", "reason": str(lost)}

    def _take(self, entry: Mapping[str, Any], journal: Journal | None = None) -> None:
        """Notes an answer, in the journal too unless it comes from there."""
        build, index, found = entry["build"], entry["pass"], entry["found"]
        if journal is not None:
            journal.add(entry)
        if "target" in entry:
            self.yardsticks[build][index][entry["target"]] = found
            return
        self.found[build][index][entry["case"]] = found
        self.done += 1
        case = next(case for case in self.cases if case.key == entry["case"])
        self.progress(Step(self.done, self.total, self.builds[build].name, case, index, found, journal is None))

    def _stop(self) -> None:
        for worker in self.workers:
            if worker is not None:
                worker.stop()
        self.workers = [None] * len(self.builds)

    @staticmethod
    def _with_clocks(facts: Mapping[str, Any], passes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A target's facts with the device's clock in each pass, where it could be read."""
        clocks = [found["clock_mhz"] for found in passes if "clock_mhz" in found]
        return {**facts, "clocks": {**facts.get("clocks", {}), **({"passes_mhz": clocks} if clocks else {})}}

    def _snapshot(self, build: int, described: Mapping[str, Any]) -> Snapshot:
        return Snapshot(
            environment={
                "host": described["host"],
                "settings": self.settings.to_json(),
                "targets": {
                    target: self._with_clocks(facts, [found.get(target, {}) for found in self.yardsticks[build]])
                    for target, facts in described["targets"].items()
                },
            },
            rows=tuple(
                make_row(case, [found[case.key] for found in self.found[build]])
                for case in sorted(self.cases, key=lambda case: case.key)
            ),
            yardsticks={
                target: yardsticks
                for target in self.targets
                if (yardsticks := _timings([found[target] for found in self.yardsticks[build]]))
            },
        )


def make_row(case: Case, passes: Sequence[Mapping[str, Any]]) -> Row:
    """A row from what each pass found."""
    bad = next((found for found in passes if found["status"] != "ok"), None)
    first = bad or passes[0]
    compiled = [found["compile_s"] for found in passes if found.get("compile_s") is not None]
    errors = [found["error"] for found in passes if found.get("error") is not None]
    timings: Mapping[str, Timing] = {} if bad else _timings(passes)
    return Row(
        case=case,
        status=first["status"],
        reason=first.get("reason", ""),
        cold=timings.get("cold"),
        warm=timings.get("warm"),
        flops=first.get("flops"),
        bytes_moved=first.get("bytes_moved"),
        error=max(errors, default=None),
        compile_s=compiled[0] if compiled else None,
        memory=first.get("memory", {}),
        tiles=first.get("tiles", {}),
    )


def _timings(passes: Sequence[Mapping[str, Any]]) -> dict[str, Timing]:
    """By name, what every pass timed; a name that a pass lacks is left out."""
    names = [name for name in (*STATES, "copy", "product") if all(name in found for found in passes)]
    return {name: Timing.of([found[name]["median_s"] for found in passes], passes[0][name]["method"]) for name in names}
