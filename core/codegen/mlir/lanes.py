"""Values inside a `Parallel`: one element per iteration, kept over the axes they really vary along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.codegen.mlir.builder import Value
from core.program.nodes import Expr, Storage, Var


@dataclass(frozen=True, slots=True)
class Axis:
    """A parallel variable and its extent; an axis is known by its position in the context's list."""

    var: Var
    extent: int


@dataclass(frozen=True, slots=True)
class Lanes:
    """A scalar (no axes), or a tensor whose dimensions are the axes, in ascending order."""

    value: Value
    axes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in force.

    Attributes:
        expr, holds: it holds, or does not.
        lanes: its value for every iteration.
        scalars: what the single elements on the chip that it reads held when the branch was entered.
    """

    expr: Expr
    holds: bool
    lanes: Lanes
    scalars: Mapping[Storage, Value]


class NeedsLoop(Exception):
    """A `Parallel` has no form on whole tiles: run its iterations one after the other."""
