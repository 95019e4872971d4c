"""The block that holds whole rows in registers: its rows, its threads, and how many such blocks share a unit.

These kernels are bound by memory. Enough bytes are in flight when several blocks share a unit, so that some load while
others reduce and store. Registers decide how many do, and so the rule is about what a thread holds: its rows, counted
in accesses of 16 bytes, and as many elements of each vector (`weight`, `bias`) that the operator reads beside them.

The rule was fitted to twelve rows in float16 on an H200 (docs/operators.md has the table and the command). It is stated
in bytes, registers and blocks, so that it also answers for other lengths, dtypes and chips:

* A block has 4 KiB of rows, or one row if that is longer. A thread holds four accesses in softmax, in about 48
  registers, and two in a normalisation, which holds its vectors as well.
* Registers may let fewer than six such blocks share a unit, as they do for long rows. A thread of softmax then holds
  two accesses, in 32 registers, with which a unit is full of threads. A normalisation does not fit into 32 registers:
  its threads hold four accesses instead, in layernorm of two rows, so that each element of its two vectors is used
  twice.
* In that case the compiler tends to take a few registers too many for the number of blocks that the rule counts on, and
  is told the number. An operator with one vector is left alone: RMS normalisation became slower by it.
* Where there are too few rows to fill the chip, they are spread over more blocks and threads: one row a block, and down
  to one access a thread.
"""

from __future__ import annotations

from math import gcd

from core.hardware import Chip
from core.tiling import KernelShape
from core.tiling.constraints import power_of_two
from core.tiling.proposals import vector_elements

_LANES = 32
#: Bytes: of a thread's access to memory; of a block's rows, where they are short; and the most that two rows may have.
_ACCESS_BYTES, _TILE_BYTES, _PAIR_BYTES = 16, 4096, 32768
#: Accesses that a thread holds, without vectors and with them.
_PLAIN, _WITH_VECTORS = 4, 2
#: The same where fewer than `_ENOUGH` blocks share a unit.
_FEW_PLAIN, _FEW_WITH_VECTORS = 2, 4
_ENOUGH = 6
#: Registers of a thread beside what it holds: what the compiler takes when it does not spill.
_OVERHEAD = 16
#: Registers are given to a thread in steps of this, and the estimate may be one step too high.
_STEP = 8
#: The most rows that a block has.
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
    """How many blocks a unit shall hold, for the compiler to keep to; 0 where the compiler decides alone.

    It is asked only where few blocks share a unit, and where the grid has enough of them to share it.
    """
    units, matrix_rows = chip.main_unit.count, kernel.dimensions.get("M")
    if units is not None and matrix_rows is not None and matrix_rows <= rows * units:
        return 0
    if _vectors(kernel) == 1 or not _few(chip, kernel, rows, threads):
        return 0
    held = _share(chip, kernel, rows, threads)
    return held if held is not None and held > 1 else 0


def crowds(chip: Chip, threads: int, blocks: int) -> str | None:
    """Why a unit does not hold so many blocks of so many threads, whatever they do; None where it does."""
    most = chip.main_unit.max_threads
    if most is None or blocks * threads <= most:
        return None
    return f"{blocks} blocks of {threads} threads are more than a unit's {most} threads"


def spills(chip: Chip, kernel: KernelShape, rows: int, threads: int, blocks: int) -> str | None:
    """Why a thread would not hold its part of the rows in registers, which is estimated; None where it would.

    Args:
        blocks: how many of them a unit shall hold; 0 where the compiler decides alone.
    """
    needed, registers = _registers(kernel, rows, threads) - _STEP, chip.main_unit.registers
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
    """Whether too few of these blocks share a unit."""
    share = _share(chip, kernel, rows, threads)
    return share is not None and share < _ENOUGH


def _share(chip: Chip, kernel: KernelShape, rows: int, threads: int) -> int | None:
    """Blocks that share a unit with the registers they need; None where the chip's figures do not say."""
    return chip.occupancy(threads, _registers(kernel, rows, threads)).at_most


def _threads(chip: Chip, kernel: KernelShape, rows: int, accesses: int) -> int:
    """Threads that hold about so many accesses each: the power of two above, or half of it for one access more each."""
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
