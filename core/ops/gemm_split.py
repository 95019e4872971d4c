"""A matrix product of few tiles for chips with warpgroup instructions, TMA and clusters: K is shared within a cluster.

Where the tiles of C are too few to fill a chip, the blocks of a cluster take a share of K each and add up their parts
through each other's shared memory. The instruction's 64 rows are columns of B: C is computed transposed, and the
instruction's width is the number of a tile's rows, so that few rows are no waste.
"""

from typing import Any

from core._tilelang import import_tilelang
from core.errors import KernelError
from core.ops._product import Product

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

#: Blocks of a cluster that every chip with clusters takes (CUDA Programming Guide, Thread Block Clusters).
_LARGEST_CLUSTER = 8
#: Elements added to a row of the parts, so that the lanes of a warp write to different banks.
_PADDING = 4


def split_gemm(
    product: Product,
    *,
    block_M: int,
    block_N: int,
    block_K: int,
    num_stages: int,
    splits: int,
) -> Any:
    """The PrimFunc of a product.

    Args:
        product: what is computed, in the order its tensors are taken.
        block_M, block_N, block_K: extents of a tile, elements; `block_N` is a multiple of 64, and twice as many threads
            multiply, with 128 more that copy.
        num_stages: tiles of A and B in flight.
        splits: blocks of a cluster, each with its share of K; at most 8.

    Raises:
        KernelError: the columns are no whole warpgroups, the blocks no portable cluster, or the batch is symbolic.
    """
    product.expect_known("split", "batch")
    if block_N % 64 or splits > _LARGEST_CLUSTER:
        raise KernelError(
            f"a tile of {block_M} x {block_N} cannot be computed transposed by {splits} blocks",
            hint=f"use columns in multiples of 64 and at most {_LARGEST_CLUSTER} blocks",
        )
    rows, columns, steps = -(-product.M // block_M), -(-product.N // block_N), -(-product.K // block_K)
    share = -(-steps // splits)
    # Rows that each block of a cluster adds up: an even number, as two rows are one element for every thread that
    # computes. Together they may be more than the tile has, and the last blocks then store fewer.
    height = 2 * -(-block_M // (2 * splits))
    threads = 128 + 2 * block_N
    width = block_N + _PADDING

    batch = product.batch or 1
    finish = product.finish(height, block_N)
    accum_dtype = product.accum_dtype

    @T.macro
    def load(A, B, A_tiles, B_tiles, full, row, column, depth, stage, at):
        rows_of_a, columns_of_b = slice(row, row + block_M), slice(column, column + block_N)
        steps_of_k = slice(depth, depth + block_K)
        # One warp loads: B first, which is the larger.
        T.tma_copy(
            B[(*at, *product.stored_b(steps_of_k, columns_of_b))],
            B_tiles[stage, :, :],
            barrier=full[stage],
            leader_scope_threads=32,
        )
        T.tma_copy(
            A[(*at, *product.stored_a(rows_of_a, steps_of_k))],
            A_tiles[stage, :, :],
            barrier=full[stage],
            leader_scope_threads=32,
        )

    @T.macro
    def body(A, B, C, bias, residual):
        with T.ClusterKernel(splits * columns, rows, batch, threads=threads, cluster_dims=(splits, 1, 1)) as (
            bx,
            by,
            bz,
        ):
            at = () if product.batch is None else (bz,)
            A_tiles = T.alloc_shared((num_stages, *product.stored_a(block_M, block_K)), product.dtype)
            B_tiles = T.alloc_shared((num_stages, *product.stored_b(block_K, block_N)), product.dtype)
            mine = T.alloc_shared((height * splits, width), accum_dtype)
            parts = T.alloc_shared((max(1, splits - 1), height, width), accum_dtype)
            accumulator = T.alloc_fragment((block_N, block_M), accum_dtype)
            full = T.alloc_barrier([1] * num_stages)
            empty = T.alloc_barrier([2 * block_N // 32] * num_stages)
            arrived = T.alloc_cluster_barrier([max(1, splits - 1)])
            thread = T.get_thread_binding()
            rank = bx % splits
            row, column = by * block_M, bx // splits * block_N
            first = rank * share
            count = T.min(share, steps - first)
            if thread < 128:
                if thread < 32:
                    for s in T.serial(count):
                        stage, k = s % num_stages, (first + s) * block_K
                        T.mbarrier_wait_parity(empty[stage], (s // num_stages & 1) ^ 1)
                        load(A, B, A_tiles, B_tiles, full, row, column, k, stage, at)
                        if thread == 0:
                            T.mbarrier_arrive(full[stage])
            else:
                T.clear(accumulator)
                for s in T.serial(count):
                    stage = s % num_stages
                    T.mbarrier_wait_parity(full[stage], s // num_stages & 1)
                    T.wgmma_gemm(
                        B_tiles[stage, :, :],
                        A_tiles[stage, :, :],
                        accumulator,
                        transpose_A=not product.trans_b,
                        transpose_B=not product.trans_a,
                        policy=T.GemmWarpPolicy.FullRow,
                    )
                    T.wait_wgmma(1)
                    if s > 0 and thread % 32 == 0:
                        T.mbarrier_arrive(empty[(s - 1) % num_stages])
                T.wait_wgmma(0)
            # `mine` and `parts` lie where the tiles were. After this barrier the block has read its last tile, and may
            # write `mine`; after that of the cluster every block has, and they may send each other `parts`.
            T.sync_threads()
            if thread >= 128:
                for j, i in T.Parallel(block_N, block_M):
                    mine[i, j] = accumulator[j, i]
                T.fence_proxy_async()
            if splits > 1:
                T.cluster_sync()
            if thread >= 128:
                total = T.alloc_fragment((height, block_N), accum_dtype)
                if splits > 1:
                    for step in T.unroll(splits - 1, explicit=True):
                        peer = (rank + step + 1) % splits
                        T.copy_cluster(
                            mine[peer * height : (peer + 1) * height, :],
                            parts[step, :, :],
                            dst_block=peer,
                            remote_barrier=arrived[0],
                        )
                T.copy(mine[rank * height : (rank + 1) * height, 0:block_N], total)
                if splits > 1:
                    T.mbarrier_wait_parity(arrived[0], 0)
                    for s in T.unroll(splits - 1, explicit=True):
                        for i, j in T.Parallel(height, block_N):
                            total[i, j] += parts[s, i, j]
                finish(total, bias, residual, row + rank * height, column, at)
                if height * splits > block_M:
                    for i, j in T.Parallel(height, block_N):
                        if rank * height + i < block_M:
                            C[(*at, row + rank * height + i, column + j)] = total[i, j]
                else:
                    T.copy(total, C[(*at, row + rank * height, column)])
            if splits > 1:
                # A block may not end while what it sent is still read from its memory.
                T.cluster_sync()

    return product.program(body)
