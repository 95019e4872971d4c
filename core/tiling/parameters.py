"""Markers a kernel author writes as defaults: what a tile parameter is, so that a chip's rules can choose it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from core.errors import KernelError

Role = Literal["tile", "split", "stages", "threads", "unroll", "swizzle", "warp_policy", "buffers", "workers", "choice"]
Value = int | str


@dataclass(frozen=True, slots=True)
class TileParameter:
    """One tile parameter of a factory.

    Attributes:
        role: what the number means:
            `tile` a block's extent along `dimension`, elements;
            `split` blocks that share `dimension` between them (split-K);
            `stages` depth of the software pipeline;
            `threads` threads per block;
            `unroll` factor of an unrolled loop;
            `swizzle` panel of the launch order, in blocks (`T.use_swizzle`), 0 for row-major;
            `warp_policy` how warps share a matrix product (`T.GemmWarpPolicy`: 0 square, 1 rows, 2 columns);
            `buffers` copies of a tile that the kernel allocates itself (2 is double buffering);
            `workers` blocks of a persistent launch, which take tile after tile; 0 launches one block a tile;
            `choice` one of `choices`, for variants of a kernel.
        dimension: name of the factory argument it tiles or splits; of a `choice`, its name.
        multiple: the value must be a multiple of this.
        minimum, maximum: inclusive range; None means open.
        choices: the only values allowed, the default first; None means any in range.
        by_rule: of a `choice`: the others than the first are for chips whose rules name them.
    """

    role: Role
    dimension: str | None = None
    multiple: int = 1
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[Value, ...] | None = None
    by_rule: bool = False

    @property
    def key(self) -> str:
        """The name rules use for it: the dimension it tiles, `split_<dimension>`, a choice's name, else its role."""
        if self.role == "split":
            return f"split_{self.dimension}"
        return self.dimension if self.role in ("tile", "choice") and self.dimension else self.role

    def refuse(self, value: Value) -> str | None:
        """Why `value` is not allowed, or None when it is."""
        if self.choices is not None and value not in self.choices:
            return f"{value!r} is not one of {', '.join(map(repr, self.choices))}"
        if isinstance(value, str):
            return None if self.choices is not None else f"{value!r} is not a number"
        if value % self.multiple:
            return f"{value} is not a multiple of {self.multiple}"
        if self.minimum is not None and value < self.minimum:
            return f"{value} is below the minimum {self.minimum}"
        if self.maximum is not None and value > self.maximum:
            return f"{value} is above the maximum {self.maximum}"
        return None


def tile(dimension: str, *, multiple: int = 1, minimum: int | None = None, maximum: int | None = None) -> Any:
    """Marks a parameter as the tile extent along the factory argument `dimension` (elements).

    The value chosen is a multiple of `multiple` between `minimum` and `maximum`, both inclusive.
    """
    if multiple < 1:
        raise KernelError(
            f"core.tile({dimension!r}): multiple must be at least 1, got {multiple}", hint="leave it out for any extent"
        )
    if minimum is not None and minimum < 1:
        raise KernelError(
            f"core.tile({dimension!r}): minimum must be at least 1, got {minimum}", hint="leave it out for any extent"
        )
    return TileParameter("tile", dimension, multiple, minimum if minimum is not None else multiple, maximum)


def split(dimension: str, *, maximum: int | None = None) -> Any:
    """Marks a parameter as the number of blocks that share the factory argument `dimension` (split-K); 1 is none."""
    return TileParameter("split", dimension, 1, 1, maximum)


def stages(*, minimum: int = 0, maximum: int | None = None) -> Any:
    """Marks a parameter as the number of software-pipeline stages given to `T.Pipelined`."""
    return TileParameter("stages", None, 1, minimum, maximum)


def threads(*, multiple: int = 1, maximum: int | None = None) -> Any:
    """Marks a parameter as the threads per block given to `T.Kernel`; the chip's wave size is always respected."""
    return TileParameter("threads", None, multiple, multiple, maximum)


def unroll(*, maximum: int | None = None) -> Any:
    """Marks a parameter as the factor by which a loop is unrolled (`T.unroll`, `T.serial` steps); 1 is not at all."""
    return TileParameter("unroll", None, 1, 1, maximum)


def swizzle(*, maximum: int | None = None) -> Any:
    """Marks a parameter as the panel, in blocks, of the launch order given to `T.use_swizzle`; 0 is row-major."""
    return TileParameter("swizzle", None, 1, 0, maximum)


def warp_policy() -> Any:
    """Marks a parameter as the `T.GemmWarpPolicy` of a matrix product: 0 square, 1 full rows, 2 full columns."""
    return TileParameter("warp_policy", None, 1, 0, 2, (0, 1, 2))


def buffers(*, maximum: int | None = 2) -> Any:
    """Marks a parameter as the copies of a tile that the kernel allocates and rotates itself; 2 is double buffering."""
    return TileParameter("buffers", None, 1, 1, maximum)


def workers() -> Any:
    """Marks a parameter as the blocks of a persistent launch (the chip's compute units); 0 is one block a tile."""
    return TileParameter("workers", None, 1, 0, None)


def choice(name: str, *options: Value, by_rule: bool = False) -> Any:
    """Marks a parameter as one of `options` (ints or strings): ways to do the same thing, compared like tiles are.

    Every option is a candidate; where the cost model sees no difference the first goes first. Each makes candidates of
    all tiles and has to be traced on its own, so that two options take about twice the time to rank.

    Args:
        by_rule: only a chip's rules bring in other options than the first: for variants that not every chip can run.
    """
    if not options:
        raise KernelError(f"core.choice({name!r}): there is nothing to choose from", hint="give at least one option")
    return TileParameter("choice", name, 1, None, None, tuple(options), by_rule)
