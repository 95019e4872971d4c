"""Layer normalisation of the rows of a matrix."""

from typing import Any

from core._tilelang import import_tilelang
from core.ops._dtypes import FLOATS
from core.ops._row_walks import walk
from core.ops._rows import Rows, padded
from core.tiling import buffers, choice, kernel, threads, tile, workers

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)


@kernel(out=["Y"], dtypes={"dtype": FLOATS}, symbolic=("M",))
def layernorm(
    M: Any,
    N: int,
    *,
    dtype: str = "float16",
    eps: float = 1e-5,
    block_M: int = tile("M"),
    block_N: int = tile("N"),
    threads: int = threads(),
    variant: str = choice("variant", "staged", "direct", "bulk", by_rule=True),
    workers: int = workers(),
    buffers: int = buffers(maximum=8),
    resident: int = choice("resident", 0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, by_rule=True),
) -> Any:
    """`Y = (X - mean) / sqrt(variance + eps) * weight + bias` over each row, computed in float32.

    A block holds `block_M` rows. With `block_N` at least N it holds them whole and reads them once; the variance is
    that of the differences to the mean. With less, it walks over them twice, `block_N` columns at a time: the first
    pass joins the tiles' means and sums of squared differences (Chan, Golub and LeVeque 1979), the second writes.

    Variants: `staged` takes rows through shared memory both ways; `direct`, for whole rows, keeps them in registers
    from the load to the store (:class:`core.ops._rows.Rows`), and its blocks may be persistent (`workers`), with
    `weight` and `bias` read once a block.

    Args:
        M: rows; may be symbolic (`T.dynamic`).
        N: elements of a row, of `weight` and of `bias`.
        dtype: of X, `weight`, `bias` and Y.
        eps: added to the variance.

    Raises:
        ShapeMismatch: it is not computed of `dtype`.
        KernelError: the variant does not have what the other parameters ask for.
    """
    shared = {"block_M": block_M, "threads": threads, "workers": workers, "buffers": buffers, "resident": resident}
    rows = Rows.of("layernorm", variant, M, N, block_N, dtype=dtype, **shared)
    if rows is not None:
        return _in_registers(rows, eps)
    width = padded(N) if block_N >= N else block_N

    @T.macro
    def load(X, row, column, tile, x):
        T.copy(X[row, column], tile)
        T.copy(tile, x)

    @T.macro
    def write(Y, row, column, w, b, tile, x, mean, scale):
        """The tile from its elements; `scale` is 1 / sqrt(variance + eps)."""
        for i, j in T.Parallel(block_M, width):
            x[i, j] = (x[i, j] - mean[i]) * scale[i] * w[j] + b[j]
        T.copy(x, tile)
        T.copy(tile, Y[row, column])

    if block_N >= N:

        @T.prim_func
        def whole(
            X: T.Tensor((M, N), dtype),
            weight: T.Tensor((N,), dtype),
            bias: T.Tensor((N,), dtype),
            Y: T.Tensor((M, N), dtype),
        ):
            with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
                tile = T.alloc_shared((block_M, width), dtype)
                x = T.alloc_fragment((block_M, width), "float32")
                square = T.alloc_fragment((block_M, width), "float32")
                mean = T.alloc_fragment((block_M,), "float32")
                scale = T.alloc_fragment((block_M,), "float32")
                w = T.alloc_fragment((width,), dtype)
                b = T.alloc_fragment((width,), dtype)
                load(X, bx * block_M, 0, tile, x)
                # Read early: nothing waits for them until the statistics are known.
                T.copy(weight[0], w)
                T.copy(bias[0], b)
                T.reduce_sum(x, mean, dim=1)
                for i in T.Parallel(block_M):
                    mean[i] = mean[i] / N
                for i, j in T.Parallel(block_M, width):
                    square[i, j] = T.if_then_else(j < N, (x[i, j] - mean[i]) * (x[i, j] - mean[i]), 0.0)
                T.reduce_sum(square, scale, dim=1)
                for i in T.Parallel(block_M):
                    scale[i] = T.rsqrt(scale[i] / N + eps)
                write(Y, bx * block_M, 0, w, b, tile, x, mean, scale)

        return whole

    @T.prim_func
    def tiled(
        X: T.Tensor((M, N), dtype),
        weight: T.Tensor((N,), dtype),
        bias: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            tile = T.alloc_shared((block_M, width), dtype)
            x = T.alloc_fragment((block_M, width), "float32")
            square = T.alloc_fragment((block_M, width), "float32")
            mean = T.alloc_fragment((block_M,), "float32")
            spread = T.alloc_fragment((block_M,), "float32")
            tile_mean = T.alloc_fragment((block_M,), "float32")
            tile_spread = T.alloc_fragment((block_M,), "float32")
            w = T.alloc_fragment((width,), dtype)
            b = T.alloc_fragment((width,), dtype)
            T.clear(mean)
            T.clear(spread)
            for k in T.serial(T.ceildiv(N, width)):
                load(X, bx * block_M, k * width, tile, x)
                T.reduce_sum(x, tile_mean, dim=1)
                count = T.cast(T.min(width, N - k * width), "float32")
                for i in T.Parallel(block_M):
                    tile_mean[i] = tile_mean[i] / count
                for i, j in T.Parallel(block_M, width):
                    square[i, j] = T.if_then_else(
                        k * width + j < N, (x[i, j] - tile_mean[i]) * (x[i, j] - tile_mean[i]), 0.0
                    )
                T.reduce_sum(square, tile_spread, dim=1)
                before = T.cast(k * width, "float32")
                for i in T.Parallel(block_M):
                    tile_mean[i] = tile_mean[i] - mean[i]
                    mean[i] += tile_mean[i] * count / (before + count)
                    spread[i] += tile_spread[i] + tile_mean[i] * tile_mean[i] * before * count / (before + count)
            for i in T.Parallel(block_M):
                spread[i] = T.rsqrt(spread[i] / N + eps)
            for k in T.serial(T.ceildiv(N, width)):
                load(X, bx * block_M, k * width, tile, x)
                T.copy(weight[k * width], w)
                T.copy(bias[k * width], b)
                write(Y, bx * block_M, k * width, w, b, tile, x, mean, spread)

    return tiled


def _in_registers(rows: Rows, eps: float) -> Any:
    """The PrimFunc of the variants that keep whole rows in registers."""
    sum_of, fetch, store = rows.reduce("sum"), rows.fetch(), rows.store()
    share = 1.0 / rows.N

    @T.macro
    def normalise(tiles, vectors, outputs, tile):
        x = T.alloc_fragment(rows.tile, "float32")
        square = T.alloc_fragment(rows.tile, "float32")
        mean = T.alloc_fragment((rows.block_M,), "float32")
        scale = T.alloc_fragment((rows.block_M,), "float32")
        w = T.alloc_fragment(rows.row, rows.dtype)
        b = T.alloc_fragment(rows.row, rows.dtype)
        if not rows.stay:
            # From memory, early: nothing waits for them until the statistics are known.
            fetch(vectors, 0, w)
            fetch(vectors, 1, b)
        sum_of(tiles[0], mean)
        for i in T.Parallel(rows.block_M):
            mean[i] = mean[i] * share
        for i, p, g, j in T.Parallel(*rows.tile):
            x[i, p, g, j] = T.cast(tiles[0][i, p, g, j], "float32") - mean[i]
        for i, p, g, j in T.Parallel(*rows.tile):
            square[i, p, g, j] = rows.inside(p, g, j, x[i, p, g, j] * x[i, p, g, j], 0.0)
        sum_of(square, scale)
        for i in T.Parallel(rows.block_M):
            scale[i] = T.rsqrt(scale[i] * share + eps)
        if rows.stay:
            fetch(vectors, 0, w)
            fetch(vectors, 1, b)
        for i, p, g, j in T.Parallel(*rows.tile):
            tiles[0][i, p, g, j] = x[i, p, g, j] * scale[i] * w[p, g, j] + b[p, g, j]
        store(tiles[0], outputs, 0, tile)

    over = walk(rows, normalise)

    @T.prim_func
    def in_registers(
        X: T.Tensor((rows.M, rows.N), rows.dtype),
        weight: T.Tensor((rows.N,), rows.dtype),
        bias: T.Tensor((rows.N,), rows.dtype),
        Y: T.Tensor((rows.M, rows.N), rows.dtype),
    ):
        with T.Kernel(rows.blocks, threads=rows.threads) as bx:
            over(bx, (X,), (weight, bias), (Y,))

    return in_registers
