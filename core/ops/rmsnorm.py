"""Root-mean-square normalisation of the rows of a matrix, alone and after adding a residual."""

from typing import Any

from core._tilelang import import_tilelang
from core.ops._dtypes import FLOATS
from core.ops._row_walks import walk
from core.ops._rows import Rows, padded
from core.tiling import buffers, choice, kernel, threads, tile, workers

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)


@kernel(out=["Y"], dtypes={"dtype": FLOATS}, symbolic=("M",))
def rmsnorm(
    M: Any,
    N: int,
    *,
    dtype: str = "float16",
    eps: float = 1e-6,
    block_M: int = tile("M"),
    block_N: int = tile("N"),
    threads: int = threads(),
    variant: str = choice("variant", "staged", "direct", "bulk", by_rule=True),
    workers: int = workers(),
    buffers: int = buffers(maximum=8),
    resident: int = choice("resident", 0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, by_rule=True),
) -> Any:
    """`Y = X / sqrt(mean(X^2) + eps) * weight` over each row, computed in float32.

    A block holds `block_M` rows: whole when `block_N` is at least N, else `block_N` columns at a time, in two passes.
    Variants are as for :func:`core.ops.layernorm.layernorm`.

    Args:
        M: rows; may be symbolic (`T.dynamic`).
        N: elements of a row and of `weight`.
        dtype: of X, `weight` and Y.
        eps: added to the mean of the squares.

    Raises:
        ShapeMismatch: it is not computed of `dtype`.
        KernelError: the variant does not have what the other parameters ask for.
    """
    shared = {"block_M": block_M, "threads": threads, "workers": workers, "buffers": buffers, "resident": resident}
    rows = Rows.of("rmsnorm", variant, M, N, block_N, dtype=dtype, **shared)
    if rows is not None:
        return _in_registers(rows, eps)
    width = padded(N) if block_N >= N else block_N
    square_sum, write = _staged(block_M, width)

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), weight: T.Tensor((N,), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            tile = T.alloc_shared((block_M, width), dtype)
            x = T.alloc_fragment((block_M, width), "float32")
            w = T.alloc_fragment((width,), dtype)
            scale = T.alloc_fragment((block_M,), "float32")
            T.clear(scale)
            if width >= N:
                # Read early: nothing waits for it until the scale is known.
                T.copy(weight[0], w)
            for k in T.serial(T.ceildiv(N, width)):
                T.copy(X[bx * block_M, k * width], tile)
                T.copy(tile, x)
                square_sum(x, scale)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for k in T.serial(T.ceildiv(N, width)):
                if width < N:
                    T.copy(X[bx * block_M, k * width], tile)
                    T.copy(tile, x)
                    T.copy(weight[k * width], w)
                write(x, scale, w, tile)
                T.copy(tile, Y[bx * block_M, k * width])

    return main


@kernel(out=["Y", "S"], dtypes={"dtype": FLOATS}, symbolic=("M",))
def add_rmsnorm(
    M: Any,
    N: int,
    *,
    dtype: str = "float16",
    eps: float = 1e-6,
    block_M: int = tile("M"),
    block_N: int = tile("N"),
    threads: int = threads(),
    variant: str = choice("variant", "staged", "direct", "bulk", by_rule=True),
    workers: int = workers(),
    buffers: int = buffers(maximum=8),
    resident: int = choice("resident", 0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, by_rule=True),
) -> Any:
    """`S = X + R`, `Y = S / sqrt(mean(S^2) + eps) * weight` over each row: a residual is added on the way.

    S is rounded to `dtype` before it is squared, so that Y belongs to the S that is stored. Arguments, variants and
    errors are as for :func:`rmsnorm`.
    """
    shared = {"block_M": block_M, "threads": threads, "workers": workers, "buffers": buffers, "resident": resident}
    rows = Rows.of("add_rmsnorm", variant, M, N, block_N, dtype=dtype, **shared)
    if rows is not None:
        return _in_registers(rows, eps, residual=True)
    width = padded(N) if block_N >= N else block_N
    square_sum, write = _staged(block_M, width)

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        R: T.Tensor((M, N), dtype),
        weight: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
        S: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            tile = T.alloc_shared((block_M, width), dtype)
            other = T.alloc_shared((block_M, width), dtype)
            x = T.alloc_fragment((block_M, width), "float32")
            w = T.alloc_fragment((width,), dtype)
            scale = T.alloc_fragment((block_M,), "float32")
            T.clear(scale)
            if width >= N:
                # Read early: nothing waits for it until the scale is known.
                T.copy(weight[0], w)
            for k in T.serial(T.ceildiv(N, width)):
                T.copy(X[bx * block_M, k * width], tile)
                T.copy(R[bx * block_M, k * width], other)
                for i, j in T.Parallel(block_M, width):
                    x[i, j] = T.cast(tile[i, j], "float32") + T.cast(other[i, j], "float32")
                T.copy(x, tile)
                T.copy(tile, S[bx * block_M, k * width])
                T.copy(tile, x)
                square_sum(x, scale)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for k in T.serial(T.ceildiv(N, width)):
                if width < N:
                    T.copy(S[bx * block_M, k * width], tile)
                    T.copy(tile, x)
                    T.copy(weight[k * width], w)
                write(x, scale, w, other)
                T.copy(other, Y[bx * block_M, k * width])

    return main


def _staged(block_M: int, width: int) -> tuple[Any, Any]:
    """Macros on a tile of rows in float32, x: (x, total) adds its squares to `total`, (x, scale, w, tile) writes it."""

    @T.macro
    def square_sum(x, total):
        square = T.alloc_fragment((block_M, width), "float32")
        part = T.alloc_fragment((block_M,), "float32")
        for i, j in T.Parallel(block_M, width):
            square[i, j] = x[i, j] * x[i, j]
        T.reduce_sum(square, part, dim=1)
        for i in T.Parallel(block_M):
            total[i] += part[i]

    @T.macro
    def write(x, scale, w, tile):
        for i, j in T.Parallel(block_M, width):
            x[i, j] = x[i, j] * scale[i] * w[j]
        T.copy(x, tile)

    return square_sum, write


def _in_registers(rows: Rows, eps: float, residual: bool = False) -> Any:
    """The PrimFunc of the variants that keep whole rows in registers."""
    sum_of, fetch, store = rows.reduce("sum"), rows.fetch(), rows.store()
    share = 1.0 / rows.N
    matrix, vector, dtype = (rows.M, rows.N), (rows.N,), rows.dtype

    @T.macro
    def normalise(tiles, vectors, outputs, tile):
        x = T.alloc_fragment(rows.tile, "float32")
        scale = T.alloc_fragment((rows.block_M,), "float32")
        w = T.alloc_fragment(rows.row, dtype)
        if not rows.stay:
            # From memory, early: nothing waits for it until the scale is known.
            fetch(vectors, 0, w)
        if residual:
            for i, p, g, j in T.Parallel(*rows.tile):
                tiles[0][i, p, g, j] = T.cast(tiles[0][i, p, g, j], "float32") + T.cast(tiles[1][i, p, g, j], "float32")
            store(tiles[0], outputs, 1, tile)
        for i, p, g, j in T.Parallel(*rows.tile):
            x[i, p, g, j] = T.cast(tiles[0][i, p, g, j], "float32") * T.cast(tiles[0][i, p, g, j], "float32")
        sum_of(x, scale)
        for i in T.Parallel(rows.block_M):
            scale[i] = T.rsqrt(scale[i] * share + eps)
        if rows.stay:
            fetch(vectors, 0, w)
        for i, p, g, j in T.Parallel(*rows.tile):
            tiles[0][i, p, g, j] = T.cast(tiles[0][i, p, g, j], "float32") * scale[i] * w[p, g, j]
        store(tiles[0], outputs, 0, tile)

    over = walk(rows, normalise)
    if residual:

        @T.prim_func
        def added(
            X: T.Tensor(matrix, dtype),
            R: T.Tensor(matrix, dtype),
            weight: T.Tensor(vector, dtype),
            Y: T.Tensor(matrix, dtype),
            S: T.Tensor(matrix, dtype),
        ):
            with T.Kernel(rows.blocks, threads=rows.threads) as bx:
                over(bx, (X, R), (weight,), (Y, S))

        return added

    @T.prim_func
    def alone(X: T.Tensor(matrix, dtype), weight: T.Tensor(vector, dtype), Y: T.Tensor(matrix, dtype)):
        with T.Kernel(rows.blocks, threads=rows.threads) as bx:
            over(bx, (X,), (weight,), (Y,))

    return alone
