"""Recording: passes in new processes, builds in turn, interruptions, crashes, and a real kernel on this machine."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import core
from core.tuning.baseline import Build, Case, Criteria, Settings, compare, record_builds
from core.tuning.baseline.measuring import measure_case, relative_error
from core.tuning.baseline.process import Worker
from core.tuning.baseline.recording import Step
from core.tuning.baseline.worker import answer
from core.tuning.json_process import ProcessLost

HERE = {"host": {"cpu": "EPYC", "revision": "abc"}}
CASES = [Case("kernels.py:one", "cpu"), Case("kernels.py:two", "cpu")]


class FakeWorker:
    """Answers at once and writes down what it was asked; every start is a new number."""

    started = 0

    def __init__(self, build: Build, log: list[str], found: Callable[[str, int], dict[str, Any]]) -> None:
        FakeWorker.started += 1
        self.name, self.log, self.found = build.name, log, found
        self.number = FakeWorker.started
        self.cache = build.environment["TILEHAL_CACHE_DIR"]

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        if request["do"] == "describe":
            return {**HERE, "targets": {target: {"device": "EPYC"} for target in request["targets"]}}
        if request["do"] == "yardsticks":
            return {"copy": {"median_s": 1e-3, "method": "wall"}, "clock_mhz": 1900 + request["pass"]}
        what = request["case"]["kernel"].partition(":")[2]
        self.log.append(f"{self.name} {what} pass {request['pass']}" + (" checked" if request["check"] else ""))
        return self.found(what, request["pass"])

    def stop(self) -> None:
        self.log.append(f"{self.name} stopped")


def fine(what: str, index: int) -> dict[str, Any]:
    time = {"median_s": (index + 1) * 1e-5, "method": "wall"}
    return {"status": "ok", "cold": time, "warm": time, "compile_s": 2.0 if index == 0 else None, "error": 1e-4}


def recorded(
    log: list[str],
    found: Callable[[str, int], dict[str, Any]] = fine,
    builds: tuple[str, ...] = ("new",),
    passes: int = 2,
    **options: Any,
) -> Any:
    return record_builds(
        [Build(name) for name in builds],
        CASES,
        Settings(passes=passes),
        start=lambda build: FakeWorker(build, log, found),
        **options,
    )


def test_every_pass_is_a_new_process_and_goes_the_other_way() -> None:
    log: list[str] = []
    (snapshot,) = recorded(log)
    assert log == [
        "new one pass 0 checked",
        "new two pass 0 checked",
        "new stopped",
        "new two pass 1",
        "new one pass 1",
        "new stopped",
    ]
    row = snapshot.rows[0]
    assert row.case.target == core.chip("cpu").target
    assert row.cold is not None
    assert row.cold.passes_s == (1e-5, 2e-5)
    assert (row.compile_s, row.error, row.status) == (2.0, 1e-4, "ok")
    assert snapshot.yardsticks[row.case.target]["copy"].passes_s == (1e-3, 1e-3)
    assert snapshot.environment["settings"]["passes"] == 2
    assert snapshot.environment["targets"][row.case.target]["clocks"] == {"passes_mhz": [1900, 1901]}


def test_builds_take_turns_case_by_case_each_with_a_cache_of_its_own() -> None:
    log: list[str] = []
    old, new = recorded(log, builds=("old", "new"))
    asked = [line for line in log if "pass" in line]
    assert [line.split()[:2] for line in asked] == [
        ["old", "one"],
        ["new", "one"],
        ["old", "two"],
        ["new", "two"],
        ["new", "two"],
        ["old", "two"],
        ["new", "one"],
        ["old", "one"],
    ]
    assert old.rows == new.rows


def test_what_failed_once_is_not_tried_again() -> None:
    log: list[str] = []

    def one_fails(what: str, index: int) -> dict[str, Any]:
        return {"status": "failed", "reason": "BuildFailed: no"} if what == "one" else fine(what, index)

    (snapshot,) = recorded(log, one_fails, passes=3)
    assert sum("one pass" in line for line in log) == 1
    assert [(row.status, row.reason) for row in snapshot.rows] == [("failed", "BuildFailed: no"), ("ok", "")]
    assert snapshot.rows[0].cold is None


def test_a_lost_worker_costs_its_case_and_a_new_one_goes_on() -> None:
    log: list[str] = []

    def one_is_deadly(what: str, index: int) -> dict[str, Any]:
        if what == "one":
            raise ProcessLost("its process ended with SIGSEGV")
        return fine(what, index)

    before = FakeWorker.started
    (snapshot,) = recorded(log, one_is_deadly)
    assert [(row.status, row.reason) for row in snapshot.rows] == [
        ("failed", "its process ended with SIGSEGV"),
        ("ok", ""),
    ]
    assert FakeWorker.started - before == 3


def test_an_interrupted_recording_goes_on_where_it_stopped(tmp_path: Path) -> None:
    partial = tmp_path / ".baseline.partial"
    steps: list[Step] = []

    def interrupted(what: str, index: int) -> dict[str, Any]:
        if (what, index) == ("two", 1):
            raise KeyboardInterrupt
        return fine(what, index)

    with pytest.raises(KeyboardInterrupt):
        recorded([], interrupted, partial=partial)
    with partial.open("a") as file:
        file.write('{"build": 0, "pa')  # the line that was being written
    log: list[str] = []
    (snapshot,) = recorded(log, partial=partial, progress=steps.append)
    assert [line for line in log if "pass" in line] == ["new two pass 1", "new one pass 1"]
    assert [step.resumed for step in steps] == [True, True, False, False]
    assert [(step.done, step.total) for step in steps] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert not partial.exists()
    assert snapshot.rows == recorded([])[0].rows


def test_what_another_run_left_is_started_over(tmp_path: Path) -> None:
    partial = tmp_path / ".baseline.partial"

    def interrupted(what: str, index: int) -> dict[str, Any]:
        if index == 1:
            raise KeyboardInterrupt
        return fine(what, index)

    with pytest.raises(KeyboardInterrupt):
        recorded([], interrupted, partial=partial, passes=2)
    log: list[str] = []
    recorded(log, partial=partial, passes=3)  # other settings
    assert sum("pass 0" in line for line in log) == 2


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(core.BaselineError, match="nothing to measure"):
        record_builds([Build()], [])


# ------------------------------------------------------------------------------------------------- worker processes


def test_a_worker_that_dies_hangs_or_cannot_start_says_so(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    (tmp_path / "endless.py").write_text("import time\ntime.sleep(600)\n")
    (tmp_path / "talkative.py").write_text("print('this is no answer')\n")
    build = Build("live", environment={"PYTHONPATH": str(tmp_path)})

    def request(module: str) -> dict[str, Any]:
        case = Case(f"{module}:kernel", "cpu").to_json()
        return {"do": "case", "case": case, "pass": 0, "check": True, "settings": Settings().to_json()}

    with Worker(build) as worker, pytest.raises(ProcessLost, match="ended with SIGSEGV"):
        worker.ask(request("deadly"), 60)
    with Worker(build) as worker:
        assert worker.ask(request("talkative"), 60)["reason"] == "KernelError: talkative has no 'kernel'"
        with pytest.raises(ProcessLost, match=r"no answer within 0\.5 s"):
            worker.ask(request("endless"), 0.5)
        with pytest.raises(ProcessLost):
            worker.ask(request("talkative"), 60)
    with pytest.raises(core.BaselineError, match="is no build of TileHAL"):
        Worker(Build("live", tmp_path))
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text("")
    with pytest.raises(core.BaselineError, match="has no `tilehal baseline`"):
        Worker(Build("live", tmp_path))
    (tmp_path / "core" / "__init__.py").write_text("raise ImportError('half a build')\n")
    with pytest.raises(core.BaselineError, match=r"does not start: .*half a build"):
        Worker(Build("live", tmp_path))


# -------------------------------------------------------------------------------------------------- a real kernel

KERNELS = """
import os
import core, tilelang.language as T

TIMES = int(os.environ.get("PLANTED", "1"))

def kernel(times, N):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            x = T.alloc_fragment((N,), "float32")
            T.copy(A, x)
            for r in T.serial(times):
                for i in T.Parallel(N):
                    x[i] = x[i] * 0.5 + 1.0
            T.copy(x, B)
    return main

@core.kernel(out=["B"])
def steady(N: int, *, threads: int = core.threads()):
    return kernel(40, N)

@core.kernel(out=["B"])
def slowed(N: int, *, threads: int = core.threads()):
    return kernel(40 * TIMES, N)

@core.kernel(out=["B"])
def other(N: int, *, threads: int = core.threads()):
    return kernel(39, N)

def reference(a, *, N):
    x = a.double()
    for _ in range(40):
        x = x * 0.5 + 1.0
    return x

def inputs(*, N):
    return {"A": lambda shape, dtype, device: (2.0 ** 36) * __import__("torch").ones(shape, dtype=dtype)}
"""


@pytest.fixture
def kernels(tmp_path: Path) -> str:
    path = tmp_path / "planted_kernels.py"
    path.write_text(KERNELS)
    return str(path)


class Here:
    """A worker in this process: no start-up to wait for."""

    def __init__(self, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
        self.build, self.monkeypatch = build, monkeypatch

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        if request["do"] == "yardsticks":
            return {}  # in turn, nothing hangs on them
        with self.monkeypatch.context() as patch:
            for name, value in self.build.environment.items():
                patch.setenv(name, value)
            return json.loads(json.dumps(answer(dict(request))))

    def stop(self) -> None:
        """Nothing is running."""


def test_a_planted_slowdown_is_found_and_the_other_kernel_left_alone(
    kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With three passes and a factor of four a busy machine hides the factor, whatever the clock: one pass of twice its
    # time is enough. With six and sixteen, in turn, two passes in ten may be off by a factor of five.
    old, new = record_builds(
        [Build("old"), Build("new", environment={"PLANTED": "16"})],
        [Case(f"{kernels}:{name}", "cpu", {"N": 16384}) for name in ("steady", "slowed")],
        Settings(passes=6, warmup_ms=1, repeat_ms=5, clock="processor"),
        start=lambda build: Here(build, monkeypatch),
    )
    assert {row.status for row in (*old.rows, *new.rows)} == {"ok"}
    found = compare(old, new, Criteria(tolerance=0.25, interleaved=True))
    assert [row.case.name for row in found.regressions] == ["slowed(N=16384)"]
    slowest = max(change.ratio for change in found.regressions[0].changes)
    assert 6 < slowest < 40


def test_a_case_is_checked_measured_and_described(kernels: str) -> None:
    case = Case(f"{kernels}:steady", "cpu", {"N": 4096}, reference=f"{kernels}:reference", inputs=f"{kernels}:inputs")
    found = measure_case(case, Settings(warmup_ms=1, repeat_ms=2))
    assert found["status"] == "ok"
    assert found["error"] < 1e-6
    assert found["bytes_moved"] == 2 * 4096 * 4
    assert found["memory"]["tensor_bytes"] == 2 * 4096 * 4
    assert found["tiles"].keys() == {"threads"}
    assert found["cold"]["median_s"] > 0
    assert found["warm"]["median_s"] > 0


def test_a_wrong_output_is_told_and_not_timed(kernels: str) -> None:
    case = Case(f"{kernels}:other", "cpu", {"N": 4096}, reference=f"{kernels}:reference", inputs=f"{kernels}:inputs")
    found = measure_case(case, Settings(warmup_ms=1, repeat_ms=2))
    assert found["status"] == "wrong"
    assert found["reason"].startswith("B: ")
    assert found["error"] > 1e-3
    assert "cold" not in found
    assert measure_case(case, Settings(warmup_ms=1, repeat_ms=2), check=False)["status"] == "ok"


def test_errors_are_relative_and_unwritten_elements_are_infinitely_wrong() -> None:
    expected = torch.tensor([3.0, 4.0])
    assert relative_error(torch.tensor([3.0, 4.5]), expected) == pytest.approx(0.1)
    assert relative_error(torch.tensor([3.0, math.nan]), expected) == math.inf
    assert relative_error(torch.tensor([1.0, math.inf]), torch.tensor([1.0, math.inf])) == 0.0
    assert relative_error(torch.tensor([0.0]), torch.tensor([0.0])) == 0.0
    assert relative_error(torch.tensor([2**24 + 1]), torch.tensor([2**24])) > 0
