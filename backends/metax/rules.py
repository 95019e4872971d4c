"""Tile-size rules for MetaX: 16x16 instruction tiles, waves of 64, 64 KiB of shared memory, registers per AP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from core.codegen.simt import Product, choose
from core.hardware import Chip
from core.tiling import KernelShape, MatrixProduct, Prediction, Profile, TileRule, Tiles, Value, whole_waves
from core.tiling.constraints import blocks_of, covering, has_variants, number, operand_bytes, power_of_two
from core.tiling.proposals import elementwise_tiles, row_tiles

#: Sides of an instruction's tile of C.
_TILE = 16
#: Up to so many rows of C, a product lives on the bandwidth with which B is read.
_FEW_ROWS = 64
#: From this width on, a tile of keys fills shared memory beside 16 queries: latent attention.
_WIDE = 512
#: Registers of a thread that may hold sums. Published is what an AP has; this leaves four waves to a scheduler.
_SUMS = 128
#: Bytes of a row of an operand's tile: 16 banks of 4 bytes are read at a time.
_DEPTHS_BYTES = (64, 128)


def tile_rules(chip: Chip, kernel: KernelShape) -> list[TileRule]:
    """The constraints every launch on the chip obeys, and what is worth considering for the kernel's operator."""
    launch = TileRule(
        "metax.launch", "threads come in whole waves of 64, within the block limit", forbid=whole_waves(chip)
    )
    if kernel.operator in ("gemm", "attention"):
        return [
            launch,
            TileRule(
                "metax.matrix-tile",
                "tiles that 16x16 instructions divide for every wave, that fit shared memory with their stages, and"
                " whose sums leave registers for other waves",
                values=_products(chip, kernel) if kernel.operator == "gemm" else _attention(kernel),
                leave_out=_not_worth_it(chip),
                inspect=_inspect(chip),
                weigh=_crowded if kernel.operator == "attention" else None,
            ),
        ]
    if kernel.operator == "reduction":
        reason = "a block holds a few thousand elements; its threads a few 16-byte vectors of a row each"
        return [launch, TileRule("metax.row-tile", reason, values=row_tiles(chip, kernel))]
    reason = "a few thousand elements a block: 16-byte accesses, several per thread"
    return [launch, TileRule("metax.elementwise-tile", reason, values=elementwise_tiles(chip, kernel))]


def _products(chip: Chip, kernel: KernelShape) -> Mapping[str, Sequence[Value]]:
    """By key, most wanted first: smaller tiles where the grid would leave APs idle."""
    m, k, units = kernel.dimensions.get("M"), kernel.dimensions.get("K"), chip.main_unit.count or 1
    blocks = blocks_of(kernel, 128, 128)
    fill = blocks / units if blocks is not None else 1.0
    rows: Sequence[int]
    columns: Sequence[int]
    if m is not None and m <= _FEW_ROWS:
        rows, columns = [size for size in (16, 32, 64) if size <= max(_TILE, power_of_two(m))], (64, 32, 128, 16)
    elif fill >= 1:
        rows, columns = (128, 64, 256), (128, 64, 256)
    else:
        rows, columns = (64, 32, 128), (64, 32, 128)
    values: dict[str, Sequence[Value]] = {
        "M": rows,
        "N": columns,
        "K": covering(k, [size // operand_bytes(kernel) for size in _DEPTHS_BYTES]),
        "stages": (2, 1, 3),
        "threads": (256, 128) if fill >= 1 else (128, 256, 64),
        # A panel of blocks keeps its part of both operands in the L2 cache; a grid of few waves is there all at once.
        "swizzle": (8, 0) if fill >= 4 else (0,),
        "warp_policy": (0,),
    }
    tiles = blocks_of(kernel, 64, 64)
    if k is not None and tiles is not None and not has_variants(kernel):
        values["split_K"] = (1, *(parts for parts in (2, 4, 8) if tiles * parts <= 2 * units and k >= 512 * parts))
    return values


def _attention(kernel: KernelShape) -> Mapping[str, Sequence[Value]]:
    """Sixteen queries a wave or a multiple; keys as many as shared memory holds twice.

    With wide heads all waves share 16 queries, and their keys: there is no room for keys enough to give each wave 16 of
    them beside more queries, and waves that had rows of the scores and columns of the output could not pass on a row's
    maximum in registers.
    """
    queries = kernel.dimensions.get("M")
    few = queries is not None and queries <= 2 * _TILE
    if not few and kernel.dimensions.get("dim", 0) >= _WIDE:
        return {"M": (16, 32, 64), "N": (64, 32, 128), "stages": (1, 2), "threads": (128, 256, 64)}
    return {
        "M": (16, 32) if few else (64, 128, 32),
        "N": (64, 32, 128),
        "stages": (1, 2),
        "threads": (64, 128) if few else (256, 128, 512),
    }


def _not_worth_it(chip: Chip) -> Callable[[KernelShape, Tiles], str | None]:
    """For `TileRule.leave_out`: what would run without the matrix unit, or with sums outside of registers."""
    lanes = chip.main_unit.lanes_per_wave or 64

    def leave_out(kernel: KernelShape, tiles: Tiles) -> str | None:
        m, n, threads = (number(tiles, key) for key in ("M", "N", "threads"))
        for name, value in (("M", m), ("N", n)):
            if value is not None and value % _TILE:
                return f"{name} tile {value} is not a multiple of the instruction's {_TILE}: plain multiply-adds"
        if m is None or n is None or not threads:
            return None
        if kernel.operator == "gemm" and m * n // threads > _SUMS:
            return f"{m} x {n} sums are {m * n // threads} registers a thread"
        if threads % lanes or not _shareable(m, n, threads // lanes):
            return f"{threads // lanes} waves cannot share a {m} x {n} tile in whole {_TILE} x {_TILE} instructions"
        return None

    return leave_out


def _shareable(m: int, n: int, waves: int) -> bool:
    return any(
        waves % rows == 0 and m % (rows * _TILE) == 0 and n % (waves // rows * _TILE) == 0
        for rows in range(1, waves + 1)
    )


def _crowded(kernel: KernelShape, tiles: Tiles, prediction: Prediction) -> float:
    """For `TileRule.weigh`: scores and output beyond `_SUMS` count as much longer as they are more.

    The model does not see it: how many registers a thread may have, nobody has published.
    """
    m, n, threads = (number(tiles, key) for key in ("M", "N", "threads"))
    if m is None or n is None or not threads:
        return 1.0
    return max(1.0, m * (n + kernel.dimensions.get("dim", 0)) / threads / _SUMS)


def _inspect(chip: Chip) -> Callable[[KernelShape, Tiles, Profile], str | None]:
    """For `TileRule.inspect`: an operand that another product made stays where its rows are."""

    def inspect(kernel: KernelShape, tiles: Tiles, profile: Profile) -> str | None:
        for launch in profile.launches:
            made = [one for one in launch.products if not one.a_scope.startswith("shared")]
            if len(launch.products) < 2 or launch.threads is None:
                continue
            for product in made:
                plan = choose(chip, _as_chosen(product), launch.threads, product.policy)
                if not isinstance(plan, str) and plan.waves_n > 1:
                    return (
                        f"{plan.waves_m * plan.waves_n} waves share a {product.m} x {product.n} tile along its columns"
                        " too, and one operand is another product's result, which stays where its rows are"
                    )
        return None

    return inspect


def _as_chosen(product: MatrixProduct) -> Product:
    return Product(product.a_dtype, product.b_dtype, product.accumulator_dtype, product.m, product.n, product.k)
