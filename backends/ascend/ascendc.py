"""Kernels written in TileLang's own Ascend dialect: AscendC source from the wheel's own backend, for the 950 family."""

from __future__ import annotations

from dataclasses import replace

from backends.ascend.toolchain import is_a5
from core.codegen import native
from core.compiler import CompileOptions, LoweredKernel
from core.errors import UnsupportedOp
from core.hardware import Chip
from core.program import OpaqueStmt, Program, Scope, View

ROUTE = "tilelang-ascendc"
LANGUAGE = "ascendc"

_OPERATIONS = ("tl.tileop.ascend_", "tl.ascend_")
_SCOPES = ("shared.l1", "shared.l0a", "shared.l0b", "shared.l0c")


def is_dialect_kernel(view: View) -> bool:
    """Whether a kernel uses what only `tilelang.ascend.language` has: its operations, or memory it names by chip."""
    if any(isinstance(item, OpaqueStmt) and item.operation.startswith(_OPERATIONS) for item in view.opaque):
        return True
    return any(
        buffer.scope is Scope.OTHER and buffer.storage.tilelang_scope in _SCOPES
        for launch in view.launches
        for buffer in launch.buffers
    )


def lower(chip: Chip, program: Program, options: CompileOptions) -> LoweredKernel:
    """AscendC source for `chip`.

    Raises:
        UnsupportedOp: the chip is not of the 950 family, or TileLang refused the kernel.
    """
    if not is_a5(chip):
        raise UnsupportedOp(
            f"TileLang's Ascend dialect is for the 950 family; {chip.target} is {chip.architecture}",
            hint="write the kernel with tilelang.language, or compile it for ascend:950pr",
            location=program.location,
        )
    lowered = native.lower(program, chip, options, language=LANGUAGE, tvm_target={"kind": "ascend"})
    return replace(lowered, route=ROUTE)
