"""Asks Huawei's compiler which tiles fit: GEMM, softmax and attention over a sweep of tile sizes, both families.

    python scripts/ascend_capacity_sweep.py [--jobs 2] [--kernel gemm] [--report]

writes backends/ascend/tests/data/capacity_sweep.json: per configuration what the compiler answered (fits or not, bytes
used per space, bytes required where one overflows). `backends/ascend/tests/test_capacity.py` replays the backend's own
verdicts against it; `--report` prints the confusion matrix without compiling anything.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from backends.ascend import command, messages
from backends.ascend.dialect import AscendDialect
from backends.ascend.plan import read_plan
from backends.ascend.settings import Settings
from backends.ascend.tests.capacity_kernels import configurations, trace
from backends.ascend.toolchain import find_compiler
from core.codegen import mlir
from core.compiler import run_tool
from core.hardware import Chip
from core.program import Program
from core.target import resolve

CHIPS = ("910b3", "950pr_9589")
RESULTS = Path(__file__).resolve().parent.parent / "backends" / "ascend" / "tests" / "data" / "capacity_sweep.json"


def ask(chip: Chip, source: str, entry: str) -> dict[str, Any]:
    """What the compiler says of one module, without multi-buffering: what fits so, fits."""
    settings = Settings(multi_buffer=False)
    with tempfile.TemporaryDirectory(prefix="tilehal-sweep-") as name:
        folder = Path(name)
        (folder / "kernel.mlir").write_text(source)
        command.write_stand_in(folder, chip)
        words = command.compile_command(
            find_compiler(chip), chip, "kernel.mlir", "kernel", settings, multi_buffer=False
        )
        path = os.pathsep.join([name, os.environ.get("PATH", "")])
        result = run_tool(words, cwd=folder, env={"PATH": path}, check=False, timeout_s=120)
        final = folder / command.FINAL_MODULE
        if result.returncode == 0 and final.is_file() and final.stat().st_size:
            plan = read_plan(final.read_text(), entry, result.output)
            return {"fits": True, "memory_bytes": plan.memory_bytes, "kernel_type": plan.kernel_type}
        found = messages.overflow(result.output)
        if found is None:
            errors = [
                line for line in result.output.splitlines() if "error" in line.lower() or "assert" in line.lower()
            ]
            return {"fits": False, "overflow": None, "message": errors[:1]}
        space, needed, available = found
        return {"fits": False, "overflow": space, "needed_bytes": needed, "available_bytes": available}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="kernels compiled at once (%(default)s)")
    parser.add_argument("--kernel", default="", help="only this one: gemm, softmax or attention")
    parser.add_argument("--report", action="store_true", help="compile nothing: show what the file has")
    arguments = parser.parse_args()
    if not arguments.report:
        sweep(arguments.jobs, arguments.kernel)
    report()


def sweep(jobs: int, kernel: str) -> None:
    found: list[dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    known = {json.dumps([row["chip"], row["kernel"], row["parameters"]]) for row in found}
    work = []
    for name, parameters in configurations():
        if kernel and name != kernel:
            continue
        program = Program(trace(name, parameters))
        for chip_name in CHIPS:
            if json.dumps([chip_name, name, parameters]) in known:
                continue
            chip = resolve(f"ascend:{chip_name}").chip
            _, modules = mlir.lower(program, chip, AscendDialect())
            work.append((chip_name, name, parameters, chip, modules[0]))

    def one(item: Any) -> dict[str, Any]:
        chip_name, name, parameters, chip, module = item
        return {"chip": chip_name, "kernel": name, "parameters": parameters, **ask(chip, module.text, module.entry)}

    with ThreadPoolExecutor(jobs) as pool:
        for position, row in enumerate(pool.map(one, work)):
            found.append(row)
            if position % 25 == 0:
                print(f"{position}/{len(work)} {row}", flush=True)
    found.sort(key=lambda row: (row["chip"], row["kernel"], json.dumps(row["parameters"])))
    RESULTS.write_text("[\n" + ",\n".join(json.dumps(row) for row in found) + "\n]\n")


def report() -> None:
    from backends.ascend.tests.capacity_kernels import verdicts

    for chip_name in CHIPS:
        rows = [row for row in json.loads(RESULTS.read_text()) if row["chip"] == chip_name]
        table = {(ours, theirs): 0 for ours in (True, False) for theirs in (True, False)}
        for row, ours in verdicts(rows):
            table[ours, row["fits"]] += 1
        print(f"{chip_name}: {len(rows)} configurations")
        print(f"  we accept, it compiles {table[True, True]:4}   we accept, it refuses {table[True, False]:4}")
        print(f"  we refuse, it compiles {table[False, True]:4}   we refuse, it refuses {table[False, False]:4}")


if __name__ == "__main__":
    main()
