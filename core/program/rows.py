"""Reductions of tiles whose rows TileLang's pipeline finds no thread layout for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from core.program import walk
from core.program.expressions import constant_ints
from core.program.nodes import Gemm, Reduce, Scope, View

#: Float types with infinities; any other type's least and largest values take their place.
_WITH_INFINITY = re.compile(r"(b?float)(16|32|64)|float8_e5m2")
#: Elements a thread takes at a time, at most: 16 bytes of two-byte ones. A row that gives each thread of the block as
#: many whole turns has a layout whatever its length.
_VECTOR = 8


@dataclass(frozen=True, slots=True)
class UnevenRows:
    """A reduction of a tile with rows (its last dimension) of `extent` elements, which is no power of two."""

    reduce: Reduce
    extent: int

    @property
    def message(self) -> str:
        """What is the matter, one sentence."""
        name = self.reduce.src.buffer.name
        return f"{name} has rows of {self.extent}: TileLang's thread layouts for reductions want a power of two"

    @property
    def hint(self) -> str:
        """What to change."""
        fill = _identity(self.reduce.kind, self.reduce.src.buffer.dtype)
        value = f"{fill}, which leaves the {self.reduce.kind} as it is" if fill else "what leaves the result as it is"
        return (
            f"make the rows of {self.reduce.src.buffer.name} {1 << self.extent.bit_length()} long and fill the rest"
            f" with {value}: T.annotate_safe_value for a T.copy, or T.if_then_else in a T.Parallel loop that loads it"
        )


def _identity(kind: str, dtype: str) -> str | None:
    """What a tile is filled with, so that the fill does not change its reduction, as the user writes it."""
    if kind in ("max", "min"):
        if _WITH_INFINITY.fullmatch(dtype):
            return f'{"-" if kind == "max" else ""}T.infinity("{dtype}")'
        return f'T.{"min" if kind == "max" else "max"}_value("{dtype}")'
    return "0" if kind in ("sum", "abssum", "absmax") else None


def uneven_rows(view: View) -> Iterator[UnevenRows]:
    """Reductions for which TileLang's layout inference may find no layout, in order; seldom it finds one all the same.

    Left out are rows that the block's threads share evenly, and a tile of a matrix product's shape: it takes the layout
    of the accumulator, which has any width.
    """
    for launch in view.launches:
        threads = prod(launch.threads) if launch.threads else None
        nodes = list(walk.statements(launch.body))
        accumulators = {constant_ints(node.c.buffer.shape) for node in nodes if isinstance(node, Gemm)}
        for node in nodes:
            if not isinstance(node, Reduce) or node.src.buffer.scope not in (Scope.FRAGMENT, Scope.SHARED):
                continue
            shape = constant_ints(node.src.buffer.shape)
            if not shape or shape in accumulators or shape[-1] & (shape[-1] - 1) == 0:
                continue
            share = None if threads is None else threads if prod(shape[:-1]) == 1 else threads * _VECTOR
            if share is None or shape[-1] % share:
                yield UnevenRows(node, shape[-1])
