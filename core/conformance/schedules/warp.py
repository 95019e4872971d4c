"""A warp: its variables, registers and knowledge, and how it gets at memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.conformance.schedules.accesses import Access, Box
from core.conformance.schedules.clocks import Clock
from core.conformance.schedules.expressions import convert
from core.conformance.schedules.faults import OutOfBounds, RegistersInFlight
from core.conformance.schedules.lanes import WARP, Lanes
from core.conformance.schedules.state import Array, Block, Operation
from core.conformance.schedules.tree import Expression, Tensor
from core.errors import Location, UnsupportedOp


@dataclass(eq=False, slots=True)
class Pause:
    """Why a warp gives way: until `ready` holds; None is just a chance for others."""

    ready: Callable[[], bool] | None = None
    reason: Callable[[], str] = lambda: ""
    location: Location | None = None


Steps = Generator[Pause, None, None]


class Warp:
    """One warp of a block.

    Attributes:
        number: in its block; `index`: in the cluster.
        active: lanes that execute the statement at hand; None is all.
        products: in flight, oldest first: one commit group each.
        stores: bulk stores this warp has issued, one commit group each.
    """

    def __init__(self, block: Block, number: int) -> None:
        cluster = block.cluster
        self.block, self.number = block, number
        self.index = block.rank * cluster.warps_per_block + number
        self.slots: list[Any] = [None] * cluster.launch.slots
        self.active: Array | None = None
        self.clock = Clock.zero(cluster.warps)
        self.clock.times[self.index] = 1
        self.products: list[Operation] = []
        self.last_product: Operation | None = None
        self.stores: list[list[Operation]] = []
        self.open_stores: list[Operation] = []
        self.location: Location | None = None
        self.writes_memory = True  # whether stores of the T.Parallel at hand count: of copies of one value, one does
        self.mask: Any = True  # iterations of the T.Parallel at hand whose stores count
        self._registers: dict[int, Array] = {}
        self._variables: dict[tuple[int, ...], Any] = {}
        self._busy: dict[int, list[Operation]] = {}
        self._adding: dict[int, list[Operation]] = {}
        self.turns: dict[int, int] = {}  # how often a statement was executed, for those that count
        self.cluster_generation = 0
        self._speculating = 0

    # -- order -------------------------------------------------------------------------------------------------------

    def release(self) -> Clock:
        """What the warp knows now, to be handed on; what it does later is not part of it."""
        known = self.clock.copy()
        self.clock.times[self.index] += 1
        return known

    @property
    def lanes(self) -> int:
        """How many lanes are active."""
        return WARP if self.active is None else int(self.active.sum())

    def settle(self, value: Any) -> Any:
        """A value of the active lanes as a number where they agree."""
        return value.settle(self.active) if isinstance(value, Lanes) else value

    def number_of(self, expression: Expression, what: str) -> int:
        """An expression that all active lanes must agree on.

        Raises:
            UnsupportedOp: they do not.
        """
        value = self.settle(expression.evaluate(self))
        if isinstance(value, Lanes | np.ndarray):
            raise UnsupportedOp(f"{what} differs between the lanes of a warp", location=self.location)
        return int(value)

    @contextmanager
    def speculation(self) -> Iterator[None]:
        """Indices may be out of bounds: the value is not used there."""
        self._speculating += 1
        try:
            yield
        finally:
            self._speculating -= 1

    # -- registers ---------------------------------------------------------------------------------------------------

    def registers(self, tensor: Tensor) -> Array:
        """The warp's part of a fragment, in an array of the whole fragment's shape; NaN where it holds nothing.

        Raises:
            RegistersInFlight: a product that is not waited for reads or writes them.
        """
        for operation in self._busy.get(tensor.storage, ()):
            if not self.clock.seen >> operation.number & 1:
                raise RegistersInFlight(
                    f"{tensor.name} is touched while {operation.what} at {operation.location} is still on its way",
                    hint="T.wait_wgmma(n) first, with n products or fewer issued after that one",
                    location=self.location,
                    related=[operation.location],
                )
        return self.raw_registers(tensor)

    def raw_registers(self, tensor: Tensor) -> Array:
        """The same without the check."""
        found = self._registers.get(id(tensor))
        if found is None:
            size = int(np.prod(tensor.extents)) * tensor.item_bytes
            found = np.full(size, 0xFF, np.uint8).view(tensor.kind).reshape(tensor.extents)
            self._registers[id(tensor)] = found
        return found

    def accumulator(self, tensor: Tensor) -> Array:
        """Registers that a product adds to: those of a product in flight that adds to them as well will do.

        Raises:
            RegistersInFlight: a product in flight reads them as its operand.
        """
        adding = self._adding.get(tensor.storage, ())
        if all(operation in adding for operation in self._busy.get(tensor.storage, ())):
            return self.raw_registers(tensor)
        return self.registers(tensor)

    def operand(self, tensor: Tensor) -> Array:
        """Registers that a product reads: products in flight may read them as well, and none may add to them."""
        adding = self._adding.get(tensor.storage, ())
        if any(not self.clock.seen >> operation.number & 1 for operation in adding):
            return self.registers(tensor)
        return self.raw_registers(tensor)

    def hold(self, tensor: Tensor, operation: Operation, *, sums: bool = False) -> None:
        """A product in flight has these registers: as what it adds to (`sums`), or as its operand."""
        for held in (self._busy, self._adding) if sums else (self._busy,):
            busy = held.setdefault(tensor.storage, [])
            busy[:] = [other for other in busy if not self.clock.seen >> other.number & 1]
            busy.append(operation)

    # -- elements ----------------------------------------------------------------------------------------------------

    def load(self, tensor: Tensor, indices: Sequence[Any]) -> Any:
        """Elements at these indices, each a number or an array."""
        if tensor.scope in ("local.var", "local"):
            return self._variable(tensor, indices)
        indices = self._plain(indices)
        if tensor.is_global:
            return self._load_global(tensor, indices)
        if self._speculating:
            indices = [np.clip(i, 0, extent - 1) for i, extent in zip(indices, tensor.extents, strict=True)]
        box = self._box(tensor, indices)
        if tensor.is_fragment:
            return self.registers(tensor)[tuple(indices)]
        if tensor.is_shared:
            self.touch(tensor, box, write=False)
            return self.block.array(tensor)[tuple(indices)]
        raise UnsupportedOp(f"the schedule simulator does not read {tensor.scope}", location=self.location)

    def _plain(self, indices: Sequence[Any]) -> list[Any]:
        plain = [self.settle(index) for index in indices]
        if any(isinstance(index, Lanes) for index in plain):
            raise UnsupportedOp(
                "memory indexed by the thread is not modelled",
                hint="use tiles and T.Parallel; docs/schedules.md lists what is modelled",
                location=self.location,
            )
        return plain

    def _load_global(self, tensor: Tensor, indices: list[Any]) -> Any:
        array = self.block.array(tensor)
        inside: Any = True
        for position, extent in enumerate(array.shape):
            inside = inside & (indices[position] >= 0) & (indices[position] < extent)
        if inside is True or np.all(inside):
            return array[tuple(indices)]
        clipped = tuple(np.clip(index, 0, extent - 1) for index, extent in zip(indices, array.shape, strict=True))
        return np.where(inside, array[clipped], np.zeros((), tensor.kind))

    def store(self, tensor: Tensor, indices: Sequence[Any], value: Any) -> None:
        """Sets elements."""
        if tensor.scope in ("local.var", "local"):
            self._set_variable(tensor, indices, value)
            return
        plain = self._plain(indices)
        value = convert(self.settle(value), tensor.dtype)
        if self.mask is not True:
            plain, value = self._masked(plain, value)
        if tensor.is_fragment:
            self._box(tensor, plain)
            self.registers(tensor)[tuple(plain)] = value
            return
        if not self.writes_memory:
            return
        array = self.block.array(tensor)
        if tensor.is_shared:
            self.touch(tensor, self._box(tensor, plain), write=True)
            array[tuple(plain)] = value
            return
        shape = np.broadcast_shapes(*(np.shape(index) for index in plain))
        full = [np.broadcast_to(index, shape) for index in plain]
        inside = np.logical_and.reduce([(i >= 0) & (i < extent) for i, extent in zip(full, array.shape, strict=True)])
        array[tuple(index[inside] for index in full)] = np.broadcast_to(value, shape)[inside]

    def _masked(self, indices: list[Any], value: Any) -> tuple[list[Any], Any]:
        """Indices and values of the iterations that count, in a row."""
        shape = np.broadcast_shapes(np.shape(self.mask), np.shape(value), *(np.shape(index) for index in indices))
        chosen = np.broadcast_to(self.mask, shape)
        return [np.broadcast_to(index, shape)[chosen] for index in indices], np.broadcast_to(value, shape)[chosen]

    def _variable(self, tensor: Tensor, indices: Sequence[Any]) -> Any:
        key = (tensor.storage, *(int(self.settle(index)) for index in indices))
        value = self._variables.get(key)
        return value if value is not None else np.zeros((), tensor.kind)[()].item()

    def _set_variable(self, tensor: Tensor, indices: Sequence[Any], value: Any) -> None:
        key = (tensor.storage, *(int(self.settle(index)) for index in indices))
        value = convert(value, tensor.dtype)
        if self.active is not None:
            old = self._variables.get(key, 0)
            spread = [np.broadcast_to(v.values if isinstance(v, Lanes) else v, (WARP,)) for v in (value, old)]
            value = Lanes(np.where(self.active, *spread)).settle(None)
        if isinstance(value, np.ndarray):
            raise UnsupportedOp("a variable set inside T.Parallel is not modelled", location=self.location)
        self._variables[key] = value

    # -- boxes -------------------------------------------------------------------------------------------------------

    def _box(self, tensor: Tensor, indices: Sequence[Any]) -> Box:
        if any(isinstance(index, np.ndarray) and index.size == 0 for index in indices):
            return tuple((0, 0) for _ in indices)
        box = tuple(
            (int(index.min()), int(index.max()) + 1) if isinstance(index, np.ndarray) else (int(index), int(index) + 1)
            for index in indices
        )
        return self.within(tensor, box)

    def within(self, tensor: Tensor, box: Box) -> Box:
        """Raises OutOfBounds where a box does not lie in its buffer."""
        if any(low < 0 or high > extent for (low, high), extent in zip(box, tensor.extents, strict=True)):
            bounds = ", ".join(f"{low}:{high}" for low, high in box)
            raise OutOfBounds(
                f"{tensor.name}[{bounds}] is outside {list(tensor.extents)}",
                hint="on-chip buffers are not guarded",
                location=self.location,
            )
        return box

    def touch(self, tensor: Tensor, box: Box, write: bool) -> None:
        """An access of this warp itself to shared memory."""
        first = self.number * WARP
        what = f"a {'write' if write else 'read'} by threads {first} to {first + WARP - 1}"
        if self.block.cluster.warps > self.block.cluster.warps_per_block:
            what += f" of block {self.block.rank} of the cluster"
        time = self.clock.times[self.index]
        access = Access(tensor, box, write, self.index, time, None, self.location, what)
        self.block.shadow.add(access, self.clock)

    def fence(self) -> None:
        """The kernel's own proxy fence."""
        if self.block.cluster.writers_fence:
            self.clock.fence_of((self.index,))
        else:
            self.clock.fence()

    def added_fence(self, group: Iterable[int]) -> None:
        """One of the compiler's, which looks at what the group at hand writes and at nobody else."""
        own = (self.index,)
        first = self.index - self.number
        self.clock.fence_of(own if self.block.cluster.writers_fence else (first + number for number in group))
