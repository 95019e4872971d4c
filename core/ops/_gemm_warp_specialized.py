"""The matrix product for chips with bulk copies and warpgroup instructions: loads and products in warps of their own.

One warpgroup issues the bulk copies, the others multiply. A block keeps its pipeline full from one tile of C to the
next: while the consumers store a finished tile, the operands of the next one are already on their way, which a loop of
blocks that load, multiply and store in turn cannot have. Blocks of a cluster share the tile of B: the first of them
loads it once for all, which halves what the L2 must deliver.

Barriers: `full[s]` completes when stage `s` has arrived (every producer thread arrives, the copies count bytes);
`empty[s]` when every consumer warp of every block of the cluster has read it.
"""

from typing import Any

from core._tilelang import import_tilelang
from core.ops._product import Product

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

_WARPGROUP = 128
_WARP = 32
#: Registers a thread of the producer keeps, and one of the consumers may have, by consumer warpgroups. Together they
#: stay within the 64 Ki registers of a multiprocessor; `setmaxnreg` counts in eights.
_REGISTERS = {1: (56, 240), 2: (40, 232), 3: (32, 160)}


def warp_specialized(
    product: Product,
    *,
    block_M: int,
    block_N: int,
    block_K: int,
    num_stages: int,
    threads: int,
    panel: int,
    policy: int,
    cluster: int,
    workers: int,
) -> Any:
    """The PrimFunc of a product.

    Args:
        product: what is computed, in the order its tensors are taken.
        block_M, block_N, block_K: extents of a tile, elements.
        num_stages: tiles of A and B in flight.
        threads: of the consumers, a multiple of 128; one warpgroup more is launched.
        policy: `T.GemmWarpPolicy` by which the consumers share a tile.
        panel: width of the launch order's panels, in tiles of C; 0 is column by column.
        cluster: blocks along M that share their tile of B.
        workers: blocks that stay and take tile after tile; 0 launches one block (or cluster) a tile.

    Raises:
        KernelError: the batch is symbolic, or with `workers` M or N is.
    """
    product.expect_known("warp_specialized", "batch", *(("M", "N") if workers else ()))
    rows, columns, steps = -(-product.M // block_M), -(-product.N // block_N), -(-product.K // block_K)
    row_groups = -(-rows // cluster)
    plane = row_groups * columns
    tiles = plane * (product.batch or 1)
    groups = min(workers // cluster, tiles) if workers else tiles
    rounds = -(-tiles // groups)
    consumers = threads // _WARPGROUP
    few, many = _REGISTERS.get(consumers, (24, 128))
    # The tile of C leaves in two halves through a buffer of half its size: the other half's room is one more stage.
    store_N = block_N // 2 if block_N >= 128 else block_N
    everyone = (1 << cluster) - 1
    warps = T.GemmWarpPolicy(policy)

    finish = product.finish(block_M, block_N)

    @T.macro
    def load(A, B, A_tile, B_tile, full, row, column, depth, stage, at):
        rows_of_a, columns_of_b = slice(row, row + block_M), slice(column, column + block_N)
        steps_of_k = slice(depth, depth + block_K)
        T.tma_copy(A[(*at, *product.stored_a(rows_of_a, steps_of_k))], A_tile[stage, :, :], barrier=full[stage])
        T.tma_copy(
            B[(*at, *product.stored_b(steps_of_k, columns_of_b))],
            B_tile[stage, :, :],
            barrier=full[stage],
            cluster_mask=everyone if cluster > 1 else None,
        )

    @T.macro
    def release(empty, thread, stage):
        if thread % _WARP == 0:
            if cluster > 1:
                for rank in T.unroll(cluster):
                    T.mbarrier_arrive(empty[stage], rank)
            else:
                T.mbarrier_arrive(empty[stage])

    def place(order, tile):
        """Row group, column and place in the batch of a tile."""
        if product.batch is None:
            return (*order.coord(tile), ())
        return (*order.coord(tile % plane), (tile // plane,))

    @T.macro
    def body(A, B, C, bias, residual):
        with T.Kernel(groups * cluster, threads=threads + _WARPGROUP, cluster_dims=cluster) as block:
            A_tile = T.alloc_shared((num_stages, *product.stored_a(block_M, block_K)), product.dtype)
            B_tile = T.alloc_shared((num_stages, *product.stored_b(block_K, block_N)), product.dtype)
            C_tile = T.alloc_shared((block_M, store_N), product.out_dtype)
            accumulator = T.alloc_fragment((block_M, block_N), product.accum_dtype)
            full = T.alloc_barrier([_WARPGROUP] * num_stages)
            readers = [threads // _WARP * cluster] * num_stages
            empty = T.alloc_cluster_barrier(readers) if cluster > 1 else T.alloc_barrier(readers)
            order = T.PersistentTileScheduler(
                row_groups, columns, num_workers=groups, swizzle_size=max(1, panel), stateful=False
            )
            thread = T.get_thread_binding()
            rank = T.block_rank_in_cluster() if cluster > 1 else 0
            if thread >= threads:
                T.set_max_nreg(few, 0)
                for turn in T.serial(rounds):
                    tile = turn * groups + block // cluster
                    row_group, column, at = place(order, tile)
                    if tile < tiles:
                        for step in T.serial(steps):
                            position = turn * steps + step
                            stage = position % num_stages
                            T.mbarrier_wait_parity(empty[stage], ((position // num_stages) & 1) ^ 1)
                            load(
                                A,
                                B,
                                A_tile,
                                B_tile,
                                full,
                                (row_group * cluster + rank) * block_M,
                                column * block_N,
                                step * block_K,
                                stage,
                                at,
                            )
                            T.mbarrier_arrive(full[stage])
            else:
                T.set_max_nreg(many, 1)
                for turn in T.serial(rounds):
                    tile = turn * groups + block // cluster
                    row_group, column, at = place(order, tile)
                    row = (row_group * cluster + rank) * block_M
                    if tile < tiles:
                        T.clear(accumulator)
                        for step in T.serial(steps):
                            position = turn * steps + step
                            stage = position % num_stages
                            T.mbarrier_wait_parity(full[stage], (position // num_stages) & 1)
                            T.wgmma_gemm(
                                A_tile[stage, :, :],
                                B_tile[stage, :, :],
                                accumulator,
                                transpose_A=product.trans_a,
                                transpose_B=product.trans_b,
                                policy=warps,
                            )
                            # One product stays in flight; the stage of the one before it is free.
                            T.wait_wgmma(1)
                            if step > 0:
                                release(empty, thread, (position + num_stages - 1) % num_stages)
                        T.wait_wgmma(0)
                        release(empty, thread, (turn * steps + steps - 1) % num_stages)
                        finish(accumulator, bias, residual, row, column * block_N, at)
                        for half in T.unroll(block_N // store_N):
                            T.copy(accumulator[:, half * store_N : (half + 1) * store_N], C_tile)
                            T.copy(C_tile, C[(*at, row, column * block_N + half * store_N)])
            if cluster > 1:
                # A block's shared memory is written to by its neighbours: nobody leaves early.
                T.cluster_sync()

    return product.program(body)
