"""Softmax and normalisation over rows."""

from collections.abc import Iterator

import tilelang
import tilelang.language as T
import torch
import torch.nn.functional as F

from tests.kernels.case import Case, maths, randn, rounded


@tilelang.jit(out_idx=[1])
def softmax(M, N, block_M=4, dtype="float16"):
    """The tutorial's softmax: a whole row on chip, maximum, exponentials, sum, division."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.reduce_max(x, row_max, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = T.exp(x[i, j] - row_max[i])
            T.reduce_sum(x, row_sum, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] / row_sum[i]
            T.copy(x, Y[bx * block_M, 0])

    return main


@tilelang.jit
def online_softmax(X, block_M: int = 8, block_N: int = 64):
    """Rows in column tiles: one pass keeps maximum and rescaled sum, a second writes; the last tile is masked."""
    M, N = T.const("M, N")
    X: T.Tensor[[M, N], T.float32]
    Y = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
        x = T.alloc_fragment((block_M, block_N), "float32")
        tile_max = T.alloc_fragment((block_M,), "float32")
        tile_sum = T.alloc_fragment((block_M,), "float32")
        row_max = T.alloc_fragment((block_M,), "float32")
        row_sum = T.alloc_fragment((block_M,), "float32")
        T.fill(row_max, -T.infinity("float32"))
        T.clear(row_sum)
        for k in T.serial(T.ceildiv(N, block_N)):
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] = T.if_then_else(
                    k * block_N + j < N, X[bx * block_M + i, k * block_N + j], -T.infinity("float32")
                )
            T.reduce_max(x, tile_max, dim=1)
            for i in T.Parallel(block_M):
                tile_max[i] = T.max(tile_max[i], row_max[i])
                row_sum[i] *= T.exp(row_max[i] - tile_max[i])
                row_max[i] = tile_max[i]
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] = T.exp(x[i, j] - row_max[i])
            T.reduce_sum(x, tile_sum, dim=1)
            for i in T.Parallel(block_M):
                row_sum[i] += tile_sum[i]
        for k in T.serial(T.ceildiv(N, block_N)):
            T.copy(X[bx * block_M, k * block_N], x)
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] = T.exp(x[i, j] - row_max[i]) / row_sum[i]
            T.copy(x, Y[bx * block_M, k * block_N])
    return Y


@tilelang.jit(out_idx=[1])
def log_softmax(M, N, block_M=8, dtype="bfloat16"):
    """log softmax through shared memory, in base 2 as fast kernels do it."""
    log2_e = 1.4426950408889634

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x_shared = T.alloc_shared((block_M, N), dtype)
            x = T.alloc_fragment((block_M, N), "float32")
            powers = T.alloc_fragment((block_M, N), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], x_shared)
            T.copy(x_shared, x)
            T.reduce_max(x, row_max, dim=-1, clear=True)
            for i, j in T.Parallel(block_M, N):
                powers[i, j] = T.exp2(x[i, j] * log2_e - row_max[i] * log2_e)
            T.reduce_sum(powers, row_sum, dim=-1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] - row_max[i] - T.log2(row_sum[i]) * 0.6931471805599453
            T.copy(x, x_shared)
            T.copy(x_shared, Y[bx * block_M, 0])

    return main


@tilelang.jit(out_idx=[3])
def layernorm(M, N, eps=1e-5, block_M=4, dtype="float16"):
    """(x - mean) / sqrt(variance + eps) * weight + bias, statistics in float32."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        weight: T.Tensor((N,), dtype),
        bias: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            square = T.alloc_fragment((block_M, N), "float32")
            w = T.alloc_fragment((N,), "float32")
            b = T.alloc_fragment((N,), "float32")
            mean = T.alloc_fragment((block_M,), "float32")
            variance = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.copy(weight, w)
            T.copy(bias, b)
            T.reduce_sum(x, mean, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] - mean[i] / N
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, variance, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] * T.rsqrt(variance[i] / N + eps) * w[j] + b[j]
            T.copy(x, Y[bx * block_M, 0])

    return main


@tilelang.jit
def rmsnorm(X, weight, eps: T.float32, block_M: int = 8, block_N: int = 64):
    """x / sqrt(mean(x^2) + eps) * weight, rows in column tiles, epsilon a run-time scalar."""
    M, N = T.const("M, N")
    X: T.Tensor[[M, N], T.bfloat16]
    weight: T.Tensor[[N], T.float32]
    Y = T.empty((M, N), T.bfloat16)
    with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
        x = T.alloc_fragment((block_M, block_N), "float32")
        square = T.alloc_fragment((block_M, block_N), "float32")
        scale = T.alloc_fragment((block_M,), "float32")
        T.clear(square)
        for k in T.serial(T.ceildiv(N, block_N)):
            T.copy(X[bx * block_M, k * block_N], x)
            for i, j in T.Parallel(block_M, block_N):
                square[i, j] += x[i, j] * x[i, j]
        T.reduce_sum(square, scale, dim=1)
        for i in T.Parallel(block_M):
            scale[i] = T.rsqrt(scale[i] / T.cast(N, "float32") + eps)
        for k in T.serial(T.ceildiv(N, block_N)):
            for i, j in T.Parallel(block_M, block_N):
                if bx * block_M + i < M and k * block_N + j < N:
                    Y[bx * block_M + i, k * block_N + j] = (
                        T.cast(X[bx * block_M + i, k * block_N + j], "float32") * scale[i] * weight[k * block_N + j]
                    )
    return Y


@tilelang.jit(out_idx=[1])
def sinkhorn(batch, N, iterations=5, block=4):
    """Alternating row and column normalisation of small positive matrices, several matrices to a block."""

    @T.prim_func
    def main(X: T.Tensor((batch, N, N), "float32"), Y: T.Tensor((batch, N, N), "float32")):
        with T.Kernel(T.ceildiv(batch, block), threads=128) as bx:
            x = T.alloc_fragment((block, N, N), "float32")
            rows = T.alloc_fragment((block, N), "float32")
            columns = T.alloc_fragment((block, N), "float32")
            T.copy(X[bx * block, 0, 0], x)
            for b, i, j in T.Parallel(block, N, N):
                x[b, i, j] = T.exp(x[b, i, j])
            for _ in T.serial(iterations):
                T.reduce_sum(x, rows, dim=2)
                for b, i, j in T.Parallel(block, N, N):
                    x[b, i, j] = x[b, i, j] / rows[b, i]
                T.reduce_sum(x, columns, dim=1)
                for b, i, j in T.Parallel(block, N, N):
                    x[b, i, j] = x[b, i, j] / columns[b, j]
            T.copy(x, Y[bx * block, 0, 0])

    return main


def _rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.double()
    return x * torch.rsqrt(x.square().mean(1, keepdim=True) + eps) * weight


def _sinkhorn(x: torch.Tensor) -> torch.Tensor:
    x = x.double().exp()
    for _ in range(5):
        x = x / x.sum(2, keepdim=True)
        x = x / x.sum(1, keepdim=True)
    return x


def cases() -> Iterator[Case]:
    for M, N, block_M, refusal in ((10, 1024, 4, ""), (7, 768, 1, ""), (7, 200, 4, "no available layout found")):
        yield Case(
            f"softmax.softmax[{M}x{N}]",
            softmax,
            lambda gen, M=M, N=N: [randn(gen, M, N, dtype=torch.float16, scale=3.0)],
            lambda x: F.softmax(x.double(), 1),
            rounded("float16", atol=2.0**-24),  # the smallest float16: most results are subnormal
            args=(M, N, block_M),
            tags=frozenset({"softmax", "reduce", "maths", "tail"} | ({"ragged-tile"} if refusal else set())),
            stock_refusal=refusal,
        )
    yield Case(
        "softmax.online_softmax[20x150]",
        online_softmax,
        lambda gen: [randn(gen, 20, 150, scale=3.0)],
        lambda x: F.softmax(x.double(), 1),
        maths(64),  # exp turns an absolute error of its argument (up to 20 here) into a relative one
        style="eager",
        tags=frozenset({"softmax", "online", "masked", "tail"}),
    )
    yield Case(
        "softmax.log_softmax[20x256]",
        log_softmax,
        lambda gen: [randn(gen, 20, 256, dtype=torch.bfloat16, scale=2.0)],
        lambda x: F.log_softmax(x.double(), 1),
        rounded("bfloat16"),
        args=(20, 256),
        tags=frozenset({"softmax", "maths", "shared", "bfloat16", "tail"}),
    )
    for M, N in ((6, 512), (9, 768)):
        yield Case(
            f"softmax.layernorm[{M}x{N}]",
            layernorm,
            lambda gen, M=M, N=N: [randn(gen, *shape, dtype=torch.float16) for shape in ((M, N), (N,), (N,))],
            lambda x, w, b: F.layer_norm(x.double(), x.shape[1:], w.double(), b.double(), 1e-5),
            rounded("float16", atol=1e-5),  # cancellation of two numbers of size up to about 10 in float32
            args=(M, N),
            tags=frozenset({"norm", "reduce", "maths", "tail"}),
        )
    yield Case(
        "softmax.rmsnorm[20x100]",
        rmsnorm,
        lambda gen: [randn(gen, 20, 100, dtype=torch.bfloat16), randn(gen, 100), 1e-6],
        _rmsnorm,
        rounded("bfloat16"),
        style="eager",
        tags=frozenset({"norm", "reduce", "maths", "scalar", "bfloat16", "tail"}),
    )
    yield Case(
        "softmax.sinkhorn[6x4x4]",
        sinkhorn,
        lambda gen: [randn(gen, 6, 4, 4)],
        _sinkhorn,
        maths(64),
        args=(6, 4),
        tags=frozenset({"reduce", "maths", "rank-3", "tail"}),
    )
