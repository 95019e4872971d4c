"""The entry point: a kernel, its tensors, a seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
from core.conformance.schedules.tree import Kernel, Launch, Tensor
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
    for launch in made.launches:
        assign_groups(launch)
        assign_layouts(launch.body)
        add_barriers(launch.body)
        add_fences(launch.body)
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
        blocks: numbers of the blocks to run, x fastest, in every launch; a block's whole cluster runs. None is all.
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
    chosen = set(blocks) if blocks is not None else None
    steps = ran = 0
    for order, launch in enumerate(made.launches):
        for positions, numbers in _clusters(launch, values):
            if chosen is not None and not chosen.intersection(numbers):
                continue
            random = Random(f"{seed}/{order}/{numbers[0]}")
            cluster = Cluster(launch, arrays, positions, random, fences == "writers")
            for block, number in zip(cluster.blocks, numbers, strict=True):
                block.number = number
            try:
                steps += _run(cluster, values, max_steps)
            except ScheduleFault as fault:
                fault.seed = seed
                raise
            ran += len(positions)
    return ScheduleRun(seed, ran, steps)


def _run(cluster: Cluster, values: dict[int, Any], max_steps: int) -> int:
    scheduler = Scheduler(cluster, cluster.random, max_steps)
    for task in scheduler.tasks:
        for slot, value in values.items():
            task.warp.slots[slot] = value
    with np.errstate(all="ignore"):
        return scheduler.run()


class _Host:
    """Evaluates the grid's extents: only parameters and symbols are known."""

    def __init__(self, slots: dict[int, Any]) -> None:
        self.slots = slots


def _clusters(launch: Launch, values: dict[int, Any]) -> Iterator[tuple[list[tuple[int, ...]], list[int]]]:
    """Positions and numbers of the blocks of each cluster, by rank, x fastest."""
    grid = [int(extent.evaluate(_Host(values))) for extent in launch.grid]  # type: ignore[arg-type]  # `slots` is enough
    dims = launch.cluster[: len(grid)]
    for origin in product(*(range(0, e, c) for e, c in zip(reversed(grid), reversed(dims), strict=True))):
        offsets = product(*(range(extent) for extent in reversed(dims)))
        positions = [tuple(reversed([o + f for o, f in zip(offset, origin, strict=True)])) for offset in offsets]
        yield positions, [_number(position, grid) for position in positions]


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
