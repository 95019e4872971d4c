"""A kernel's block as a tree of statements, with what the tile-level view drops: threads, barriers, work in flight.

Expressions are compiled to functions of the warp that evaluates them; a value is a Python number, an array with one
axis per variable of the `T.Parallel` around it, or `Lanes`, one value per lane of the warp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from core.errors import Location

if TYPE_CHECKING:
    from core.conformance.schedules.layouts import Layout
    from core.conformance.schedules.warp import Warp

Value = Any
Evaluate = Callable[["Warp"], Value]


@dataclass(eq=False, slots=True)
class Expression:
    """A compiled expression.

    Attributes:
        evaluate: its value for a warp.
        accesses: the elements it reads.
        variable: the slot it is, when it is nothing but a variable.
        slots: of the variables it mentions.
        opaque: it depends on something but constants and variables (memory, the block's place in its cluster).
        conjuncts: the two conditions of an `and`.
    """

    evaluate: Evaluate
    variable: int | None = None
    slots: frozenset[int] = frozenset()
    opaque: bool = False
    conjuncts: tuple[Expression, ...] = ()
    accesses: tuple[LoadAccess, ...] = ()


@dataclass(eq=False, slots=True)
class LoadAccess:
    """A buffer that an expression reads, and the indices."""

    tensor: Tensor
    indices: tuple[Expression, ...]


@dataclass(eq=False, slots=True)
class Tensor:
    """A buffer.

    Attributes:
        scope: TileLang's name of it.
        storage: number of the memory behind it; views of one memory share it.
        extents: per dimension; of a parameter with symbolic dimensions, once the arguments are known.
        counts: of a barrier: arrivals per phase, one per barrier.
        layout: of a fragment: which warp holds what.
    """

    name: str
    scope: str
    dtype: str
    kind: np.dtype[Any]
    storage: int
    extents: tuple[int, ...]
    location: Location | None = None
    counts: tuple[int, ...] = ()
    layout: Layout | None = None

    @property
    def item_bytes(self) -> int:
        return int(self.kind.itemsize)

    @property
    def is_shared(self) -> bool:
        return self.scope in ("shared", "shared.dyn")

    @property
    def is_fragment(self) -> bool:
        return self.scope == "local.fragment"

    @property
    def is_global(self) -> bool:
        return self.scope == "global"


@dataclass(eq=False, slots=True)
class Place:
    """A box of a tensor: first index and extent per dimension."""

    tensor: Tensor
    mins: tuple[Expression, ...]
    extents: tuple[int, ...]


@dataclass(eq=False, slots=True, kw_only=True)
class Node:
    """A statement.

    Attributes:
        group: warps of the block that can get here, by the conditions on the thread around it.
        synchronised: the compiler puts a barrier of the group in front of it.
        fenced: the compiler puts a proxy fence in front of it, in the thread that issues it.
    """

    location: Location | None = None
    group: tuple[int, ...] = ()
    synchronised: bool = False
    fenced: bool = False


Body = tuple[Node, ...]


@dataclass(eq=False, slots=True)
class Bind(Node):
    slot: int
    value: Expression


@dataclass(eq=False, slots=True)
class Assign(Node):
    """One element; inside a `Parallel`, one per iteration."""

    tensor: Tensor
    indices: tuple[Expression, ...]
    value: Expression


@dataclass(eq=False, slots=True)
class Parallel(Node):
    """`parts`: per warp of the group, the iterations it runs; `writers`: warps whose shared and global stores count."""

    slots: tuple[int, ...]
    extents: tuple[int, ...]
    body: Body
    parts: dict[int, tuple[np.ndarray[Any, Any], ...]] = field(default_factory=dict)
    writers: frozenset[int] = frozenset()


@dataclass(eq=False, slots=True)
class Loop(Node):
    slot: int
    start: Expression
    extent: Expression
    body: Body


@dataclass(eq=False, slots=True)
class While(Node):
    condition: Expression
    body: Body


@dataclass(eq=False, slots=True)
class Branch(Node):
    condition: Expression
    then: Body
    otherwise: Body


@dataclass(eq=False, slots=True)
class BarrierPlace:
    tensor: Tensor
    index: Expression


@dataclass(eq=False, slots=True)
class Copy(Node):
    """A copy between any two scopes.

    Attributes:
        pairs: dimensions of source and destination that go together.
        bulk: `T.tma_copy`: nobody waits for it here.
        barrier: that a bulk load completes.
        multicast: blocks of the cluster that get it, as a mask; 0 is just the own.
        block: the block of the cluster it goes to.
        leader_threads: threads of which one issues it; 0 is all that get here.
        no_bulk: the copy engine is not used.
    """

    source: Place
    target: Place
    pairs: tuple[tuple[int, int], ...]
    bulk: bool = False
    barrier: BarrierPlace | None = None
    multicast: int = 0
    block: Expression | None = None
    leader_threads: int = 0
    no_bulk: bool = False


@dataclass(eq=False, slots=True)
class Fill(Node):
    target: Place
    value: Expression


@dataclass(eq=False, slots=True)
class Reduce(Node):
    source: Place
    target: Place
    kind: str
    dim: int
    clear: bool


@dataclass(eq=False, slots=True)
class Product(Node):
    """A matrix product; `waits`: it is complete before the next statement."""

    a: Place
    b: Place
    c: Place
    transpose_a: bool
    transpose_b: bool
    m: int
    n: int
    k: int
    policy: int
    clear: Expression
    waits: bool
    divisions: Any = None


@dataclass(eq=False, slots=True)
class Arrive(Node):
    """An arrival at a barrier in shared memory; `block`: of the cluster, None is the own; `bytes`: expected with it."""

    barrier: BarrierPlace
    block: Expression | None = None
    bytes: Expression | None = None


@dataclass(eq=False, slots=True)
class Expect(Node):
    barrier: BarrierPlace
    bytes: Expression


@dataclass(eq=False, slots=True)
class Wait(Node):
    barrier: BarrierPlace
    parity: Expression


@dataclass(eq=False, slots=True)
class NamedBarrier(Node):
    identity: Expression
    threads: Expression
    waits: bool


@dataclass(eq=False, slots=True)
class BlockBarrier(Node):
    """`T.sync_threads()`: all warps of the group."""


@dataclass(eq=False, slots=True)
class Fence(Node):
    pass


@dataclass(eq=False, slots=True)
class WaitProducts(Node):
    in_flight: Expression


@dataclass(eq=False, slots=True)
class CommitStores(Node):
    pass


@dataclass(eq=False, slots=True)
class WaitStores(Node):
    in_flight: Expression


@dataclass(eq=False, slots=True)
class ClusterBarrier(Node):
    """`relaxed`: the arrival hands no knowledge on."""

    arrives: bool
    waits: bool
    relaxed: bool = False


@dataclass(eq=False, slots=True)
class Launch:
    """One `T.Kernel`.

    Attributes:
        grid: blocks along x, y, z, as functions of the symbolic dimensions.
        grid_slots: the slots of the block's position, x first.
        thread_slot: of the thread index.
        threads: of a block, a multiple of 32.
        cluster: blocks of a cluster along x, y, z.
        tensors: parameters and what the block allocates.
        slots: how many variables there are.
    """

    grid: tuple[Expression, ...]
    grid_slots: tuple[int, ...]
    thread_slot: int | None
    threads: int
    cluster: tuple[int, int, int]
    tensors: tuple[Tensor, ...]
    body: Body
    slots: int
    location: Location | None = None


@dataclass(eq=False, slots=True)
class Kernel:
    """A kernel that can be simulated: its launches, one after the other.

    Attributes:
        parameters: in order: a tensor, or the slot of a scalar.
        symbols: slots of symbolic dimensions by (parameter, dimension).
    """

    name: str
    parameters: tuple[Tensor | int, ...]
    symbols: dict[tuple[int, int], int]
    launches: tuple[Launch, ...]
