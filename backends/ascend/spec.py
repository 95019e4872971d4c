"""What Huawei's compiler itself says a chip is: the target specification it puts into every module."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from backends.ascend import messages
from backends.ascend.toolchain import find_opt
from core.compiler import run_tool
from core.errors import BuildFailed, ToolchainNotFound, UnsupportedOp
from core.hardware import Chip
from core.plugins import Answer

_ENTRY = re.compile(r'#dlti\.dl_entry<"(\w+)", (?:(\d+) : i32|"([^"]*)")>')
#: The specification's names and ours; sizes are in bits there.
_COUNTS = {
    "AI_CORE_COUNT": "units.ai_core.count",
    "CUBE_CORE_COUNT": "units.cube_core.count",
    "VECTOR_CORE_COUNT": "units.vector_core.count",
}
_SIZES = {
    "UB_SIZE": "memories.ub.capacity_bytes",
    "L1_SIZE": "memories.l1.capacity_bytes",
    "L0A_SIZE": "memories.l0a.capacity_bytes",
    "L0B_SIZE": "memories.l0b.capacity_bytes",
    "L0C_SIZE": "memories.l0c.capacity_bytes",
    "UB_ALIGN_SIZE": "memories.ub.alignment_bytes",
    "L1_ALIGN_SIZE": "memories.l1.alignment_bytes",
    "L0C_ALIGN_SIZE": "memories.l0c.alignment_bytes",
}


def answers(chip: Chip) -> list[Answer]:
    """What the compiler says `chip` is; nothing where it is not installed or does not know the chip."""
    try:
        facts = target_spec(chip)
        program = find_opt(chip)
    except (ToolchainNotFound, BuildFailed, UnsupportedOp):
        return []
    return [Answer(f"{program.path.name}: target specification of {chip.codegen['target']}", facts)] if facts else []


def target_spec(chip: Chip) -> dict[str, int]:
    """The figures of the compiler's specification of `chip`, by the descriptor's paths, for `core.hardware.verify`.

    Raises:
        ToolchainNotFound: the compiler is not installed, or does not know the chip.
    """
    module = f'module attributes {{hacc.target = #hacc.target<"{chip.codegen["target"]}">}} {{}}\n'
    with tempfile.TemporaryDirectory(prefix="tilehal-spec-") as folder:
        (Path(folder) / "empty.mlir").write_text(module, encoding="utf-8")
        words = [
            *find_opt(chip).command,
            "--hacc-append-device-spec=target=" + str(chip.codegen["target"]),
            "empty.mlir",
        ]
        try:
            result = run_tool(words, cwd=folder, timeout_s=30, purpose=f"ask what {chip.target} is")
        except BuildFailed as error:
            raise messages.translate(error, {}, {}, chip.target) from error
    return parse_spec(result.stdout)


def parse_spec(text: str) -> dict[str, int]:
    """Figures in a module's `dlti.target_system_spec`."""
    facts: dict[str, int] = {}
    for name, number, _ in _ENTRY.findall(text):
        if name in _COUNTS:
            facts[_COUNTS[name]] = int(number)
        elif name in _SIZES:
            facts[_SIZES[name]] = int(number) // 8
    return facts
