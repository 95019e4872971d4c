"""State of a simulated cluster: its blocks, their memory and barriers, and what is in flight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from core.conformance.schedules.accesses import Access, Box, Shadow
from core.conformance.schedules.barriers import ClusterMeeting, CountedBarrier, SharedBarrier
from core.conformance.schedules.clocks import Clock
from core.conformance.schedules.faults import EndsEarly
from core.conformance.schedules.lanes import WARP
from core.conformance.schedules.tree import Launch, Tensor
from core.errors import Location

Array = np.ndarray[Any, Any]


@dataclass(eq=False, slots=True)
class Operation:
    """Work of the copy engine or the matrix unit.

    Attributes:
        number: its bit in clocks.
        warp: of the cluster, that issued it.
        clock: what that warp knew when it did: the operation comes after that.
        perform: does it; called at any time between issue and the end that somebody waits for.
        after: an operation that must be performed before.
        blocks: of the cluster, whose shared memory it gets at.
        what: for messages.
    """

    number: int
    warp: int
    clock: Clock
    what: str
    location: Location | None
    perform: Callable[[], None] = lambda: None
    after: Operation | None = None
    blocks: set[int] = field(default_factory=set)
    performed: bool = False
    priority: float = 0.0

    def ready(self) -> bool:
        return self.after is None or self.after.performed


class Cluster:
    """Blocks that run together, and share their shared memory."""

    def __init__(
        self,
        launch: Launch,
        arrays: dict[int, Array],
        positions: Sequence[tuple[int, ...]],
        random: Random,
        writers_fence: bool = False,
    ) -> None:
        self.launch, self.arrays, self.random = launch, arrays, random
        self.writers_fence = writers_fence
        self.warps_per_block = launch.threads // WARP
        self.warps = self.warps_per_block * len(positions)
        self.meeting = ClusterMeeting(self.warps)
        self.operations = 0
        self.in_flight: list[Operation] = []
        self.blocks = [Block(self, rank, position) for rank, position in enumerate(positions)]

    def issue(self, warp: int, clock: Clock, what: str, location: Location | None) -> Operation:
        """A new operation; the caller gives it something to perform and calls :meth:`start`."""
        operation = Operation(self.operations, warp, clock.copy(), what, location)
        self.operations += 1
        return operation

    def start(self, operation: Operation) -> None:
        """From here on it may be performed at any time."""
        operation.priority = self.random.random()
        self.in_flight.append(operation)


@dataclass(eq=False)
class Block:
    """A block: what its warps share.

    Attributes:
        rank: in the cluster.
        position: in the grid, x first.
    """

    cluster: Cluster
    rank: int
    position: tuple[int, ...]
    shared: dict[int, Array] = field(default_factory=dict)
    shadow: Shadow = field(default_factory=Shadow)
    barriers: dict[int, list[SharedBarrier]] = field(default_factory=dict)
    named: dict[int, CountedBarrier] = field(default_factory=dict)
    added: dict[tuple[int, ...], CountedBarrier] = field(default_factory=dict)
    scratch: dict[Any, Any] = field(default_factory=dict)
    number: int = 0
    ended: bool = False

    def __post_init__(self) -> None:
        raw: dict[int, Array] = {}
        tensors = [tensor for tensor in self.cluster.launch.tensors if tensor.is_shared]
        for tensor in tensors:
            size = int(np.prod(tensor.extents)) * tensor.item_bytes
            if tensor.storage not in raw or raw[tensor.storage].size < size:
                raw[tensor.storage] = np.full(size, 0xFF, np.uint8)  # NaN in every float type, -1 in every integer
        for tensor in tensors:
            size = int(np.prod(tensor.extents)) * tensor.item_bytes
            self.shared[id(tensor)] = raw[tensor.storage][:size].view(tensor.kind).reshape(tensor.extents)
        warps = self.cluster.warps
        for tensor in self.cluster.launch.tensors:
            if tensor.counts:
                self.barriers[tensor.storage] = [
                    SharedBarrier(f"{tensor.name}[{index}]", count, warps) for index, count in enumerate(tensor.counts)
                ]

    def array(self, tensor: Tensor) -> Array:
        """The elements of a shared or global tensor."""
        return self.shared[id(tensor)] if tensor.is_shared else self.cluster.arrays[tensor.storage]

    def record(self, tensor: Tensor, box: Box, write: bool, operation: Operation, location: Location | None) -> None:
        """An access of an operation to the shared memory of this block.

        Raises:
            EndsEarly: the block has ended.
        """
        if self.ended:
            raise EndsEarly(
                f"{operation.what} gets at the shared memory of block {self.rank} of the cluster, which has ended",
                hint="T.cluster_sync() at the end keeps every block until the others have done with it",
                location=location,
            )
        operation.blocks.add(self.rank)
        access = Access(tensor, box, write, operation.warp, 0, operation.number, location, operation.what)
        self.shadow.add(access, operation.clock)

    def named_barrier(self, identity: int) -> CountedBarrier:
        return self.named.setdefault(identity, CountedBarrier(f"named barrier {identity}", self.cluster.warps))

    def added_barrier(self, group: tuple[int, ...]) -> CountedBarrier:
        """The compiler's barrier for these warps."""
        if group not in self.added:
            name = f"the compiler's barrier of threads {group[0] * WARP} to {group[-1] * WARP + WARP - 1}"
            self.added[group] = CountedBarrier(name, self.cluster.warps)
        return self.added[group]
