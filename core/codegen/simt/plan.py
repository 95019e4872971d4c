"""The launches of one call, with every expression evaluated: what a launcher or a simulator hands to the runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.runtime.extents import Expression, Extent
from core.runtime.signature import ScalarArgument

if TYPE_CHECKING:
    from core.compiler.artifacts import LoweredKernel

_SHARED_TAG = "tirx.use_dyn_shared_memory"
_ELEMENT_BYTES = {
    "float64": 8,
    "int64": 8,
    "uint64": 8,
    "float32": 4,
    "int32": 4,
    "uint32": 4,
    "float16": 2,
    "bfloat16": 2,
}


@dataclass(frozen=True, slots=True)
class Value:
    """An argument of an entry point.

    Attributes:
        kind: `tensor` (value: position among the call's arguments), `workspace` (value: which) or `scalar`.
        dtype: of a scalar; `handle` for pointers.
    """

    kind: str
    value: Any
    dtype: str


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: entry point, arguments in its order, blocks and threads (x, y, z), dynamic shared memory in bytes."""

    function: str
    arguments: tuple[Value, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int


class CompiledPlan:
    """The launch plan of a kernel lowered by this family. Expressions are compiled once.

    Without a plan in the metadata (a kernel written by hand), every entry point is launched with all parameters.
    """

    def __init__(self, lowered: LoweredKernel) -> None:
        plan, functions = _plan(lowered)
        self.name = lowered.signature.name
        self._scalars: Mapping[str, int] = plan["scalars"]
        self._workspaces = [(str(dtype), Extent(count)) for dtype, count in plan["workspaces"]]
        self._steps = [_Step(step, functions[step["function"]]) for step in plan["steps"]]

    @property
    def functions(self) -> tuple[str, ...]:
        """The entry points it may launch, in order."""
        return tuple(dict.fromkeys(step.function for step in self._steps))

    def names(self, arguments: Sequence[Any], symbols: Mapping[str, int] | None) -> dict[str, Any]:
        """What the expressions of the plan may refer to: symbolic dimensions and scalar parameters, by name."""
        names: dict[str, Any] = dict(symbols or {})
        names.update((name, arguments[position]) for name, position in self._scalars.items())
        return names

    def workspaces(self, names: Mapping[str, Any]) -> list[tuple[str, int]]:
        """Dtype and number of elements of each global scratch buffer that the launches share."""
        return [(dtype, count(names)) for dtype, count in self._workspaces]

    def workspace_bytes(self, names: Mapping[str, Any]) -> list[int]:
        """Size of each global scratch buffer that the launches share."""
        return [_ELEMENT_BYTES.get(dtype, 1) * count for dtype, count in self.workspaces(names)]

    def launches(self, names: Mapping[str, Any]) -> Iterator[Launch]:
        """The launches in order; those without blocks, or whose condition fails, are left out.

        Raises:
            LaunchError: an expression needs a name that no argument determines.
        """
        for step in self._steps:
            launch = step.evaluate(names)
            if launch is not None:
                yield launch


class _Step:
    def __init__(self, step: Mapping[str, Any], function: Mapping[str, Any]) -> None:
        self.function: str = step["function"]
        self.conditions = [Expression(text) for text in step.get("conditions", ())]
        self.tags = {tag: Extent(text) for tag, text in zip(function["launch_tags"], step["extents"], strict=True)}
        self.arguments: list[tuple[str, Any, str]] = []
        for text, dtype in zip(step["arguments"], function["argument_types"], strict=True):
            kind, _, position = text.partition(":")
            if kind in ("tensor", "workspace") and position:
                self.arguments.append((kind, int(position), dtype))
            else:
                self.arguments.append(("scalar", Expression(text), dtype))

    def evaluate(self, names: Mapping[str, Any]) -> Launch | None:
        if not all(condition(names) for condition in self.conditions):
            return None

        def axis(tag: str) -> int:
            return self.tags[tag](names) if tag in self.tags else 1

        grid = (axis("blockIdx.x"), axis("blockIdx.y"), axis("blockIdx.z"))
        if min(grid) <= 0:
            return None
        block = (axis("threadIdx.x"), axis("threadIdx.y"), axis("threadIdx.z"))
        shared = axis(_SHARED_TAG) if _SHARED_TAG in self.tags else 0
        values = tuple(
            Value(kind, what(names) if kind == "scalar" else what, dtype) for kind, what, dtype in self.arguments
        )
        return Launch(self.function, values, grid, block, shared)


def _plan(lowered: LoweredKernel) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The plan and the functions, by name, that the metadata state or the signature implies."""
    arguments = lowered.signature.arguments
    scalars = {a.name: i for i, a in enumerate(arguments) if isinstance(a, ScalarArgument)}
    plan = lowered.metadata.get("plan")
    if plan is not None:
        functions = {function["name"]: function for function in lowered.metadata["functions"]}
        return {**plan, "scalars": {**scalars, **plan.get("scalars", {})}}, functions
    passed = [a.name if isinstance(a, ScalarArgument) else f"tensor:{i}" for i, a in enumerate(arguments)]
    types = [a.dtype if isinstance(a, ScalarArgument) else "handle" for a in arguments]
    shared = lowered.resources.dynamic_shared_bytes or 0
    steps, functions = [], {}
    for name, grid, block in zip(lowered.entry_points, lowered.grid, lowered.block, strict=True):
        tags = [f"blockIdx.{axis}" for axis, _ in zip("xyz", grid, strict=False)]
        tags += [f"threadIdx.{axis}" for axis, _ in zip("xyz", block, strict=True)]
        functions[name] = {"launch_tags": [*tags, _SHARED_TAG], "argument_types": types}
        extents = [*grid, *block, shared]
        steps.append({"function": name, "arguments": passed, "extents": extents, "conditions": ()})
    return {"steps": steps, "workspaces": (), "scalars": scalars}, functions


#: How the dtypes of scalar arguments are passed by value: `ctypes` type names.
CTYPES: Mapping[str, str] = {
    "int8": "c_int8",
    "int16": "c_int16",
    "int32": "c_int32",
    "int64": "c_int64",
    "uint8": "c_uint8",
    "uint16": "c_uint16",
    "uint32": "c_uint32",
    "uint64": "c_uint64",
    "float32": "c_float",
    "float64": "c_double",
    "bool": "c_bool",
}
