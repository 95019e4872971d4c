"""Which pipelined loops TileLang cannot compile, known before it is asked: it takes seconds to find out.

Without a bulk copy (TMA), a pipelined loop copies with `cp.async`. At its end it waits for as many copies as are still
in flight, and TileLang 0.1.15 takes that for a constant (`src/transform/inject_pipeline.cc`; "Downcast from tirx.Sub to
ir.IntImm failed"). It is none where the number of rounds is none: it differs from block to block, depends on data, or
is a symbolic dimension's. With up to two stages whose tiles are all used by one product there is nothing else in
flight. One bulk copy in the loop is enough: its copies are then made by warps of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from backends.cuda.rules.launch import copy_threads
from core.errors import UnsupportedOp
from core.hardware import Chip
from core.tiling import LaunchProfile
from core.tiling.cost import BULK_BYTES

if TYPE_CHECKING:
    from core.compiler import CompileOptions
    from core.program import Program
    from core.tiling.profile import GlobalAccess

#: Stages that are too many, less one where several products use the loop's tiles.
_TOO_MANY = 3


def refused(chip: Chip, launch: LaunchProfile, options: Mapping[str, Any]) -> str | None:
    """Why a loop of a launch cannot be compiled, or None.

    Args:
        options: the compilation's `options=`; `aligned_rows` lets tensors of symbolic strides be copied in bulk.
    """
    for index, loop in enumerate(launch.loops):
        # A loop whose copies are the kernel's own has no stages of TileLang's.
        if not loop.uncounted or loop.ahead or loop.stages < 1:
            continue
        products = sum(product.loop == index for product in launch.products)
        copies = _copies(launch, index)
        # What goes to registers straight from global memory is not copied while threads go on.
        if loop.stages + (products > 1) < _TOO_MANY or not copies or _any_in_bulk(chip, copies, options):
            continue
        return (
            f"{loop.stages} stages of copies that are not in bulk, in a loop whose length is no constant:"
            f" {_TOO_MANY - 1 - (products > 1)} at most"
        )
    return None


def _copies(launch: LaunchProfile, loop: int) -> list[GlobalAccess]:
    """What a loop copies from global to shared memory."""
    return [
        access
        for access in launch.accesses
        if access.mode == "read" and access.onchip == "shared" and _inside(launch, access.loop, loop)
    ]


def _any_in_bulk(chip: Chip, copies: Sequence[GlobalAccess], options: Mapping[str, Any]) -> bool:
    promised = bool(options.get("aligned_rows"))
    return bool(copy_threads(chip)) and any(_even_strides(access, promised) for access in copies)


def _inside(launch: LaunchProfile, inner: int, outer: int) -> bool:
    while inner > outer:
        inner = launch.loops[inner].parent
    return inner == outer


def _even_strides(access: GlobalAccess, promised: bool) -> bool:
    """Whether the tensor's strides are as a bulk copy needs them; symbolic ones are where that is promised."""
    return promised if access.symbolic_rows else access.strides_in_wholes_of(BULK_BYTES)


def check(program: Program, chip: Chip, options: CompileOptions) -> None:
    """Refuses a program with such a loop before TileLang is asked.

    Raises:
        UnsupportedOp: with the loop's line.
    """
    from core.program import Const, For, statements
    from core.tiling.profile import profile

    loops = [stmt for stmt in statements(program.view) if isinstance(stmt, For) and stmt.num_stages > 1]
    uncounted = [loop for loop in loops if not isinstance(loop.extent, Const)]
    if not uncounted:
        return
    reason = next(filter(None, (refused(chip, one, options.backend) for one in profile(program).launches)), None)
    if reason is not None:
        raise UnsupportedOp(
            f"{program.name} for {chip.target}: {reason}",
            hint=_hint(chip),
            location=max(uncounted, key=lambda loop: loop.num_stages).location or program.location,
            details={"stage": "before lowering"},
        )


def _hint(chip: Chip) -> str:
    fewer = "use num_stages=1, or 2 where one product uses the loop's tiles"
    if not copy_threads(chip):
        return f"{fewer}, or give the loop a constant length"
    return (
        f"{fewer}; or give a tensor that the loop copies constant strides in multiples of {BULK_BYTES} bytes, or"
        " promise them (options={'aligned_rows': True}): bulk copies take more stages"
    )
