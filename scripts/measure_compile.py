#!/usr/bin/env python3
"""Measures what compiling costs: importing, a cached compile, an uncached one against `tilelang.compile`.

    python scripts/measure_compile.py                  # medians, as a table
    python scripts/measure_compile.py --json compile.json --repeat 15

The uncached comparison compiles one GEMM with explicit tiles for `cuda:h200`, nvcc included, with every cache off, by
TileHAL and by stock TileLang in turn, each time with another constant so that nothing is remembered. Wall times are for
a quiet machine; processor time (this process and its children) is what other processes change least. No device needed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Load average above which wall times say more about the other processes.
QUIET_LOAD = 1.0
TARGET = "cuda:h200"
STOCK_TARGET = {"kind": "cuda", "arch": "sm_90a"}


@dataclass(frozen=True)
class Measured:
    """Medians over `samples` runs, seconds; `target_s` is what we hold ourselves to, wall."""

    name: str
    wall_s: float
    processor_s: float
    samples: int
    target_s: float | None = None


def processor_s() -> float:
    """Processor time of this process and its finished children so far."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def timed(action: Callable[[], Any]) -> tuple[float, float]:
    """Wall and processor seconds of one call."""
    wall, processor = time.perf_counter(), processor_s()
    action()
    return time.perf_counter() - wall, processor_s() - processor


def median(name: str, samples: list[tuple[float, float]], target_s: float | None = None) -> Measured:
    walls, processors = zip(*samples, strict=True)
    return Measured(name, statistics.median(walls), statistics.median(processors), len(samples), target_s)


def product(rows: int) -> Any:
    """GEMM of (rows, 1024) and (1024, 1024), float16, with explicit tiles."""
    import tilelang.language as T

    @T.prim_func
    def main(
        A: T.Tensor((rows, 1024), "float16"), B: T.Tensor((1024, 1024), "float16"), C: T.Tensor((rows, 1024), "float16")
    ):
        with T.Kernel(8, T.ceildiv(rows, 128), threads=256) as (bx, by):
            a = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((64, 128), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(16, num_stages=3):
                T.copy(A[by * 128, k * 64], a)
                T.copy(B[k * 64, bx * 128], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 128, bx * 128])

    return main


def import_of_core(repeat: int) -> Measured:
    """A process that imports core, less the median of one that imports nothing."""

    def process(code: str) -> list[tuple[float, float]]:
        command = [sys.executable, "-c", code]
        return [timed(lambda: subprocess.run(command, check=True, cwd=ROOT)) for _ in range(repeat)]

    process("import core")  # byte code
    empty = median("", process("pass"))
    samples = [(wall - empty.wall_s, used - empty.processor_s) for wall, used in process("import core")]
    return median("import core", samples, 0.15)


def cached_compile(repeat: int) -> list[Measured]:
    """`core.compile` of a kernel that is in the cache: traced beforehand, and traced as part of the call."""
    import core

    kernel = product(1024)
    core.compile(kernel, target=TARGET, build=False)
    traced = [timed(lambda: core.compile(kernel, target=TARGET, build=False)) for _ in range(repeat)]
    anew = [timed(lambda: core.compile(product, 1024, target=TARGET, build=False)) for _ in range(repeat)]
    return [
        median("core.compile, cached", traced, 0.050),
        median("core.compile, cached, tracing included", anew),
    ]


def uncached_compiles(repeat: int) -> list[Measured]:
    """Ours and TileLang's in turn, every time another kernel; the first of each warms up and does not count."""
    import tilelang

    import core

    tilelang.disable_cache()
    ours: list[tuple[float, float]] = []
    stock: list[tuple[float, float]] = []
    for sample in range(repeat + 1):
        kernel = product(1024 + sample)
        pair = (
            (ours, lambda kernel=kernel: core.compile(kernel, target=TARGET, build=True)),
            (stock, lambda kernel=kernel: tilelang.compile(kernel, target=STOCK_TARGET, execution_backend="tvm_ffi")),
        )
        for samples, action in pair if sample % 2 else reversed(pair):
            samples.append(timed(action))
    baseline = median("tilelang.compile, uncached, with nvcc", stock[1:])
    return [median("core.compile, uncached, with nvcc", ours[1:], 1.10 * baseline.wall_s), baseline]


def measure(repeat: int) -> list[Measured]:
    logging.disable(logging.CRITICAL)
    found = [import_of_core(repeat)]
    folder = tempfile.mkdtemp(prefix="measure-compile-")
    try:
        os.environ["TILEHAL_CACHE_DIR"] = folder
        found += cached_compile(repeat)
        if shutil.which("nvcc"):
            os.environ["TILEHAL_DISABLE_CACHE"] = "1"
            found += uncached_compiles(repeat)
        else:
            print("no nvcc: the uncached comparison is left out", file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def show(found: list[Measured], load: float) -> None:
    print(f"{'':44}{'wall ms':>10}{'cpu ms':>10}{'n':>5}{'target ms':>11}")
    for one in found:
        target = f"{one.target_s * 1e3:11.1f}" if one.target_s is not None else ""
        print(f"{one.name:44}{one.wall_s * 1e3:10.1f}{one.processor_s * 1e3:10.1f}{one.samples:5}{target}")
    pair = [one for one in found if "uncached" in one.name]
    if len(pair) == 2:
        ours, stock = pair
        print(
            f"uncached, ours / stock: {ours.wall_s / stock.wall_s:.3f} wall, "
            f"{ours.processor_s / stock.processor_s:.3f} processor"
        )
    if load > QUIET_LOAD:
        print(f"load average was {load:.1f}: the wall times are not to be quoted")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--repeat", type=int, default=9, help="samples of each figure (%(default)s)")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    found = measure(arguments.repeat)
    show(found, load)
    if arguments.json:
        data = {"load_average": load, "measured": [asdict(one) for one in found]}
        arguments.json.write_text(json.dumps(data, indent=2) + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
