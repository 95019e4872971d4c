"""Host time per launch, on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys

from core.bench.launch import ALLOCATED, PASSED, host_time, launch_overhead
from tests.packaging.layout import ROOT


def test_every_way_to_launch_is_checked_and_timed():
    found = launch_overhead("cpu", rounds=7, calls=1, most_s=0.5)
    times = found["host_time_per_call"]
    assert {PASSED, ALLOCATED, "tilehal, exported, output passed", "torch, softmax"} <= set(times)
    assert all(one["low_us"] <= one["median_us"] <= one["high_us"] for one in times.values())
    assert times["python, an empty call"]["median_us"] < times[PASSED]["median_us"]


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
    found = host_time(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2, 3, lambda: order.append("wait")
    )
    once = ["a"] * 3 + ["wait"] + ["b"] * 3 + ["wait"]
    assert order == once * 3  # warm-up, and two rounds
    assert set(found) == {"a", "b"}


def test_time_that_is_up_ends_the_rounds():
    rounds = 0

    def call() -> None:
        nonlocal rounds
        rounds += 1

    host_time({"a": call}, 10**6, 1, lambda: None, most_s=0.0)
    assert rounds == 1 + 7
