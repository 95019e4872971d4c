"""What one launch does, as numbers: the part of a kernel that the cost model needs, without its statements.

There is no chip in a :class:`Profile`. Its fields are either names (dtypes, scopes, kinds: the *structure*) or numbers,
and every number depends on the tile parameters in a simple way; `family` uses that to have the profiles of hundreds of
candidates from a handful of traces.

Counts are per execution of the loop body an entry belongs to; `loop` is the index of that loop in
`LaunchProfile.loops`, whose first entry is the block itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from core.tiling.profile.formula import Formula
from core.tiling.profile.trips import trips

#: Consecutive blocks that are looked at where a kernel has a tile order of its own.
NEIGHBOURS = 128


class Estimate(float):
    """A number that need not be exact: a profile family may be off by a share of it (`family.ESTIMATE_TOLERANCE`)."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of the block's body, or a condition (a loop that runs once or not at all).

    Attributes:
        parent: index of the enclosing loop; -1 for the block itself.
        start, trips: first value of the loop variable and how often the body runs.
        stages: what the author gave `T.Pipelined`, or the versions of the tiles that other threads fill ahead of it; 0
            where the loop is not pipelined.
        ahead: threads of their own make the copies of this loop, and go on to its next run without a pause.
        role: names the branch of a condition on the thread it is in: loops of different roles run at the same time;
            empty for all threads.
        uncounted: how often it runs is no constant of the program: it differs from block to block, depends on data, or
            is a symbolic dimension's, of which `trips` is for one value.
    """

    parent: int
    start: Formula
    trips: Formula
    stages: int
    ahead: bool = False
    role: str = ""
    uncounted: bool = False


@dataclass(frozen=True, slots=True)
class GlobalAccess:
    """A box of a tensor in global memory that a block reads or writes.

    Attributes:
        tensor: name of the memory, the same for all views of a tensor.
        mode: `read`, `write` or `atomic`.
        bits: of one element.
        extents: elements along each dimension of the tensor, no further than the tensor goes. Those of elements that
            are found one by one may go a part of the dimension further.
        shape: the tensor's dimensions; 0 where one is not known.
        varies: names of the grid axes and loops (`axis0`, `loop1`) that the address depends on.
        shares: for each grid axis the address depends on, how many neighbours along it have the same one (query heads
            that share a key head): 1 where each has its own, 0 where the address does not depend on it.
        neighbours: how many different boxes `NEIGHBOURS` consecutive blocks touch at one time, where the kernel
            computes a tile order of its own from the block's index; 0 where the axes say it.
        onchip: TileLang's scope on the other side: `shared`, `fragment`, ...
        buffer: its name there.
        accumulator: the other side is the accumulator of a matrix product, whose layout it has.
        receivers: blocks of a cluster that one copy serves.
        symbolic_rows: some of the tensor's strides are no constants of the program.
        window: it is a tile of the tensor's image matrix (`T.im2col`).
        fills: shared tiles that threads fill with it, element by element, in a statement that reads nothing on chip.
    """

    tensor: str
    mode: str
    bits: int
    extents: tuple[int, ...]
    shape: tuple[int, ...]
    varies: tuple[str, ...]
    shares: tuple[int, ...]
    neighbours: float
    onchip: str
    buffer: str
    accumulator: bool
    receivers: int
    loop: int
    symbolic_rows: bool = False
    window: bool = False
    fills: tuple[str, ...] = ()

    @property
    def elements(self) -> int:
        return prod(self.extents)

    @property
    def bytes(self) -> float:
        return prod(self.extents) * self.bits / 8

    @property
    def run_bytes(self) -> float:
        """Bytes that lie one after the other: the last dimension, and those before it as far as each is whole."""
        run = 1
        for extent, size in zip(reversed(self.extents), reversed(self.shape), strict=True):
            run *= extent
            if extent != size:
                break
        return run * self.bits / 8

    def strides_in_wholes_of(self, bytes_: int) -> bool:
        """Whether every stride of the tensor but that of its elements is a multiple of so many bytes."""
        strides = (prod(self.shape[dimension:]) for dimension in range(1, len(self.shape)))
        return all(stride * self.bits % (8 * bytes_) == 0 for stride in strides)


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """Bytes that threads move between shared memory and registers (matrix operands apart). `mode`: read or write."""

    mode: str
    bytes: float
    loop: int


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """A `T.gemm`: (m, k) times (k, n).

    Attributes:
        a_dtype, b_dtype, accumulator_dtype: of the tiles.
        a_scope, b_scope: TileLang's scopes of the operands.
        transpose_a, transpose_b: A is stored (k, m), B is stored (n, k).
        policy: how warps share it: 0 square, 1 rows, 2 columns.
        a_buffer, b_buffer: names of the operands' storages.
        in_flight: the kernel goes on while it runs, and waits for it later.
    """

    m: int
    n: int
    k: int
    a_dtype: str
    b_dtype: str
    accumulator_dtype: str
    a_scope: str
    b_scope: str
    transpose_a: bool
    transpose_b: bool
    policy: int
    a_buffer: str
    b_buffer: str
    in_flight: bool
    loop: int

    @property
    def operations(self) -> int:
        return 2 * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class VectorWork:
    """Element operations.

    Attributes:
        kind: `arithmetic`, `special` (exponentials, roots, ...), `divide`, `convert`; `index`, instructions that find
            out where elements lie which do not follow each other, and load them.
        fills: of a statement that fills shared tiles from global memory and reads nothing on chip.
    """

    kind: str
    dtype: str
    elements: int
    loop: int
    fills: bool = False


@dataclass(frozen=True, slots=True)
class Reduction:
    """`rows` reductions over `length` elements each; `accumulator`: of a tile in a matrix product's layout."""

    dtype: str
    rows: int
    length: int
    accumulator: bool
    loop: int


@dataclass(frozen=True, slots=True)
class OnChipBuffer:
    """An allocation of the block.

    Attributes:
        scope: as `Chip.memories_for_scope` takes it.
        bytes: of one version.
        versions: copies kept at once, the stages of the pipelined loop that fills it.
        first, last: positions in statement order between which its contents matter; -1 when it is never used.
        idle_first, idle_last: positions between which they do not, since it is written before it is read again; -1
            where there are none.
        steps: statements of one body from the one that computes it to the last that uses it; -1 where memory fills it,
            or an iteration uses what an earlier one left.
        operand: of a matrix product.
    """

    name: str
    scope: str
    bytes: int
    versions: int
    first: int
    last: int
    idle_first: int
    idle_last: int
    steps: int
    operand: bool

    @property
    def total_bytes(self) -> int:
        return self.bytes * self.versions


@dataclass(frozen=True, slots=True)
class LaunchProfile:
    """One `T.Kernel`.

    Attributes:
        grid: blocks per axis, x first.
        threads: threads per block the author asked for; None when the backend chooses.
        copy_threads: those of them that do not compute, where a kernel gives threads different things to do.
        roles: the threads of each group that does, by the name its loops carry.
        order, panel: `row` or `column` and the panel in blocks of a swizzled launch order; `row` and 0 without.
        cluster: blocks of a cluster.
        loops: the block itself, then every loop and condition, outer before inner.
    """

    grid: tuple[int, ...]
    threads: int | None
    copy_threads: int
    roles: tuple[tuple[str, int], ...]
    order: str
    panel: int
    cluster: int
    loops: tuple[Loop, ...]
    accesses: tuple[GlobalAccess, ...]
    shared: tuple[SharedAccess, ...]
    products: tuple[MatrixProduct, ...]
    vector: tuple[VectorWork, ...]
    reductions: tuple[Reduction, ...]
    buffers: tuple[OnChipBuffer, ...]

    @property
    def blocks(self) -> int:
        return prod(self.grid)

    def computing_threads(self, loop: int) -> int | None:
        """Threads that share what a loop computes: those of its role, else all that compute; None as `threads`."""
        if self.threads is None:
            return None
        return dict(self.roles).get(self.loops[loop].role, self.threads - self.copy_threads)

    def trips(self) -> tuple[tuple[float, ...], ...]:
        """How often each loop's body runs in a block, in all.

        One entry per block that stands for the grid, in launch order; a single one where all blocks are alike.
        """
        return trips(self.grid, self.loops)


@dataclass(frozen=True, slots=True)
class Profile:
    """A whole program.

    Attributes:
        launches: one entry per launch, in order.
        unknown: what could not be read off the program, one sentence each; such counts stand at 1.
    """

    name: str
    launches: tuple[LaunchProfile, ...]
    unknown: tuple[str, ...] = ()
