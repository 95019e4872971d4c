"""Attention forward scheduled by hand for Hopper: one warpgroup loads, the others compute, products overlap softmax.

`T.Pipelined` waits for each product before it goes on. Here a warpgroup issues Q Kᵀ of the next tile and P V of this
one together, and computes the softmax of the next tile while P V runs. `ping_pong` adds an order between two
warpgroups: one issues its products while the other is in its softmax. The schedule is that of FlashAttention-3 (Shah
et al., 2024), and goes on from one tile of queries to the next in blocks that stay: the first product with the next
queries is issued together with the last one for these.
"""

from typing import Any

from core._tilelang import import_tilelang

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

from core.ops._attention_schedule import GROUP, REGISTERS, Schedule  # noqa: E402

#: First of the named barriers that order the warpgroups; TileLang numbers its own from 1.
_TURN = 12


def warp_specialised(
    batch: int,
    heads: int,
    kv_heads: int,
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
        KernelError: the schedule does not exist.
    """
    schedule.check()
    block_M, block_N, num_stages = schedule.block_M, schedule.block_N, schedule.num_stages
    threads, workers, ping_pong = schedule.threads, schedule.workers, schedule.ping_pong
    groups = threads // GROUP
    loading, computing = REGISTERS[groups]
    group = heads // kv_heads
    past = N - M
    q_tiles = -(-M // block_M)
    rows = T.GemmWarpPolicy.FullRow
    lowest = -T.infinity("float32")
    score_registers = block_M * block_N // threads

    # A piece of work is a tile of queries; for persistent causal blocks a long tile and the short one that makes all
    # pieces equally long.
    tiles_per_piece = 2 if causal and workers else 1
    pieces_per_head = -(-q_tiles // tiles_per_piece)
    pieces = pieces_per_head * heads * batch
    blocks = min(workers, pieces) if workers else pieces
    # In persistent blocks a warpgroup goes on with the next queries while another still needs these.
    q_stages = 2 if workers else 1

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

    @T.macro
    def mask(scores, first, t):
        if causal:
            if (t + 1) * block_N > first + past + 1:
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.if_then_else(t * block_N + j <= first + i + past, scores[i, j], lowest)
        elif N % block_N != 0:  # noqa: SIM102  (the condition below is the kernel's, this one Python's)
            if (t + 1) * block_N > N:
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.if_then_else(t * block_N + j < N, scores[i, j], lowest)

    @T.macro
    def products(q, k, v, scores, weights, output, place, stage, last, order):
        """Issues Q Kᵀ of one tile of keys and P V of the tile before, and waits for the first."""
        if ping_pong:
            T.sync_threads(order, 2 * GROUP)
        T.wgmma_gemm(q[place, :, :], k[stage, :, :], scores, transpose_B=True, clear_accum=True, policy=rows)
        T.wgmma_gemm(weights, v[last, :, :], output, policy=rows)
        if ping_pong:
            T.named_barrier_arrive(2 * _TURN + 1 - order, 2 * GROUP)
        T.wait_wgmma(1)
        T.warpgroup_fence_operand(scores, num_regs=score_registers)

    @T.macro
    def first_softmax(scores, row_max, row_sum):
        """The weights of a row's first tile, in place of its scores."""
        T.reduce_max(scores, row_max, dim=1, clear=True)
        for i, j in T.Parallel(block_M, block_N):
            scores[i, j] = T.exp2(scores[i, j] * base2 - row_max[i] * base2)
        T.reduce_sum(scores, row_sum, dim=1)

    @T.macro
    def opening(q, k, scores, weights, row_max, row_sum, first, place, stage, k_empty):
        """The weights of a block's first tile, with no product to overlap with."""
        T.wgmma_gemm(q[place, :, :], k[stage, :, :], scores, transpose_B=True, clear_accum=True, policy=rows)
        T.wait_wgmma(0)
        T.mbarrier_arrive(k_empty[stage])
        mask(scores, first, 0)
        first_softmax(scores, row_max, row_sum)
        T.copy(scores, weights)

    @T.macro
    def finish(scores, v_full, v_empty, stage, phase, last):
        """Waits for P V, which the compiler would do before the exponentials.

        Nothing moves over the loop that waits for V, which the next product needs anyway.
        """
        T.warpgroup_fence_operand(scores, num_regs=score_registers)
        T.mbarrier_wait_parity(v_full[stage], phase)
        T.wait_wgmma(0)
        T.mbarrier_arrive(v_empty[last])

    @T.macro
    def store(output, row_sum, O, b, h, first):  # noqa: E741  (the papers' letter)
        """Leaves from registers: in shared memory, warpgroups would wait for each other and go on in step."""
        for i, j in T.Parallel(block_M, dim):
            output[i, j] /= row_sum[i]
        # A variable has no range, without which every store is guarded.
        b_known = T.max(0, T.min(b, batch - 1))
        h_known = T.max(0, T.min(h, heads - 1))
        first_known = T.max(0, T.min(first, (q_tiles - 1) * block_M))
        T.copy(output, O[b_known, h_known, first_known : first_known + block_M, :])

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, M, dim), dtype),
        K: T.Tensor((batch, kv_heads, N, dim), dtype),
        V: T.Tensor((batch, kv_heads, N, dim), dtype),
        O: T.Tensor((batch, heads, M, dim), dtype),  # noqa: E741  (the papers' letter)
    ):
        with T.Kernel(blocks, threads=threads + GROUP) as block:
            q = T.alloc_shared((q_stages, block_M, dim), dtype)
            k = T.alloc_shared((num_stages, block_N, dim), dtype)
            v = T.alloc_shared((num_stages, block_N, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            output = T.alloc_fragment((block_M, dim), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            old_max = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            tile_sum = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            q_full = T.alloc_barrier([GROUP] * q_stages)
            q_empty = T.alloc_barrier([threads] * q_stages)
            k_full = T.alloc_barrier([GROUP] * num_stages)
            k_empty = T.alloc_barrier([threads] * num_stages)
            v_full = T.alloc_barrier([GROUP] * num_stages)
            v_empty = T.alloc_barrier([threads] * num_stages)
            # Tiles of keys and of queries so far, which number the uses of the barriers; each thread counts for itself.
            before = T.alloc_var("int32", init=0)
            taken = T.alloc_var("int32", init=0)
            # Where the output that is being summed up goes.
            b_before = T.alloc_var("int32", init=0)
            h_before = T.alloc_var("int32", init=0)
            first_before = T.alloc_var("int32", init=0)
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
                        place = taken % q_stages
                        T.mbarrier_wait_parity(q_empty[place], ((taken // q_stages) & 1) ^ 1)
                        T.tma_copy(
                            Q[b, h, first : first + block_M, :],
                            q[place, :, :],
                            barrier=q_full[place],
                        )
                        T.mbarrier_arrive(q_full[place])
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
                T.fill(output, 0)
                T.fill(weights, 0)
                T.fill(row_sum, 1)
                for turn in T.serial(turns):
                    piece = block + turn // tiles_per_piece * blocks
                    h = piece // pieces_per_head % heads
                    b = piece // (pieces_per_head * heads)
                    first = first_query(piece, turn)
                    tiles = key_tiles(piece, turn)
                    if tiles > 0:
                        place = taken % q_stages
                        stage = before % num_stages
                        phase = (before // num_stages) & 1
                        last = (before + num_stages - 1) % num_stages
                        T.mbarrier_wait_parity(q_full[place], (taken // q_stages) & 1)
                        T.mbarrier_wait_parity(k_full[stage], phase)
                        if workers:
                            if taken > 0:
                                products(q, k, v, scores, weights, output, place, stage, last, order)
                                T.mbarrier_arrive(k_empty[stage])
                                mask(scores, first, 0)
                                T.copy(row_sum, tile_sum)
                                first_softmax(scores, row_max, row_sum)
                                finish(scores, v_full, v_empty, stage, phase, last)
                                T.copy(scores, weights)
                                store(output, tile_sum, O, b_before, h_before, first_before)
                            else:
                                opening(q, k, scores, weights, row_max, row_sum, first, place, stage, k_empty)
                                T.mbarrier_wait_parity(v_full[stage], phase)
                        else:
                            opening(q, k, scores, weights, row_max, row_sum, first, place, stage, k_empty)
                            T.mbarrier_wait_parity(v_full[stage], phase)
                        T.fill(output, 0)
                        for t in T.serial(1, tiles):
                            stage_t = (before + t) % num_stages
                            phase_t = ((before + t) // num_stages) & 1
                            last_t = (before + t - 1) % num_stages
                            T.mbarrier_wait_parity(k_full[stage_t], phase_t)
                            products(q, k, v, scores, weights, output, place, stage_t, last_t, order)
                            T.mbarrier_arrive(k_empty[stage_t])
                            mask(scores, first, t)
                            T.copy(row_max, old_max)
                            T.reduce_max(scores, row_max, dim=1, clear=False)
                            for i in T.Parallel(block_M):
                                rescale[i] = T.exp2(old_max[i] * base2 - row_max[i] * base2)
                            for i, j in T.Parallel(block_M, block_N):
                                scores[i, j] = T.exp2(scores[i, j] * base2 - row_max[i] * base2)
                            T.reduce_sum(scores, tile_sum, dim=1)
                            for i in T.Parallel(block_M):
                                row_sum[i] = row_sum[i] * rescale[i] + tile_sum[i]
                            finish(scores, v_full, v_empty, stage_t, phase_t, last_t)
                            T.copy(scores, weights)
                            for i, j in T.Parallel(block_M, dim):
                                output[i, j] *= rescale[i]
                        T.mbarrier_arrive(q_empty[place])
                        b_before = b
                        h_before = h
                        first_before = first
                        taken += 1
                    before += tiles
                last = (before + num_stages - 1) % num_stages
                T.wgmma_gemm(weights, v[last, :, :], output, policy=rows)
                T.wait_wgmma(0)
                store(output, row_sum, O, b_before, h_before, first_before)
                if ping_pong:  # noqa: SIM102  (Python's condition, then the kernel's)
                    if thread < 2 * GROUP:
                        T.sync_threads(order, 2 * GROUP)

    return main
