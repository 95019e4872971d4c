"""A matrix product for chips with warpgroup instructions, TMA and clusters, in persistent blocks.

One warp copies tiles through a ring of stages; two warpgroups multiply, each with a part of the block's tile, and do
not wait for each other, so that one stores its part of C while the other keeps the matrix unit busy. Blocks of a
cluster lie side by side and share the operand that they have in common: it is read once and sent to all of them.
"""

from dataclasses import dataclass
from typing import Any

from core._tilelang import import_tilelang
from core.errors import KernelError
from core.ops._product import Product

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

#: Registers a thread of the copying warpgroup keeps, and one of a multiplying warpgroup gets.
_COPYING_REGISTERS = 40
_MULTIPLYING_REGISTERS = 232


@dataclass(frozen=True)
class WarpgroupTile:
    """How the product is cut.

    `core.ops.gemm.gemm` leaves `alternate` and `chunk` at what they are here. As tile parameters, two values of each
    make 684 candidates of 172 for 4096 x 4096 x 4096 on an H200, ranked in two and a half times the time, and what
    the cost model sees between them was never measured. `scripts/explore_gemm.py` measures them.

    Attributes:
        block_M, block_N, block_K: extents of a tile, elements.
        num_stages: tiles of A and B in flight.
        cluster: blocks that share an operand.
        panel: rows of tiles (of clusters) that are walked over together, for reuse in L2; 0 is all.
        blocks: persistent blocks of the launch; 0 is one per tile.
        alternate: the warpgroups take tiles in turn instead of halves of one.
        chunk: columns of C that a warpgroup hands to one TMA store.
    """

    block_M: int
    block_N: int
    block_K: int
    num_stages: int
    cluster: int = 1
    panel: int = 0
    blocks: int = 0
    alternate: bool = False
    chunk: int = 64


def warpgroup_gemm(product: Product, tile: WarpgroupTile) -> Any:
    """The PrimFunc of a product, in blocks of 384 threads: a warpgroup that copies and two that multiply.

    Args:
        product: what is computed, in the order its tensors are taken.
        tile: how it is cut.

    Raises:
        KernelError: the tile cannot be shared between two warpgroups of 64 rows, or one of them would have no rows; or
            M, N or the batch is symbolic.
    """
    product.expect_known("warpgroups", "M", "N", "batch")
    block_M, block_N, block_K, num_stages = tile.block_M, tile.block_N, tile.block_K, tile.num_stages
    part = block_M if tile.alternate else block_M // 2
    if part % 64:
        raise KernelError(
            f"a tile of {block_M} rows does not give each warpgroup whole instructions of 64 rows",
            hint=f"use a multiple of {64 if tile.alternate else 128} rows",
        )
    if not tile.alternate and part >= product.M:
        raise KernelError(
            f"{product.M} rows leave the second warpgroup of a tile of {block_M} rows without work",
            hint="use a tile of fewer rows, or alternate=True",
        )
    chunk = min(tile.chunk, block_N)
    chunks = block_N // chunk
    rows, columns, steps = -(-product.M // block_M), -(-product.N // block_N), -(-product.K // block_K)
    # Blocks of a cluster share the larger operand's tile: B's when they lie below each other.
    below = rows > 1 and block_N >= block_M
    cluster = tile.cluster
    high, wide = (-(-rows // cluster), columns) if below else (rows, -(-columns // cluster))
    plane = high * wide
    total = plane * (product.batch or 1)
    clusters = min(tile.blocks // cluster or total, total)
    # Consecutive tiles of one worker; with alternating warpgroups, tile `turn` belongs to warpgroup `turn % 2`.
    turns = -(-total // clusters)
    panel = min(tile.panel or high, high)
    mask_a, mask_b = (None, (1 << cluster) - 1) if below else ((1 << cluster) - 1, None)
    if cluster == 1:
        mask_a = mask_b = None
    readers = 4 if tile.alternate else 8

    finish = product.finish(part, block_N)

    def place(t: Any, rank: Any) -> tuple[Any, Any, tuple[Any, ...]]:
        """First row and column of tile `t`, down a panel, then to the right; and its place in the batch."""
        at = () if product.batch is None else (t // plane,)
        t = t % plane if product.batch is not None else t
        first = t // (panel * wide) * panel
        height = T.min(panel, high - first)
        within = t % (panel * wide)
        i, j = first + within % height, within // height
        return (i * cluster + rank if below else i) * block_M, (j if below else j * cluster + rank) * block_N, at

    @T.macro
    def load(A, B, A_tiles, B_tiles, full, row, column, depth, stage, at):
        rows_of_a, columns_of_b = slice(row, row + block_M), slice(column, column + block_N)
        steps_of_k = slice(depth, depth + block_K)
        T.tma_copy(
            A[(*at, *product.stored_a(rows_of_a, steps_of_k))],
            A_tiles[stage, :, :],
            barrier=full[stage],
            cluster_mask=mask_a,
            leader_scope_threads=32,
        )
        T.tma_copy(
            B[(*at, *product.stored_b(steps_of_k, columns_of_b))],
            B_tiles[stage, :, :],
            barrier=full[stage],
            cluster_mask=mask_b,
            leader_scope_threads=32,
        )

    @T.macro
    def copy_tiles(A, B, A_tiles, B_tiles, full, empty, worker, rank):
        for turn in T.serial(turns):
            t = worker + turn * clusters
            if t < total:
                row, column, at = place(t, rank)
                for k in T.serial(steps):
                    step = turn * steps + k
                    stage = step % num_stages
                    T.mbarrier_wait_parity(empty[stage], (step // num_stages & 1) ^ 1)
                    load(A, B, A_tiles, B_tiles, full, row, column, k * block_K, stage, at)
                    if T.get_thread_binding() == 0:
                        T.mbarrier_arrive(full[stage])

    @T.macro
    def release(empty, stage):
        """One lane of each warp says, in every block of the cluster, that the stage was read."""
        if T.get_thread_binding() % 32 == 0:
            for peer in T.unroll(cluster):
                T.mbarrier_arrive(empty[stage], peer)

    @T.macro
    def store(accumulator, c, C_tile, C, row, column, at):
        """Chunk `c` of the accumulator to C; `C_tile` is free when no more than one store is on its way."""
        T.tma_store_wait(1)
        T.copy(accumulator[:, c * chunk : (c + 1) * chunk], C_tile)
        T.tma_copy(C_tile, C[(*at, row, column + c * chunk)])

    @T.macro
    def multiply(
        A_tiles, B_tiles, C, bias, residual, C_even, C_odd, accumulator, full, empty, order, worker, rank, group
    ):
        top = 0 if tile.alternate else group * part
        for turn in T.serial(turns):
            t = worker + turn * clusters
            mine = turn % 2 == group if tile.alternate else True
            if T.And(t < total, mine):
                row, column, at = place(t, rank)
                if tile.alternate:
                    # A stage's parity tells two uses of it apart, not three: the other warpgroup's are over first.
                    T.mbarrier_wait_parity(order[group], (turn // 2 & 1) ^ (1 - group))
                for k in T.serial(steps):
                    step = turn * steps + k
                    stage = step % num_stages
                    T.mbarrier_wait_parity(full[stage], step // num_stages & 1)
                    T.wgmma_gemm(
                        A_tiles[(stage, *product.stored_a(slice(top, top + part), slice(0, block_K)))],
                        B_tiles[stage, :, :],
                        accumulator,
                        transpose_A=product.trans_a,
                        transpose_B=product.trans_b,
                        clear_accum=k == 0,
                    )
                    # The products of this step go on while the next step's tiles are waited for.
                    T.wait_wgmma(1)
                    if k > 0:
                        release(empty, (step - 1) % num_stages)
                if tile.alternate:
                    T.mbarrier_arrive(order[1 - group])
                T.wait_wgmma(0)
                release(empty, (turn * steps + steps - 1) % num_stages)
                finish(accumulator, bias, residual, row + top, column, at)
                for c in T.unroll(chunks // 2, explicit=True):
                    store(accumulator, 2 * c, C_even, C, row + top, column, at)
                    store(accumulator, 2 * c + 1, C_odd, C, row + top, column, at)
                if chunks % 2:
                    store(accumulator, chunks - 1, C_even, C, row + top, column, at)
        T.tma_store_wait(0)

    @T.macro
    def body(A, B, C, bias, residual):
        with T.ClusterKernel(clusters * cluster, threads=384, cluster_dims=cluster) as block:
            A_tiles = T.alloc_shared((num_stages, *product.stored_a(block_M, block_K)), product.dtype)
            B_tiles = T.alloc_shared((num_stages, *product.stored_b(block_K, block_N)), product.dtype)
            C_first_even = T.alloc_shared((part, chunk), product.out_dtype)
            C_first_odd = T.alloc_shared((part, chunk), product.out_dtype)
            C_second_even = T.alloc_shared((part, chunk), product.out_dtype)
            C_second_odd = T.alloc_shared((part, chunk), product.out_dtype)
            first = T.alloc_fragment((part, block_N), product.accum_dtype)
            second = T.alloc_fragment((part, block_N), product.accum_dtype)
            full = T.alloc_barrier([1] * num_stages)
            empty = T.alloc_cluster_barrier([readers * cluster] * num_stages)
            order = T.alloc_barrier([128, 128])
            thread = T.get_thread_binding()
            worker, rank = block // cluster, block % cluster
            if thread < 128:
                T.set_max_nreg(_COPYING_REGISTERS, 0)
                if thread < 32:
                    copy_tiles(A, B, A_tiles, B_tiles, full, empty, worker, rank)
            elif thread < 256:
                T.set_max_nreg(_MULTIPLYING_REGISTERS, 1)
                multiply(
                    A_tiles,
                    B_tiles,
                    C,
                    bias,
                    residual,
                    C_first_even,
                    C_first_odd,
                    first,
                    full,
                    empty,
                    order,
                    worker,
                    rank,
                    0,
                )
            else:
                T.set_max_nreg(_MULTIPLYING_REGISTERS, 1)
                multiply(
                    A_tiles,
                    B_tiles,
                    C,
                    bias,
                    residual,
                    C_second_even,
                    C_second_odd,
                    second,
                    full,
                    empty,
                    order,
                    worker,
                    rank,
                    1,
                )
            if cluster > 1:
                # A block may not end while another still sends to it.
                T.cluster_sync()

    return product.program(body)
