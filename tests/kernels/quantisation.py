"""Quantised weights and activations: int4 and int8 dequantised on the fly, per-token int8, fp8 with block scales."""

from collections.abc import Iterator

import tilelang
import tilelang.language as T
import torch

from tests.kernels.case import EXACT, Case, randint, randn, summed, summed_fp8


@tilelang.jit(out_idx=[3])
def gemm_int4(M, N, K, group=32, dtype="float16", block_M=64, block_N=64, block_K=32):
    """C = A W^T; a byte of W holds two 4-bit weights, low half first, zero point 8, one scale per `group` of K."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((N, K // group), dtype),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            packed = T.alloc_shared((block_N, block_K // 2), "uint8")
            packed_local = T.alloc_fragment((block_N, block_K // 2), "uint8")
            weights_local = T.alloc_fragment((block_N, block_K), dtype)
            weights = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(W[bx * block_N, k * block_K // 2], packed)
                T.copy(packed, packed_local)
                for i, j in T.Parallel(block_N, block_K):
                    nibble = (T.cast(packed_local[i, j // 2], "int32") >> (4 * (j % 2))) & 15
                    weights_local[i, j] = (
                        T.cast(nibble - 8, dtype) * scales[bx * block_N + i, (k * block_K + j) // group]
                    )
                T.copy(weights_local, weights)
                T.gemm(A_shared, weights, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


@tilelang.jit(out_idx=[3])
def gemm_int8_weights(M, N, K, dtype="float16", block_M=64, block_N=64, block_K=32):
    """C = A W^T with int8 weights and a scale per output column, applied after the sum."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K), "int8"),
        scales: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            W_shared = T.alloc_shared((block_N, block_K), "int8")
            narrow = T.alloc_fragment((block_N, block_K), "int8")
            wide = T.alloc_fragment((block_N, block_K), dtype)
            weights = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(W[bx * block_N, k * block_K], W_shared)
                T.copy(W_shared, narrow)
                for i, j in T.Parallel(block_N, block_K):
                    wide[i, j] = T.cast(narrow[i, j], dtype)
                T.copy(wide, weights)
                T.gemm(A_shared, weights, C_local, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] *= scales[bx * block_N + j]
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


@tilelang.jit
def gemm_int8_scaled(A, W, a_scales, w_scales, block_M: int = 64, block_N: int = 64, block_K: int = 64):
    """int8 by int8 to int32, then a scale per row of A and one per column of the result."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor[[M, K], T.int8]
    W: T.Tensor[[N, K], T.int8]
    a_scales: T.Tensor[[M], T.float32]
    w_scales: T.Tensor[[N], T.float32]
    C = T.empty((M, N), T.bfloat16)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_shared = T.alloc_shared((block_M, block_K), "int8")
        W_shared = T.alloc_shared((block_N, block_K), "int8")
        C_local = T.alloc_fragment((block_M, block_N), "int32")
        result = T.alloc_fragment((block_M, block_N), "float32")
        T.clear(C_local)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
            T.copy(A[by * block_M, k * block_K], A_shared)
            T.copy(W[bx * block_N, k * block_K], W_shared)
            T.gemm(A_shared, W_shared, C_local, transpose_B=True)
        for i, j in T.Parallel(block_M, block_N):
            result[i, j] = T.cast(C_local[i, j], "float32") * a_scales[by * block_M + i] * w_scales[bx * block_N + j]
        T.copy(result, C[by * block_M, bx * block_N])
    return C


@tilelang.jit(out_idx=[1, 2])
def quantise_tokens(M, N, block_M=4, dtype="float16"):
    """int8 per token: scale = largest magnitude / 127, values rounded to nearest even."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), "int8"), scales: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            y = T.alloc_fragment((block_M, N), "int8")
            largest = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.reduce_absmax(x, largest, dim=1)
            for i in T.Parallel(block_M):
                largest[i] = T.max(largest[i], 1e-4) / 127.0
            for i, j in T.Parallel(block_M, N):
                y[i, j] = T.cast(T.clamp(T.nearbyint(x[i, j] / largest[i]), -128.0, 127.0), "int8")
            T.copy(y, Y[bx * block_M, 0])
            T.copy(largest, scales[bx * block_M])

    return main


@tilelang.jit(out_idx=[1, 2])
def quantise_fp8(M, N, group=128, block_M=8):
    """float8 e4m3 in groups along a row: scale = largest magnitude / 448."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), "bfloat16"),
        Y: T.Tensor((M, N), "float8_e4m3fn"),
        scales: T.Tensor((M, N // group), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, block_M), N // group, threads=128) as (bx, by):
            x = T.alloc_fragment((block_M, group), "float32")
            y = T.alloc_fragment((block_M, group), "float8_e4m3fn")
            largest = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, by * group], x)
            T.reduce_absmax(x, largest, dim=1)
            for i in T.Parallel(block_M):
                largest[i] = T.max(largest[i], 1e-4) / 448.0
            for i, j in T.Parallel(block_M, group):
                y[i, j] = T.cast(T.clamp(x[i, j] / largest[i], -448.0, 448.0), "float8_e4m3fn")
            T.copy(y, Y[bx * block_M, by * group])
            for i in T.Parallel(block_M):
                if bx * block_M + i < M:
                    scales[bx * block_M + i, by] = largest[i]

    return main


@tilelang.jit(out_idx=[4])
def gemm_fp8_block_scaled(M, N, K, block_M=64, block_N=64, block_K=128):
    """fp8 product with a scale per row and 128 columns of A and per tile of W, promoted to float32 every 128 of K."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float8_e4m3fn"),
        W: T.Tensor((N, K), "float8_e4m3fn"),
        a_scales: T.Tensor((M, T.ceildiv(K, block_K)), "float32"),
        w_scales: T.Tensor((T.ceildiv(N, block_N), T.ceildiv(K, block_K)), "float32"),
        C: T.Tensor((M, N), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), "float8_e4m3fn")
            W_shared = T.alloc_shared((block_N, block_K), "float8_e4m3fn")
            part = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            scale = T.alloc_shared((block_M,), "float32")
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(W[bx * block_N, k * block_K], W_shared)
                for i in T.Parallel(block_M):
                    scale[i] = a_scales[by * block_M + i, k] * w_scales[bx, k]
                T.gemm(A_shared, W_shared, part, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    total[i, j] += part[i, j] * scale[i]
            T.copy(total, C[by * block_M, bx * block_N])

    return main


def _gemm_int4(a: torch.Tensor, w: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    nibbles = torch.stack([w & 15, w >> 4], -1).flatten(1).to(torch.float16) - 8
    weights = nibbles * scales.repeat_interleave(32, 1)  # one float16 rounding, as the kernel makes
    return a.double() @ weights.double().T


def _gemm_int8(a: torch.Tensor, w: torch.Tensor, a_scales: torch.Tensor, w_scales: torch.Tensor) -> torch.Tensor:
    return (a.double() @ w.double().T) * a_scales.double()[:, None] * w_scales.double()


def _quantise_tokens(x: torch.Tensor) -> list[torch.Tensor]:
    x = x.float()
    scales = x.abs().amax(1).clamp(min=1e-4) / 127.0
    return [(x / scales[:, None]).round().clamp(-128, 127).to(torch.int8), scales]


def _quantise_fp8(x: torch.Tensor) -> list[torch.Tensor]:
    groups = x.float().unflatten(1, (-1, 128))
    scales = groups.abs().amax(2).clamp(min=1e-4) / 448.0
    return [(groups / scales[..., None]).clamp(-448, 448).flatten(1).to(torch.float8_e4m3fn), scales]


def _gemm_fp8(a: torch.Tensor, w: torch.Tensor, a_scales: torch.Tensor, w_scales: torch.Tensor) -> torch.Tensor:
    scaled_a = a.double() * a_scales.double().repeat_interleave(128, 1)
    scaled_w = w.double() * w_scales.double().repeat_interleave(64, 0).repeat_interleave(128, 1)[: w.shape[0]]
    return scaled_a @ scaled_w.T


def cases() -> Iterator[Case]:
    yield Case(
        "quantisation.gemm_int4[70x80x128]",
        gemm_int4,
        lambda gen: [
            randn(gen, 70, 128, dtype=torch.float16),
            randint(gen, 0, 256, 80, 64, dtype=torch.uint8),
            (torch.rand(80, 4, generator=gen) * 0.1 + 0.01).half(),
        ],
        _gemm_int4,
        summed(128),
        args=(70, 80, 128),
        tags=frozenset({"gemm", "int4", "uint8", "dequantise", "tail", "pipelined"}),
    )
    yield Case(
        "quantisation.gemm_int8_weights[70x80x96]",
        gemm_int8_weights,
        lambda gen: [
            randn(gen, 70, 96, dtype=torch.float16),
            randint(gen, -127, 128, 80, 96, dtype=torch.int8),
            torch.rand(80, generator=gen) * 0.01,
        ],
        lambda a, w, scales: (a.double() @ w.double().T) * scales.double(),
        summed(96, "float16"),
        args=(70, 80, 96),
        tags=frozenset({"gemm", "int8", "dequantise", "epilogue", "tail", "pipelined"}),
    )
    yield Case(
        "quantisation.gemm_int8_scaled[70x80x128]",
        gemm_int8_scaled,
        lambda gen: [
            randint(gen, -127, 128, 70, 128, dtype=torch.int8),
            randint(gen, -127, 128, 80, 128, dtype=torch.int8),
            torch.rand(70, generator=gen) * 0.01,
            torch.rand(80, generator=gen) * 0.01,
        ],
        _gemm_int8,
        summed(1, "bfloat16"),
        style="eager",
        tags=frozenset({"gemm", "int8", "epilogue", "bfloat16", "tail", "pipelined"}),
    )
    yield Case(
        "quantisation.quantise_tokens[10x256]",
        quantise_tokens,
        lambda gen: [randn(gen, 10, 256, dtype=torch.float16)],
        _quantise_tokens,
        # IEEE division; no slack for int8 values. A chip whose division is off by an ulp may move a tie.
        EXACT,
        args=(10, 256),
        tags=frozenset({"quantise", "int8", "reduce", "absmax", "round", "tail"}),
    )
    yield Case(
        "quantisation.quantise_fp8[20x256]",
        quantise_fp8,
        lambda gen: [randn(gen, 20, 256, dtype=torch.bfloat16)],
        _quantise_fp8,
        EXACT,
        args=(20, 256),
        tags=frozenset({"quantise", "float8_e4m3fn", "fp8", "reduce", "absmax", "tail"}),
    )
    yield Case(
        "quantisation.gemm_fp8_block_scaled[70x80x256]",
        gemm_fp8_block_scaled,
        lambda gen: [
            randn(gen, 70, 256).to(torch.float8_e4m3fn),
            randn(gen, 80, 256).to(torch.float8_e4m3fn),
            torch.rand(70, 2, generator=gen) + 0.5,
            torch.rand(2, 2, generator=gen) + 0.5,
        ],
        _gemm_fp8,
        summed_fp8(256, "bfloat16"),
        args=(70, 80, 256),
        tags=frozenset({"gemm", "float8_e4m3fn", "fp8", "dequantise", "tail", "pipelined"}),
    )
