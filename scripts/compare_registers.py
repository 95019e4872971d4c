#!/usr/bin/env python3
"""Registers a thread takes as the cost model estimates them before lowering, and as ptxas gives them.

    python scripts/compare_registers.py                            # rows on an H200, products and attention on an A100
    python scripts/compare_registers.py --kinds rows --jobs 4

Needs nvcc and no device. Launches whose registers the compiler deals out (copies with threads of their own) cannot be
compared and are not in the list.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.tiling.factory import KernelFactory

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

KINDS = ("rows", "products", "attention")
#: Operator, columns, rows of a block, threads, dtype, and tiles beside `direct` with blocks that go.
ROWS: list[tuple[str, int, int, int, str, dict[str, Any]]] = [
    ("softmax.softmax", 4096, 1, 128, "float16", {}),
    ("softmax.softmax", 4096, 1, 256, "float16", {}),
    ("softmax.softmax", 512, 4, 64, "float16", {}),
    ("softmax.softmax", 1024, 2, 64, "float16", {}),
    ("softmax.softmax", 1024, 4, 128, "float16", {}),
    ("softmax.softmax", 8192, 1, 512, "float16", {}),
    ("softmax.softmax", 8192, 1, 256, "float16", {}),
    ("softmax.softmax", 5120, 1, 128, "float16", {}),
    ("softmax.softmax", 16384, 1, 1024, "float16", {}),
    ("softmax.softmax", 4096, 1, 256, "float32", {}),
    ("softmax.softmax", 1024, 2, 128, "float32", {}),
    ("softmax.softmax", 4096, 2, 128, "float16", {}),
    ("layernorm.layernorm", 4096, 2, 256, "float16", {}),
    ("layernorm.layernorm", 4096, 1, 256, "float16", {}),
    ("layernorm.layernorm", 1024, 2, 128, "float16", {}),
    ("layernorm.layernorm", 8192, 2, 512, "float16", {}),
    ("layernorm.layernorm", 512, 2, 64, "float16", {}),
    ("layernorm.layernorm", 8192, 1, 256, "float16", {}),
    ("layernorm.layernorm", 4096, 1, 256, "float32", {}),
    ("rmsnorm.rmsnorm", 4096, 1, 256, "float16", {}),
    ("rmsnorm.rmsnorm", 1024, 2, 128, "float16", {}),
    ("rmsnorm.rmsnorm", 8192, 1, 256, "float16", {}),
    ("rmsnorm.rmsnorm", 512, 4, 64, "float16", {}),
    ("rmsnorm.rmsnorm", 5120, 1, 128, "bfloat16", {}),
    ("rmsnorm.add_rmsnorm", 4096, 1, 256, "float16", {}),
    ("rmsnorm.add_rmsnorm", 1024, 2, 128, "float16", {}),
    ("rmsnorm.add_rmsnorm", 4096, 1, 256, "float32", {}),
    ("softmax.softmax", 4096, 1, 128, "float16", {"workers": 528}),
    ("layernorm.layernorm", 4096, 1, 256, "float16", {"workers": 528}),
    ("softmax.softmax", 4096, 1, 128, "float16", {"variant": "bulk", "workers": 264, "buffers": 3}),
    ("layernorm.layernorm", 4096, 1, 256, "float16", {"variant": "bulk", "workers": 264, "buffers": 3}),
]
#: Rows, columns, depth of a tile, stages, threads.
PRODUCTS = [(128, 128, 32, 3, 128), (128, 128, 32, 3, 256), (64, 64, 32, 3, 128), (128, 64, 32, 2, 128)]
PRODUCTS += [(128, 256, 32, 3, 256), (64, 128, 64, 2, 128), (32, 64, 64, 3, 128)]
#: Queries, keys, stages, threads, elements of a head.
ATTENTION = [(128, 64, 2, 128, 128), (64, 64, 2, 128, 128), (128, 64, 2, 256, 128), (64, 64, 2, 128, 64)]
ATTENTION += [(128, 128, 2, 256, 64), (64, 32, 1, 128, 128)]


def kernels(kinds: list[str]) -> Iterator[dict[str, Any]]:
    """Operator, target, arguments and tiles of each."""
    if "rows" in kinds:
        whole = {"variant": "direct", "workers": 0, "buffers": 1, "resident": 0}
        for operator, columns, rows, threads, dtype, more in ROWS:
            tiles = {"block_M": rows, "block_N": columns, "threads": threads, **whole, **more}
            yield _one(operator, "cuda:h200", {"M": 4096, "N": columns, "dtype": dtype}, tiles)
    if "products" in kinds:
        plain = {"panel": 8, "policy": 0, "variant": "tiled", "cluster": 1, "workers": 0, "splits": 1}
        for product in PRODUCTS:
            tiles = dict(zip(("block_M", "block_N", "block_K", "num_stages", "threads"), product, strict=True))
            yield _one("gemm.gemm", "cuda:a100", {"M": 4096, "N": 4096, "K": 4096}, {**tiles, **plain})
    if "attention" in kinds:
        for *sizes, dim in ATTENTION:
            tiles = dict(zip(("block_M", "block_N", "num_stages", "threads"), sizes, strict=True))
            shape = {"batch": 2, "heads": 8, "kv_heads": 8, "M": 2048, "N": 2048, "dim": dim}
            yield _one("attention.attention", "cuda:a100", shape, {**tiles, "variant": "pipelined", "workers": 0})


def _one(operator: str, target: str, arguments: dict[str, Any], tiles: dict[str, Any]) -> dict[str, Any]:
    return {"operator": operator, "target": target, "arguments": arguments, "tiles": tiles}


def compare(kernel: dict[str, Any]) -> dict[str, Any]:
    """Runs in a worker: adds `estimated`, `taken` and `spilled` (bytes)."""
    import core
    from core.program import Program
    from core.tiling.cost.machine import machine
    from core.tiling.cost.occupancy import residency
    from core.tiling.profile import profile

    module, _, name = kernel["operator"].partition(".")
    factory: KernelFactory = getattr(importlib.import_module(f"core.ops.{module}"), name)
    arguments, tiles, target = kernel["arguments"], kernel["tiles"], kernel["target"]
    traced = factory.trace(factory.arguments((), arguments), tiles)
    launches = profile(Program(traced.prim_func, traced.out_idx)).launches
    estimated = max(residency(launch, machine(core.chip(target))).registers for launch in launches)
    actual = factory.compile(**arguments, **tiles, target=target, build=True).resources.actual
    assert actual is not None  # it was built
    return {
        **kernel,
        "estimated": estimated,
        "taken": actual.registers_per_thread,
        "spilled": actual.spill_store_bytes,
    }


def main() -> int:
    """Parses the command line, prints one line a kernel and the mean error of each operator's variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS, help="only kernels of these; default: all")
    parser.add_argument("--jobs", type=int, default=1, help="kernels compiled at once (%(default)s)")
    options = parser.parse_args()
    errors: dict[str, list[float]] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for row in pool.map(compare, kernels(options.kinds)):
            tiles = " ".join(f"{key}={value}" for key, value in row["tiles"].items())
            print(f"{row['estimated']:4} {row['taken']:4} spilled {row['spilled']:3}  {row['operator']}  {tiles}")
            errors.setdefault(f"{row['operator']} {row['tiles']['variant']}", []).append(
                (row["estimated"] - row["taken"]) / row["taken"]
            )
    for name, own in errors.items():
        mean, absolute = sum(own) / len(own), sum(map(abs, own)) / len(own)
        print(f"{name}: {len(own)} kernels, mean error {mean:+.0%}, absolute {absolute:.0%}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
