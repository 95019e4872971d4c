"""The launches of one call, with every expression evaluated: what a launcher or a simulator hands to the runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

from core.errors import LaunchError

if TYPE_CHECKING:
    from core.compiler.artifacts import LoweredKernel

#: What expressions of a plan may call.
_FUNCTIONS = {"__builtins__": {}, "min": min, "max": max}

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
    """The launch plan of a kernel lowered by this family. Expressions are compiled once."""

    def __init__(self, lowered: LoweredKernel) -> None:
        plan, functions = lowered.metadata["plan"], {f["name"]: f for f in lowered.metadata["functions"]}
        self.name = lowered.signature.name
        self._scalars: Mapping[str, int] = plan["scalars"]
        self._workspaces = [(dtype, _compile(count)) for dtype, count in plan["workspaces"]]
        self._steps = [_Step(step, functions[step["function"]]) for step in plan["steps"]]

    def names(self, arguments: Sequence[Any], symbols: Mapping[str, int] | None) -> dict[str, Any]:
        """What the expressions of the plan may refer to: symbolic dimensions and scalar parameters, by name."""
        names: dict[str, Any] = dict(symbols or {})
        names.update((name, arguments[position]) for name, position in self._scalars.items())
        return names

    def workspace_bytes(self, names: Mapping[str, Any]) -> list[int]:
        """Size of each global scratch buffer that the launches share."""
        return [_ELEMENT_BYTES.get(dtype, 1) * int(_value(count, names)) for dtype, count in self._workspaces]

    def launches(self, names: Mapping[str, Any]) -> Iterator[Launch]:
        """The launches in order; those without blocks, or whose condition fails, are left out."""
        for step in self._steps:
            launch = step.evaluate(names)
            if launch is not None:
                yield launch


class _Step:
    def __init__(self, step: Mapping[str, Any], function: Mapping[str, Any]) -> None:
        self.function = step["function"]
        self.conditions = [_compile(text) for text in step["conditions"]]
        self.tags = {tag: _compile(text) for tag, text in zip(function["launch_tags"], step["extents"], strict=True)}
        self.arguments: list[tuple[str, Any, str]] = []
        for text, dtype in zip(step["arguments"], function["argument_types"], strict=True):
            kind, _, position = text.partition(":")
            if kind in ("tensor", "workspace") and position:
                self.arguments.append((kind, int(position), dtype))
            else:
                self.arguments.append(("scalar", _compile(text), dtype))

    def evaluate(self, names: Mapping[str, Any]) -> Launch | None:
        if not all(_value(condition, names) for condition in self.conditions):
            return None

        def axis(tag: str) -> int:
            return int(_value(self.tags[tag], names)) if tag in self.tags else 1

        grid = (axis("blockIdx.x"), axis("blockIdx.y"), axis("blockIdx.z"))
        if min(grid) <= 0:
            return None
        block = (axis("threadIdx.x"), axis("threadIdx.y"), axis("threadIdx.z"))
        shared = axis(_SHARED_TAG) if _SHARED_TAG in self.tags else 0
        values = tuple(
            Value(kind, _value(what, names) if kind == "scalar" else what, dtype)
            for kind, what, dtype in self.arguments
        )
        return Launch(self.function, values, grid, block, shared)


def _compile(expression: str) -> CodeType:
    return compile(expression, "<launch plan>", "eval")


def _value(code: CodeType, names: Mapping[str, Any]) -> Any:
    try:
        return eval(code, _FUNCTIONS, dict(names))
    except NameError as error:
        raise LaunchError(f"the launch needs {error.name}, which no argument determines") from error


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
