"""Tile-size rules for NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from core.hardware import Chip
from core.tiling import KernelShape, TileRule, whole_waves


def tile_rules(chip: Chip, kernel: KernelShape) -> list[TileRule]:
    """Preferences by operator, and the constraints every launch on the chip obeys."""
    rules = [TileRule("cuda.launch", "threads come in whole warps, within the block limit", forbid=whole_waves(chip))]
    if kernel.operator in ("gemm", "attention"):
        rules.append(
            TileRule(
                "cuda.matrix-tile",
                "warpgroup instructions want 64 rows a warpgroup and feed best from deep pipelines of large tiles",
                prefer=tuple(_matrix_tiles(chip, kernel)),
                forbid=_odd_warpgroup_tile if "wgmma" in chip.features else None,
            )
        )
    elif kernel.operator == "reduction":
        rules.append(
            TileRule(
                "cuda.row-tile",
                "one row a block keeps many blocks in flight; more rows only when rows are short",
                prefer=tuple({"M": rows, "threads": threads} for rows, threads in ((1, 128), (4, 128), (1, 256))),
            )
        )
    else:
        rules.append(
            TileRule(
                "cuda.elementwise-tile",
                "a few thousand elements a block: 16-byte accesses, several per thread",
                prefer=tuple({"M": m, "N": n, "threads": 128} for m, n in ((32, 128), (16, 128), (64, 64))),
            )
        )
    return rules


def _matrix_tiles(chip: Chip, kernel: KernelShape) -> list[Mapping[str, int]]:
    """Large tiles where the grid still fills the chip, smaller ones otherwise, fewest waves first."""
    units = chip.main_unit.count or 0
    m, n = kernel.dimensions.get("M"), kernel.dimensions.get("N")
    warpgroup = "wgmma" in chip.features
    shapes = [
        (128, 256, 64, 3, 256),
        (128, 128, 64, 4, 256 if warpgroup else 128),
        (64, 128, 64, 4, 128),
        (64, 64, 64, 4, 128),
        (16, 128, 64, 4, 128),
        (64, 64, 32, 2, 128),
        (16, 64, 32, 2, 128),
    ]

    def waste(shape: tuple[int, int, int, int, int]) -> float:
        """Device time in units of one full wave of multiply-adds; small when tiles divide the work evenly."""
        bm, bn = shape[0], shape[1]
        if m is None or n is None or not units:
            return 0.0
        blocks = -(-m // bm) * -(-n // bn)
        waves = -(-blocks // units)
        return waves * bm * bn / min(1.0, bm * bn / (128 * 128)) ** 0.5

    ordered = sorted(shapes, key=waste)
    return [{"M": bm, "N": bn, "K": bk, "stages": st, "threads": th} for bm, bn, bk, st, th in ordered]


def _odd_warpgroup_tile(kernel: KernelShape, tiles: Mapping[str, int]) -> str | None:
    n = tiles.get("N")
    if n is not None and n % 16 == 8 and tiles.get("M", 0) >= 64:
        # tile-ai/tilelang#2593: such tiles give silently wrong results with warpgroup instructions.
        return f"N tile {n} is 8 modulo 16"
    return None
