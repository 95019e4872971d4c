#!/usr/bin/env python3
"""Proves the tile rules on CUDA: what is accepted builds and launches, what is refused could not have, bytes are exact.

    nice python scripts/feasibility.py --results feasibility.jsonl               # 2 processes, no device needed
    python scripts/feasibility.py --results feasibility.jsonl --jobs 16 --launch # on a machine with a GPU
    python scripts/feasibility.py --results feasibility.jsonl --report --compact tests/tiling/data/feasibility.json.gz

Configurations are drawn from two sets, for several kernels, shapes and chips: the rules' own values, and a grid far
wider than any rule would propose, so that refusals are put to the test as well. Every one of them is lowered and
compiled, refused or not, on a line of its own in the results; a second run does what is missing. `--launch` runs the
accepted ones of this machine's chip and asks the driver for their shared memory. What rules leave out as not worth
considering is neither accepted nor refused, and not drawn.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import multiprocessing
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.program import Program

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.feasibility_cases import Configuration, cases, completed, drawn, factory_of  # noqa: E402  (found by the path above)

#: How far above what is allocated a prediction may lie.
MARGIN = 1.35
#: Largest share of the refused that may turn out to fit.
WRONG_REFUSALS = 0.05

#: Configurations that one process compiles.
_PER_PROCESS = 25

# ------------------------------------------------------------------------------------------------------------- judging


def judge(one: Configuration, launch: bool) -> dict[str, Any]:
    """Lowers and compiles a configuration whatever was said of it, in a child process: its row."""
    logging.disable(logging.CRITICAL)  # a failed trace logs the whole rewritten source
    from core.compiler.artifacts import CompileOptions
    from core.errors import TileHALError
    from core.plugins import BuildRequest, manager
    from core.target import resolve
    from core.tiling.cost import memory_bytes
    from core.tiling.profile import profile

    row: dict[str, Any] = {"id": one.identity, **one.__dict__}
    chip = resolve(one.target).chip
    backend = manager().backend(chip.vendor)
    try:
        program = _program(one.operator, one.arguments, one.tiles)
        if one.predicted_bytes is None:
            row["predicted_bytes"] = memory_bytes(profile(program).launches[0], chip).get("shared", 0)
        lowered = backend.call("tilehal_lower", chip, program=program, options=CompileOptions())
    except TileHALError as error:
        return {**row, "outcome": "lower", "message": error.message.splitlines()[0][:300]}
    resources = lowered.resources
    row |= {"dynamic": resources.dynamic_shared_bytes, "static": resources.static_shared_bytes}
    row |= {"threads": resources.threads}
    with tempfile.TemporaryDirectory() as folder:
        try:
            request = BuildRequest(Path(folder), CompileOptions())
            built = backend.call("tilehal_build", chip, lowered=lowered, request=request)
        except TileHALError as error:
            return {**row, "outcome": "build", "message": " ".join(error.message.split())[:300]}
    actual = built.resources
    row |= {"ptxas_static": actual.static_shared_bytes, "registers": actual.registers_per_thread}
    row |= {"spill": actual.spill_store_bytes}
    limit = chip.memory_for_scope("shared").block_limit_bytes
    needed = (actual.static_shared_bytes or 0) + (actual.dynamic_shared_bytes or 0)
    over = needed > (limit or needed) or (resources.threads or 0) > (chip.limits.threads_per_block or 1024)
    row["outcome"] = "over" if over else "fits"
    if launch and one.accepted and not over and chip.target == resolve("cuda").chip.target:
        row |= _launched(one)
    return row


def _program(operator: str, arguments: Mapping[str, Any], tiles: Mapping[str, Any]) -> Program:
    from core.program import Program

    factory = factory_of(operator)
    traced = factory.trace(factory.arguments((), arguments), completed(factory, tiles))
    return Program(traced.prim_func, traced.out_idx)


def _launched(one: Configuration) -> dict[str, Any]:
    """Runs the kernel once on random inputs, and what the driver says of its static shared memory."""
    import ctypes

    import torch

    from core.errors import TileHALError
    from core.tuning.inputs import make_arguments

    try:
        kernel = factory_of(one.operator).compile(**one.arguments, **one.tiles, target=one.target, build=True)
        kernel(*make_arguments(kernel.program.signature, "cuda"))
        torch.cuda.synchronize()
    except (TileHALError, RuntimeError) as error:
        return {"launch": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}
    driver = ctypes.CDLL("libcuda.so.1")
    module, function, value = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    driver.cuModuleLoadData(ctypes.byref(module), kernel.binary().read_bytes())
    driver.cuModuleGetFunction(ctypes.byref(function), module, kernel.entry_points[0].encode())
    driver.cuFuncGetAttribute(ctypes.byref(value), 1, function)
    driver.cuModuleUnload(module)
    return {"launch": "ok", "driver_static": value.value}


def run(configurations: Sequence[Configuration], results: Path, jobs: int, launch: bool) -> None:
    """Judges what has no row yet, with a progress bar."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    known = {row["id"] for row in rows_of(results)}
    missing = [one for one in configurations if one.identity not in known]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with results.open("a") as out, Progress(*columns, TimeRemainingColumn()) as bar:
        task = bar.add_task("compiling", total=len(missing))
        # Processes are renewed from time to time: a compiler that is called hundreds of times in one keeps memory.
        for start in range(0, len(missing), _PER_PROCESS * jobs):
            for row in _judged(missing[start : start + _PER_PROCESS * jobs], jobs, launch):
                print(json.dumps(row), file=out, flush=True)
                bar.advance(task)


def _judged(batch: Sequence[Configuration], jobs: int, launch: bool) -> Iterator[dict[str, Any]]:
    """Rows of a batch. Where one takes its process along, the rest of the batch goes on one at a time."""
    left = {one.identity: one for one in batch}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        try:
            for done in as_completed([pool.submit(judge, one, launch) for one in batch]):
                row = done.result()
                del left[row["id"]]
                yield row
        except BrokenProcessPool:
            pass
    for one in left.values():
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            try:
                yield pool.submit(judge, one, launch).result()
            except BrokenProcessPool:
                yield {"id": one.identity, **one.__dict__, "outcome": "crash", "message": "the process died"}


def rows_of(results: Path) -> list[dict[str, Any]]:
    """Rows written so far; a line cut off by an interruption is left out."""
    rows = []
    for line in results.read_text().splitlines() if results.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


# ----------------------------------------------------------------------------------------------------------- reporting


def predicted_anew(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its shared memory predicted by the model as it is now."""
    from core.target import resolve
    from core.tiling.cost import memory_bytes
    from core.tiling.profile import profile

    if "dynamic" not in row:
        return dict(row)
    launch = profile(_program(row["operator"], row["arguments"], row["tiles"])).launches[0]
    return {**row, "predicted_bytes": memory_bytes(launch, resolve(row["target"]).chip).get("shared", 0)}


def report(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Prints what was found; whether all of it is as it must be."""
    accepted, refused = ([row for row in rows if row["accepted"] is kind] for kind in (True, False))
    failed = [row for row in accepted if row["outcome"] != "fits" or row.get("launch", "ok") != "ok"]
    wrong = [row for row in refused if row["outcome"] == "fits"]
    built = [row for row in rows if "ptxas_static" in row]
    inexact = [
        row
        for row in built
        if {row["static"], row["ptxas_static"], row.get("driver_static", row["static"])} != {row["static"]}
    ]
    ratios = [
        (row["predicted_bytes"] / real, row)
        for row in built
        if row["predicted_bytes"] is not None and (real := row["dynamic"] + row["ptxas_static"])
    ]
    outside = [row for ratio, row in ratios if not 1 <= ratio <= MARGIN]
    launched = sum(row.get("launch") == "ok" for row in rows)
    print(f"{len(rows)} configurations; {len(accepted)} accepted, {launched} of them launched; {len(refused)} refused")
    print(f"  {dict(Counter(row['target'] for row in rows))} {dict(Counter(row['operator'] for row in rows))}")
    print(f"accepted that do not build, fit or launch: {len(failed)}")
    for row in failed[:20]:
        print(f"  {_name(row)}: {row['outcome']} {row.get('launch', '')} {row.get('message', '')[:140]}")
    outcomes = Counter(row["outcome"] for row in refused)
    share = len(wrong) / max(1, len(refused))
    print(f"refused that would have built and fitted: {len(wrong)} ({share:.1%}); the others: {dict(outcomes)}")
    for row in wrong[:20]:
        print(f"  {_name(row)}: {row['reason'][:140]}")
    extremes = f"{min(r for r, _ in ratios):.3f} to {max(r for r, _ in ratios):.3f}" if ratios else "none"
    print(f"shared memory predicted before lowering over what is allocated, of {len(ratios)}: {extremes}")
    for row in outside[:20]:
        print(f"  {_name(row)}: predicted {row['predicted_bytes']}, {row['dynamic']} + {row['ptxas_static']}")
    print(f"static shared memory after lowering against ptxas (and the driver), of {len(built)}: {len(inexact)} differ")
    spilling = sum(bool(row.get("spill")) for row in accepted)
    print(f"accepted that spill registers: {spilling}")
    return not failed and not outside and not inexact and share <= WRONG_REFUSALS


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['target']} {row['operator']} {row['arguments']} {row['tiles']}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, required=True, help="JSON lines, one a configuration; added to")
    parser.add_argument("--count", type=int, default=14, help="accepted, and refused, of each case")
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="configurations compiled at once; default: one for each CPU",
    )
    parser.add_argument("--targets", nargs="*", default=[], help="of the cases (all)")
    parser.add_argument("--operators", nargs="*", default=[], help="of the cases (all)")
    parser.add_argument("--launch", action="store_true", help="run what is for this machine's device")
    parser.add_argument("--report", action="store_true", help="only print what the results say")
    parser.add_argument("--predict", action="store_true", help="only predict shared memory anew, and report")
    parser.add_argument("--compact", type=Path, help="write the rows here, for the tests")
    options = parser.parse_args()
    if not (options.report or options.predict):
        logging.disable(logging.CRITICAL)
        configurations = {
            one.identity: one
            for case in cases(options.targets, options.operators)
            for one in drawn(*case, count=options.count)
        }
        if not configurations:
            parser.error("no case is of these targets and operators")
        run(list(configurations.values()), options.results, options.jobs, options.launch)
    rows = rows_of(options.results)
    if options.predict:
        logging.disable(logging.CRITICAL)
        rows = [predicted_anew(row) for row in rows]
        options.results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if options.compact:
        options.compact.parent.mkdir(parents=True, exist_ok=True)
        options.compact.write_bytes(gzip.compress(json.dumps(rows, sort_keys=True).encode(), mtime=0))
    return 0 if report(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
