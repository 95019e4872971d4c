"""Variants of a kernel that only some chips can run: which of their parameters are worth combining."""

from __future__ import annotations

from collections.abc import Callable

from core.hardware import Chip
from core.tiling import KernelShape, Prediction, TileRule, Tiles, Value
from core.tiling.constraints import blocks_of, number, operand_bytes

#: What a variant that schedules copies and products by hand needs of the chip.
_FEATURES = frozenset({"wgmma", "tma", "clusters"})
_PLAIN, _SHARED, _APART, _SPLIT = "tiled", "warp_specialized", "warpgroups", "split"
#: A bulk copy's rows start at multiples of this.
_ROW_BYTES = 16
#: What `warpgroups` is for: two that multiply, on tiles with a whole line of shared memory a row.
_CONSUMERS, _SIDE, _DEPTH_BYTES = 256, 128, 128
#: What `warp_specialized` is for: one warpgroup that multiplies, on tiles with fewer elements.
_CONSUMER, _ROWS, _LARGEST_TILE = 128, 64, 128 * 128
#: What `split` is for: so many rows of A and terms of a sum at least, and tiles of 64 x 64 for at most half of the
#: units. With fewer rows, reading B takes the time.
_LEAST_ROWS, _LONG_K = 128, 8192
#: Into how many parts K is divided. 3, 5 and 7 leave units idle that the next even number uses.
_SPLITS = (1, 2, 4, 6, 8)
#: Elements of a small tile: one more stage of loads in flight is worth more to it than products in flight.
_SMALL_TILE = 64 * 32


def variant_rule(chip: Chip, kernel: KernelShape) -> TileRule | None:
    """The rule for products that come in a plain variant and two scheduled by hand; None for other kernels."""
    options = next((p.choices for p in kernel.parameters.values() if p.key == "variant" and p.choices), ())
    if not {_PLAIN, _SHARED, _APART} <= set(options):
        return None
    units = chip.main_unit.count
    blocks = blocks_of(kernel, _SIDE, _SIDE)
    able = set(chip.features) >= _FEATURES and units is not None and blocks is not None and _aligned(kernel)
    if not able or blocks is None or units is None:
        return TileRule("cuda.variant", "no warpgroups, or rows that cannot be copied in bulk", values=_values(_PLAIN))
    if blocks < units:
        values: dict[str, tuple[Value, ...]] = {**_values(_SHARED, _PLAIN), "cluster": (1, 2)}
        if _SPLIT in options and _leaves_half_idle(kernel, units):
            values |= {**_values(_SHARED, _PLAIN, _SPLIT), "split_K": _SPLITS}
        return TileRule(
            "cuda.variant",
            "few tiles: small ones, each with a warp that only copies and as many stages as there is room for",
            values=values,
            leave_out=_leave_out(chip, operand_bytes(kernel)),
            weigh=_near_tie,
        )
    return TileRule(
        "cuda.variant",
        "blocks that stay load the next tile's operands while they store this one's result; neighbours share a tile",
        values={**_values(_APART, _PLAIN), "cluster": (2, 1), "workers": (units, 0)},
        leave_out=_leave_out(chip, operand_bytes(kernel)),
    )


def _near_tie(kernel: KernelShape, tiles: Tiles, prediction: Prediction) -> float:
    """Of two like tiles, prefers the one that keeps products in flight: the model does not see all that it gains.

    Products in flight keep a stage occupied that loads could use. With small tiles and a long K, loading is what takes
    the time, and the preference is turned round: on an H200 512 x 512 x 16384 in tiles of 64 x 32 was 1.11 to 1.38
    times as fast without products in flight (`scripts/explore_gemm.py`).
    """
    small = (number(tiles, "M") or 0) * (number(tiles, "N") or 0) <= _SMALL_TILE
    ahead = _PLAIN if small and kernel.dimensions.get("K", 0) >= _LONG_K else _SHARED
    return 1.0 if tiles.get("variant") == ahead else 1.03


def _leaves_half_idle(kernel: KernelShape, units: int) -> bool:
    """Whether there are too few tiles for the chip, and enough terms in each sum to share."""
    rows, terms, tiles = kernel.dimensions.get("M", 0), kernel.dimensions.get("K", 0), _tiles(kernel, _ROWS, _ROWS)
    return rows >= _LEAST_ROWS and terms >= _LONG_K and tiles is not None and 2 * tiles <= units


def _tiles(kernel: KernelShape, rows: int, columns: int) -> int | None:
    """Tiles of all products of a batch; None where an extent is symbolic."""
    blocks = blocks_of(kernel, rows, columns)
    return None if blocks is None else blocks * kernel.dimensions.get("batch", 1)


def _values(*variants: str) -> dict[str, tuple[Value, ...]]:
    return {"variant": variants}


def _aligned(kernel: KernelShape) -> bool:
    """Whether the rows of both operands may be copied in bulk."""
    element = operand_bytes(kernel)
    return all(kernel.dimensions.get(name, 1) * element % _ROW_BYTES == 0 for name in ("N", "K"))


def _split_unwanted(chip: Chip, kernel: KernelShape, tiles: Tiles) -> str | None:
    """Why K is not shared with these tiles, or None: all clusters shall run at once, on more than half of the units."""
    m, n, threads = (number(tiles, key) or 0 for key in ("M", "N", "threads"))
    splits, units = number(tiles, "split_K") or 1, chip.main_unit.count or 0
    clusters, room = _tiles(kernel, m, n) or 0, _room(chip, splits, units)
    if threads != 2 * n:
        return f"this variant takes {2 * n} threads, two for each of {n} columns"
    if 2 * clusters * splits <= units:
        return f"{clusters} clusters of {splits} leave half of the {units} units idle"
    if clusters > room:
        return f"{clusters} clusters of {splits} do not all run at once: there is room for {room}"
    return None


def _room(chip: Chip, splits: int, units: int) -> int:
    """Clusters of so many blocks that surely run at once.

    From three blocks on, one less than the descriptor's figures say: it counts 18 clusters of 6 for an H200, of which
    the driver of one counted 17 (docs/hardware.md).
    """
    known = chip.clusters_at_once(splits)
    return max(0, (units // splits if known is None else known) - (splits > 2))


def _leave_out(chip: Chip, element: int) -> Callable[[KernelShape, Tiles], str | None]:
    """Leaves out what one variant does not have, and of another what its design is not for."""

    def unwanted(kernel: KernelShape, tiles: Tiles) -> str | None:
        variant = tiles.get("variant")
        stays, shares = bool(number(tiles, "workers")), (number(tiles, "cluster") or 1) > 1
        m, n, k, threads = (number(tiles, key) or 0 for key in ("M", "N", "K", "threads"))
        splits = number(tiles, "split_K") or 1
        if variant == _SPLIT:
            return "its clusters share K, and do so once" if stays or shares else _split_unwanted(chip, kernel, tiles)
        if splits > 1:
            return f"K is shared in the variant {_SPLIT}"
        if variant == _PLAIN:
            return "clusters and blocks that stay are of the variants by hand" if stays or shares else None
        if variant == _APART:
            if not stays:
                return "this variant is for blocks that stay"
            if threads != _CONSUMERS or m < _SIDE or n < _SIDE or k * element != _DEPTH_BYTES:
                return f"this variant is for two warpgroups, sides from {_SIDE} and a depth of {_DEPTH_BYTES} bytes"
            return None
        if threads != _CONSUMER or m < _ROWS or m * n >= _LARGEST_TILE:
            return f"this variant is for one warpgroup, tiles from {_ROWS} rows and of less than 128 x 128"
        return None

    return unwanted
