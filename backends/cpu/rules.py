"""Tile-size rules for CPUs: a block's buffers stay in its core's own cache, and rows are long enough to vectorise.

Threads and stages mean nothing to a CPU, where one thread runs a whole block: one value stands for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from core.hardware import Chip
from core.tiling import KernelShape, TileRule, Tiles, Value
from core.tiling.constraints import blocks_of, covering, number, operand_bytes, power_of_two

#: Bytes of an element while it is worked on: kernels widen to float32, and hold about two copies of the tile.
_WORKING_BYTES = 8
#: What is assumed of the private cache where the machine does not say: the smallest in use.
_SMALLEST_CACHE_BYTES = 256 * 1024
#: Longest part of a row that is walked over where the cache does not hold the row.
_PARTS = (16384, 4096)
_FIXED: Mapping[str, Sequence[Value]] = {"stages": (1,), "threads": (128,), "swizzle": (0,), "warp_policy": (0,)}


def tile_rules(chip: Chip, kernel: KernelShape) -> list[TileRule]:
    """What is worth considering by operator."""
    cache = _private_cache_bytes(chip)
    if kernel.operator in ("gemm", "attention"):
        reason = "a block's tiles fit its core's private cache; larger ones repack their operands less often"
        return [
            TileRule("cpu.matrix-tile", reason, values=_products(chip, kernel), leave_out=_outgrown(cache)),
        ]
    if kernel.operator == "reduction":
        reason = "a block's rows fit half of its core's private cache"
        return [TileRule("cpu.row-tile", reason, values=_rows(chip, kernel, cache // 2))]
    reason = "rows long enough to vectorise, and a few of them to a block"
    return [TileRule("cpu.elementwise-tile", reason, values={"M": (16, 8, 32), "N": (256, 128, 1024), **_FIXED})]


def _products(chip: Chip, kernel: KernelShape) -> Mapping[str, Sequence[Value]]:
    """By key, most wanted first: large tiles as long as every core has one."""
    sides: Sequence[int] = (64, 32, 16)
    blocks = blocks_of(kernel, 128, 128)
    if kernel.operator == "gemm" and (blocks is None or blocks >= (chip.main_unit.count or 1)):
        sides = (128, 64, 256)
    rows, columns, k = kernel.dimensions.get("M"), kernel.dimensions.get("N"), kernel.dimensions.get("K")
    depths = covering(k, (64, 128, 256) if kernel.operator == "gemm" else (64, 32))
    return {
        "M": sides if rows is None or rows > min(sides) else (*sides, power_of_two(rows)),
        "N": sides if columns is None or columns > min(sides) else (*sides, power_of_two(columns)),
        "K": depths,
        "split_K": (1,),
        **_FIXED,
    }


def _outgrown(cache: int) -> Callable[[KernelShape, Tiles], str | None]:
    """For `TileRule.leave_out`: tiles of both operands and of the sums that the private cache cannot hold."""

    def leave_out(kernel: KernelShape, tiles: Tiles) -> str | None:
        m, n, k = (number(tiles, key) for key in "MNK")
        if kernel.operator != "gemm" or m is None or n is None or k is None:
            return None
        # Operands are packed beside their tiles, sums are float32.
        size = 2 * (m + n) * k * operand_bytes(kernel) + 4 * m * n
        return f"{size:,} bytes of tiles, a core's own cache has {cache:,}" if size > cache else None

    return leave_out


def _rows(chip: Chip, kernel: KernelShape, budget: int) -> Mapping[str, Sequence[Value]]:
    """As many rows as the budget holds, at most 16; a row longer than that also in parts."""
    length = power_of_two(kernel.dimensions.get("N", 1024))
    fits = max(1, min(16, budget // (length * _WORKING_BYTES)))
    most = 1 << (fits.bit_length() - 1)
    counts = [count for count in (16, 8, 4, 2, 1) if count <= most]
    whole = length * _WORKING_BYTES <= budget
    parts = [] if whole else [part for part in _PARTS if part < length]
    return {"M": counts, "N": (length, *parts) if whole else (*parts, length), **_FIXED}


def _private_cache_bytes(chip: Chip) -> int:
    found = chip.memory("l2") if any(memory.name == "l2" for memory in chip.memories) else None
    return (found.capacity_bytes if found is not None else None) or _SMALLEST_CACHE_BYTES
