"""Kernels that pick: top-k, argmax, block-sparse products, pooling and convolution windows."""

from collections.abc import Iterator

import tilelang
import tilelang.language as T
import torch
import torch.nn.functional as F

from tests.kernels.case import EXACT, Case, randint, randn, summed


@tilelang.jit(out_idx=[1, 2])
def top_k(M, N, k, block_M=8):
    """The k largest of each row, largest first, and where they are: k rounds of maximum and knock-out."""
    width = tilelang.next_power_of_2(N)

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), values: T.Tensor((M, k), "float32"), places: T.Tensor((M, k), "int32")):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, width), "float32")
            candidates = T.alloc_fragment((block_M, width), "int32")
            largest = T.alloc_fragment((block_M,), "float32")
            place = T.alloc_fragment((block_M,), "int32")
            for i, j in T.Parallel(block_M, width):
                x[i, j] = T.if_then_else(j < N, X[bx * block_M + i, j], -T.infinity("float32"))
            for r in T.serial(k):
                T.reduce_max(x, largest, dim=1)
                for i, j in T.Parallel(block_M, width):
                    candidates[i, j] = T.if_then_else(x[i, j] == largest[i], j, width)
                T.reduce_min(candidates, place, dim=1)
                for i, j in T.Parallel(block_M, width):
                    x[i, j] = T.if_then_else(j == place[i], -T.infinity("float32"), x[i, j])
                for i in T.Parallel(block_M):
                    if bx * block_M + i < M:
                        values[bx * block_M + i, r] = largest[i]
                        places[bx * block_M + i, r] = place[i]

    return main


@tilelang.jit
def argmax(X, block_N: int = 64):
    """Index of each row's first maximum, by a serial scan in column tiles with two state variables."""
    M, N = T.const("M, N")
    X: T.Tensor[[M, N], T.float16]
    Y = T.empty((M,), T.int64)
    with T.Kernel(M, threads=128) as row:
        tile = T.alloc_shared((block_N,), "float16")
        best = T.alloc_var("float32", init=-1e30)
        place = T.alloc_var("int64", init=-1)
        for k in T.serial(T.ceildiv(N, block_N)):
            T.copy(X[row, k * block_N], tile)
            for j in T.serial(block_N):
                if k * block_N + j < N and tile[j] > best:
                    best = tile[j]
                    place = k * block_N + j
        Y[row] = place
    return Y


@tilelang.jit(out_idx=[3])
def gemm_block_sparse(M, N, K, dtype="float16", block_M=64, block_N=64, block_K=32):
    """A product that skips the tiles a mask switches off."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        mask: T.Tensor((M // block_M, N // block_N, K // block_K), "bool"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(N // block_N, M // block_M, threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.serial(K // block_K):
                if mask[by, bx, k]:
                    T.copy(A[by * block_M, k * block_K], A_shared)
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


@tilelang.jit(out_idx=[1])
def pool_2d(B, H, W, C, kind, size=3, stride=2, padding=1, block_C=32):
    """Max or average pooling of an NHWC image; average counts the padding, as torch's default does."""
    out_H = (H + 2 * padding - size) // stride + 1
    out_W = (W + 2 * padding - size) // stride + 1

    @T.prim_func
    def main(X: T.Tensor((B, H, W, C), "float32"), Y: T.Tensor((B, out_H, out_W, C), "float32")):
        with T.Kernel(out_W, out_H, B, threads=128) as (ow, oh, b):
            y = T.alloc_fragment((block_C,), "float32")
            for c in T.serial(T.ceildiv(C, block_C)):
                if kind == "max":
                    T.fill(y, -T.infinity("float32"))
                else:
                    T.clear(y)
                for kh, kw in T.grid(size, size):
                    h = oh * stride + kh - padding
                    w = ow * stride + kw - padding
                    if h >= 0 and h < H and w >= 0 and w < W:
                        for i in T.Parallel(block_C):
                            if kind == "max":
                                y[i] = T.max(y[i], X[b, h, w, c * block_C + i])
                            else:
                                y[i] += X[b, h, w, c * block_C + i]
                for i in T.Parallel(block_C):
                    if c * block_C + i < C:
                        Y[b, oh, ow, c * block_C + i] = y[i] if kind == "max" else y[i] / (size * size)

    return main


@tilelang.jit(out_idx=[2])
def conv_2d(N, C, H, W, F, K, S, D, P, dtype="float16", block_M=64, block_N=64, block_K=32, num_stages=2):
    """Convolution of an NHWC image as a matrix product whose left operand is gathered tile by tile."""
    out_H = (H + 2 * P - D * (K - 1) - 1) // S + 1
    out_W = (W + 2 * P - D * (K - 1) - 1) // S + 1

    @T.prim_func
    def main(
        X: T.Tensor((N, H, W, C), dtype),
        kernel: T.Tensor((K, K, C, F), dtype),
        Y: T.Tensor((N, out_H, out_W, F), dtype),
    ):
        with T.Kernel(T.ceildiv(F, block_N), T.ceildiv(N * out_H * out_W, block_M), threads=128) as (bx, by):
            x = T.alloc_shared((block_M, block_K), dtype)
            w = T.alloc_shared((block_K, block_N), dtype)
            y = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.reshape(kernel, (K * K * C, F))
            flat = T.reshape(Y, (N * out_H * out_W, F))
            T.clear(y)
            for k in T.Pipelined(T.ceildiv(K * K * C, block_K), num_stages=num_stages):
                T.im2col(X, x, by, k, K, S, D, P)
                T.copy(weights[k * block_K, bx * block_N], w)
                T.gemm(x, w, y)
            T.copy(y, flat[by * block_M, bx * block_N])

    return main


@tilelang.jit(out_idx=[2])
def conv_2d_gathered(N, C, H, W, F, K, S, P, dtype="float16", block_M=64, block_N=64, block_K=32):
    """The same with the gather written out by hand, any channel count."""
    out_H = (H + 2 * P - K) // S + 1
    out_W = (W + 2 * P - K) // S + 1

    @T.prim_func
    def main(
        X: T.Tensor((N, H, W, C), dtype),
        kernel: T.Tensor((K, K, C, F), dtype),
        Y: T.Tensor((N, out_H, out_W, F), dtype),
    ):
        with T.Kernel(T.ceildiv(F, block_N), T.ceildiv(N * out_H * out_W, block_M), threads=128) as (bx, by):
            x = T.alloc_shared((block_M, block_K), dtype)
            w = T.alloc_shared((block_K, block_N), dtype)
            y = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.reshape(kernel, (K * K * C, F))
            flat = T.reshape(Y, (N * out_H * out_W, F))
            T.clear(y)
            for k in T.serial(T.ceildiv(K * K * C, block_K)):
                for i, j in T.Parallel(block_M, block_K):
                    m = by * block_M + i
                    e = k * block_K + j
                    h = m % (out_H * out_W) // out_W * S + e // C // K - P
                    v = m % out_W * S + e // C % K - P
                    inside = m < N * out_H * out_W and e < K * K * C and h >= 0 and h < H and v >= 0 and v < W
                    x[i, j] = T.if_then_else(inside, X[m // (out_H * out_W), h, v, e % C], 0)
                T.copy(weights[k * block_K, bx * block_N], w)
                T.gemm(x, w, y)
            T.copy(y, flat[by * block_M, bx * block_N])

    return main


@tilelang.jit
def depthwise_conv_1d(X, weight, block_T: int = 16, block_C: int = 32):
    """A short causal filter per channel, as state-space models use it."""
    L, C, K = T.const("L, C, K")
    X: T.Tensor[[L, C], T.float32]
    weight: T.Tensor[[K, C], T.float32]
    Y = T.empty((L, C), T.float32)
    with T.Kernel(T.ceildiv(L, block_T), T.ceildiv(C, block_C), threads=128) as (bt, bc):
        y = T.alloc_fragment((block_T, block_C), "float32")
        T.clear(y)
        for k in T.serial(K):
            for i, j in T.Parallel(block_T, block_C):
                time = bt * block_T + i - (K - 1) + k
                y[i, j] += T.if_then_else(time >= 0, X[time, bc * block_C + j] * weight[k, bc * block_C + j], 0.0)
        T.copy(y, Y[bt * block_T, bc * block_C])
    return Y


def _top_k(x: torch.Tensor) -> list[torch.Tensor]:
    values, places = x.topk(5, dim=1)
    return [values, places.int()]


def _block_sparse(a: torch.Tensor, b: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    c = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
    for m, n, k in mask.nonzero().tolist():
        rows, columns, depth = (slice(i * size, (i + 1) * size) for i, size in ((m, 64), (n, 64), (k, 32)))
        c[rows, columns] += a[rows, depth].double() @ b[depth, columns].double()
    return c


def _pool(x: torch.Tensor, kind: str) -> torch.Tensor:
    pool = F.max_pool2d if kind == "max" else F.avg_pool2d
    return pool(x.double().permute(0, 3, 1, 2), 3, 2, 1).permute(0, 2, 3, 1)


def _conv(x: torch.Tensor, weight: torch.Tensor, stride: int, dilation: int, padding: int) -> torch.Tensor:
    y = F.conv2d(
        x.double().permute(0, 3, 1, 2),
        weight.double().permute(3, 2, 0, 1),
        stride=stride,
        dilation=dilation,
        padding=padding,
    )
    return y.permute(0, 2, 3, 1)


def _depthwise(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    taps, channels = weight.shape
    padded = F.pad(x.double().T[None], (taps - 1, 0))
    return F.conv1d(padded, weight.double().T[:, None], groups=channels)[0].T


def cases() -> Iterator[Case]:
    yield Case(
        "sparse.top_k[5-of-100]",
        top_k,
        lambda gen: [torch.randperm(2000, generator=gen)[:2000].reshape(20, 100).float()],
        _top_k,
        EXACT,
        args=(20, 100, 5),
        tags=frozenset({"top-k", "reduce", "max", "min", "tail", "non-power-of-two"}),
    )
    yield Case(
        "sparse.argmax[10x150]",
        argmax,
        lambda gen: [randint(gen, -50, 50, 10, 150).half()],
        lambda x: torch.tensor([row.tolist().index(max(row.tolist())) for row in x]),
        EXACT,
        style="eager",
        tags=frozenset({"argmax", "variable", "shared", "int64", "tail"}),
    )
    yield Case(
        "sparse.gemm_block_sparse[128x128x96]",
        gemm_block_sparse,
        lambda gen: [
            randn(gen, 128, 96, dtype=torch.float16),
            randn(gen, 96, 128, dtype=torch.float16),
            torch.rand(2, 2, 3, generator=gen) < 0.5,
        ],
        _block_sparse,
        summed(96),
        args=(128, 128, 96),
        tags=frozenset({"gemm", "block-sparse", "bool", "condition"}),
    )
    for kind in ("max", "average"):
        yield Case(
            f"sparse.pool_2d[{kind}-2x9x8x40]",
            pool_2d,
            lambda gen: [randn(gen, 2, 9, 8, 40)],
            lambda x, kind=kind: _pool(x, kind),
            EXACT if kind == "max" else summed(9),
            args=(2, 9, 8, 40, kind),
            tags=frozenset({"pool", "rank-4", "3d-grid", "condition", "tail"}),
        )
    for name, (N, C, H, W, filters, K, S, D, P) in (
        ("stride1", (1, 32, 8, 8, 64, 3, 1, 1, 1)),
        ("stride2-dilated", (2, 32, 11, 9, 72, 3, 2, 2, 2)),
    ):
        yield Case(
            f"sparse.conv_2d[{name}]",
            conv_2d,
            lambda gen, N=N, C=C, H=H, W=W, filters=filters, K=K: [
                randn(gen, N, H, W, C, dtype=torch.float16),
                randn(gen, K, K, C, filters, dtype=torch.float16, scale=0.125),
            ],
            lambda x, w, S=S, D=D, P=P: _conv(x, w, S, D, P),
            summed(K * K * C, "float16"),
            args=(N, C, H, W, filters, K, S, D, P),
            tags=frozenset({"conv", "im2col", "gemm", "view", "rank-4", "pipelined"}),
        )
    yield Case(
        "sparse.conv_2d_gathered[2x7x9x5]",
        conv_2d_gathered,
        lambda gen: [
            randn(gen, 2, 7, 9, 5, dtype=torch.float16),
            randn(gen, 3, 3, 5, 24, dtype=torch.float16, scale=0.25),
        ],
        lambda x, w: _conv(x, w, 1, 1, 1),
        summed(45, "float16"),
        args=(2, 5, 7, 9, 24, 3, 1, 1),
        tags=frozenset({"conv", "gemm", "view", "rank-4", "condition", "tail"}),
    )
    yield Case(
        "sparse.depthwise_conv_1d[40x50x4]",
        depthwise_conv_1d,
        lambda gen: [randn(gen, 40, 50), randn(gen, 4, 50)],
        _depthwise,
        summed(4, scale=2.0),
        style="eager",
        tags=frozenset({"conv", "condition", "tail"}),
    )
