"""Latent-attention decoding scheduled by hand for Hopper: two warpgroups take tiles of keys in turn and share them.

A block has 64 heads of one sequence. Their output, 64 x 512 in float32, is more than one warpgroup's registers, so each
keeps half of its columns. The scores are not divided: tiles of 64 keys come in pairs, of which the first group takes
the scores of one and the second those of the other, whole products, each with a softmax of its own. The weights of both
go through shared memory, and each group multiplies both with its half of the values:

    first group                              second group
    S0 = Q K0ᵀ                               S1 = Q K1ᵀ
    m = max(m, S0), P0 = exp(S0 - m)
      P0 and m ------------------------->    O_right = O_right · rescale + P0 V0_right
    O_left = O_left · rescale + P0 V0_left   m = max(m, S1), P1 = exp(S1 - m)
      <------------------------- P1 and m
    O_left = O_left · rescale + P1 V1_left   O_right = O_right · rescale + P1 V1_right

While one is in its softmax, the products of the other keep the matrix unit busy. A warp loads; each part of a tile goes
back to it as soon as the last product has read it. The order of the work is that of FlashMLA's published description
("A Deep-Dive Into the New Flash MLA Kernel", DeepSeek, 2025).
"""

from collections.abc import Callable
from typing import Any

from core._tilelang import import_tilelang
from core.errors import KernelError
from core.ops._mla_launch import Shapes
from core.ops._mla_steps import GROUP, HEADS, KEYS, LANES, WARPS, Shared, steps

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

#: Registers a thread keeps: of the loading warpgroup, and of the computing ones.
_LOADING, _COMPUTING = 24, 240
#: Named barriers; TileLang numbers its own from 1. The weights of the first tile of a pair are there; those of the
#: second are; the first group has issued its scores. Nobody has to say that weights were read: the second group has
#: read the first tile's when it gives back `right[0]`, which the next scores of the first wait for, and the first group
#: has read the second tile's when it publishes the next of the first.
_FIRST_FULL, _SECOND_FULL, _TURN = 12, 13, 14
#: Elements of a line of shared memory, of which each half of a key is whole ones, and the most of a copy's box.
_LINE, _LONGEST = 64, 256


def check(shapes: Shapes, block_M: int, block_N: int, num_stages: int, threads: int) -> None:
    """Raises KernelError for what the schedule cannot do."""
    heads = block_M == HEADS or shapes.M <= block_M < HEADS
    if not heads or (block_N, num_stages, threads) != (KEYS, 2, 2 * GROUP):
        raise KernelError(
            f"mla_decode: {block_M} heads, tiles of {block_N} keys, {num_stages} stages and {threads} threads: two"
            f" groups take {HEADS} heads, or all where there are fewer, and two tiles of {KEYS} keys",
            hint=f"use block_M={HEADS}, block_N={KEYS}, num_stages=2, threads={2 * GROUP}, or variant='pipelined'",
        )
    if shapes.dim % (2 * _LINE) or shapes.dim > 2 * _LONGEST or shapes.rope != KEYS:
        raise KernelError(
            f"mla_decode: keys of {shapes.dim} and {shapes.rope} rotated elements: two groups take halves of whole"
            f" lines of shared memory, and the weights of {KEYS} keys take the place of the rotated queries",
            hint=f"use dim of 128, 256, 384 or 512 and rope={KEYS}, or variant='pipelined'",
        )


def two_groups(shapes: Shapes, *, base2: float, in_turn: bool) -> Callable[..., Any]:
    """A macro with the launch of :func:`core.ops.mla.mla_decode` by this schedule, called with the eight tensors.

    Args:
        base2: the scores' scale times log2(e).
        in_turn: the second group issues the products of its scores after the first has issued its own, so that they
            end one after the other, and either softmax has the other group's products beside it.
    """
    batch, M, N, _, rope, splits, dtype = shapes
    half = shapes.dim // 2
    rows = T.GemmWarpPolicy.FullRow
    do = steps(shapes, base2)

    @T.macro
    def load(Q, Q_rope, KV, K_rope, s, row):
        if s.tiles > 0:
            do.load_queries(Q, Q_rope, s, row)
        for p in T.serial(T.ceildiv(s.tiles, 2)):
            do.load_tile(KV, K_rope, s, 2 * p, 0, (p & 1) ^ 1)
            if 2 * p + 1 < s.tiles:
                do.load_tile(KV, K_rope, s, 2 * p + 1, 1, (p & 1) ^ 1)

    # In both groups nothing is in flight from one pair to the next, and what a product has read goes back before the
    # next tile is waited for, which may come to the same place.

    @T.macro
    def second_left(s, own, p, zero):
        """O_left from the second tile of a pair."""
        T.sync_threads(_SECOND_FULL, 2 * GROUP)
        do.adopt(s, own, 1)
        do.rescale(own)
        T.mbarrier_wait_parity(s.left_full[1], p & 1)
        T.wgmma_gemm(s.weights[1], s.left[zero + 1, :, :], own.output, policy=rows)
        do.wait_for_output(own)

    @T.macro
    def first_of_pair(s, own, p, zero):
        """From the second tile of the pair before to the first of this one."""
        if p > 0:
            second_left(s, own, p - 1, zero)
            do.release(s.left_empty, 1)
        do.issue_scores(s, own, 0, p & 1, zero)
        if in_turn:  # noqa: SIM102  (Python's condition, then the kernel's)
            if 2 * p + 1 < s.tiles:
                T.named_barrier_arrive(_TURN, 2 * GROUP)
        do.wait_for_scores(own, 0)
        do.release(s.rotated_empty, 0)
        do.weigh(s, own, 2 * p)
        do.publish(s, own, 0)
        T.named_barrier_arrive(_FIRST_FULL, 2 * GROUP)
        do.rescale(own)
        T.wgmma_gemm(own.weights, s.left[zero, :, :], own.output, policy=rows)
        do.add_up(own)
        do.wait_for_output(own)
        do.release(s.left_empty, 0)

    @T.macro
    def compute_first(s, own):
        # 0, as lengths are at least 1. A compiler that knew would keep the descriptors of all products of a pair in
        # registers, which there are not.
        zero = T.alloc_var("int32", init=T.min(s.length, 0))
        do.start(s, own)
        for p in T.serial(T.ceildiv(s.tiles, 2)):
            zero = T.min(zero, p)
            first_of_pair(s, own, p, zero)
        if s.tiles > 0 and s.tiles % 2 == 0:
            second_left(s, own, s.tiles // 2 - 1, zero)

    @T.macro
    def second_right(s, own, zero):
        """O_right from the second tile of a pair."""
        do.rescale(own)
        T.wgmma_gemm(own.weights, s.right[zero + 1, :, :], own.output, policy=rows)
        do.wait_for_output(own)

    @T.macro
    def issue_first_right(s, own, p, zero):
        """O_right from the first tile of a pair, left in flight."""
        T.sync_threads(_FIRST_FULL, 2 * GROUP)
        do.adopt(s, own, 0)
        do.rescale(own)
        T.mbarrier_wait_parity(s.right_full[0], p & 1)
        T.wgmma_gemm(s.weights[0], s.right[zero, :, :], own.output, policy=rows)

    @T.macro
    def second_of_pair(s, own, p, zero):
        """From the second tile of the pair before to the second of this one."""
        if p > 0:
            second_right(s, own, zero)
            do.release(s.right_empty, 1)
        if in_turn:
            T.sync_threads(_TURN, 2 * GROUP)
        do.issue_scores(s, own, 1, p & 1, zero)
        issue_first_right(s, own, p, zero)
        do.wait_for_scores(own, 1)
        do.release(s.rotated_empty, 1)
        do.weigh(s, own, 2 * p + 1)
        do.publish(s, own, 1)
        T.named_barrier_arrive(_SECOND_FULL, 2 * GROUP)
        do.add_up(own)
        do.wait_for_output(own)
        do.release(s.right_empty, 0)

    @T.macro
    def compute_second(s, own):
        zero = T.alloc_var("int32", init=T.min(s.length, 0))  # as in the first group
        do.start(s, own)
        for p in T.serial(s.tiles // 2):
            zero = T.min(zero, p)
            second_of_pair(s, own, p, zero)
        if s.tiles > 1:
            second_right(s, own, zero)
        if s.tiles % 2 == 1:
            issue_first_right(s, own, s.tiles // 2, zero)
            do.wait_for_output(own)

    @T.macro
    def macro(Q, Q_rope, KV, K_rope, lengths, O, partial, lse):  # noqa: E741  (the papers' letter)
        with T.Kernel(T.ceildiv(M, HEADS), splits, batch, threads=3 * GROUP) as (x, split, b):
            queries = T.alloc_shared((2, HEADS, half), dtype)
            left = T.alloc_shared((2, KEYS, half), dtype)
            right = T.alloc_shared((2, KEYS, half), dtype)
            rotated = T.alloc_shared((2, KEYS, rope), dtype)
            first_weights = T.alloc_shared((HEADS, KEYS), dtype)
            second_weights = T.alloc_shared((HEADS, KEYS), dtype)
            of_rows = T.alloc_shared((4, HEADS), "float32")
            queries_full = T.alloc_barrier([LANES])
            left_full = T.alloc_barrier([LANES] * 2)
            right_full = T.alloc_barrier([LANES] * 2)
            rotated_full = T.alloc_barrier([LANES] * 2)
            left_empty = T.alloc_barrier([WARPS] * 2)
            right_empty = T.alloc_barrier([WARPS] * 2)
            rotated_empty = T.alloc_barrier([WARPS] * 2)
            done = T.alloc_barrier([2 * GROUP])
            length = T.min(lengths[b], N)
            all_tiles = T.ceildiv(length, KEYS)
            share = T.ceildiv(all_tiles, splits)
            s = Shared(
                queries,
                left,
                right,
                rotated,
                (first_weights, second_weights),
                of_rows,
                queries_full,
                left_full,
                right_full,
                rotated_full,
                left_empty,
                right_empty,
                rotated_empty,
                done,
                b=b,
                first_tile=split * share,
                tiles=T.max(0, T.min(share, all_tiles - split * share)),
                length=length,
            )
            row = x * HEADS
            thread = T.get_thread_binding()
            if thread < GROUP:
                T.set_max_nreg(_LOADING, 0)
                if thread < LANES:
                    load(Q, Q_rope, KV, K_rope, s, row)
            elif thread < 2 * GROUP:
                T.set_max_nreg(_COMPUTING, 1)
                first = do.take_registers()
                compute_first(s, first)
                do.finish(s, first, 0, O, partial, lse, split, row)
            else:
                T.set_max_nreg(_COMPUTING, 1)
                second = do.take_registers()
                compute_second(s, second)
                do.finish(s, second, 1, O, partial, lse, split, row)

    launch: Callable[..., Any] = macro
    return launch
