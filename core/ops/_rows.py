"""What the row operators share: how whole rows lie in a block's registers, and reductions along them."""

from dataclasses import dataclass
from math import gcd, prod
from typing import Any

from core._tilelang import import_tilelang
from core.errors import KernelError
from core.program.expressions import dtype_bits

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

#: Lanes that reduce by exchanging registers, on every chip that has lanes; of a wider wave, a part.
_LANES = 32
#: Bits of a thread's longest access, and of what a bulk copy takes and where it starts.
_VECTOR_BITS = 128


def padded(columns: int) -> int:
    """The power of two that holds a row: the width TileLang's reductions have a layout for."""
    return 1 << max(0, columns - 1).bit_length()


@dataclass(frozen=True)
class Rows:
    """Whole rows as a block holds them in registers: (block_M, vectors, groups, run) elements.

    A *run* is what 32 lanes read with one access each, of 16 bytes where rows are aligned to them; `groups` runs side
    by side are one access of all the threads that share a row, and `vectors` accesses cover it. So a row's place need
    not be a power of two, and little is exchanged to reduce it: a thread combines its vectors, 32 lanes exchange
    registers, and only what each group of them has goes through shared memory, once.

    Macros here and in `core.ops._row_walks` take tensors in tuples and index them: a name would rename the kernel's
    parameter.

    Attributes:
        M, N: rows and columns of the matrix; M may be symbolic.
        dtype: of the matrix.
        block_M: rows of a tile.
        threads: of a block.
        workers: blocks that stay and take tile after tile; 0 launches one block a tile.
        buffers: tiles that a block which stays has in shared memory or on their way there; 0 goes without.
        resident: blocks that a unit shall hold at a time, to which the compiler keeps their registers; 0 asks nothing.
    """

    M: Any
    N: int
    dtype: str
    block_M: int
    threads: int
    workers: int = 0
    buffers: int = 0
    resident: int = 0

    @classmethod
    def of(cls, name: str, variant: str, M: Any, N: int, block_N: int, **given: Any) -> "Rows | None":
        """The rows of a variant of the operator `name`; None for `staged`, which has a layout of its own.

        Raises:
            KernelError: the variant does not have what is asked for.
        """
        rows = cls(M, N, **given)
        where = f'{name}: variant "{variant}"'
        bulk = variant == "bulk"
        if variant == "staged":
            if rows.workers or rows.buffers > 1 or rows.resident:
                raise KernelError(
                    f"{where} takes no workers={rows.workers}, buffers={rows.buffers}, resident={rows.resident}",
                    hint='use variant "direct" or "bulk", or workers=0, buffers=1 and resident=0',
                )
            return None
        if block_N < N:
            raise KernelError(
                f"{where} holds rows whole, block_N={block_N} is less than N={N}",
                hint='give block_N at least N, or use variant "staged"',
            )
        if not bulk and rows.buffers > 1:
            raise KernelError(f"{where} has no buffers (buffers={rows.buffers})", hint='use variant "bulk"')
        if bulk and not rows.workers:
            raise KernelError(f"{where} is for blocks that stay", hint="give workers, e.g. two for each compute unit")
        if bulk and N * dtype_bits(rows.dtype) % _VECTOR_BITS:
            raise KernelError(
                f"{where} copies whole rows in bulk, and {N} elements of {rows.dtype} are not whole 16 bytes",
                hint='use variant "direct"',
            )
        return rows if bulk else cls(M, N, **{**given, "buffers": 0})

    @property
    def run(self) -> int:
        # Rows follow one another: an access is as long as the start of every row allows.
        return min(padded(self.N), _LANES * gcd(self.N, _VECTOR_BITS // dtype_bits(self.dtype)))

    @property
    def groups(self) -> int:
        # All warps of the block share each row; where it is too short, as many as it has runs, a power of two.
        return min(max(1, self.threads // _LANES), padded(-(-self.N // self.run)))

    @property
    def vectors(self) -> int:
        return -(-self.N // (self.run * self.groups))

    @property
    def row(self) -> tuple[int, int, int]:
        """Extents of one row's place."""
        return self.vectors, self.groups, self.run

    @property
    def tile(self) -> tuple[int, int, int, int]:
        """Extents of a tile: its rows, and a row's place."""
        return self.block_M, *self.row

    @property
    def width(self) -> int:
        """Elements of a row's place, N or more."""
        return prod(self.row)

    @property
    def tiles(self) -> Any:
        """Tiles that hold all rows."""
        return T.ceildiv(self.M, self.block_M)

    @property
    def stay(self) -> bool:
        """Whether blocks take several tiles."""
        return bool(self.workers) and not (isinstance(self.M, int) and self.tiles <= self.workers)

    @property
    def blocks(self) -> Any:
        """Blocks of the launch."""
        return self.workers if self.stay else self.tiles

    def column(self, p: Any, g: Any, j: Any) -> Any:
        """The column of an element of a row."""
        return (p * self.groups + g) * self.run + j

    def inside(self, p: Any, g: Any, j: Any, value: Any, beyond: Any) -> Any:
        """`value` for an element of a row, `beyond` for what lies behind its end."""
        return value if self.width == self.N else T.if_then_else(self.column(p, g, j) < self.N, value, beyond)

    def fetch(self) -> Any:
        """A macro (vectors, at, x): the vector `vectors[at]`, as long as a row, laid out as one; zeros behind it."""
        access = max(1, min(self.run // _LANES, self.width // self.threads))

        @T.macro
        def fetch(vectors, at, x):
            # Where rows are not aligned, a vector could be read in longer accesses, and would then lie otherwise.
            for p, g, j in T.Parallel(*self.row, coalesced_width=T.int32(access)):
                x[p, g, j] = vectors[at][self.column(p, g, j)]

        return fetch

    def store(self) -> Any:
        """A macro (x, matrices, at, tile): the rows `x` of a tile to their place in the matrix `matrices[at]`."""

        @T.macro
        def store(x, matrices, at, tile):
            for i, p, g, j in T.Parallel(*self.tile):
                matrices[at][tile * self.block_M + i, self.column(p, g, j)] = x[i, p, g, j]

        return store

    def reduce(self, kind: str) -> Any:
        """A macro (x, result): the largest element ("max") or the sum ("sum") of each row of a tile, in float32.

        What lies behind a row's end takes part. `result` has `block_M` elements.
        """
        over, both = {"max": (T.reduce_max, T.max), "sum": (T.reduce_sum, lambda a, b: a + b)}[kind]

        @T.macro
        def reduce(x, result):
            by_lane = T.alloc_fragment((self.block_M, self.groups, self.run), "float32")
            by_group = T.alloc_fragment((self.block_M, self.groups), "float32")
            # By hand, since TileLang's reductions start from an identity: one operation more for each lane and sum.
            for i, g, j in T.Parallel(self.block_M, self.groups, self.run):
                by_lane[i, g, j] = T.cast(x[i, 0, g, j], "float32")
            if self.vectors > 1:
                for p in T.unroll(self.vectors):
                    for i, g, j in T.Parallel(self.block_M, self.groups, self.run):
                        more = both(by_lane[i, g, j], T.cast(x[i, p, g, j], "float32"))
                        by_lane[i, g, j] = T.if_then_else(p == 0, by_lane[i, g, j], more)
            over(by_lane, by_group, dim=2)
            if self.groups == 1:
                for i in T.Parallel(self.block_M):
                    result[i] = by_group[i, 0]
            else:
                exchanged = T.alloc_shared((self.block_M, self.groups), "float32")
                T.copy(by_group, exchanged)
                for i in T.Parallel(self.block_M):
                    result[i] = exchanged[i, 0]
                    for g in T.unroll(self.groups - 1):
                        result[i] = both(result[i], exchanged[i, g + 1])

        return reduce
