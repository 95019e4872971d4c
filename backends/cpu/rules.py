"""Tile-size rules for CPUs: a block's buffers stay in its core's own cache."""

from __future__ import annotations

from core.hardware import Chip
from core.tiling import KernelShape, TileRule

#: Bytes of an element while it is worked on: kernels widen to float32, and hold about two copies of the tile.
_WORKING_BYTES = 8
#: What is assumed of the private cache where the machine does not say: the smallest in use.
_SMALLEST_CACHE_BYTES = 256 * 1024


def tile_rules(chip: Chip, kernel: KernelShape) -> list[TileRule]:
    """Preferences by operator. Threads and stages mean nothing to a CPU; the smallest usual values stand for them."""
    name, tiles = _preferences(chip, kernel)
    reason = "a block's tiles fit half of its core's private cache, and rows are long enough to vectorise"
    return [TileRule(name, reason, prefer=tuple({**tile, "stages": 1, "threads": 128} for tile in tiles))]


def _preferences(chip: Chip, kernel: KernelShape) -> tuple[str, list[dict[str, int]]]:
    if kernel.operator == "gemm":
        large = {"M": 128, "N": 128, "K": 64}
        # Larger tiles repack their operands less often (a sixth of the time at 64), if every core still has one.
        first = [large] if _blocks(kernel, large) >= (chip.main_unit.count or 1) else []
        return "cpu.matrix-tile", [*first, *({"M": side, "N": side, "K": side} for side in (64, 32, 16))]
    if kernel.operator == "attention":
        return "cpu.matrix-tile", [{"M": side, "N": side, "K": side} for side in (64, 32, 16)]
    if kernel.operator == "reduction":
        budget = _private_cache_bytes(chip) // 2
        row = kernel.dimensions.get("N", 1024) * _WORKING_BYTES
        fits = max(1, min(16, budget // row))
        rows = 1 << (fits.bit_length() - 1)
        return "cpu.row-tile", [{"M": count} for count in (rows, max(1, rows // 2), 1)]
    return "cpu.elementwise-tile", [{"M": 16, "N": 256}, {"M": 8, "N": 128}]


def _blocks(kernel: KernelShape, tile: dict[str, int]) -> int:
    """Blocks of the grid over M and N; many when the kernel does not have both."""
    m, n = kernel.dimensions.get("M"), kernel.dimensions.get("N")
    return 2**31 if m is None or n is None else -(-m // tile["M"]) * -(-n // tile["N"])


def _private_cache_bytes(chip: Chip) -> int:
    found = chip.memory("l2") if any(memory.name == "l2" for memory in chip.memories) else None
    return (found.capacity_bytes if found is not None else None) or _SMALLEST_CACHE_BYTES
