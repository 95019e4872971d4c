"""Runs the corpus of portable kernels on the MetaX simulator and prints docs/metax.md's table of results.

    python -m scripts.metax_corpus [--target metax:c500] [--mode checked] [--topic gemm] [--json FILE]

Each case is compiled to MACA C++ and its source run on the CPU with fresh data; the largest absolute error against
torch is shown. What needs 8-bit floats runs on a C600, whose matrix unit multiplies them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import core
from tests.kernels import Case, all_kernels

_FP8_TARGET = "metax:c600"


@dataclass(frozen=True)
class Outcome:
    """What became of one case: `agrees`, `wrong`, `fault` or `refused`, the figures, and the reason of a gap."""

    case: str
    target: str
    outcome: str
    error: float | None
    seconds: float
    reason: str = ""


def run_case(case: Case, target: str, mode: str) -> Outcome:
    """Compiles and runs one case."""
    if any("float8" in tag for tag in case.tags):
        target = _FP8_TARGET
    generator = torch.Generator()
    generator.seed()
    inputs = case.inputs(generator)
    try:
        kernel = case.compile(target, simulate=True, options={"simulator": mode})
        started = time.perf_counter()
        outputs = case.run(kernel, inputs)
        seconds = time.perf_counter() - started
    except core.LaunchError as error:
        return Outcome(case.name, target, "fault", None, 0.0, str(error))
    except core.TileHALError as error:
        return Outcome(case.name, target, "refused", None, 0.0, f"{type(error).__name__}: {error}")
    try:
        return Outcome(case.name, target, "agrees", case.check(outputs, inputs), seconds)
    except AssertionError as error:
        return Outcome(case.name, target, "wrong", None, seconds, str(error))


def table(outcomes: Sequence[Outcome]) -> str:
    """The results as Markdown, gaps with their reasons below."""
    lines = ["| kernel | chip | result | largest error | simulated in |", "| --- | --- | --- | --- | --- |"]
    for each in outcomes:
        error = "" if each.error is None else f"{each.error:.1e}" if each.error else "0"
        took = f"{each.seconds:.2f} s" if each.seconds else ""
        lines.append(f"| `{each.case}` | {each.target.partition(':')[2]} | {each.outcome} | {error} | {took} |")
    gaps = [each for each in outcomes if each.outcome != "agrees"]
    agreed = len(outcomes) - len(gaps)
    lines += ["", f"{agreed} of {len(outcomes)} kernels agree with torch."]
    lines += [f"- `{each.case}`: {each.reason.splitlines()[0]}" for each in gaps]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every case agrees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="metax:c500")
    parser.add_argument("--mode", choices=("plain", "checked"), default="checked")
    parser.add_argument("--topic", help="only the cases of this topic")
    parser.add_argument("--json", type=Path, help="write the outcomes there too")
    options = parser.parse_args(arguments)
    outcomes = []
    for case in all_kernels(options.topic):
        outcomes.append(run_case(case, options.target, options.mode))
        print(f"{outcomes[-1].outcome:8} {case.name}", file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1), encoding="utf-8")
    print(table(outcomes), end="")
    return int(any(each.outcome != "agrees" for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
