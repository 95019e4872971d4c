"""Markers a kernel author writes as defaults: what a tile parameter is, so that a chip's rules can choose it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from core.errors import KernelError

Role = Literal["tile", "stages", "threads"]


@dataclass(frozen=True, slots=True)
class TileParameter:
    """One tile parameter of a factory.

    Attributes:
        role: `tile` (a block extent along `dimension`), `stages` (pipeline depth), `threads` (per block).
        dimension: name of the factory argument it tiles, for role `tile`.
        multiple: the value must be a multiple of this.
        minimum, maximum: inclusive range; None means open.
    """

    role: Role
    dimension: str | None = None
    multiple: int = 1
    minimum: int | None = None
    maximum: int | None = None

    @property
    def key(self) -> str:
        """The name rules use for it: the dimension, `stages` or `threads`."""
        return self.dimension if self.role == "tile" and self.dimension else self.role

    def refuse(self, value: int) -> str | None:
        """Why `value` is not allowed, or None when it is."""
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
    return TileParameter("tile", dimension, multiple, minimum if minimum is not None else multiple, maximum)


def stages(*, minimum: int = 0, maximum: int | None = None) -> Any:
    """Marks a parameter as the number of software-pipeline stages given to `T.Pipelined`."""
    return TileParameter("stages", None, 1, minimum, maximum)


def threads(*, multiple: int = 1, maximum: int | None = None) -> Any:
    """Marks a parameter as the threads per block given to `T.Kernel`; the chip's wave size is always respected."""
    return TileParameter("threads", None, multiple, multiple, maximum)
