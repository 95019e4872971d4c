"""What a vendor's tile compiler wants spelled its own way; everything else is the family's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from core.codegen.mlir import ops
from core.codegen.mlir.builder import Builder, Value
from core.codegen.mlir.types import MemRef, Scalar
from core.errors import Location, UnsupportedOp
from core.program.nodes import Expr


@dataclass(frozen=True, slots=True)
class Argument:
    """A function argument.

    Attributes:
        role: `tensor`, `scratch` (a workspace that launches share), `buffer` (one of the launch's own), `scalar`,
            `symbol`, `grid`, `block`, or a vendor's.
        name: of the parameter passed, as far as the role has one.
        type: its MLIR type.
        attributes: printed behind the type.
        elements: extents of `scratch` or a `buffer`, which whoever launches the kernel allocates.
    """

    role: str
    name: str
    type: Scalar | MemRef
    attributes: str = ""
    elements: tuple[Expr, ...] = ()


@dataclass(slots=True)
class FunctionFacts:
    """What the body turned out to hold, known when the function's attributes are written."""

    matmuls: int = 0
    stores: int = 0
    atomics: int = 0
    rewrites: list[str] = field(default_factory=list)


class TileDialect:
    """A plain dialect, for compilers that take linalg as it is; a vendor overrides what differs."""

    name = "tile"
    #: Largest number of blocks of one launch; more run in a loop inside the kernel. None: no limit.
    max_blocks: int | None = None
    #: Attributes that only the vendor's compiler understands, as regular expressions: a simulator removes them.
    vendor_attributes: tuple[str, ...] = ()

    def leading_arguments(self) -> tuple[Argument, ...]:
        """Arguments in front of the tensors."""
        return ()

    def tensor_attributes(self, *, reads: bool, writes: bool) -> str:
        """Attributes of a tensor argument."""
        return ""

    def function_attributes(self, facts: FunctionFacts) -> str:
        """Attributes of the function."""
        return ""

    def check_dtype(self, dtype: str, location: Location | None) -> None:
        """Raises UnsupportedOp for a dtype the compiler or chip does not have."""

    def matmul(self, b: Builder, x: Value, y: Value, total: Value) -> Value:
        """`total + x @ y`, accumulated in total's type."""
        return ops.matmul(b, x, y, total)

    def atomic(self, b: Builder, kind: str, value: Value, memory: Value) -> None:
        """Combines a tensor into memory, element by element, atomically."""
        raise UnsupportedOp(f"atomic {kind} has no operation in {self.name}", location=b.location)

    def cumulative_sum(self, b: Builder, value: Value, dim: int, *, reverse: bool) -> Value | None:
        """The inclusive prefix sum along `dim`; None when there is no such operation and it is written with others."""
        return None

    def block_arguments(self) -> Sequence[Argument]:
        """Arguments behind the scalars: extents of the grid and the block's place in it, x first."""
        from core.codegen.mlir.types import I32

        return [Argument("grid", f"grid_{axis}", I32) for axis in "xyz"] + [
            Argument("block", f"block_{axis}", I32) for axis in "xyz"
        ]
