"""Reductions: every kind, every dimension, with and without the old value, ragged sizes; matrix-vector products."""

from collections.abc import Iterator

import tilelang
import tilelang.language as T
import torch

from tests.kernels.case import EXACT, Argument, Case, randint, randn, rounded, summed, torch_dtype


@tilelang.jit(out_idx=[1])
def reduce_rows(M, N, kind, dtype="float32", block_M=8, ragged=False):
    """One value per row. The tile is the next power of two wide, filled up with the identity; or `ragged`, just N."""
    width = N if ragged else tilelang.next_power_of_2(N)
    identity = {"max": T.min_value(dtype), "min": T.max_value(dtype), "bitand": -1}.get(kind, 0)

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M,), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, width), dtype)
            y = T.alloc_fragment((block_M,), dtype)
            for i, j in T.Parallel(block_M, width):
                x[i, j] = T.if_then_else(j < N, X[bx * block_M + i, j], T.cast(identity, dtype))
            if kind == "sum":
                T.reduce_sum(x, y, dim=1)
            elif kind == "abssum":
                T.reduce_abssum(x, y, dim=1)
            elif kind == "max":
                T.reduce_max(x, y, dim=1)
            elif kind == "absmax":
                T.reduce_absmax(x, y, dim=1)
            elif kind == "min":
                T.reduce_min(x, y, dim=1)
            elif kind == "bitand":
                T.reduce_bitand(x, y, dim=1)
            elif kind == "bitor":
                T.reduce_bitor(x, y, dim=1)
            else:
                T.reduce_bitxor(x, y, dim=1)
            T.copy(y, Y[bx * block_M])

    return main


@tilelang.jit(out_idx=[1])
def reduce_columns(M, N, block_M=16, block_N=32):
    """Column sums over row tiles: dim 0, `clear=False` carries the total from tile to tile."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
            x = T.alloc_fragment((block_M, block_N), "float32")
            y = T.alloc_fragment((block_N,), "float32")
            T.clear(y)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], x)
                T.reduce_sum(x, y, dim=0, clear=False)
            T.copy(y, Y[bx * block_N])

    return main


@tilelang.jit
def extremes(X, block_M: int = 8, block_N: int = 32):
    """Row maximum, minimum and largest magnitude over column tiles, tails masked by hand, `clear=False`."""
    M, N = T.const("M, N")
    X: T.Tensor[[M, N], T.float32]
    top = T.empty((M,), T.float32)
    bottom = T.empty((M,), T.float32)
    largest = T.empty((M,), T.float32)
    with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
        x = T.alloc_fragment((block_M, block_N), "float32")
        high = T.alloc_fragment((block_M,), "float32")
        low = T.alloc_fragment((block_M,), "float32")
        magnitude = T.alloc_fragment((block_M,), "float32")
        T.fill(high, -T.infinity("float32"))
        T.fill(low, T.infinity("float32"))
        T.fill(magnitude, 0.0)
        for k in range(T.ceildiv(N, block_N)):
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] = T.if_then_else(
                    k * block_N + j < N, X[bx * block_M + i, k * block_N + j], -T.infinity("float32")
                )
            T.reduce_max(x, high, dim=1, clear=False)
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] = T.if_then_else(
                    k * block_N + j < N, X[bx * block_M + i, k * block_N + j], T.infinity("float32")
                )
            T.reduce_min(x, low, dim=1, clear=False)
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] = T.if_then_else(k * block_N + j < N, x[i, j], 0.0)
            T.reduce_absmax(x, magnitude, dim=-1, clear=False)
        T.copy(high, top[bx * block_M])
        T.copy(low, bottom[bx * block_M])
        T.copy(magnitude, largest[bx * block_M])
    return top, bottom, largest


@tilelang.jit(out_idx=[1, 2, 3])
def reduce_3d(A, B, C):
    """Each dimension of a rank-3 tile."""

    @T.prim_func
    def main(
        X: T.Tensor((A, B, C), "float32"),
        first: T.Tensor((B, C), "float32"),
        middle: T.Tensor((A, C), "float32"),
        last: T.Tensor((A, B), "float32"),
    ):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((A, B, C), "float32")
            y0 = T.alloc_fragment((B, C), "float32")
            y1 = T.alloc_fragment((A, C), "float32")
            y2 = T.alloc_fragment((A, B), "float32")
            T.copy(X, x)
            T.reduce_sum(x, y0, dim=0)
            T.reduce_max(x, y1, dim=1)
            T.reduce_sum(x, y2, dim=2)
            T.copy(y0, first)
            T.copy(y1, middle)
            T.copy(y2, last)

    return main


@tilelang.jit(out_idx=[1])
def reduce_keepdim(M, N, block_M=16):
    """The reduced dimension stays, one wide, as torch's `keepdim=True` has it."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, 1), "float32")):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            y = T.alloc_fragment((block_M, 1), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.reduce_sum(x, y, dim=1)
            T.copy(y, Y[bx * block_M, 0])

    return main


@tilelang.jit(out_idx=[1])
def reduce_shared(M, N, block_M=16, dtype="float16"):
    """A reduction of a shared tile into a float32 fragment: elements are converted first, so the sum is float32."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_shared((block_M, N), dtype)
            y = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.reduce_sum(x, y, dim=1)
            T.copy(y, Y[bx * block_M])

    return main


@tilelang.jit(out_idx=[1])
def total(N, block=256):
    """A whole vector to one number: 1-D tiles reduced to a fragment of one element."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((block,), "float32")
            y = T.alloc_fragment((1,), "float32")
            T.clear(y)
            for k in T.serial(T.ceildiv(N, block)):
                T.copy(X[k * block], x)
                T.reduce_sum(x, y, dim=0, clear=False)
            T.copy(y, Y)

    return main


@tilelang.jit
def reducer_sum_of_squares(X, block_M: int = 16, block_N: int = 64):
    """A deferred reduction: updates all over the tiles, made visible once at the end, started from 1."""
    M, N = T.const("M, N")
    X: T.Tensor[[M, N], T.float32]
    Y = T.empty((M,), T.float32)
    with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
        squares = T.alloc_reducer((block_M,), "float32", op="sum")
        y = T.alloc_fragment((block_M,), "float32")
        T.reducer_init(squares, 1.0)
        for k in T.serial(T.ceildiv(N, block_N)):
            for i, j in T.Parallel(block_M, block_N):
                x = X[bx * block_M + i, k * block_N + j]
                T.reducer_update(squares[i], x * x)
        T.finalize_reducer(squares, y)
        T.copy(y, Y[bx * block_M])
    return Y


@tilelang.jit
def gemv(A, x, block_N: int = 16, block_K: int = 64):
    """y = A x: products accumulate in a tile, one reduction at the end."""
    N, K = T.const("N, K")
    A: T.Tensor[[N, K], T.float16]
    x: T.Tensor[[K], T.float16]
    y = T.empty((N,), T.float16)
    with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
        A_local = T.alloc_fragment((block_N, block_K), "float16")
        x_local = T.alloc_fragment((block_K,), "float16")
        partial = T.alloc_fragment((block_N, block_K), "float32")
        y_local = T.alloc_fragment((block_N,), "float32")
        T.clear(partial)
        for k in T.serial(T.ceildiv(K, block_K)):
            T.copy(A[bx * block_N, k * block_K], A_local)
            T.copy(x[k * block_K], x_local)
            for i, j in T.Parallel(block_N, block_K):
                partial[i, j] += T.cast(A_local[i, j], "float32") * T.cast(x_local[j], "float32")
        T.reduce_sum(partial, y_local, dim=1)
        T.copy(y_local, y[bx * block_N])
    return y


@tilelang.jit(out_idx=[2])
def gemv_transposed(N, K, block_N=64, block_K=32):
    """y = A^T x for row-major A: serial over a share of K, one partial result per element."""

    @T.prim_func
    def main(A: T.Tensor((K, N), "float32"), x: T.Tensor((K,), "float32"), y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
            A_shared = T.alloc_shared((block_K, block_N), "float32")
            x_shared = T.alloc_shared((block_K,), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(A[k * block_K, bx * block_N], A_shared)
                T.copy(x[k * block_K], x_shared)
                for j in T.Parallel(block_N):
                    for i in T.serial(block_K):
                        total[j] += A_shared[i, j] * x_shared[i]
            T.copy(total, y[bx * block_N])

    return main


def _reduce_rows(kind: str, x: torch.Tensor) -> torch.Tensor:
    if kind in ("bitand", "bitor", "bitxor"):
        result = x[:, 0].clone()
        for column in range(1, x.shape[1]):
            if kind == "bitand":
                result &= x[:, column]
            elif kind == "bitor":
                result |= x[:, column]
            else:
                result ^= x[:, column]
        return result
    x = x.double()
    if kind in ("abssum", "absmax"):
        x = x.abs()
    return x.sum(1) if kind.endswith("sum") else x.amin(1) if kind == "min" else x.amax(1)


def _reduce_rows_case(kind: str, dtype: str, M: int, N: int, ragged: str = "") -> Case:
    return Case(
        f"reduction.reduce_rows[{kind}-{dtype}-{M}x{N}{'-ragged' if ragged else ''}]",
        reduce_rows,
        lambda gen: _rows(gen, M, N, dtype),
        lambda x: _reduce_rows(kind, x),
        summed(N) if kind.endswith("sum") and dtype == "float32" else EXACT,
        args=(M, N, kind),
        kwargs={"dtype": dtype, "ragged": bool(ragged)},
        tags=frozenset({"reduce", kind, dtype, "non-power-of-two", "tail"} | ({"ragged-tile"} if ragged else set())),
        stock_refusal=ragged,
    )


def _rows(gen: torch.Generator, M: int, N: int, dtype: str) -> list[Argument]:
    if dtype.startswith("float"):
        return [randn(gen, M, N, dtype=torch_dtype(dtype))]
    return [randint(gen, -(2**20), 2**20, M, N)]


def cases() -> Iterator[Case]:
    for kind, dtype, M, N in (
        ("sum", "float32", 37, 100),
        ("sum", "int32", 16, 48),
        ("abssum", "float32", 8, 96),
        ("max", "float32", 20, 72),
        ("max", "float16", 9, 40),
        ("absmax", "float32", 16, 200),
        ("min", "float32", 5, 24),
        ("min", "int32", 8, 320),
        ("bitand", "int32", 12, 6),
        ("bitor", "int32", 12, 6),
        ("bitxor", "int32", 12, 112),
    ):
        yield _reduce_rows_case(kind, dtype, M, N)
    yield _reduce_rows_case("sum", "float32", 10, 100, ragged="no available layout found")
    yield _reduce_rows_case("max", "int32", 10, 6, ragged="to be a positive power of two")
    yield Case(
        "reduction.reduce_columns[75x100]",
        reduce_columns,
        lambda gen: [randn(gen, 75, 100)],
        lambda x: x.double().sum(0),
        summed(75),
        args=(75, 100),
        tags=frozenset({"reduce", "sum", "keep-old", "tail"}),
    )
    yield Case(
        "reduction.extremes[19x70]",
        extremes,
        lambda gen: [randn(gen, 19, 70)],
        lambda x: [x.amax(1), x.amin(1), x.abs().amax(1)],
        EXACT,
        style="eager",
        tags=frozenset({"reduce", "max", "min", "absmax", "keep-old", "tail", "masked"}),
    )
    yield Case(
        "reduction.reduce_3d[4x8x32]",
        reduce_3d,
        lambda gen: [randn(gen, 4, 8, 32)],
        lambda x: [x.double().sum(0), x.amax(1), x.double().sum(2)],
        summed(32),
        args=(4, 8, 32),
        tags=frozenset({"reduce", "sum", "max", "rank-3"}),
    )
    yield Case(
        "reduction.reduce_keepdim[20x64]",
        reduce_keepdim,
        lambda gen: [randn(gen, 20, 64)],
        lambda x: x.double().sum(1, keepdim=True),
        summed(64),
        args=(20, 64),
        tags=frozenset({"reduce", "sum", "keepdim", "tail"}),
        stock_refusal="vars.size() == InputDim()",
    )
    yield Case(
        "reduction.reduce_shared[40x256]",
        reduce_shared,
        lambda gen: [randn(gen, 40, 256, dtype=torch.float16)],
        lambda x: x.double().sum(1),
        summed(256),
        args=(40, 256),
        tags=frozenset({"reduce", "sum", "shared", "cast", "tail"}),
    )
    yield Case(
        "reduction.total[1000]",
        total,
        lambda gen: [randn(gen, 1000)],
        lambda x: x.double().sum(0, keepdim=True),
        summed(1000),
        args=(1000,),
        tags=frozenset({"reduce", "sum", "keep-old", "tail"}),
    )
    yield Case(
        "reduction.reducer_sum_of_squares[40x100]",
        reducer_sum_of_squares,
        lambda gen: [randn(gen, 40, 100)],
        lambda x: 1.0 + x.double().square().sum(1),
        rounded("float32", 32),  # positive terms: about sqrt(100) half-ulps, order free
        style="eager",
        tags=frozenset({"reducer", "sum", "tail"}),
    )
    yield Case(
        "reduction.gemv[50x150]",
        gemv,
        lambda gen: [randn(gen, 50, 150, dtype=torch.float16), randn(gen, 150, dtype=torch.float16)],
        lambda a, x: a.double() @ x.double(),
        summed(150, "float16"),
        style="eager",
        tags=frozenset({"gemv", "reduce", "tail"}),
    )
    yield Case(
        "reduction.gemv_transposed[100x70]",
        gemv_transposed,
        lambda gen: [randn(gen, 70, 100), randn(gen, 70)],
        lambda a, x: x.double() @ a.double(),
        summed(70),
        args=(100, 70),
        tags=frozenset({"gemv", "shared", "tail"}),
    )
