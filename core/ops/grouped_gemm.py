"""Matrix products of many groups of rows at once, each group with a matrix of its own: the experts of a mixture."""

from typing import Any

from core._tilelang import import_tilelang
from core.ops._dtypes import PRODUCT
from core.tiling import kernel, stages, threads, tile

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)


@kernel(out=["C"], dtypes=PRODUCT, symbolic=("groups", "M", "N", "K"))
def grouped_gemm(
    groups: int,
    M: int,
    N: int,
    K: int,
    *,
    dtype: str = "float16",
    out_dtype: str | None = None,
    accum_dtype: str = "float32",
    trans_b: bool = False,
    block_M: int = tile("M", multiple=16),
    block_N: int = tile("N", multiple=16),
    block_K: int = tile("K", multiple=16),
    num_stages: int = stages(),
    threads: int = threads(),
) -> Any:
    """`C[i] = A[i] @ B[g]` for the rows `offsets[g] <= i < offsets[g + 1]` of each group g.

    A is (M, K), B (groups, K, N) or (groups, N, K), C (M, N); offsets is (groups + 1), int32, ascending from 0 to M.
    Groups may be empty and of any size: a tile of rows belongs to one group, which its block looks up, and there are
    at most `M / block_M + groups` tiles, so that no size has to be known when the kernel is launched.

    Args:
        groups: matrices in B: the experts. It and the extents may be symbolic (`T.dynamic`).
        M, N, K: rows of all groups together, columns, and terms.
        dtype: of A and B, as for `core.ops.gemm.gemm`.
        out_dtype, accum_dtype: of C (None is `dtype`), and of the sums: "int32" for integers.
        trans_b: B's matrices are stored as (N, K), the order of a weight of `torch.nn.Linear`.

    Raises:
        ShapeMismatch: there is no product of such operands, sums and results.
    """
    out_dtype = out_dtype or dtype

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((groups, N, K) if trans_b else (groups, K, N), dtype),
        offsets: T.Tensor((groups + 1,), "int32"),
        C: T.Tensor((M, N), out_dtype),
    ):
        # A group ends in a partial tile at most, so this many tiles of rows are enough for any sizes.
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M) + groups, threads=threads) as (bx, by):
            a = T.alloc_shared((block_M, block_K), dtype)
            b = T.alloc_shared((block_N, block_K) if trans_b else (block_K, block_N), dtype)
            c = T.alloc_shared((block_M, block_N), out_dtype)
            accumulator = T.alloc_fragment((block_M, block_N), accum_dtype)
            tiles = T.alloc_var("int32", init=0)
            group = T.alloc_var("int32", init=0)
            row = T.alloc_var("int32", init=0)
            end = T.alloc_var("int32", init=0)
            for g in T.serial(groups):
                own = T.ceildiv(offsets[g + 1] - offsets[g], block_M)
                if by >= tiles and by < tiles + own:
                    group = g
                    row = offsets[g] + (by - tiles) * block_M
                    end = offsets[g + 1]
                tiles = tiles + own
            # No condition around the loop: TileLang's warp specialisation would test it before the search.
            T.clear(accumulator)
            for k in T.Pipelined(T.if_then_else(row < end, T.ceildiv(K, block_K), 0), num_stages=num_stages):
                T.copy(A[row : row + block_M, k * block_K : (k + 1) * block_K], a)
                if trans_b:
                    T.copy(B[group, bx * block_N : (bx + 1) * block_N, k * block_K : (k + 1) * block_K], b)
                else:
                    T.copy(B[group, k * block_K : (k + 1) * block_K, bx * block_N : (bx + 1) * block_N], b)
                T.gemm(a, b, accumulator, transpose_B=trans_b)
            T.copy(accumulator, c)
            for i, j in T.Parallel(block_M, block_N):
                if row + i < end:
                    C[row + i, bx * block_N + j] = c[i, j]

    return main
