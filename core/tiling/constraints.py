"""What rules of several vendors share: constraints, and how a kernel's work compares with a chip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from core.program.expressions import dtype_bits
from core.tiling.rules import KernelShape, Tiles

if TYPE_CHECKING:
    from core.hardware import Chip


def whole_waves(chip: Chip) -> Callable[[KernelShape, Tiles], str | None]:
    """For `TileRule.forbid`: threads come in whole waves of the chip, and no more than one block may have.

    A limit the descriptor does not know forbids nothing.
    """
    limit = chip.limits.threads_per_block
    wave = chip.main_unit.lanes_per_wave

    def forbid(kernel: KernelShape, tiles: Tiles) -> str | None:
        threads = tiles.get("threads")
        if not isinstance(threads, int):
            return None
        if wave and threads % wave:
            return f"{threads} threads are not whole waves of {wave}"
        if limit and threads > limit:
            return f"{threads} threads, the chip allows {limit} a block"
        return None

    return forbid


def number(tiles: Tiles, key: str) -> int | None:
    """The value of a key that is a number, or None where the kernel has no such parameter."""
    value = tiles.get(key)
    return value if isinstance(value, int) else None


def has_variants(kernel: KernelShape) -> bool:
    """Whether the kernel comes in variants: then what a parameter such as split-K does depends on the variant."""
    return any(parameter.key == "variant" for parameter in kernel.parameters.values())


def operand_bytes(kernel: KernelShape) -> int:
    """Bytes of an element of the wider of the kernel's first two tensors, the operands of a product; at least one."""
    return max((max(1, dtype_bits(dtype) // 8) for dtype in kernel.dtypes[:2]), default=2)


def blocks_of(kernel: KernelShape, rows: int, columns: int) -> int | None:
    """Blocks of a grid of `rows` x `columns` tiles over M and N; None when an extent is symbolic or not an argument."""
    m, n = kernel.dimensions.get("M"), kernel.dimensions.get("N")
    return None if m is None or n is None else -(-m // rows) * -(-n // columns)


def covering(extent: int | None, values: Sequence[int]) -> tuple[int, ...]:
    """The values up to the smallest that covers `extent`, in their order; all of them where it is not known."""
    if extent is None:
        return tuple(values)
    enough = min((value for value in values if value >= extent), default=None)
    return tuple(value for value in values if enough is None or value <= enough)


def power_of_two(extent: int) -> int:
    """The smallest power of two that is at least `extent`."""
    return 1 << max(0, extent - 1).bit_length()
