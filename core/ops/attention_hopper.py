"""Attention forward scheduled by hand for Hopper: one warpgroup loads, the others compute, products overlap softmax.

`T.Pipelined` waits for each product before it goes on. Here a warpgroup issues Q Kᵀ of the next tile and P V of this
one together, and computes the softmax of the next tile while P V runs. `ping_pong` adds an order between two
warpgroups: one issues its products while the other is in its softmax. The schedule is that of FlashAttention-3 (Shah
et al., 2024).
"""

from typing import Any

from core._tilelang import import_tilelang
from core.errors import KernelError

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

from core.ops._attention_schedule import GROUP, REGISTERS, Schedule  # noqa: E402
from core.ops._attention_steps import mask, online_softmax, sharing  # noqa: E402

#: First of the named barriers that order the warpgroups; TileLang numbers its own from 1.
_TURN = 12


def warp_specialised(
    batch: Any,
    heads: Any,
    kv_heads: Any,
    M: int,
    N: int,
    dim: int,
    schedule: Schedule,
    *,
    causal: bool,
    base2: float,
    dtype: str,
) -> Any:
    """The PrimFunc of :func:`core.ops.attention.attention` with this schedule; `base2` is the scale times log2(e).

    Raises:
        KernelError: the schedule does not exist, M or N is symbolic, or with `workers` the batch or the heads are.
    """
    schedule.check(M, N)
    block_M, block_N, num_stages = schedule.block_M, schedule.block_N, schedule.num_stages
    threads, workers, ping_pong = schedule.threads, schedule.workers, schedule.ping_pong
    groups = threads // GROUP
    loading, computing = REGISTERS[groups]
    group = sharing("attention", heads, kv_heads)
    past = N - M
    q_tiles = -(-M // block_M)
    rows = T.GemmWarpPolicy.FullRow
    score_registers = block_M * block_N // threads

    # A piece of work is a tile of queries; for persistent causal blocks a long tile and the short one that makes all
    # pieces equally long.
    tiles_per_piece = 2 if causal and workers else 1
    pieces_per_head = -(-q_tiles // tiles_per_piece)
    pieces = pieces_per_head * heads * batch
    if workers and not isinstance(pieces, int):
        raise KernelError(
            f"attention: workers={workers} share a known number of tiles, and batch or heads is symbolic",
            hint="give numbers for them, or workers=0",
        )
    blocks = min(workers, pieces) if workers else pieces

    def first_query(piece: Any, turn: Any) -> Any:
        """First query of the `turn`-th tile of a piece of work."""
        x = piece % pieces_per_head
        if not causal:
            return x * block_M
        return T.if_then_else(turn % tiles_per_piece == 0, q_tiles - 1 - x, x) * block_M

    def key_tiles(piece: Any, turn: Any) -> Any:
        """How many tiles of keys that tile sees; 0 where a middle tile is its own partner."""
        tiles = -(-N // block_N)
        if not causal:
            return tiles
        seen = T.min(tiles, T.ceildiv(first_query(piece, turn) + block_M + past, block_N))
        if tiles_per_piece == 1 or q_tiles % 2 == 0:
            return seen
        return T.if_then_else((turn % 2 == 1) & (piece % pieces_per_head == q_tiles // 2), 0, seen)

    hide = mask(block_M, block_N, N, past, causal=causal)
    advance = online_softmax(block_M, block_N, base2)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, M, dim), dtype),
        K: T.Tensor((batch, kv_heads, N, dim), dtype),
        V: T.Tensor((batch, kv_heads, N, dim), dtype),
        O: T.Tensor((batch, heads, M, dim), dtype),  # noqa: E741  (the papers' letter)
    ):
        with T.Kernel(blocks, threads=threads + GROUP) as block:
            q = T.alloc_shared((block_M, dim), dtype)
            k = T.alloc_shared((num_stages, block_N, dim), dtype)
            v = T.alloc_shared((num_stages, block_N, dim), dtype)
            # In persistent blocks the next queries arrive while this output leaves.
            o = q if not workers else T.alloc_shared((block_M, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            output = T.alloc_fragment((block_M, dim), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            old_max = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            tile_sum = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            q_full = T.alloc_barrier([GROUP])
            q_empty = T.alloc_barrier([threads])
            k_full = T.alloc_barrier([GROUP] * num_stages)
            k_empty = T.alloc_barrier([threads] * num_stages)
            v_full = T.alloc_barrier([GROUP] * num_stages)
            v_empty = T.alloc_barrier([threads] * num_stages)
            # Tiles of keys and of queries so far, which number the uses of the barriers; each thread counts for itself.
            before = T.alloc_var("int32", init=0)
            taken = T.alloc_var("int32", init=0)
            turns = T.ceildiv(pieces - block, blocks) * tiles_per_piece
            thread = T.get_thread_binding()

            if thread < GROUP:
                T.set_max_nreg(loading, 0)
                for turn in T.serial(turns):
                    piece = block + turn // tiles_per_piece * blocks
                    h = piece // pieces_per_head % heads
                    b = piece // (pieces_per_head * heads)
                    first = first_query(piece, turn)
                    tiles = key_tiles(piece, turn)
                    if tiles > 0:
                        T.mbarrier_wait_parity(q_empty[0], (taken & 1) ^ 1)
                        T.tma_copy(Q[b, h, first : first + block_M, :], q, barrier=q_full[0])
                        T.mbarrier_arrive(q_full[0])
                        taken += 1
                    for t in T.serial(tiles):
                        stage = (before + t) % num_stages
                        phase = ((before + t) // num_stages) & 1
                        T.mbarrier_wait_parity(k_empty[stage], phase ^ 1)
                        T.tma_copy(
                            K[b, h // group, t * block_N : (t + 1) * block_N, :],
                            k[stage, :, :],
                            barrier=k_full[stage],
                        )
                        T.mbarrier_arrive(k_full[stage])
                        T.mbarrier_wait_parity(v_empty[stage], phase ^ 1)
                        T.tma_copy(
                            V[b, h // group, t * block_N : (t + 1) * block_N, :],
                            v[stage, :, :],
                            barrier=v_full[stage],
                        )
                        T.mbarrier_arrive(v_full[stage])
                    before += tiles
            else:
                T.set_max_nreg(computing, 1)
                order = _TURN + thread // GROUP - 1
                if ping_pong:  # noqa: SIM102  (Python's condition, then the kernel's)
                    if thread >= 2 * GROUP:
                        T.named_barrier_arrive(_TURN, 2 * GROUP)
                for turn in T.serial(turns):
                    piece = block + turn // tiles_per_piece * blocks
                    h = piece // pieces_per_head % heads
                    b = piece // (pieces_per_head * heads)
                    first = first_query(piece, turn)
                    tiles = key_tiles(piece, turn)
                    if tiles > 0:
                        # The first tile of keys has no product to overlap with.
                        T.mbarrier_wait_parity(q_full[0], taken & 1)
                        T.mbarrier_wait_parity(k_full[before % num_stages], (before // num_stages) & 1)
                        T.wgmma_gemm(
                            q, k[before % num_stages, :, :], scores, transpose_B=True, clear_accum=True, policy=rows
                        )
                        T.wait_wgmma(0)
                        T.mbarrier_arrive(k_empty[before % num_stages])
                        hide(scores, first, 0)
                        T.reduce_max(scores, row_max, dim=1, clear=True)
                        for i, j in T.Parallel(block_M, block_N):
                            scores[i, j] = T.exp2(scores[i, j] * base2 - row_max[i] * base2)
                        T.reduce_sum(scores, row_sum, dim=1)
                        T.copy(scores, weights)
                        T.fill(output, 0)
                        T.mbarrier_wait_parity(v_full[before % num_stages], (before // num_stages) & 1)
                        for t in T.serial(1, tiles):
                            stage = (before + t) % num_stages
                            phase = ((before + t) // num_stages) & 1
                            last = (before + t - 1) % num_stages
                            T.mbarrier_wait_parity(k_full[stage], phase)
                            if ping_pong:
                                T.sync_threads(order, 2 * GROUP)
                            T.wgmma_gemm(q, k[stage, :, :], scores, transpose_B=True, clear_accum=True, policy=rows)
                            T.wgmma_gemm(weights, v[last, :, :], output, policy=rows)
                            if ping_pong:
                                T.named_barrier_arrive(2 * _TURN + 1 - order, 2 * GROUP)
                            T.wait_wgmma(1)
                            T.warpgroup_fence_operand(scores, num_regs=score_registers)
                            T.mbarrier_arrive(k_empty[stage])
                            hide(scores, first, t)
                            advance(scores, row_max, old_max, rescale, tile_sum, row_sum)
                            # The compiler would move the wait for P V up, before the exponentials. Nothing moves over
                            # the loop that waits for V, which the next product needs anyway.
                            T.warpgroup_fence_operand(scores, num_regs=score_registers)
                            T.mbarrier_wait_parity(v_full[stage], phase)
                            T.wait_wgmma(0)
                            T.mbarrier_arrive(v_empty[last])
                            T.copy(scores, weights)
                            for i, j in T.Parallel(block_M, dim):
                                output[i, j] *= rescale[i]
                        T.mbarrier_arrive(q_empty[0])
                        last = (before + tiles - 1) % num_stages
                        T.wgmma_gemm(weights, v[last, :, :], output, policy=rows)
                        T.wait_wgmma(0)
                        T.mbarrier_arrive(v_empty[last])
                        for i, j in T.Parallel(block_M, dim):
                            output[i, j] /= row_sum[i]
                        T.copy(output, o)
                        # What each thread wrote must be visible to the copy engine before one of them starts it.
                        T.fence_proxy_async()
                        T.copy(o, O[b, h, first : first + block_M, :])
                        taken += 1
                    before += tiles
                if ping_pong:  # noqa: SIM102  (Python's condition, then the kernel's)
                    if thread < 2 * GROUP:
                        T.sync_threads(order, 2 * GROUP)

    return main
