#!/usr/bin/env python3
"""Shows that a baseline reports a planted slowdown of 10%, and nothing when the same build is compared with itself.

    python scripts/baseline_planted.py --target cuda --trials 5 --json planted.json
    python scripts/baseline_planted.py --target cpu --clock processor     # where other processes run

Both kernels below loop over arithmetic; the build called `planted` runs the second one's loop a tenth longer. A trial
compares three pairs: the same build recorded twice, one recording after the other; the same build in turn with itself;
and the build in turn with the planted one. What is right: no regression, no regression, and exactly the slowed kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tilelang.language as T  # noqa: E402

import core  # noqa: E402
from core.tuning.baseline import (  # noqa: E402
    Build,
    Case,
    Comparison,
    Criteria,
    Settings,
    Snapshot,
    compare,
    record,
    record_builds,
)

#: Steps of the loop; the planted build runs a tenth more of them.
STEPS = 2000
VARIABLE = "TILEHAL_PLANTED_SLOWDOWN"


def arithmetic(rows: int, columns: int, steps: int) -> Any:
    """`steps` dependent multiply-adds on every element of a (rows, columns) matrix."""

    @T.prim_func
    def main(A: T.Tensor((rows, columns), "float32"), B: T.Tensor((rows, columns), "float32")):
        with T.Kernel(rows, threads=128) as bx:
            x = T.alloc_fragment((columns,), "float32")
            T.copy(A[bx, 0], x)
            for _ in T.serial(steps):
                for i in T.Parallel(columns):
                    x[i] = x[i] * 0.5 + 1.0
            T.copy(x, B[bx, 0])

    return main


@core.kernel(out=["B"])
def steady(M: int, N: int, *, threads: int = core.threads()) -> Any:
    """The kernel that nothing happens to."""
    return arithmetic(M, N, STEPS)


@core.kernel(out=["B"])
def slowed(M: int, N: int, *, threads: int = core.threads()) -> Any:
    """The kernel whose loop is longer in the planted build."""
    return arithmetic(M, N, round(STEPS * float(os.environ.get(VARIABLE, "1.0"))))


@dataclass(frozen=True)
class Outcome:
    """One comparison: what was compared, what came out, and whether that is right."""

    trial: int
    what: str
    regressed: list[str]
    ratios: dict[str, list[float]]
    right: bool


def outcome(trial: int, what: str, found: Comparison, expected: list[str]) -> Outcome:
    names = sorted(row.case.kernel.rpartition(":")[2] for row in found.regressions)
    ratios = {
        f"{row.case.kernel.rpartition(':')[2]}, {change.l2}": [change.ratio, change.low, change.high]
        for row in found.rows
        for change in row.changes
    }
    return Outcome(trial, what, names, ratios, names == expected)


def trial(number: int, cases: list[Case], settings: Settings, slowdown: float) -> list[Outcome]:
    def in_turn(*factors: float) -> list[Snapshot]:
        builds = [Build(f"x{factor}", environment={VARIABLE: str(factor)}) for factor in factors]
        return record_builds(builds, cases, settings)

    first, second = record(cases, settings), record(cases, settings)
    (old, same), (plain, planted) = in_turn(1.0, 1.0), in_turn(1.0, slowdown)
    together = Criteria(interleaved=True)
    return [
        outcome(number, "same build, recorded twice", compare(first, second), []),
        outcome(number, "same build, in turn", compare(old, same, together), []),
        outcome(number, f"planted x{slowdown:g}, in turn", compare(plain, planted, together), ["slowed"]),
    ]


def show(found: list[Outcome], say: Callable[[str], None] = print) -> None:
    for one in found:
        slowed = one.ratios.get("slowed, warm", [float("nan")] * 3)
        say(
            f"{one.trial:3}  {one.what:28} slowed: {slowed[0]:.4f}x [{slowed[1]:.4f}, {slowed[2]:.4f}]  "
            f"regressed: {', '.join(one.regressed) or 'none':14} {'right' if one.right else 'WRONG'}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="auto", help="chip to measure on, which must be here (%(default)s)")
    parser.add_argument("--trials", type=int, default=3, help="times the three pairs are compared (%(default)s)")
    parser.add_argument(
        "--passes", type=int, default=8, help="times everything is measured in a recording (%(default)s)"
    )
    parser.add_argument(
        "--slowdown", type=float, default=1.10, help="length of the planted loop over that of the other (%(default)s)"
    )
    parser.add_argument(
        "--clock", choices=["wall", "processor"], default="wall", help="clock of kernels on the CPU (%(default)s)"
    )
    parser.add_argument("--json", type=Path, help="also write the outcomes here")
    arguments = parser.parse_args()
    on_cpu = core.chip(arguments.target).vendor == "cpu"
    shape = {"M": 32, "N": 1024} if on_cpu else {"M": 4096, "N": 1024}
    source = Path(__file__).resolve()
    cases = [Case(f"{source}:{name}", arguments.target, shape) for name in ("steady", "slowed")]
    settings = Settings(passes=arguments.passes, clock=arguments.clock)
    found: list[Outcome] = []
    for number in range(1, arguments.trials + 1):
        ended = trial(number, cases, settings, arguments.slowdown)
        show(ended)
        found += ended
    right = sum(one.right for one in found)
    print(f"{right} of {len(found)} comparisons right; load average {os.getloadavg()[0]:.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(one) for one in found], indent=2) + "\n")
    return 0 if right == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
