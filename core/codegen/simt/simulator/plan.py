"""What a launch does, as the host plan in a lowered kernel's metadata says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from core.errors import LaunchError
from core.runtime.signature import ScalarArgument

if TYPE_CHECKING:
    from core.compiler.artifacts import LoweredKernel

_AXES = "xyz"
_DYNAMIC_SHARED = "dyn_shared_memory"


@dataclass(frozen=True, slots=True)
class Step:
    """One launch.

    Attributes:
        function: entry point.
        arguments: `tensor:<parameter>`, `workspace:<i>` or an expression, one per parameter of the entry point.
        argument_types: their dtypes, `handle` for pointers.
        grid, block: extents as expressions. dynamic_shared: bytes, as an expression.
        conditions: all must hold for the launch to happen.
    """

    function: str
    arguments: tuple[str, ...]
    argument_types: tuple[str, ...]
    grid: tuple[str, str, str]
    block: tuple[str, str, str]
    dynamic_shared: str
    conditions: tuple[str, ...] = ()

    def shape(self, values: Mapping[str, Any]) -> tuple[tuple[int, int, int], tuple[int, int, int], int]:
        """Grid, block and bytes of dynamic shared memory for these symbols and scalars."""
        gx, gy, gz = (max(0, int(evaluate(extent, values))) for extent in self.grid)
        bx, by, bz = (int(evaluate(extent, values)) for extent in self.block)
        return (gx, gy, gz), (bx, by, bz), int(evaluate(self.dynamic_shared, values))


@dataclass(frozen=True, slots=True)
class Plan:
    """The launches of a call, the scratch memory they share, and which parameter each scalar's name is."""

    steps: tuple[Step, ...]
    workspaces: tuple[tuple[str, str], ...] = ()
    scalars: Mapping[str, int] = field(default_factory=dict)


def launch_steps(lowered: LoweredKernel) -> Plan:
    """The plan in `lowered.metadata["plan"]`; without one, every entry point is launched with all parameters."""
    signature = lowered.signature
    scalars = {a.name: i for i, a in enumerate(signature.arguments) if isinstance(a, ScalarArgument)}
    plan = lowered.metadata.get("plan")
    if plan is None:
        arguments = tuple(
            a.name if isinstance(a, ScalarArgument) else f"tensor:{i}" for i, a in enumerate(signature.arguments)
        )
        types = tuple(a.dtype if isinstance(a, ScalarArgument) else "handle" for a in signature.arguments)
        dynamic = str(lowered.resources.dynamic_shared_bytes or 0)
        steps = tuple(
            Step(name, arguments, types, _three(grid), _three(block), dynamic)
            for name, grid, block in zip(lowered.entry_points, lowered.grid, lowered.block, strict=True)
        )
        return Plan(steps, scalars=scalars)
    functions = {function["name"]: function for function in lowered.metadata["functions"]}
    steps = tuple(_step(step, functions[step["function"]]) for step in plan["steps"])
    workspaces = tuple((str(dtype), str(count)) for dtype, count in plan["workspaces"])
    return Plan(steps, workspaces, {**scalars, **plan.get("scalars", {})})


def _step(step: Mapping[str, Any], function: Mapping[str, Any]) -> Step:
    extents = dict(zip(function["launch_tags"], step["extents"], strict=True))
    dynamic = next((str(value) for tag, value in extents.items() if tag.endswith(_DYNAMIC_SHARED)), "0")
    gx, gy, gz = (str(extents.get(f"blockIdx.{axis}", "1")) for axis in _AXES)
    bx, by, bz = (str(extents.get(f"threadIdx.{axis}", "1")) for axis in _AXES)
    return Step(
        function=step["function"],
        arguments=tuple(step["arguments"]),
        argument_types=tuple(function["argument_types"]),
        grid=(gx, gy, gz),
        block=(bx, by, bz),
        dynamic_shared=dynamic,
        conditions=tuple(step.get("conditions", ())),
    )


def _three(extents: Any) -> tuple[str, str, str]:
    x, y, z = (*(str(extent) for extent in extents), "1", "1")[:3]
    return x, y, z


def evaluate(expression: str, values: Mapping[str, Any]) -> Any:
    """The value of a plan's expression over symbols and scalars.

    Raises:
        LaunchError: it uses a name that is neither.
    """
    try:
        return eval(str(expression), {"__builtins__": {}, "min": min, "max": max}, dict(values))
    except NameError as error:
        raise LaunchError(
            f"the launch needs {error.name}, which no argument determines",
            hint="pass it as a scalar, or make it a tensor's extent",
        ) from error
