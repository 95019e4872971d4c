"""The matrix product for chips with bulk copies and warpgroup instructions: loads and products in warps of their own.

One warpgroup issues the bulk copies, the others multiply. A block keeps its pipeline full from one tile of C to the
next: while the consumers store a finished tile, the operands of the next one are already on their way, which a loop of
blocks that load, multiply and store in turn cannot have. Blocks of a cluster share the tile of B: the first of them
loads it once for all, which halves what the L2 must deliver.

Barriers: `full[s]` completes when stage `s` has arrived (every producer thread arrives, the copies count bytes);
`empty[s]` when every consumer warp of every block of the cluster has read it.
"""

from collections.abc import Callable
from typing import Any

from core._tilelang import import_tilelang

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

_WARPGROUP = 128
_WARP = 32
#: Registers a thread of the producer keeps, and one of the consumers may have, by consumer warpgroups. Together they
#: stay within the 64 Ki registers of a multiprocessor; `setmaxnreg` counts in eights.
_REGISTERS = {1: (56, 240), 2: (40, 232), 3: (32, 160)}


def warp_specialized(
    M: int,
    N: int,
    K: int,
    *,
    dtype: str,
    out_dtype: str,
    accum_dtype: str,
    trans_a: bool,
    trans_b: bool,
    block_M: int,
    block_N: int,
    block_K: int,
    num_stages: int,
    threads: int,
    panel: int,
    policy: int,
    cluster: int,
    workers: int,
    epilogue: Callable[..., Any] | None = None,
) -> Any:
    """The PrimFunc of `C = op(A) @ op(B)`.

    Args:
        threads: of the consumers, a multiple of 128; one warpgroup more is launched.
        panel: width of the launch order's panels, in tiles of C; 0 is column by column.
        cluster: blocks along M that share their tile of B.
        workers: blocks that stay and take tile after tile; 0 launches one block (or cluster) a tile.
        epilogue: a macro that changes the accumulators in place, called with them, the tile's first row and column.
    """
    rows, columns, steps = -(-M // block_M), -(-N // block_N), -(-K // block_K)
    row_groups = -(-rows // cluster)
    tiles = row_groups * columns
    groups = min(workers // cluster, tiles) if workers else tiles
    rounds = -(-tiles // groups)
    consumers = threads // _WARPGROUP
    few, many = _REGISTERS.get(consumers, (24, 128))
    # The tile of C leaves in two halves through a buffer of half its size: the other half's room is one more stage.
    store_N = block_N // 2 if block_N >= 128 else block_N
    everyone = (1 << cluster) - 1
    warps = T.GemmWarpPolicy(policy)

    @T.macro
    def load(A, B, A_tile, B_tile, full, row, column, depth, stage):
        if trans_a:
            T.tma_copy(A[depth : depth + block_K, row : row + block_M], A_tile[stage, :, :], barrier=full[stage])
        else:
            T.tma_copy(A[row : row + block_M, depth : depth + block_K], A_tile[stage, :, :], barrier=full[stage])
        if trans_b:
            T.tma_copy(
                B[column : column + block_N, depth : depth + block_K],
                B_tile[stage, :, :],
                barrier=full[stage],
                cluster_mask=everyone if cluster > 1 else None,
            )
        else:
            T.tma_copy(
                B[depth : depth + block_K, column : column + block_N],
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

    @T.prim_func
    def main(
        A: T.Tensor((K, M) if trans_a else (M, K), dtype),
        B: T.Tensor((N, K) if trans_b else (K, N), dtype),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(groups * cluster, threads=threads + _WARPGROUP, cluster_dims=cluster) as block:
            A_tile = T.alloc_shared((num_stages, *((block_K, block_M) if trans_a else (block_M, block_K))), dtype)
            B_tile = T.alloc_shared((num_stages, *((block_N, block_K) if trans_b else (block_K, block_N))), dtype)
            C_tile = T.alloc_shared((block_M, store_N), out_dtype)
            accumulator = T.alloc_fragment((block_M, block_N), accum_dtype)
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
                    row_group, column = order.coord(tile)
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
                            )
                            T.mbarrier_arrive(full[stage])
            else:
                T.set_max_nreg(many, 1)
                for turn in T.serial(rounds):
                    tile = turn * groups + block // cluster
                    row_group, column = order.coord(tile)
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
                                transpose_A=trans_a,
                                transpose_B=trans_b,
                                policy=warps,
                            )
                            # One product stays in flight; the stage of the one before it is free.
                            T.wait_wgmma(1)
                            if step > 0:
                                release(empty, thread, (position + num_stages - 1) % num_stages)
                        T.wait_wgmma(0)
                        release(empty, thread, (turn * steps + steps - 1) % num_stages)
                        if epilogue is not None:
                            epilogue(accumulator, row, column * block_N)
                        for half in T.unroll(block_N // store_N):
                            T.copy(accumulator[:, half * store_N : (half + 1) * store_N], C_tile)
                            T.copy(C_tile, C[row, column * block_N + half * store_N])
            if cluster > 1:
                # A block's shared memory is written to by its neighbours: nobody leaves early.
                T.cluster_sync()

    return main
