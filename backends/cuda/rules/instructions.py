"""Which instruction TileLang makes of a matrix product, and the tiles for which it cannot.

Read off TileLang 0.1.15 (`src/cuda/op/gemm.cc`, `tilelang/cuda/op/gemm/gemm_wgmma.py`) and confirmed by lowering and
assembling. A product becomes warpgroup instructions (wgmma) where the chip has them, its operands allow it, it has 64
rows and the block whole warpgroups; otherwise each warp multiplies its own part with `mma.sync`. Warps share a product
in a grid of equal parts of whole instructions, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import gcd

from core.hardware import Chip, MatrixInstruction
from core.program import dtype_bits
from core.tiling import MatrixProduct

#: Rows and columns that a warp's part is a multiple of; the instructions' own 16 x 8.
_ROWS, _COLUMNS = 16, 8
#: Warps of a warpgroup, which stand below each other: 64 rows.
WARPGROUP = 4
#: Registers that ptxas 13.0 wants beside the accumulators of one warpgroup instruction ("Insufficient registers").
_BESIDE_ACCUMULATORS = 26
#: A thread's registers are given out in eights.
_GRANULE = 8


def warpgroup_instruction(chip: Chip, product: MatrixProduct, threads: int) -> MatrixInstruction | None:
    """The warpgroup instruction of a product that `threads` threads compute; None when it goes through `mma.sync`."""
    if product.m < _ROWS * WARPGROUP or threads // 32 % WARPGROUP or not product.b_scope.startswith("shared"):
        return None
    if product.n % 16 == 8:
        return None  # wrong results (tile-ai/tilelang#2593): our lowering keeps warpgroup instructions away from it
    types = (product.a_dtype, product.b_dtype, product.accumulator_dtype)
    for instruction in chip.matrix_instructions:
        if instruction.issued_by != "warpgroup" or instruction.types != types or product.k % instruction.k:
            continue
        # Of the operands only 16-bit ones may lie across the reduction.
        if dtype_bits(product.a_dtype) == 16 or (not product.transpose_a and product.transpose_b):
            return instruction
    return None


def refused(chip: Chip, product: MatrixProduct, threads: int, launched: int, chained: bool = False) -> str | None:
    """Why a product cannot be compiled, or None.

    Args:
        threads: that compute it.
        launched: of the block, those that only copy included.
        chained: its launch has other products. An operand in a fragment is made of their results then, which stay where
            they are computed.
    """
    pairs = {(i.a_dtype, i.b_dtype) for i in chip.matrix_instructions}
    if (product.a_dtype, product.b_dtype) not in pairs:
        return None  # multiplied by loops, which take any tile
    instruction = warpgroup_instruction(chip, product, threads)
    size = f"{product.m} x {product.n}"
    if product.in_flight and instruction is None:
        why = _not_grouped(product)
        return f"a {size} product of {product.a_dtype} left in flight has no warpgroup instruction: {why}"
    shared = shares(product.m, product.n, threads // 32, instruction is not None, product.policy)
    if shared is None:
        return unshareable(size, threads // 32, instruction is not None)
    if chained and not product.a_scope.startswith("shared") and shared[1] > 1:
        return (
            f"{threads // 32} warps share a {size} tile along its columns too, and one operand is another product's"
            " result, which stays where its rows are"
        )
    if instruction is None:
        step = 256 // dtype_bits(product.a_dtype)
        return f"a product {product.k} deep, the instruction takes {step} at a time" if product.k % step else None
    columns = product.n // shared[1]
    width = instruction_width(columns)
    if width % 16 and not product.transpose_b:
        return (
            f"a warpgroup's {columns} of {product.n} columns need instructions {width} columns wide, which read B by"
            " columns only (transpose_B)"
        )
    bits = dtype_bits(product.accumulator_dtype)
    needed = 64 * width * bits // (32 * 32 * WARPGROUP) + _BESIDE_ACCUMULATORS
    available = registers_per_thread(chip, launched)
    if available is not None and needed > available:
        return f"an instruction 64 x {width} needs {needed} registers a thread, {launched} threads leave {available}"
    return None


def _not_grouped(product: MatrixProduct) -> str:
    if dtype_bits(product.a_dtype) != 16 and (product.transpose_a or not product.transpose_b):
        return "operands of other than 16 bits must lie along the reduction (transpose_B)"
    return f"it wants whole warpgroups and {_ROWS * WARPGROUP} rows"


def unshareable(size: str, warps: int, warpgroups: bool) -> str:
    """The sentence for a tile that warps cannot share."""
    if warpgroups:
        return f"{warps // WARPGROUP} warpgroups cannot share a {size} tile: each takes 64 rows and 8 columns at a time"
    return f"{warps} warps cannot share a {size} tile: each takes {_ROWS} rows and {_COLUMNS} columns at a time"


def registers_per_thread(chip: Chip, threads: int) -> int | None:
    """The most registers a thread of a block of `threads` may have; None where the descriptor does not say."""
    registers = chip.main_unit.registers
    if registers is None or registers.per_thread is None:
        return None
    if registers.per_block is None:
        return registers.per_thread
    return min(registers.per_thread, registers.per_block // threads // _GRANULE * _GRANULE)


@lru_cache(maxsize=4096)
def shares(m: int, n: int, warps: int, warpgroups: bool, policy: int) -> tuple[int, int] | None:
    """Parts along M and N in which `warps` share an m x n product; None when they cannot.

    Args:
        policy: `T.GemmWarpPolicy`: 0 the squarest parts, 1 as many as possible along M, 2 along N.
    """
    found = list(_ways(m, n, warps, warpgroups))
    if not found:
        return None
    if policy == 1:
        return max(found)
    if policy == 2:
        return min(found)

    def from_square(way: tuple[int, int]) -> float:
        """As TileLang measures it: the part's instructions along M by those along N, against the tile's extents."""
        down, across = m / (way[0] * _ROWS), n / (way[1] * _COLUMNS)
        return abs(down / across - m / n)

    return min(found, key=from_square)


def _ways(m: int, n: int, warps: int, warpgroups: bool) -> Iterator[tuple[int, int]]:
    step = WARPGROUP if warpgroups else 1
    for rows in range(step, warps + 1, step):
        if warps % rows == 0 and m % (rows * _ROWS) == 0 and n % (warps // rows * _COLUMNS) == 0:
            yield rows, warps // rows


def instruction_width(columns: int) -> int:
    """N of the warpgroup instruction for a part `columns` wide: the widest multiple of 16 that divides it, up to 256.

    Parts that are no multiple of 16 get the largest power of two that divides them.
    """
    if columns % 16:
        return gcd(columns, 256)
    return next(width for width in range(256, 0, -16) if columns % width == 0)
