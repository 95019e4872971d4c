"""Tile-size rules for Ascend: whole cube fractals, double-buffered L1 and L0, half a UB, blocks for every core."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from core.hardware import Chip
from core.tiling import KernelShape, TileRule

_BYTES = {"float32": 4, "int32": 4, "int8": 1, "uint8": 1, "float8_e4m3fn": 2, "float8_e5m2": 2}
#: A cube instruction multiplies 16 x 16 by 16 x 16; of 8-bit integers, 32 deep.
_FRACTAL = 16
_DEEP = 32
#: Data moves in rows of this many bytes.
_ROW_BYTES = 32
#: float32 tiles a row operation keeps in UB at once: what the compiler's plans show, and one tile in flight.
_ROW_TILES = 4


def tile_rules(chip: Chip, kernel: KernelShape) -> list[TileRule]:
    """Preferences by operator, and the constraints the cube cores and the data paths set."""
    if kernel.operator in ("gemm", "attention"):
        return [
            TileRule(
                "ascend.cube-tile",
                "whole 16x16 fractals; both operands twice in L1; accumulators in L0C; a block for every cube core",
                prefer=tuple(_cube_tiles(chip, kernel)),
                forbid=_cube(chip),
            )
        ]
    if kernel.operator == "reduction":
        return [
            TileRule(
                "ascend.row-tile",
                "as many rows as leave UB room for the compiler's copies, and a block for every vector core",
                prefer=tuple({"M": rows, "threads": 128} for rows in _row_counts(chip, kernel)),
            )
        ]
    return [
        TileRule(
            "ascend.elementwise-tile",
            "tiles of whole 32-byte rows that leave UB room for several operands",
            prefer=tuple({"M": m, "N": n, "threads": 128} for m, n in ((16, 512), (32, 256), (64, 128), (16, 256))),
            forbid=_rows_of_32_bytes,
        )
    ]


def _cube_tiles(chip: Chip, kernel: KernelShape) -> list[Mapping[str, int]]:
    """Tiles that fit, least device time first; among equals the one that moves fewest bytes."""
    element = max((_BYTES.get(dtype, 2) for dtype in kernel.dtypes[:2]), default=2)
    l1, l0c = chip.memory("l1").capacity_bytes, chip.memory("l0c").capacity_bytes
    depths = (256, 128, 64) if kernel.operator == "gemm" else (128, 64, 32)
    blocks = (
        (128, 256),
        (256, 128),
        (128, 128),
        (64, 256),
        (64, 128),
        (64, 64),
        (32, 64),
        (16, 64),
        (32, 32),
        (16, 16),
    )
    shapes = [
        (bm, bn, 128 * depth // 256 if element == 4 else depth)
        for bm, bn in blocks
        for depth in depths
        if (l1 is None or 2 * (bm + bn) * depth * element <= l1) and (l0c is None or bm * bn * 4 <= l0c)
    ]
    cores = chip.main_unit.count or 1
    m, n = kernel.dimensions.get("M"), kernel.dimensions.get("N")

    def cost(shape: tuple[int, int, int]) -> tuple[float, float]:
        bm, bn, depth = shape
        moved = 1 / bm + 1 / bn
        if m is None or n is None:
            return moved, -depth
        blocks_needed = -(-m // bm) * -(-n // bn)
        waves = -(-blocks_needed // cores)
        # A cube core that waits for its operands is slower by what they are to the products.
        return waves * bm * bn * (1 + 48 * moved), -depth

    return [
        {"M": bm, "N": bn, "K": bk, "stages": 2, "threads": 128}
        for bm, bn, bk in sorted(dict.fromkeys(shapes), key=cost)
    ]


def _cube(chip: Chip) -> Callable[[KernelShape, Mapping[str, int]], str | None]:
    def forbid(kernel: KernelShape, tiles: Mapping[str, int]) -> str | None:
        for key in ("M", "N"):
            if tiles.get(key, _FRACTAL) % _FRACTAL:
                return f"{key} tile {tiles[key]} is not whole fractals of {_FRACTAL}"
        depth = _DEEP if "int8" in kernel.dtypes[:2] else _FRACTAL
        if tiles.get("K", depth) % depth:
            return f"K tile {tiles['K']} is not a multiple of {depth}"
        l0c = chip.memory("l0c").capacity_bytes
        if l0c is not None and "M" in tiles and "N" in tiles and tiles["M"] * tiles["N"] * 4 > l0c:
            return f"{tiles['M']} x {tiles['N']} accumulators are more than {l0c // 1024} KiB of L0C"
        return None

    return forbid


def _row_counts(chip: Chip, kernel: KernelShape) -> list[int]:
    """Rows a block, most wanted first: enough work for a vector core, few enough that all have some."""
    rows, columns = kernel.dimensions.get("M"), kernel.dimensions.get("N")
    limit = chip.memory("ub").capacity_bytes
    wanted = [16, 8, 4, 2, 1]
    if columns is not None and limit is not None:
        wanted = [count for count in wanted if count * columns * 4 * _ROW_TILES <= limit] or [1]
    if rows is not None:
        cores = 2 * (chip.main_unit.count or 1)
        filling = [count for count in wanted if -(-rows // count) >= cores]
        wanted = [*filling, *(count for count in reversed(wanted) if count not in filling)]
    return wanted


def _rows_of_32_bytes(kernel: KernelShape, tiles: Mapping[str, int]) -> str | None:
    element = min((_BYTES.get(dtype, 2) for dtype in kernel.dtypes), default=2)
    if tiles.get("N", _ROW_BYTES) * element % _ROW_BYTES:
        return f"rows of {tiles['N'] * element} bytes are not whole units of {_ROW_BYTES}"
    return None
