"""From a program to the modules Huawei's compiler takes."""

from __future__ import annotations

from backends.ascend.dialect import AscendDialect
from core.codegen import mlir
from core.compiler import CompileOptions, LoweredKernel
from core.hardware import Chip
from core.program import Program


def lower(chip: Chip, program: Program, options: CompileOptions) -> LoweredKernel:
    """Tile MLIR for `chip`.

    Raises:
        UnsupportedOp: what the compiler or the chip cannot express, with the user's line.
    """
    lowered, _ = mlir.lower(program, chip, AscendDialect(), looped=options.backend.get("blockify"))
    return lowered
