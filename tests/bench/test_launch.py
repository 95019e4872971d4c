"""Host time per launch, on the CPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

import core
from core.bench.from_c import loop_in_c
from core.bench.kernels import scale
from core.bench.launch import ALLOCATED, FROM_C, PASSED, calls_from_c, host_time, launch_overhead, repeated
from tests.packaging.layout import ROOT


def test_every_way_to_launch_is_checked_and_timed():
    found = launch_overhead("cpu", rounds=7, calls=1, most_s=0.5)
    times = found["host_time_per_call"]
    assert {PASSED, ALLOCATED, FROM_C, "tilehal, exported, output passed", "torch, softmax"} <= set(times)
    assert all(one["low_us"] <= one["median_us"] <= one["high_us"] for one in times.values())
    assert times["python, an empty call"]["median_us"] < times[PASSED]["median_us"]
    assert found["not_measured"] == {}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    core.compile(scale(), target="cpu", out_idx=[1]).export(folder / "scale")
    return folder


def test_without_a_c_compiler_the_loop_in_c_is_left_out_with_the_reason(
    exported: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CC", "no-such-compiler")
    loops, missing = calls_from_c(exported, torch.device("cpu"))
    assert loops == {}
    assert "build the host side of kernels" in missing[FROM_C]


def test_a_wrong_result_from_c_is_no_row(exported: Path, monkeypatch: pytest.MonkeyPatch):
    assert set(calls_from_c(exported, torch.device("cpu"))[0]) == {FROM_C}
    monkeypatch.setattr("core.bench.from_c.loop_in_c", lambda *_: lambda count: None)
    with pytest.raises(core.KernelError, match="called from C: the kernel that doubles its input did not"):
        calls_from_c(exported, torch.device("cpu"))


def test_the_loop_in_c_has_the_threads_of_an_exported_kernel(
    exported: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    folder = Path(shutil.copytree(exported / "scale", tmp_path / "copy"))
    source, sets = folder / "main.c", "void main_set_threads(main_kernel *kernel, int threads) {"
    told = source.read_text().replace(sets, f'{sets} fprintf(stderr, "threads %d.", threads);')
    source.write_text(told)
    x = torch.ones(128, 1024).half()
    run = loop_in_c(folder, "main", x, x)
    run(2)
    run(1)
    assert capfd.readouterr().err == f"threads {len(os.sched_getaffinity(0))}."
    torch.testing.assert_close(x, torch.full_like(x, 8))


def test_a_launch_that_fails_in_the_loop_is_an_error(exported: Path, tmp_path: Path):
    x = torch.zeros(128, 1024).half()
    folder = Path(shutil.copytree(exported / "scale", tmp_path / "copy"))
    run = loop_in_c(folder, "main", x, x)
    (folder / "main.so").write_bytes(b"")
    with pytest.raises(core.LaunchError, match=r"main called from C: .*main\.so"):
        run(1)


def test_a_loop_of_its_own_makes_the_calls_of_a_round_at_once():
    counts: list[int] = []
    found = host_time({"a": repeated(lambda: None), "b": counts.append}, 2, 5, lambda: None)
    assert counts == [5, 5, 5]
    assert set(found) == {"a", "b"}


#: The script, where a way to launch says what raw tilelang does when it compiles, and what a compiler may.
LOUD = """
import logging, os, runpy, sys
import core.bench.launch
from core._tilelang import import_tilelang

def loud(target, rounds, calls):
    import_tilelang()
    logging.getLogger("tilelang").info("TileLang begins to compile kernel `main`")
    print("printed")
    os.system("echo from a compiler")
    return {"launched_by": None, "host_time_per_call": {}}

core.bench.launch.launch_overhead = loud
sys.argv = [sys.argv[1], "--target", "cpu"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_the_script_s_standard_output_is_json_whatever_tilelang_and_compilers_say():
    command = [sys.executable, "-c", LOUD, str(ROOT / "scripts" / "launch_overhead.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == {"environment", "launched_by", "host_time_per_call"}
    assert "from a compiler" in done.stderr
    assert "printed" in done.stderr


def test_rounds_are_interleaved_and_the_device_is_waited_for_outside():
    order: list[str] = []
    calls = {name: repeated(partial(order.append, name)) for name in "ab"}
    found = host_time(calls, 2, 3, lambda: order.append("wait"))
    once = ["a"] * 3 + ["wait"] + ["b"] * 3 + ["wait"]
    assert order == once * 3  # warm-up, and two rounds
    assert set(found) == {"a", "b"}


def test_time_that_is_up_ends_the_rounds():
    rounds = 0

    def call() -> None:
        nonlocal rounds
        rounds += 1

    host_time({"a": repeated(call)}, 10**6, 1, lambda: None, most_s=0.0)
    assert rounds == 1 + 7
