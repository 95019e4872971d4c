"""What a block asks of the launch once TileLang has lowered it: threads, and shared memory for barriers."""

from __future__ import annotations

from collections.abc import Callable

from core.hardware import Chip
from core.tiling import KernelShape, LaunchProfile, TileRule, Tiles, constraints

#: TileLang aligns a block's dynamic shared memory to this (swizzled tiles repeat every 1024 bytes), and ptxas rounds
#: what lies before it, the barriers of a pipeline, up to as much.
BARRIER_BYTES = 1024


def launch_rule(chip: Chip, kernel: KernelShape) -> TileRule:
    """Threads in whole warps, within the block limit: those that only copy included."""
    return TileRule(
        "cuda.launch",
        "threads come in whole warps, within the block limit, with room for the warps that only copy",
        forbid=_forbid(chip),
    )


def _forbid(chip: Chip) -> Callable[[KernelShape, Tiles], str | None]:
    whole = constraints.whole_waves(chip)

    def forbid(kernel: KernelShape, tiles: Tiles) -> str | None:
        reason = whole(kernel, tiles)
        if reason is not None or kernel.operator not in ("gemm", "attention"):
            return reason
        threads, added, limit = constraints.number(tiles, "threads"), copy_threads(chip), chip.limits.threads_per_block
        if threads and added and limit and constraints.number(tiles, "stages") and threads + added > limit:
            return f"{threads} threads and {added} that copy, the chip allows {limit} a block"
        return None

    return forbid


def copy_threads(chip: Chip) -> int:
    """Threads that TileLang adds to a block to issue the bulk copies of a pipelined loop; 0 where it adds none."""
    return int(chip.cost.get("copy_threads", 0))


def pipelined(launch: LaunchProfile) -> bool:
    """Whether a loop with stages copies tiles to shared memory: then TileLang splits copying from computing."""
    return any(
        launch.loops[access.loop].stages >= 1 and access.mode == "read" and access.onchip.startswith("shared")
        for access in launch.accesses
    )


def launched_threads(chip: Chip, launch: LaunchProfile) -> int:
    """Threads of a block once lowered."""
    return (launch.threads or 0) + (copy_threads(chip) if pipelined(launch) else 0)


def barrier_bytes(chip: Chip, launch: LaunchProfile) -> int:
    """Static shared memory of a block: the barriers of a pipeline of bulk copies, or nothing."""
    return BARRIER_BYTES if copy_threads(chip) and pipelined(launch) else 0
