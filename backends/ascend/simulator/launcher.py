"""Calling a simulated kernel: tensors by address, sizes and grids from the call's arguments, blocks in parallel."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from backends.ascend.runtime.arguments import (
    LaunchPlan,
    Slot,
    call_values,
    check_assertions,
    host_assertions,
    launch_plans,
    number_bytes,
)
from backends.ascend.simulator.native import LoadedObject

if TYPE_CHECKING:
    import torch

    from core.compiler import LoweredKernel


class SimulatedKernel:
    """A simulated kernel, ready to run. A call returns when the kernel has finished; there are no streams.

    Args:
        lowered: the kernel.
        objects: the loaded code of each launch.
        rewrites: rules applied to the modules.
        cores: what a kernel that loops over its blocks is launched on.
    """

    def __init__(
        self, lowered: LoweredKernel, objects: Sequence[LoadedObject], rewrites: Sequence[str], cores: int
    ) -> None:
        self.rewrites = tuple(rewrites)
        self.objects = tuple(objects)
        self._lowered = lowered
        self._plans = launch_plans(lowered)
        self._assertions = host_assertions(lowered)
        self._cores = cores

    def __call__(self, *arguments: Any, symbols: dict[str, int] | None = None, stream: int | None = None) -> None:
        values = call_values(self._lowered, arguments, symbols)
        check_assertions(self._lowered.signature.name, self._assertions, values)
        scratch: dict[str, torch.Tensor] = {}
        for plan, code in zip(self._plans, self.objects, strict=True):
            x, y, z = plan.blocks(values, self._cores)
            if x * y * z:
                kept: list[torch.Tensor] = []
                run_blocks(code, _slots(plan, arguments, values, scratch, kept), (x, y, z))


def run_blocks(code: LoadedObject, slots: ctypes.Array[ctypes.c_uint64], grid: tuple[int, int, int]) -> None:
    """Runs every block of a grid, on as many threads as this process has cores."""
    total = grid[0] * grid[1] * grid[2]
    begun = ctypes.c_int64(0)

    def work() -> None:
        # A foreign call releases the interpreter's lock, so the threads do run side by side.
        code.run(ctypes.addressof(slots), ctypes.addressof(begun), total, *grid)

    helpers = [threading.Thread(target=work) for _ in range(min(_usable_cores(), total) - 1)]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()


def _slots(
    plan: LaunchPlan,
    arguments: Sequence[Any],
    values: Mapping[str, Any],
    scratch: dict[str, torch.Tensor],
    kept: list[torch.Tensor],
) -> ctypes.Array[ctypes.c_uint64]:
    """8 bytes per argument.

    `scratch` holds the memory that launches share, by name; `kept` receives what must live until the blocks have run.
    """
    slots = (ctypes.c_uint64 * len(plan.slots))()
    for number, slot in enumerate(plan.slots):
        if slot.role == "tensor":
            slots[number] = arguments[slot.position].data_ptr()
        elif slot.role == "scratch":
            if slot.name not in scratch:
                scratch[slot.name] = _memory(slot, values)
            slots[number] = scratch[slot.name].data_ptr()
        elif slot.role == "buffer":
            kept.append(_memory(slot, values))
            slots[number] = kept[-1].data_ptr()
        elif slot.role in ("scalar", "symbol"):
            value = arguments[slot.position] if slot.role == "scalar" else values[slot.name]
            slots[number] = int.from_bytes(number_bytes(value, slot.type), "little")
        # lock and workspace are for what the vendor's compiler inserts: there is none of it here, they stay null.
    return slots


def _memory(slot: Slot, values: Mapping[str, Any]) -> torch.Tensor:
    import torch

    return torch.empty(slot.buffer_bytes(values), dtype=torch.uint8)


def _usable_cores() -> int:
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:
        return os.cpu_count() or 1
