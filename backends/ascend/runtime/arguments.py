"""What each argument of a module's function is at a call: memory, a number, an extent of the grid.

The simulator and the device's runtime pack the same values, each in its own layout.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from core.errors import LaunchError, Location
from core.runtime import LARGEST_INT32_SIZE, Expression, Extent, TensorArgument

if TYPE_CHECKING:
    from core.compiler import LoweredKernel

_GRID_LIMIT = 65535
_BYTES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}


@dataclass(frozen=True, slots=True)
class Slot:
    """One argument of a function.

    Attributes:
        role: `lock`, `workspace`, `tensor`, `scratch`, `buffer`, `scalar`, `symbol`, `grid` or `block`.
        name: of what is passed.
        type: MLIR type.
        position: of a tensor or scalar among the call's arguments.
        elements: extents of `scratch` or a `buffer`.
    """

    role: str
    name: str
    type: str
    position: int = -1
    elements: tuple[Extent, ...] = ()

    @property
    def is_memory(self) -> bool:
        return self.type.startswith("memref")

    @property
    def element_bytes(self) -> int:
        """Bytes of an element, or of the number itself."""
        element = self.type.rstrip(">").rpartition("x")[2] if self.is_memory else self.type
        return _BYTES[element]

    def buffer_bytes(self, values: Mapping[str, Any]) -> int:
        """Bytes of `scratch` or a `buffer` for these symbols and scalars."""
        return self.element_bytes * prod(max(0, extent(values)) for extent in self.elements)


@dataclass(frozen=True)
class LaunchPlan:
    """One launch of a kernel.

    Attributes:
        kernel: name for messages.
        entry: the module's function.
        slots: its arguments, in order.
        grid: extents, x first.
        looped: blocks run in a loop inside the kernel, so fewer may be launched.
    """

    kernel: str
    entry: str
    slots: tuple[Slot, ...]
    grid: tuple[Extent, ...]
    looped: bool

    def blocks(self, values: Mapping[str, Any], cores: int) -> tuple[int, int, int]:
        """The grid to launch, x first; a looped kernel gets one block per core, as far as there are so many.

        Raises:
            LaunchError: more blocks than the runtime counts, or a dimension that is too large for its 32 bits.
        """
        for name in self._counted:
            if values[name] > LARGEST_INT32_SIZE:
                raise LaunchError(
                    f"{self.kernel}: {name} = {values[name]:,} is too large: the kernel counts it in 32 bits, up to "
                    f"{LARGEST_INT32_SIZE:,}",
                    hint=f'declare it T.dynamic("{name}", "int64")',
                )
        extents = [max(0, extent(values)) for extent in self.grid]
        x, y, z = (*extents, 1, 1, 1)[:3]
        total = x * y * z
        if self.looped:
            return (min(total, cores), 1, 1) if total else (0, 1, 1)
        if total > _GRID_LIMIT:
            raise LaunchError(
                f"{self.kernel}: {x} x {y} x {z} = {total:,} blocks; an Ascend launch has at most {_GRID_LIMIT:,}",
                hint="compile with options={'blockify': True}: the kernel then loops over its blocks",
            )
        return x, y, z

    @cached_property
    def _counted(self) -> tuple[str, ...]:
        """Symbolic dimensions that the module takes as 32-bit integers."""
        return tuple(slot.name for slot in self.slots if slot.role == "symbol" and slot.type == "i32")

    @cached_property
    def memory_slots(self) -> tuple[Slot, ...]:
        """Arguments passed by address."""
        return tuple(slot for slot in self.slots if slot.is_memory)


def launch_plans(lowered: LoweredKernel) -> tuple[LaunchPlan, ...]:
    """The launches of a kernel, in order, from its metadata."""
    signature = lowered.signature
    tensors = [i for i, a in enumerate(signature.arguments) if isinstance(a, TensorArgument)]
    scalars = [i for i, a in enumerate(signature.arguments) if not isinstance(a, TensorArgument)]
    plans = []
    for launch in lowered.metadata["launches"]:
        # Names in a module may differ from the signature's; the order does not.
        order = {"tensor": iter(tensors), "scalar": iter(scalars)}
        symbols = iter(signature.symbols)
        slots = []
        for argument in launch["arguments"]:
            role = argument["role"]
            slots.append(
                Slot(
                    role,
                    next(symbols) if role == "symbol" else argument["name"],
                    argument["type"],
                    next(order[role]) if role in order else -1,
                    tuple(Extent(extent) for extent in argument.get("elements", ())),
                )
            )
        plans.append(
            LaunchPlan(
                signature.name,
                launch["entry"],
                tuple(slots),
                tuple(Extent(extent) for extent in launch["grid"]),
                bool(launch["looped"]),
            )
        )
    return tuple(plans)


def call_values(lowered: LoweredKernel, arguments: Sequence[Any], symbols: Mapping[str, int] | None) -> dict[str, Any]:
    """Symbols and scalars of a call by name: what grids and extents are computed from."""
    values: dict[str, Any] = dict(symbols or {})
    for argument, value in zip(lowered.signature.arguments, arguments, strict=True):
        if not isinstance(argument, TensorArgument):
            values[argument.name] = value
    return values


@dataclass(frozen=True, slots=True)
class HostAssertion:
    """What must hold of sizes and scalars before a launch; `condition` None is not decided here."""

    condition: Expression | None
    message: str
    location: Location | None


def host_assertions(lowered: LoweredKernel) -> tuple[HostAssertion, ...]:
    """The assertions of a kernel's host part, from its metadata."""
    return tuple(
        HostAssertion(
            None if record["condition"] is None else Expression(record["condition"]),
            record["message"],
            Location(record["file"], record["line"]) if record["file"] else None,
        )
        for record in lowered.metadata["asserts"]
    )


def check_assertions(kernel: str, assertions: Sequence[HostAssertion], values: Mapping[str, Any]) -> None:
    """Raises LaunchError for the first that does not hold."""
    for assertion in assertions:
        if assertion.condition is not None and not assertion.condition(values):
            raise LaunchError(
                f"{kernel}: assertion failed: {assertion.message}",
                hint="the kernel's author wants this to hold of the arguments' sizes and numbers",
                location=assertion.location,
            )


def number_bytes(value: Any, type_: str) -> bytes:
    """A number as the device reads it, little-endian: integers wrap at the type's width, floats round to nearest."""
    size = _BYTES[type_]
    if type_.startswith("i"):
        return (int(value) & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    if type_ == "f32":
        import torch

        # struct refuses what is too large for float32; torch rounds it to infinity, as a kernel would.
        return struct.pack("<f", torch.tensor(float(value), dtype=torch.float64).to(torch.float32).item())
    import torch

    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}[type_]
    data = torch.tensor([float(value)], dtype=torch.float64).to(dtype)
    return bytes(data.view(torch.uint8).tolist())
