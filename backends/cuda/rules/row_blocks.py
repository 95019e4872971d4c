"""The block that holds whole rows in registers: its rows, its threads, and how many of it a unit shall hold.

Such a kernel moves bytes and waits for them. A unit has enough on the way when several blocks share it: some load
while others reduce and store. How many do is decided by registers, so that the rule is about what a thread holds. It
was found on an H200 (float16, twelve rows; docs/operators.md has the command) and says what it says in bytes,
registers and blocks, for other lengths, dtypes and chips:

* A block has 4 KiB of rows, or one row. A thread of softmax holds four accesses of 16 bytes, in about 48 registers. A
  normalisation's holds two: it holds as much of each of its vectors too.
* Where fewer than six such blocks share a unit, each of them is a large step. Softmax then holds two accesses, in 32
  registers with which a unit is full of threads; normalisations, which do not get by with these, hold four, and of two
  rows where there are two vectors: each element of a vector serves both.
* The compiler then takes a few registers more than there is room for, unless it is asked for so many blocks. Not with
  one vector: what was asked of RMS normalisation made it slower.
* A grid that does not fill the chip gets more blocks and more threads: one row each, and down to one access.
"""

from __future__ import annotations

from math import gcd

from core.hardware import Chip
from core.tiling import KernelShape
from core.tiling.constraints import power_of_two
from core.tiling.proposals import vector_elements

_LANES = 32
#: Bytes of an access of a thread; of a block's rows, where they are short; and most of two rows.
_ACCESS_BYTES, _TILE_BYTES, _PAIR_BYTES = 16, 4096, 32768
#: Accesses of a thread; with vectors; and each of them where few blocks share a unit.
_PLAIN, _WITH_VECTORS = 4, 2
_FEW_PLAIN, _FEW_WITH_VECTORS = 2, 4
#: Blocks that share a unit, at least; fewer are few.
_ENOUGH = 6
#: Registers of a thread beside what it holds; read off what the compiler makes without spilling.
_OVERHEAD = 16
#: Registers of a thread come in steps, and what is estimated may be one too much.
_STEP = 8
#: Most rows of a block, as many as the shortest rows need.
_MOST_ROWS = 64
#: Vectors as long as a row that an operator reads beside its matrices.
_VECTORS = {"softmax": 0, "layernorm": 2, "rmsnorm": 1, "add_rmsnorm": 1}


def block(chip: Chip, kernel: KernelShape) -> tuple[int, int]:
    """Rows and threads of the first choice for rows of the kernel's N elements."""
    length, vectors = kernel.dimensions["N"], _vectors(kernel)
    row_bytes = power_of_two(length) * _ACCESS_BYTES // vector_elements(kernel)
    rows = min(_MOST_ROWS, max(1, _TILE_BYTES // row_bytes))
    accesses = _WITH_VECTORS if vectors else _PLAIN
    if _few(chip, kernel, rows, _threads(chip, kernel, rows, accesses)):
        accesses = _FEW_WITH_VECTORS if vectors else _FEW_PLAIN
        rows = 2 if vectors > 1 and 2 * row_bytes <= _PAIR_BYTES else rows
    units, matrix_rows = chip.main_unit.count, kernel.dimensions.get("M")
    if units is not None and matrix_rows is not None:
        while rows > 1 and matrix_rows < rows * _ENOUGH * units:
            rows //= 2
        filled = units * (chip.main_unit.max_threads or 0) // 2  # half of the threads that the chip holds
        while accesses > 1 and matrix_rows * length < filled * accesses * vector_elements(kernel):
            accesses //= 2
    return rows, _threads(chip, kernel, rows, accesses)


def resident(chip: Chip, kernel: KernelShape, rows: int, threads: int) -> int:
    """Blocks that the compiler is asked to let a unit hold, 0 for none: where few hold what they need."""
    units, matrix_rows = chip.main_unit.count, kernel.dimensions.get("M")
    if units is not None and matrix_rows is not None and matrix_rows <= rows * units:
        return 0
    if _vectors(kernel) == 1 or not _few(chip, kernel, rows, threads):
        return 0
    held = _share(chip, kernel, rows, threads)
    return held if held is not None and held > 1 else 0


def spills(chip: Chip, kernel: KernelShape, rows: int, threads: int, blocks: int) -> str | None:
    """Why a thread cannot hold its part of the rows in registers; None where it can.

    Args:
        blocks: that a unit is asked to hold, 0 for as many as it happens to.
    """
    unit, needed = chip.main_unit, _registers(kernel, rows, threads) - _STEP
    registers = unit.registers
    if blocks and unit.max_threads is not None and blocks * threads > unit.max_threads:
        return f"{blocks} blocks of {threads} threads are more than a unit's {unit.max_threads} threads"
    if registers is None:
        return None
    most = registers.per_thread or needed
    if blocks and registers.per_unit is not None:
        most = min(most, registers.per_unit // (blocks * threads))
    if needed <= most:
        return None
    return f"{rows} rows in {threads} threads need {needed} registers each or more, and there are {most}"


def _vectors(kernel: KernelShape) -> int:
    return _VECTORS.get(kernel.name, max(0, len(kernel.dtypes) - 2))


def _few(chip: Chip, kernel: KernelShape, rows: int, threads: int) -> bool:
    share = _share(chip, kernel, rows, threads)
    return share is not None and share < _ENOUGH


def _share(chip: Chip, kernel: KernelShape, rows: int, threads: int) -> int | None:
    """Blocks that share a unit with the registers they need; None where the chip's figures do not say."""
    return chip.occupancy(threads, _registers(kernel, rows, threads)).at_most


def _threads(chip: Chip, kernel: KernelShape, rows: int, accesses: int) -> int:
    """Threads that hold about so many accesses of 16 bytes each: a power of two, one access more for half of them."""
    vector, most = vector_elements(kernel), chip.limits.threads_per_block or 1024
    threads = power_of_two(-(-rows * kernel.dimensions["N"] // (accesses * vector)))
    half = threads // 2
    if accesses > 1 and half >= _LANES and _held(kernel, rows, half)[0] <= (accesses + 1) * vector:
        threads = half
    return max(_LANES, min(threads, most))


def _held(kernel: KernelShape, rows: int, threads: int) -> tuple[int, int]:
    """Elements of the rows, and of a vector, that a thread holds: `core.ops._rows.Rows` lays them out."""
    length = kernel.dimensions["N"]
    run = min(power_of_two(length), _LANES * gcd(length, vector_elements(kernel)))
    groups = min(max(1, threads // _LANES), power_of_two(-(-length // run)))
    width = -(-length // (run * groups)) * run * groups
    return -(-rows * width // threads), -(-width // (groups * _LANES))


def _registers(kernel: KernelShape, rows: int, threads: int) -> int:
    """Registers a thread needs: the rows in float32, vectors as they are stored, and the rest."""
    elements, of_vector = _held(kernel, rows, threads)
    element_bytes = _ACCESS_BYTES // vector_elements(kernel)
    words = elements * max(4, element_bytes) + _vectors(kernel) * of_vector * element_bytes
    return _OVERHEAD + -(-words // 4)
