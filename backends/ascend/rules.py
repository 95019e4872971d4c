"""Tile-size rules for Ascend: whole cube fractals, operands twice in L1, sums in L0C, half a UB, blocks for every core.

Threads and stages mean nothing to the vendor's compiler, which pipelines by itself: one value stands for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from backends.ascend.toolchain import is_a5
from core.hardware import Chip
from core.program import dtype_bits
from core.tiling import KernelShape, LaunchProfile, Profile, TileRule, Tiles, Value
from core.tiling.constraints import blocks_of, covering, number, power_of_two
from core.tiling.cost import memory_bytes

#: A cube instruction multiplies 16 x 16 by 16 x 16; of 8-bit integers, 32 deep.
_FRACTAL = 16
_DEEP = 32
#: Data moves in rows of this many bytes.
_ROW_BYTES = 32
#: float32 tiles a row operation keeps in UB at once: what the compiler's plans show, and one tile in flight.
_ROW_TILES = 4
#: Longest part of a row that is walked over, and the shortest.
_PARTS = (8192, 4096, 2048)
#: What the compiler adds for itself even to the smallest plan, bytes.
_OVERHEAD_BYTES = 32
#: Up to so many rows of C, a product lives on the bandwidth with which B is read.
_FEW_ROWS = 64
#: What the compiler decides whatever a kernel asks for.
_FIXED: Mapping[str, Sequence[Value]] = {"stages": (2,), "threads": (128,), "swizzle": (0,), "warp_policy": (0,)}


def tile_rules(chip: Chip, kernel: KernelShape) -> list[TileRule]:
    """What is worth considering by operator, and what the cube cores' memories cannot hold."""
    if kernel.operator in ("gemm", "attention"):
        return [
            TileRule(
                "ascend.cube-tile",
                "whole 16 x 16 fractals; both operands twice in L1; sums in L0C; a block for every cube core",
                values=_products(chip, kernel) if kernel.operator == "gemm" else _attention(kernel),
                leave_out=_not_worth_it(chip),
                inspect=_inspect(chip),
            )
        ]
    if kernel.operator == "reduction":
        reason = "as many rows as leave UB room for the compiler's copies, and a block for every vector core"
        return [TileRule("ascend.row-tile", reason, values=_rows(chip, kernel), inspect=_inspect(chip))]
    return [
        TileRule(
            "ascend.elementwise-tile",
            "tiles of whole 32-byte rows that leave UB room for several operands",
            values={"M": (16, 32, 64, 8), "N": (512, 256, 128, 1024), **_FIXED},
            leave_out=_ragged_rows,
            inspect=_inspect(chip),
        )
    ]


def _products(chip: Chip, kernel: KernelShape) -> Mapping[str, Sequence[Value]]:
    """By key, most wanted first: the largest tiles whose grid has a block for every core."""
    m, k = kernel.dimensions.get("M"), kernel.dimensions.get("K")
    blocks, cores = blocks_of(kernel, 128, 256), chip.main_unit.count or 1
    rows: Sequence[int]
    columns: Sequence[int]
    if m is not None and m <= _FEW_ROWS:
        rows = [size for size in (16, 32, 64) if size <= max(_FRACTAL, power_of_two(m))]
        columns = (256, 128, 64, 512)
    elif blocks is None or blocks >= cores:
        rows, columns = (128, 256, 64), (256, 128, 64)
    else:
        rows, columns = (128, 64, 32, 16), (128, 64, 256, 32)
    depths = [size // _matrix_bytes(kernel.dtypes[0] if kernel.dtypes else "float16") for size in (512, 256, 128)]
    return {"M": rows, "N": columns, "K": covering(k, depths), **_FIXED}


def _attention(kernel: KernelShape) -> Mapping[str, Sequence[Value]]:
    queries = kernel.dimensions.get("M")
    few = queries is not None and queries <= 2 * _FRACTAL
    return {"M": (16, 32) if few else (64, 128, 32), "N": (128, 64, 256, 32), **_FIXED}


def _matrix_bytes(dtype: str) -> int:
    """Bytes of an operand's element where it is multiplied: 8-bit floats are decoded to float16."""
    return 2 if dtype.startswith("float8") else max(1, dtype_bits(dtype) // 8)


def _not_worth_it(chip: Chip) -> Callable[[KernelShape, Tiles], str | None]:
    """For `TileRule.leave_out`: parts of fractals, which are computed whole; operands that L1 holds only once."""
    l1 = chip.memory("l1").capacity_bytes

    def leave_out(kernel: KernelShape, tiles: Tiles) -> str | None:
        deep = _DEEP if "int8" in kernel.dtypes[:2] else _FRACTAL
        for key, step in (("M", _FRACTAL), ("N", _FRACTAL), ("K", deep)):
            value = number(tiles, key)
            if value is not None and value % step:
                return f"{key} tile {value} is not whole fractals of {step}"
        m, n, k = (number(tiles, key) for key in "MNK")
        if l1 is None or kernel.operator != "gemm" or m is None or n is None or k is None or not kernel.dtypes:
            return None
        twice = 2 * (m + n) * k * _matrix_bytes(kernel.dtypes[0])
        return f"{twice:,} bytes for both operands twice, L1 has {l1:,}" if twice > l1 else None

    return leave_out


def _inspect(chip: Chip) -> Callable[[KernelShape, Tiles, Profile], str | None]:
    """For `TileRule.inspect`: every operand once in L1, the largest sums in L0C, tiles of a vector kernel in UB.

    What vector cores need beside products depends on statements, and the lowering judges it; of attention it is known.
    """
    limits = {name: chip.memory(name).capacity_bytes for name in ("l1", "l0c", "ub")}

    def inspect(kernel: KernelShape, tiles: Tiles, profile: Profile) -> str | None:
        for launch in profile.launches:
            sums = max((4 * one.m * one.n for one in launch.products), default=0)
            vector = _vector_bytes(launch, chip)
            needed = (("l1", "operands", _operands(launch)), ("l0c", "sums", sums), ("ub", "tiles", vector))
            for name, held, size in needed:
                limit = limits[name]
                if limit is not None and size > limit:
                    return f"{size:,} bytes of {held}, {name.upper()} has {limit:,}"
        return None

    return inspect


def _vector_bytes(launch: LaunchProfile, chip: Chip) -> int:
    """Least bytes of UB, as far as it can be told without the statements (docs/ascend.md; `capacity` judges those).

    A vector kernel holds the tiles that are in use together; on 950 a result is a new tile, and so is a repeated row.
    Sums of products that vector cores take over are there by halves, one for each of two. On 910B those that are
    rescaled have the old tile, the product and the new tile there at once; on 950 each takes three tiles, more beside
    another.
    """
    if not launch.products:
        tiles = [buffer.total_bytes for buffer in launch.buffers if buffer.first >= 0]
        least = memory_bytes(launch, chip).get("ub", 0)
        return max(least, 3 * max(tiles, default=0)) + _OVERHEAD_BYTES if is_a5(chip) else least
    halves = [2 * one.m * one.n for one in launch.products]
    if is_a5(chip):
        taken_over = launch.reductions or launch.vector or launch.shared
        return sum(halves) * (28 if len(halves) > 1 else 24) // 8 if taken_over else 0
    return 3 * max(halves) + _OVERHEAD_BYTES if launch.reductions else 0


def _operands(launch: LaunchProfile) -> int:
    """Bytes of the operands' tiles, each once."""
    tiles: dict[str, int] = {}
    for one in launch.products:
        tiles[one.a_buffer] = one.m * one.k * _matrix_bytes(one.a_dtype)
        tiles[one.b_buffer] = one.n * one.k * _matrix_bytes(one.b_dtype)
    return sum(tiles.values())


def _rows(chip: Chip, kernel: KernelShape) -> Mapping[str, Sequence[Value]]:
    """Rows a block, most wanted first: enough work for a vector core, few enough that all have some."""
    rows, columns = kernel.dimensions.get("M"), kernel.dimensions.get("N")
    limit = chip.memory("ub").capacity_bytes
    length = power_of_two(columns) if columns is not None else _PARTS[-1]
    counts = [16, 8, 4, 2, 1]
    if limit is not None:
        counts = [count for count in counts if count * length * 4 * _ROW_TILES <= limit] or [1]
    if rows is not None:
        cores = 2 * (chip.main_unit.count or 1)
        filling = [count for count in counts if -(-rows // count) >= cores]
        counts = [*filling, *(count for count in reversed(counts) if count not in filling)]
    fits = limit is None or length * 4 * _ROW_TILES <= limit
    parts = [part for part in _PARTS if part < length] if length > _PARTS[-1] else []
    return {"M": counts, "N": (length, *parts) if fits else (*parts, length), **_FIXED}


def _ragged_rows(kernel: KernelShape, tiles: Tiles) -> str | None:
    element = min((max(1, dtype_bits(dtype) // 8) for dtype in kernel.dtypes), default=2)
    columns = number(tiles, "N")
    if columns is not None and columns * element % _ROW_BYTES:
        return f"rows of {columns * element} bytes are not whole units of {_ROW_BYTES}"
    return None
