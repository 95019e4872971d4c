"""From a program to the modules Huawei's compiler takes, checked against the chip before it runs."""

from __future__ import annotations

from dataclasses import replace

from backends.ascend.dialect import AscendDialect
from backends.ascend.settings import Settings
from core.codegen import mlir
from core.compiler import CompileOptions, LoweredKernel
from core.hardware import Chip
from core.program import Program

#: Parameters of a kernel that mean nothing on these chips, for `kernel.config`.
_EFFECTIVE = {
    "threads": [None, "an AI core runs a whole tile; its compiler assigns the work to cube and vector cores"],
    "stages": [None, "Huawei's compiler pipelines by itself: see the option multi_buffer"],
    "swizzle": [None, "blocks are taken in the order of the grid"],
    "warp_policy": [None, "no warps share a product"],
}


def lower(chip: Chip, program: Program, options: CompileOptions) -> LoweredKernel:
    """Tile MLIR for `chip`; AscendC for a kernel written in TileLang's own Ascend dialect.

    Raises:
        UnsupportedOp: what the compiler or the chip cannot express, with the user's line.
        ResourceExceeded: a tile that cannot fit UB, L1 or L0C.
        KernelError: an option this backend does not have.
    """
    from backends.ascend import ascendc, capacity

    settings = Settings.from_options(options.backend)
    if settings.route == "ascendc" or (settings.route is None and ascendc.is_dialect_kernel(program.view)):
        return ascendc.lower(chip, program, options)
    launches = program.view.launches
    needs = [capacity.estimate(launch, chip) for launch in launches]
    for need in needs:
        capacity.check(need, chip)
    lowered, _ = mlir.lower(program, chip, AscendDialect(), looped=settings.blockify)
    records = [
        {**record, "kernel_type": need.kernel_type, "buffers": [row.record() for row in need.buffers]}
        for record, need in zip(lowered.metadata["launches"], needs, strict=True)
    ]
    memory: dict[str, int] = {}
    for need in needs:
        for space, size in need.bytes_needed.items():
            memory[space] = max(memory.get(space, 0), size)
    return replace(
        lowered,
        metadata={**lowered.metadata, "launches": records, "effective": _EFFECTIVE},
        resources=replace(lowered.resources, memory_bytes={k: v for k, v in memory.items() if v}),
    )
