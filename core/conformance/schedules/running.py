"""The entry point: a kernel, its tensors, a seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any, Literal

import numpy as np

from core.conformance.interpreter.values import numpy_dtype
from core.conformance.schedules.compiler import add_barriers, add_fences
from core.conformance.schedules.faults import ScheduleFault
from core.conformance.schedules.groups import assign_groups
from core.conformance.schedules.layouts import assign_layouts
from core.conformance.schedules.reading import read
from core.conformance.schedules.scheduler import Scheduler
from core.conformance.schedules.state import Cluster
from core.conformance.schedules.tree import Kernel, Tensor
from core.errors import LaunchError


@dataclass(frozen=True)
class ScheduleRun:
    """A simulated run that ended without a fault.

    Attributes:
        seed: of the order that was tried.
        blocks: how many blocks ran.
        steps: choices of who goes next.
    """

    seed: int
    blocks: int
    steps: int


def prepare(kernel: Any) -> Kernel:
    """Reads a kernel for simulation; the result can be given to :func:`run_schedule` any number of times.

    Args:
        kernel: a `tvm.tirx.PrimFunc`, a `core.program.Program`, or what this gave.

    Raises:
        UnsupportedOp: it has something that is not modelled, at the user's line.
    """
    if isinstance(kernel, Kernel):
        return kernel
    made = read(getattr(kernel, "prim_func", kernel))
    assign_groups(made)
    assign_layouts(made.body)
    add_barriers(made.body)
    add_fences(made.body)
    return made


def run_schedule(
    kernel: Any,
    tensors: Sequence[Any],
    *,
    seed: int = 0,
    blocks: Iterable[int] | None = None,
    fences: Literal["path", "writers"] = "path",
    max_steps: int = 2_000_000,
) -> ScheduleRun:
    """Runs a kernel scheduled by hand (warpgroups, barriers, bulk copies, products in flight) on the CPU, simulated.

    The order of everything that the hardware does not promise is drawn from `seed`; docs/schedules.md says what is
    modelled. Blocks of a cluster run together, clusters one after the other.

    Args:
        kernel: a `tvm.tirx.PrimFunc` before lowering, a `core.program.Program`, or what :func:`prepare` gave.
        tensors: one per parameter, in order: NumPy arrays (`ml_dtypes` for the types NumPy lacks) or torch tensors on
            the CPU, contiguous, changed in place; numbers for scalar parameters.
        seed: of the order; the same seed gives the same run.
        blocks: numbers of the blocks to run, x fastest; a block's whole cluster runs. None is all.
        fences: "path" takes a proxy fence anywhere between write and access, as PTX's memory model has it; "writers"
            asks for one in every warp that wrote, before it hands on, as CUDA's programming guide does.
        max_steps: choices after which a cluster counts as never ending.

    Raises:
        ScheduleFault: one of its kinds; the message names the lines of the kernel.
        UnsupportedOp: the kernel has something that is not modelled.
        LaunchError: the tensors do not fit the kernel.
    """
    made = prepare(kernel)
    arrays, values = _arguments(made, tensors)
    grid = [int(extent.evaluate(_Host(values))) for extent in made.grid]  # type: ignore[arg-type]
    chosen = set(blocks) if blocks is not None else None
    steps = ran = 0
    for origin in product(*(range(0, e, c) for e, c in zip(reversed(grid), reversed(_dims(made, grid)), strict=True))):
        first = tuple(reversed(origin))
        positions = _cluster(first, _dims(made, grid))
        numbers = [_number(position, grid) for position in positions]
        if chosen is not None and not chosen.intersection(numbers):
            continue
        random = Random(f"{seed}/{numbers[0]}")
        cluster = Cluster(made, arrays, positions, random, fences == "writers")
        for block, number in zip(cluster.blocks, numbers, strict=True):
            block.number = number
        scheduler = Scheduler(cluster, random, max_steps)
        for task in scheduler.tasks:
            for slot, value in values.items():
                task.warp.slots[slot] = value
        try:
            with np.errstate(all="ignore"):
                steps += scheduler.run()
        except ScheduleFault as fault:
            fault.seed = seed
            raise
        ran += len(positions)
    return ScheduleRun(seed, ran, steps)


class _Host:
    """Evaluates the grid's extents: only parameters and symbols are known."""

    def __init__(self, slots: dict[int, Any]) -> None:
        self.slots = slots


def _dims(kernel: Kernel, grid: Sequence[int]) -> tuple[int, ...]:
    return kernel.cluster[: len(grid)]


def _cluster(first: tuple[int, ...], dims: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Positions of a cluster's blocks by rank, x fastest."""
    offsets = product(*(range(extent) for extent in reversed(dims)))
    return [tuple(f + o for f, o in zip(first, reversed(offset), strict=True)) for offset in offsets]


def _number(position: Sequence[int], grid: Sequence[int]) -> int:
    number, size = 0, 1
    for place, extent in zip(position, grid, strict=True):
        number += place * size
        size *= extent
    return number


def _arguments(kernel: Kernel, tensors: Sequence[Any]) -> tuple[dict[int, Any], dict[int, Any]]:
    """Arrays by storage, and values by slot."""
    if len(tensors) != len(kernel.parameters):
        raise LaunchError(f"{kernel.name} takes {len(kernel.parameters)} arguments, not {len(tensors)}")
    arrays: dict[int, Any] = {}
    values: dict[int, Any] = {}
    for position, (parameter, given) in enumerate(zip(kernel.parameters, tensors, strict=True)):
        if isinstance(parameter, int):
            values[parameter] = given
            continue
        array = _array(parameter, given)
        arrays[parameter.storage] = array
        for dimension, size in enumerate(array.shape):
            slot = kernel.symbols.get((position, dimension))
            if slot is not None:
                values[slot] = int(size)
    return arrays, values


def _array(parameter: Tensor, given: Any) -> Any:
    """The argument as an array that shares its memory."""
    if not isinstance(given, np.ndarray):
        import torch

        if given.device.type != "cpu" or not given.is_contiguous():
            raise LaunchError(f"{parameter.name}: the simulator takes contiguous tensors on the CPU")
        sizes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        given = given.detach().view(sizes[given.element_size()]).numpy().view(numpy_dtype(parameter.dtype))
    fits = len(given.shape) == len(parameter.extents) and all(
        extent in (0, size) for size, extent in zip(given.shape, parameter.extents, strict=True)
    )
    if given.dtype != parameter.kind or not fits:
        wanted = f"{parameter.dtype} of {list(parameter.extents)}"
        raise LaunchError(f"{parameter.name} is {wanted}, not {given.dtype} of {list(given.shape)}")
    return given
