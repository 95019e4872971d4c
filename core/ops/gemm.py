"""Matrix products: every layout and type, one or many at once, from one portable source."""

from typing import Any

from core._tilelang import import_tilelang
from core.errors import KernelError
from core.ops._dtypes import PRODUCT
from core.ops._gemm_warp_specialized import warp_specialized
from core.ops._product import Product
from core.ops.gemm_split import split_gemm
from core.ops.gemm_warpgroups import WarpgroupTile, warpgroup_gemm
from core.tiling import choice, kernel, split, stages, swizzle, threads, tile, warp_policy, workers

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)


@kernel(out=["C"], dtypes=PRODUCT, symbolic=("batch", "M", "N", "K"))
def gemm(
    M: Any,
    N: Any,
    K: Any,
    *,
    dtype: str = "float16",
    out_dtype: str | None = None,
    accum_dtype: str | None = None,
    trans_a: bool = False,
    trans_b: bool = False,
    batch: int | None = None,
    bias: bool = False,
    activation: str | None = None,
    residual: bool = False,
    block_M: int = tile("M", multiple=16),
    block_N: int = tile("N", multiple=16),
    block_K: int = tile("K", multiple=16),
    num_stages: int = stages(),
    threads: int = threads(),
    panel: int = swizzle(),
    policy: int = warp_policy(),
    variant: str = choice("variant", "tiled", "warp_specialized", "warpgroups", "split", by_rule=True),
    cluster: int = choice("cluster", 1, 2, by_rule=True),
    workers: int = workers(),
    splits: int = split("K", maximum=8),
) -> Any:
    """`C = activation(op(A) @ op(B) + bias) + residual`, rounded once.

    A is (M, K), B (K, N), C (M, N). The kernel takes A, B, then the bias (N) and the residual (as C) where there are
    any, then C. A block computes `block_M` x `block_N` of C in steps of `block_K`. The tile of C leaves through shared
    memory, in whole rows.

    Three variants are for chips with bulk copies and warpgroup instructions; `cluster`, `workers` and `splits` are
    theirs. In `warp_specialized` warpgroups share a tile: for few tiles, small ones and few rows. In `warpgroups` two
    of them have a half each and do not wait for one another (`threads` is 256, `policy` means nothing): for many large
    tiles. In `split` the blocks of a cluster share K and add up through each other's shared memory (`threads` is twice
    `block_N`): for few tiles with a long K.

    Args:
        M, N, K: extents, elements; may be symbolic (`T.dynamic`).
        dtype: of A and B: float16, bfloat16, float32, float8_e4m3fn, float8_e5m2, int8; float64 and other integers go
            without the chip's matrix unit.
        out_dtype: of C, the bias and the residual; None is `dtype`, int32 for 8-bit integers, float16 for 8-bit floats.
        accum_dtype: of the sums, which holds every operand exactly; None is float32, int32 for integers of up to 32
            bits, `dtype` for wider numbers.
        trans_a, trans_b: A is stored as (K, M), B as (N, K).
        batch: this many products at once: A, B, C and the residual get a first dimension; may be symbolic. None is one
            without it.
        bias: whether a row of N elements is added to every row.
        activation: a key of `core.ops.activations.ACTIVATIONS`, or None.
        residual: whether a matrix is added at the end.

    Raises:
        ShapeMismatch: there is no product of such operands, sums and results.
        KernelError: there is no such activation, or it is none for integers; a variant does not have the tile, or K is
            shared (`splits`) by one that does not share it.
    """
    product = Product.typed(
        M,
        N,
        K,
        dtype,
        out_dtype,
        accum_dtype,
        trans_a=trans_a,
        trans_b=trans_b,
        batch=batch,
        bias=bias,
        activation=activation,
        residual=residual,
    )
    if variant == "warp_specialized":
        return warp_specialized(
            product,
            block_M=block_M,
            block_N=block_N,
            block_K=block_K,
            num_stages=num_stages,
            threads=threads,
            panel=panel,
            policy=policy,
            cluster=cluster,
            workers=workers,
        )
    if splits > 1 and variant != "split":
        raise KernelError(f"gemm: splits={splits} with variant={variant!r}", hint="variant='split' shares K")
    if variant == "split":
        _expect(threads, 2 * block_N, variant)
        return split_gemm(
            product, block_M=block_M, block_N=block_N, block_K=block_K, num_stages=num_stages, splits=splits
        )
    if variant == "warpgroups":
        _expect(threads, 256, variant)
        return warpgroup_gemm(product, WarpgroupTile(block_M, block_N, block_K, num_stages, cluster, panel, workers))
    warps = T.GemmWarpPolicy(policy)
    finish = product.finish(block_M, block_N)
    rows, columns = T.ceildiv(M, block_M), T.ceildiv(N, block_N)

    @T.macro
    def multiply(A, B, sums, row, column, at):
        A_tile = T.alloc_shared(product.stored_a(block_M, block_K), dtype)
        B_tile = T.alloc_shared(product.stored_b(block_K, block_N), dtype)
        T.clear(sums)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
            T.copy(A[(*at, *product.stored_a(row, k * block_K))], A_tile)
            T.copy(B[(*at, *product.stored_b(k * block_K, column))], B_tile)
            T.gemm(A_tile, B_tile, sums, transpose_A=trans_a, transpose_B=trans_b, policy=warps)

    @T.macro
    def block(A, B, C, bias, residual, row, column, at):
        C_tile = T.alloc_shared((block_M, block_N), product.out_dtype)
        sums = T.alloc_fragment((block_M, block_N), product.accum_dtype)
        T.use_swizzle(panel, enable=panel > 0)
        multiply(A, B, sums, row, column, at)
        finish(sums, bias, residual, row, column, at)
        T.copy(sums, C_tile)
        T.copy(C_tile, C[(*at, row, column)])

    @T.macro
    def body(A, B, C, bias, residual):
        if batch is None:
            with T.Kernel(columns, rows, threads=threads) as (bx, by):
                block(A, B, C, bias, residual, by * block_M, bx * block_N, ())
        else:
            with T.Kernel(columns, rows, batch, threads=threads) as (bx, by, bz):
                block(A, B, C, bias, residual, by * block_M, bx * block_N, (bz,))

    return product.program(body)


def _expect(threads: int, needed: int, variant: str) -> None:
    """Raises KernelError where a variant's own arithmetic gives it another number of threads."""
    if threads != needed:
        raise KernelError(f"gemm: variant={variant!r} with threads={threads}", hint=f"this tile takes threads={needed}")
