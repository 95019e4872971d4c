"""What the host does to launch a kernel through a CUDA-like driver, as data.

A plan is all that is needed beside the binary: it is generated into C for launches in this process and for exported
kernels, interpreted where there is no C compiler, and written to an exported kernel's metadata. Sizes are expressions
in Python's syntax over symbolic dimensions and scalar parameters, by name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

#: `CUlaunchAttributeID` of cuda.h.
COOPERATIVE, CLUSTER_DIMENSION, PROGRAMMATIC = 2, 4, 6

#: The largest symbolic dimension that is counted in int32. What computes with it goes beyond it: a grid is rounded up,
#: the last tile hangs over the end. A kernel for more has int64 sizes, `T.dynamic("m", "int64")`.
LARGEST_INT32_SIZE = 2**31 - 2**24

#: What each workspace's address is a multiple of, in bytes, beyond what any access to it asks for.
WORKSPACE_ALIGNMENT = 256

#: What an expression may hold; everything else is refused when a plan is made.
_NODES = (
    ast.Expression,
    ast.Constant,
    ast.Name,
    ast.Load,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.FloorDiv,
    ast.Mod,
    ast.LShift,
    ast.RShift,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
    ast.UnaryOp,
    ast.USub,
    ast.Not,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.Compare,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.IfExp,
    ast.Call,
)


class UnusablePlan(Exception):
    """The plan holds something this form cannot say; the message names it."""


@dataclass(frozen=True, slots=True)
class TensorMap:
    """How a TMA descriptor (`CUtensorMap`) is encoded. Numbers are those of the CUDA driver's enumerations.

    Attributes:
        tensor: position of the parameter whose data it describes, or with `of_workspace` which workspace.
        data_type, interleave, swizzle, l2_promotion, out_of_bounds: `CUtensorMapDataType` and so on.
        dims: elements per axis, innermost first, as expressions.
        strides: bytes per axis from the second on, as expressions.
        box: elements of the tile per axis; empty for im2col.
        element_strides: traversal step per axis.
        lower, upper, channels, pixels: the im2col window; None for a tiled map.
    """

    tensor: int
    data_type: int
    dims: tuple[str, ...]
    strides: tuple[str, ...]
    box: tuple[str, ...]
    element_strides: tuple[str, ...]
    interleave: int
    swizzle: int
    l2_promotion: int
    out_of_bounds: int
    lower: tuple[int, ...] | None = None
    upper: tuple[int, ...] | None = None
    channels: int | None = None
    pixels: int | None = None
    of_workspace: bool = False

    @property
    def rank(self) -> int:
        return len(self.dims)


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an entry point.

    Attributes:
        kind: `tensor` (the data pointer of a parameter), `workspace` (a pointer), `map` (a tensor map, by value) or
            `scalar`.
        index: which parameter, workspace or tensor map; -1 for a scalar.
        value: of a scalar, an expression.
        dtype: of a scalar (`int32`, `float32`).
    """

    kind: Literal["tensor", "workspace", "map", "scalar"]
    index: int = -1
    value: str = ""
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class DeviceLaunch:
    """One launch.

    Attributes:
        function: name of the entry point in the binary.
        grid: blocks (x, y, z), as expressions; a launch without blocks is left out.
        block: threads (x, y, z), as expressions.
        shared_bytes: dynamic shared memory, as an expression.
        cluster: blocks of a cluster (x, y, z), or None.
        cooperative: all blocks must be resident at once (a barrier over the grid).
        programmatic: it may start before the launch in front of it has ended, and waits for it by itself.
        conditions: all must hold for the launch to happen.
    """

    function: str
    arguments: tuple[Argument, ...]
    grid: tuple[str, str, str]
    block: tuple[str, str, str]
    shared_bytes: str = "0"
    cluster: tuple[int, int, int] | None = None
    cooperative: bool = False
    programmatic: bool = False
    conditions: tuple[str, ...] = ()

    @property
    def attributes(self) -> tuple[tuple[int, tuple[int, int, int]], ...]:
        """`CUlaunchAttributeID` and value of each attribute that the launch is queued with."""
        found = [(CLUSTER_DIMENSION, self.cluster)] if self.cluster is not None else []
        found += [(PROGRAMMATIC, (1, 0, 0))] if self.programmatic else []
        found += [(COOPERATIVE, (1, 0, 0))] if self.cooperative else []
        return tuple(found)


@dataclass(frozen=True, slots=True)
class DriverPlan:
    """The launches of a kernel in order, and what they take.

    Attributes:
        maps: the tensor maps.
        workspaces: bytes of each global scratch memory, as an expression: allocated on the stream before the first
            launch, given back behind the last.
    """

    launches: tuple[DeviceLaunch, ...]
    maps: tuple[TensorMap, ...] = ()
    workspaces: tuple[str, ...] = ()

    @property
    def maps_parameters(self) -> bool:
        """Whether a tensor map describes a parameter, which therefore may not be empty."""
        return any(not item.of_workspace for item in self.maps)

    def expressions(self) -> Iterator[str]:
        """Every expression of the plan."""
        for launch in self.launches:
            yield from (*launch.grid, *launch.block, launch.shared_bytes, *launch.conditions)
            yield from (argument.value for argument in launch.arguments if argument.kind == "scalar")
        yield from self.workspaces
        for tensor_map in self.maps:
            yield from (*tensor_map.dims, *tensor_map.strides, *tensor_map.box, *tensor_map.element_strides)

    def check(self, names: Iterable[str]) -> None:
        """Raises UnusablePlan when an expression is not one, or uses a name that is not among `names`."""
        known = set(names)
        for text in self.expressions():
            names_of(text, known)

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data; :meth:`from_json` reads it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DriverPlan:
        """The inverse of :meth:`to_json`."""

        def launch(item: Mapping[str, Any]) -> DeviceLaunch:
            fields = _tuples(item)
            fields["arguments"] = tuple(Argument(**argument) for argument in item["arguments"])
            return DeviceLaunch(**fields)

        maps = tuple(TensorMap(**_tuples(item)) for item in data.get("maps", ()))
        return cls(tuple(launch(item) for item in data["launches"]), maps, tuple(data.get("workspaces", ())))


def passed_as_int32(plan: DriverPlan, symbols: Iterable[str]) -> tuple[str, ...]:
    """Those of the symbolic dimensions that some entry point counts in 32 bits."""
    scalars = {a.value for launch in plan.launches for a in launch.arguments if a.dtype == "int32"}
    return tuple(symbol for symbol in symbols if symbol in scalars)


def _tuples(item: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON has as lists, as tuples again."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in item.items()}


def names_of(text: str, known: Iterable[str]) -> set[str]:
    """The names an expression uses.

    Raises:
        UnusablePlan: it is not an expression of the form above, or uses a name that is not known.
    """
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise UnusablePlan(f"{text!r} is not an expression") from error
    found: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise UnusablePlan(f"{text!r} holds {type(node).__name__}")
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.func.id not in ("min", "max") or len(node.args) != 2:
                raise UnusablePlan(f"{text!r} calls something else than min or max of two")
        elif isinstance(node, ast.Name) and node.id not in ("min", "max"):
            found.add(node.id)
    unknown = sorted(found - set(known))
    if unknown:
        raise UnusablePlan(f"{text!r} needs {unknown[0]}, which no argument determines")
    return found
