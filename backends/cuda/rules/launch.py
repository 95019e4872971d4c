"""Threads of a block once TileLang has lowered it, those that only copy included."""

from __future__ import annotations

from collections.abc import Callable

from backends.cuda.rules import fragments
from core.hardware import Chip
from core.tiling import KernelShape, LaunchProfile, Profile, TileRule, Tiles, constraints
from core.tiling.cost import added_threads


def launch_rule(chip: Chip, kernel: KernelShape) -> TileRule:
    """Threads in whole warps, within the block limit: those that only copy included."""
    return TileRule(
        "cuda.launch",
        "threads come in whole warps, within the block limit, with room for the warps that only copy",
        forbid=_forbid(chip),
        inspect=_inspect(chip),
    )


def _inspect(chip: Chip) -> Callable[[KernelShape, Tiles, Profile], str | None]:
    """For `TileRule.inspect`: threads that a block may have, those that TileLang adds included, and their fragments."""

    def inspect(kernel: KernelShape, tiles: Tiles, profile: Profile) -> str | None:
        reasons = (_too_many(chip, one) or fragments.refused(chip, one) for one in profile.launches)
        return next(filter(None, reasons), None)

    return inspect


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


def _too_many(chip: Chip, launch: LaunchProfile) -> str | None:
    launched, limit = launched_threads(chip, launch), chip.limits.threads_per_block
    if limit is None or launched <= limit:
        return None
    return f"{launch.threads} threads and {launched - (launch.threads or 0)} that copy, the chip allows {limit} a block"


def copy_threads(chip: Chip) -> int:
    """Threads that TileLang adds to a block to issue the bulk copies of a pipelined loop; 0 where it adds none."""
    return int(chip.cost.get("copy_threads", 0))


def launched_threads(chip: Chip, launch: LaunchProfile) -> int:
    """Threads of a block once lowered, those that TileLang adds included."""
    return (launch.threads or 0) + added_threads(launch, chip)
