#!/usr/bin/env python3
"""Measures what ranking the tiles of TileHAL's own operators costs: the first time, in the process, and from disk.

    python scripts/measure_ranking.py                          # a table
    python scripts/measure_ranking.py --target metax:c500 --json ranking.json --repeat 5

Processor seconds of one core, the median of `--repeat`; imports and the first use of the compiler are not counted. A
ranking is a few dozen traces and some hundred predictions. From disk it takes one trace, which compiling needs anyway:
`check` is that trace, and `recall` what is left. No device needed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.tiling.factory import KernelFactory
    from core.tiling.problem import TileProblem

#: Operator, arguments; the limits of a first ranking, in seconds of one core.
OPERATORS: dict[str, tuple[str, tuple[Any, ...], float]] = {
    "gemm 4096": ("gemm", (4096, 4096, 4096), 1.0),
    "gemm 16x4096": ("gemm", (16, 4096, 4096), 1.0),
    "attention": ("attention", (4, 32, 32, 2048, 2048, 128), 4.0),
    "softmax": ("softmax", (4096, 4096), 1.0),
    "layernorm": ("layernorm", (4096, 4096), 1.0),
}
#: Seconds that a remembered ranking may take.
AGAIN_S = 0.05


@dataclass(frozen=True)
class Row:
    """One operator. Seconds; `traces` and `candidates` (ranked and refused) are of the first ranking."""

    name: str
    candidates: int
    traces: int
    first_s: float
    process_s: float
    recall_s: float
    check_s: float
    limit_s: float


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of a call, and what it returned."""
    started = time.process_time()
    result = action()
    return time.process_time() - started, result


def _trace(problem: TileProblem, tiles: Mapping[str, Any]) -> None:
    """The one trace that a ranking from disk takes."""
    problem.tracer(tiles).fingerprint()


def measure(name: str, target: str, repeat: int) -> Row:
    """Ranks one operator `repeat` times from nothing, in the process and from disk."""
    from core.tiling import ranking_cache
    from core.tiling.problem import TileProblem

    module, arguments, limit = OPERATORS[name]
    factory: KernelFactory = getattr(importlib.import_module(f"core.ops.{module}"), module)
    first, process, whole, check = [], [], [], []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TILEHAL_CACHE_DIR"] = folder
            ranking_cache.forget()
            seconds, ranking = timed(lambda: factory.rank(*arguments, target=target))
            first.append(seconds)
            process.append(timed(lambda: factory.rank(*arguments, target=target))[0])
            ranking_cache.forget()
            seconds, again = timed(lambda: factory.rank(*arguments, target=target))
            assert again.effort.recalled == "disk", again.effort
            whole.append(seconds)
            problem = TileProblem.of(factory, arguments, {}, target)
            check.append(timed(partial(_trace, problem, ranking.candidates[0].tiles))[0])
    median = statistics.median
    return Row(
        name=name,
        candidates=len(ranking.candidates) + len(ranking.refused),
        traces=ranking.effort.traces,
        first_s=median(first),
        process_s=median(process),
        recall_s=max(0.0, median(whole) - median(check)),
        check_s=median(check),
        limit_s=limit,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cuda:h200", help="chip to rank for (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="samples of each figure (%(default)s)")
    parser.add_argument("--json", type=Path, help="also write the rows there")
    options = parser.parse_args()
    from core.ops.gemm import gemm

    os.environ["TILEHAL_CACHE_DIR"] = tempfile.mkdtemp()
    gemm.rank(256, 256, 256, target=options.target)  # imports, and TileLang's first trace
    rows = [measure(name, options.target, options.repeat) for name in OPERATORS]
    print(f"{options.target}, processor seconds of one core, median of {options.repeat}; load {os.getloadavg()[0]:.1f}")
    print(f"{'':14}{'candidates':>11}{'traces':>8}{'first':>9}{'limit':>7}{'process':>9}{'recall':>9}{'check':>9}")
    for row in rows:
        mark = "" if row.first_s <= row.limit_s and max(row.process_s, row.recall_s) <= AGAIN_S else "  over"
        print(
            f"{row.name:14}{row.candidates:>11}{row.traces:>8}{row.first_s:>8.2f}s{row.limit_s:>6.0f}s"
            f"{row.process_s * 1e3:>7.1f}ms{row.recall_s * 1e3:>7.1f}ms{row.check_s * 1e3:>7.1f}ms{mark}"
        )
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
