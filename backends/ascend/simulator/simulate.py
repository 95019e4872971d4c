"""From a lowered kernel to one that runs on the CPU: what `tilehal_simulator` calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.ascend import ascendc
from backends.ascend.simulator.launcher import SimulatedKernel
from backends.ascend.simulator.native import LoadedObject, compile_object, machine_identity
from backends.ascend.simulator.pipeline import to_llvm_ir
from backends.ascend.simulator.rewrite import rewrite
from backends.ascend.simulator.tools import identity, opt_program, require_llvmlite, translate_program
from core.codegen import mlir
from core.compiler import cached_files
from core.errors import UnsupportedOp

if TYPE_CHECKING:
    from core.compiler import LoweredKernel
    from core.hardware import Chip

OBJECT = "kernel.o"
_RULES = "rewrites.json"


def simulator(chip: Chip, lowered: LoweredKernel, *, verbose: bool = False) -> SimulatedKernel:
    """Compiles the kernel's modules for the CPU, or takes them from the cache, and loads them.

    Raises:
        ToolchainNotFound: what is missing, and the pip extra that brings it.
        UnsupportedOp: an operation of the vendor's without an equivalent; a kernel that became AscendC.
        BuildFailed: a tool refused the module.
    """
    if lowered.route == ascendc.ROUTE:
        raise UnsupportedOp(
            f"{lowered.signature.name}: AscendC source, which kernels in TileLang's own Ascend dialect become, has no"
            " simulator",
            hint="write the kernel with tilelang.language alone: it then becomes MLIR, which the simulator runs",
        )
    require_llvmlite()
    modules = lowered.source.split(mlir.SEPARATOR)
    objects: list[LoadedObject] = []
    rules: dict[str, None] = {}
    for module, launch in zip(modules, lowered.metadata["launches"], strict=True):
        folder = build_object(module, launch, lowered.metadata["strip"], verbose=verbose)
        rules |= dict.fromkeys(json.loads((folder / _RULES).read_text(encoding="utf-8")))
        objects.append(LoadedObject((folder / OBJECT).read_bytes()))
    return SimulatedKernel(lowered, objects, tuple(rules), cores(chip))


def build_object(
    module: str, launch: Mapping[str, Any], vendor_attributes: list[str], *, verbose: bool = False
) -> Path:
    """The folder with a launch's object for this machine. Raises as :func:`simulator` does."""
    arguments = launch["arguments"]

    def make(folder: Path) -> None:
        rewritten = rewrite(module, vendor_attributes)
        ir, copies = to_llvm_ir(rewritten.text, folder, verbose=verbose)
        (folder / OBJECT).write_bytes(compile_object(ir, launch["entry"], arguments))
        (folder / _RULES).write_text(json.dumps([*rewritten.rules, *copies]), encoding="utf-8")
        for name in ("buffers.mlir", "llvm.mlir"):
            (folder / name).unlink()

    parts = (
        "ascend simulator",
        _own_code(),
        identity(opt_program()),
        identity(translate_program()),
        machine_identity(),
        json.dumps([list(arguments), vendor_attributes]),
        module,
    )
    return cached_files(parts, make, label=f"{launch['entry']} (Ascend simulator)")


def cores(chip: Chip) -> int:
    """Cores a launch spreads over: the vector cores of the chip, the most there are of one kind."""
    return max(unit.count for unit in chip.units if unit.count is not None)


@lru_cache(maxsize=1)
def _own_code() -> str:
    """The simulator's own source: a changed rule makes other objects."""
    return "".join(path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.py")))
