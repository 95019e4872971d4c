"""Softmax over the rows of a matrix."""

from typing import Any

from core._tilelang import import_tilelang
from core.ops._dtypes import FLOATS
from core.ops._row_walks import walk
from core.ops._rows import Rows, padded
from core.tiling import buffers, choice, kernel, threads, tile, workers

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

#: Powers are taken to base 2: one multiplication, which the compiler joins with the subtraction.
_LOG2_E = 1.4426950408889634


#: A softmax's exponentials are at most 1, and below 2**-126 nothing: where one instruction gives that, it is enough.
#: Exact ones cost three instructions more an element on NVIDIA's chips.
PASS_CONFIGS = {"tl.enable_fast_math": True}


@kernel(out=["Y"], pass_configs=PASS_CONFIGS, dtypes={"dtype": FLOATS}, symbolic=("M",))
def softmax(
    M: Any,
    N: int,
    *,
    dtype: str = "float16",
    block_M: int = tile("M"),
    block_N: int = tile("N"),
    threads: int = threads(),
    variant: str = choice("variant", "staged", "direct", "bulk", by_rule=True),
    workers: int = workers(),
    buffers: int = buffers(maximum=8),
    resident: int = choice("resident", 0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, by_rule=True),
) -> Any:
    """Softmax of each row of X, computed in float32.

    A block holds `block_M` rows. With `block_N` at least N it holds them whole and reads them once. With less, it walks
    over them twice, `block_N` columns at a time: the first pass keeps the largest element and the sum of the powers so
    far, the second writes.

    Variants: `staged` takes rows through shared memory both ways; `direct`, for whole rows, keeps them in registers
    from the load to the store (:class:`core.ops._rows.Rows`), and its blocks may be persistent (`workers`).

    Args:
        M: rows; may be symbolic (`T.dynamic`).
        N: elements of a row.
        dtype: of X and Y.

    Raises:
        ShapeMismatch: it is not computed of `dtype`.
        KernelError: the variant does not have what the other parameters ask for.
    """
    shared = {"block_M": block_M, "threads": threads, "workers": workers, "buffers": buffers, "resident": resident}
    rows = Rows.of("softmax", variant, M, N, block_N, dtype=dtype, **shared)
    if rows is not None:
        return _in_registers(rows)
    lowest = -T.infinity("float32")
    width = padded(N) if block_N >= N else block_N

    @T.macro
    def load(X, row, column, tile, x):
        T.copy(X[row, column], tile)
        for i, j in T.Parallel(block_M, width):
            x[i, j] = T.if_then_else(column + j < N, T.cast(tile[i, j], "float32"), lowest)

    if block_N >= N:

        @T.prim_func
        def whole(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
            with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
                tile = T.alloc_shared((block_M, width), dtype)
                x = T.alloc_fragment((block_M, width), "float32")
                largest = T.alloc_fragment((block_M,), "float32")
                total = T.alloc_fragment((block_M,), "float32")
                load(X, bx * block_M, 0, tile, x)
                T.reduce_max(x, largest, dim=1)
                for i, j in T.Parallel(block_M, width):
                    x[i, j] = T.exp2((x[i, j] - largest[i]) * _LOG2_E)
                T.reduce_sum(x, total, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = 1.0 / total[i]
                for i, j in T.Parallel(block_M, width):
                    x[i, j] = x[i, j] * total[i]
                T.copy(x, tile)
                T.copy(tile, Y[bx * block_M, 0])

        return whole

    @T.prim_func
    def tiled(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            tile = T.alloc_shared((block_M, width), dtype)
            x = T.alloc_fragment((block_M, width), "float32")
            largest = T.alloc_fragment((block_M,), "float32")
            shift = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            T.fill(largest, lowest)
            T.clear(shift)
            T.clear(total)
            for k in T.serial(T.ceildiv(N, width)):
                load(X, bx * block_M, k * width, tile, x)
                T.copy(shift, before)
                T.reduce_max(x, largest, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    # A row may begin with whole tiles of minus infinity, which has no difference to itself.
                    shift[i] = T.if_then_else(largest[i] == lowest, 0.0, largest[i])
                for i, j in T.Parallel(block_M, width):
                    x[i, j] = T.exp2((x[i, j] - shift[i]) * _LOG2_E)
                T.reduce_sum(x, part, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = T.if_then_else(total[i] == 0.0, 0.0, total[i] * T.exp2((before[i] - shift[i]) * _LOG2_E))
                    total[i] += part[i]
            for i in T.Parallel(block_M):
                total[i] = 1.0 / total[i]
            for k in T.serial(T.ceildiv(N, width)):
                load(X, bx * block_M, k * width, tile, x)
                for i, j in T.Parallel(block_M, width):
                    x[i, j] = T.exp2((x[i, j] - shift[i]) * _LOG2_E) * total[i]
                T.copy(x, tile)
                T.copy(tile, Y[bx * block_M, k * width])

    return tiled


def _in_registers(rows: Rows) -> Any:
    """The PrimFunc of the variants that keep whole rows in registers."""
    lowest = -T.infinity("float32")
    maximum, total_of, store = rows.reduce("max"), rows.reduce("sum"), rows.store()
    # One multiply-add an element where nothing can overflow. Of bfloat16 and float32 the lowest number, a usual mask,
    # times log2 e is minus infinity, and there a difference comes first.
    fused = rows.dtype == "float16"

    @T.macro
    def normalise(tiles, vectors, outputs, tile):
        x = T.alloc_fragment(rows.tile, "float32")
        shift = T.alloc_fragment((rows.block_M,), "float32")
        total = T.alloc_fragment((rows.block_M,), "float32")
        for i, p, g, j in T.Parallel(*rows.tile):
            x[i, p, g, j] = rows.inside(p, g, j, T.cast(tiles[0][i, p, g, j], "float32"), lowest)
        maximum(x, shift)
        if fused:
            for i in T.Parallel(rows.block_M):
                shift[i] = shift[i] * _LOG2_E
            for i, p, g, j in T.Parallel(*rows.tile):
                x[i, p, g, j] = T.exp2(x[i, p, g, j] * _LOG2_E - shift[i])
        else:
            for i, p, g, j in T.Parallel(*rows.tile):
                x[i, p, g, j] = T.exp2((x[i, p, g, j] - shift[i]) * _LOG2_E)
        total_of(x, total)
        for i in T.Parallel(rows.block_M):
            total[i] = 1.0 / total[i]
        for i, p, g, j in T.Parallel(*rows.tile):
            tiles[0][i, p, g, j] = x[i, p, g, j] * total[i]
        store(tiles[0], outputs, 0, tile)

    over = walk(rows, normalise)

    @T.prim_func
    def in_registers(X: T.Tensor((rows.M, rows.N), rows.dtype), Y: T.Tensor((rows.M, rows.N), rows.dtype)):
        with T.Kernel(rows.blocks, threads=rows.threads) as bx:
            over(bx, (X,), (), (Y,))

    return in_registers
