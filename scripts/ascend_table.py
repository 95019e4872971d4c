"""Compiles the corpus for Ascend with Huawei's compiler and writes the table of docs/ascend.md.

    python scripts/ascend_table.py [--topic gemm] [--name TEXT] [--write]

Each kernel of `tests/kernels` is compiled for one chip of each family, as far as the compiler goes without CANN: its
final module. Compile time is the vendor compiler's, lowering and cache apart. `--write` replaces the table in the page.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import core  # noqa: E402
from backends.ascend.build import build  # noqa: E402
from backends.ascend.lowering import lower  # noqa: E402
from core.compiler import CompileOptions  # noqa: E402
from core.hardware import Chip  # noqa: E402
from core.plugins import BuildRequest  # noqa: E402
from core.program import Program  # noqa: E402
from core.target import resolve  # noqa: E402
from tests.kernels import TOPICS, Case, all_kernels  # noqa: E402

CHIPS = ("ascend:910b3", "ascend:950pr_9589")
PAGE = ROOT / "docs" / "ascend.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel on one chip."""

    kernel: str
    chip: str
    lower_ms: float | None = None
    compile_s: float | None = None
    memory_bytes: tuple[int, int, int] = (0, 0, 0)
    workspace_bytes: int | None = None
    kernel_type: str = ""
    failure: str = ""

    def markdown(self) -> str:
        if self.failure:
            return f"| {self.kernel} | {self.chip} | | | | | | | {self.failure} |"
        ub, l1, l0c = (_size(value) for value in self.memory_bytes)
        return (
            f"| {self.kernel} | {self.chip} | {self.compile_s:.2f} | {ub} | {l1} | {l0c} |"
            f" {_size(self.workspace_bytes or 0)} | {self.kernel_type} | compiles |"
        )


def measure(case: Case, chip: Chip) -> Row:
    """Compiles one kernel; a refusal is a row with its reason."""
    name = chip.target.partition(":")[2]
    try:
        # As a user would: with every check that comes before the backend's.
        case.compile(chip.target, build=False)
        program = Program(case.prim_func(), case.out_idx)
        _ = program.view
        started = time.perf_counter()
        lowered = lower(chip, program, CompileOptions())
        lower_ms = (time.perf_counter() - started) * 1e3
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            built = build(chip, lowered, BuildRequest(Path(folder), CompileOptions()))
            seconds = time.perf_counter() - started
    except core.TileHALError as error:
        reason = f"{type(error).__name__}: {error.message.splitlines()[0]}"
        return Row(case.name, name, failure=re.sub(r"\s+", " ", reason).replace("|", "\\|")[:160])
    memory = built.resources.memory_bytes
    types = list(dict.fromkeys(launch["kernel_type"] for launch in built.metadata["launches"]))
    return Row(
        case.name,
        name,
        lower_ms,
        seconds,
        (memory.get("ub", 0), memory.get("l1", 0), memory.get("l0c", 0)),
        built.resources.workspace_bytes,
        ", ".join(types),
    )


def rows(cases: list[Case]) -> Iterator[Row]:
    for case in cases:
        for target in CHIPS:
            yield measure(case, resolve(target).chip)


def _size(value: int) -> str:
    if value == 0:
        return ""
    return f"{value / 1024:.1f}"


def table(found: list[Row]) -> str:
    """The Markdown table, sizes in KiB."""
    compiled = [row for row in found if not row.failure]
    head = [
        f"{len(compiled)} of {len(found)} reach the final module.",
        "",
        "| kernel | chip | compile, s | UB, KiB | L1, KiB | L0C, KiB | workspace, KiB | cores | status |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(row.markdown() for row in found)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topic", choices=TOPICS, help="only kernels of this topic")
    parser.add_argument("--name", default="", help="only kernels whose name contains this")
    parser.add_argument("--write", action="store_true", help="replace the table in docs/ascend.md")
    arguments = parser.parse_args()
    found = []
    for row in rows([case for case in all_kernels(arguments.topic) if arguments.name in case.name]):
        found.append(row)
        if not arguments.write or row.failure:
            print(row.markdown(), flush=True)
    slowest = max((row for row in found if row.lower_ms is not None), key=lambda row: row.lower_ms or 0, default=None)
    if slowest is not None:
        print(f"slowest lowering: {slowest.kernel}, {slowest.lower_ms:.1f} ms")
    if arguments.write:
        text = PAGE.read_text()
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n{table(found)}\n{END}{after}")


if __name__ == "__main__":
    main()
