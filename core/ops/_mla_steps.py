"""What the warpgroups of latent-attention decoding for Hopper do, step by step; `core.ops.mla_hopper` says when.

Every step is a macro on what the groups of a block share and on a group's own registers. Steps that issue products
leave them in flight, each an instruction group of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core._tilelang import import_tilelang
from core.ops._mla_launch import Shapes

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

#: Threads of a warpgroup; lanes of a warp, all of which arrive at a barrier where the warp loads; warps of a group, of
#: each of which one lane arrives where a part of a tile is given back.
GROUP, LANES, WARPS = 128, 32, 4
#: Heads of a block, and keys of a tile.
HEADS, KEYS = 64, 64
#: How far a score may rise above the maximum that is subtracted from it, in base 2, before the maximum follows. A
#: weight is then at most 2^8 = 256, and the largest float16 is 65504.
GROWTH = 8.0


@dataclass(frozen=True)
class Shared:
    """What the groups of a block share: memory, barriers, and which keys are theirs.

    A tile of keys comes in three parts with barriers of their own. `empty` counts a lane of each warp of the group that
    reads a part last: its products with this part come after the other group's.
    """

    queries: Any  #: (2, HEADS, half): left and right half, in the end the output's
    left: Any  #: (2, KEYS, half), of the first and of the second tile of a pair
    right: Any
    rotated: Any  #: (2, KEYS, rope)
    weights: Any  #: two of (HEADS, KEYS); the second tile's take the place of the rotated part of the queries
    rows: Any  #: (4, HEADS), float32: the largest scores after each tile, and in the end the groups' sums of weights
    queries_full: Any
    left_full: Any
    right_full: Any
    rotated_full: Any
    left_empty: Any
    right_empty: Any
    rotated_empty: Any
    done: Any  #: counts every thread of both groups, in the end
    b: Any  #: the sequence
    first_tile: Any
    tiles: Any
    length: Any  #: of the sequence, keys


@dataclass(frozen=True)
class Own:
    """A group's registers."""

    rotated: Any  #: (HEADS, rope), of the queries
    scores: Any  #: (HEADS, KEYS), float32
    weights: Any
    output: Any  #: (HEADS, half), float32
    row_max: Any
    old_max: Any
    rescale: Any
    tile_sum: Any
    row_sum: Any


@dataclass(frozen=True)
class Steps:
    """The macros."""

    load_queries: Callable[..., Any]
    load_tile: Callable[..., Any]
    take_registers: Callable[..., Any]
    start: Callable[..., Any]
    issue_scores: Callable[..., Any]
    wait_for_scores: Callable[..., Any]
    wait_for_output: Callable[..., Any]
    release: Callable[..., Any]
    weigh: Callable[..., Any]
    publish: Callable[..., Any]
    add_up: Callable[..., Any]
    adopt: Callable[..., Any]
    rescale: Callable[..., Any]
    finish: Callable[..., Any]


def steps(shapes: Shapes, base2: float) -> Steps:
    """The steps for tensors of these shapes; `base2` is the scores' scale times log2(e), which is above 0."""
    dim, rope, splits, dtype = shapes.dim, shapes.rope, shapes.splits, shapes.dtype
    half = dim // 2
    score_registers, output_registers = HEADS * KEYS // GROUP, HEADS * half // GROUP
    rows = T.GemmWarpPolicy.FullRow
    lowest = -T.infinity("float32")

    @T.macro
    def load_queries(Q, Q_rope, s, row):
        full = s.queries_full
        T.tma_copy(Q[s.b, row : row + HEADS, 0:half], s.queries[0, :, :], barrier=full, leader_scope_threads=LANES)
        T.tma_copy(Q[s.b, row : row + HEADS, half:dim], s.queries[1, :, :], barrier=full, leader_scope_threads=LANES)
        T.tma_copy(Q_rope[s.b, row : row + HEADS, :], s.weights[1], barrier=full, leader_scope_threads=LANES)
        T.mbarrier_arrive(full)

    @T.macro
    def load_part(source, destination, full, empty, stage, parity):
        T.mbarrier_wait_parity(empty[stage], parity)
        T.tma_copy(source, destination[stage, :, :], barrier=full[stage], leader_scope_threads=LANES)
        T.mbarrier_arrive(full[stage])

    @T.macro
    def load_tile(KV, K_rope, s, t, stage, parity):
        key = (s.first_tile + t) * KEYS
        load_part(KV[s.b, key : key + KEYS, 0:half], s.left, s.left_full, s.left_empty, stage, parity)
        load_part(KV[s.b, key : key + KEYS, half:dim], s.right, s.right_full, s.right_empty, stage, parity)
        load_part(K_rope[s.b, key : key + KEYS, :], s.rotated, s.rotated_full, s.rotated_empty, stage, parity)

    @T.macro
    def take_registers():
        rotated = T.alloc_fragment((HEADS, rope), dtype)
        scores = T.alloc_fragment((HEADS, KEYS), "float32")
        weights = T.alloc_fragment((HEADS, KEYS), dtype)
        output = T.alloc_fragment((HEADS, half), "float32")
        row_max = T.alloc_fragment((HEADS,), "float32")
        old_max = T.alloc_fragment((HEADS,), "float32")
        rescale = T.alloc_fragment((HEADS,), "float32")
        tile_sum = T.alloc_fragment((HEADS,), "float32")
        row_sum = T.alloc_fragment((HEADS,), "float32")
        return Own(rotated, scores, weights, output, row_max, old_max, rescale, tile_sum, row_sum)

    @T.macro
    def start(s, own):
        T.fill(own.output, 0)
        T.fill(own.row_sum, 0)
        T.fill(own.row_max, lowest)
        T.fill(own.old_max, lowest)
        T.fill(own.rescale, 1)
        T.fill(own.weights, 0)
        if s.tiles > 0:
            T.mbarrier_wait_parity(s.queries_full[0], 0)
            T.copy(s.weights[1], own.rotated)

    @T.macro
    def issue_scores(s, own, stage, parity, zero):
        """Q Kᵀ of a tile, part by part as they arrive: three products."""
        q, scores = s.queries, own.scores
        T.mbarrier_wait_parity(s.left_full[stage], parity)
        T.wgmma_gemm(q[zero, :, :], s.left[zero + stage, :, :], scores, transpose_B=True, clear_accum=True, policy=rows)
        T.mbarrier_wait_parity(s.right_full[stage], parity)
        T.wgmma_gemm(q[zero + 1, :, :], s.right[zero + stage, :, :], scores, transpose_B=True, policy=rows)
        T.mbarrier_wait_parity(s.rotated_full[stage], parity)
        T.wgmma_gemm(own.rotated, s.rotated[zero + stage, :, :], scores, transpose_B=True, policy=rows)

    # Waiting is no use of registers: fences keep the compiler from reading them before.

    @T.macro
    def wait_for_scores(own, products_behind):
        T.wait_wgmma(products_behind)
        T.warpgroup_fence_operand(own.scores, num_regs=score_registers)

    @T.macro
    def wait_for_output(own):
        T.wait_wgmma(0)
        T.warpgroup_fence_operand(own.output, num_regs=output_registers)

    @T.macro
    def release(empty, stage):
        if T.get_thread_binding() % LANES == 0:
            T.mbarrier_arrive(empty[stage])

    @T.macro
    def weigh(s, own, t):
        """The weights of a tile from its scores; the maximum, and the factor that brings earlier sums down to it.

        Softmax is the same whatever number is subtracted from all scores of a row, as long as no weight overflows. So
        the maximum stays where it is until a score is more than `GROWTH` above it, and the output is seldom multiplied.
        It starts at minus infinity, so that the first tile's is always taken.
        """
        if (s.first_tile + t + 1) * KEYS > s.length:
            for i, j in T.Parallel(HEADS, KEYS):
                visible = (s.first_tile + t) * KEYS + j < s.length
                own.scores[i, j] = T.if_then_else(visible, own.scores[i, j], lowest)
        T.copy(own.row_max, own.old_max)
        T.reduce_max(own.scores, own.row_max, dim=1, clear=False)
        for i in T.Parallel(HEADS):
            grown = (own.row_max[i] - own.old_max[i]) * base2 > GROWTH
            own.row_max[i] = T.if_then_else(grown, own.row_max[i], own.old_max[i])
        for i, j in T.Parallel(HEADS, KEYS):
            own.scores[i, j] = T.exp2(own.scores[i, j] * base2 - own.row_max[i] * base2)
        T.copy(own.scores, own.weights)
        for i in T.Parallel(HEADS):
            own.rescale[i] = T.exp2((own.old_max[i] - own.row_max[i]) * base2)  # 1 where nothing changed

    @T.macro
    def publish(s, own, which):
        T.copy(own.row_max, s.rows[which, :])
        T.copy(own.weights, s.weights[which])
        # What each thread wrote must be visible to the other group's products.
        T.fence_proxy_async()

    @T.macro
    def add_up(own):
        """Adds the weights to the row's sum, beside the product that is in flight: nobody waits for the sum."""
        T.reduce_sum(own.scores, own.tile_sum, dim=1)
        for i in T.Parallel(HEADS):
            own.row_sum[i] = own.row_sum[i] * own.rescale[i] + own.tile_sum[i]

    @T.macro
    def adopt(s, own, which):
        """Takes over the maximum that the other group published, and the factor that brings earlier sums down to it."""
        T.copy(own.row_max, own.old_max)
        T.copy(s.rows[which, :], own.row_max)
        for i in T.Parallel(HEADS):
            own.rescale[i] = T.exp2((own.old_max[i] - own.row_max[i]) * base2)  # 1 where nothing changed
        for i in T.Parallel(HEADS):
            own.row_sum[i] *= own.rescale[i]

    @T.macro
    def scale(own):
        for i, j in T.Parallel(HEADS, half):
            own.output[i, j] *= own.rescale[i]

    @T.macro
    def rescale(own):
        """Brings the output down to the new maximum; a thread whose rows have kept theirs leaves it as it is."""
        changed = T.alloc_var("bool", init=False)
        for i in T.Parallel(HEADS):
            if own.row_max[i] != own.old_max[i]:
                changed = True
        if changed:
            scale(own)

    @T.macro
    def finish(s, own, which, O, partial, lse, split, row):  # noqa: E741  (the papers' letter)
        T.copy(own.row_sum, s.rows[2 + which, :])
        # Beside the sums: both groups have done with the queries, whose place the output takes. A named barrier would
        # do, but NVIDIA's racecheck takes it for a race here, at random, once there were one-sided arrivals.
        T.mbarrier_arrive(s.done)
        T.mbarrier_wait_parity(s.done[0], 0)
        T.copy(s.rows[3 - which, :], own.tile_sum)
        # A share without keys adds nothing: zero, with a weight of exp2(-inf).
        for i in T.Parallel(HEADS):
            own.row_sum[i] += own.tile_sum[i]
        for i in T.Parallel(HEADS):
            own.rescale[i] = T.if_then_else(own.row_sum[i] > 0, 1 / own.row_sum[i], 0)
        scale(own)
        if splits == 1:
            T.copy(own.output, s.queries[which, :, :])
            T.fence_proxy_async()
            T.copy(s.queries[which, :, :], O[s.b, row : row + HEADS, which * half : (which + 1) * half])
        else:
            T.copy(own.output, partial[split, s.b, row : row + HEADS, which * half : (which + 1) * half])
            if which == 0:
                for i in T.Parallel(HEADS):
                    own.row_sum[i] = T.log2(own.row_sum[i]) + own.row_max[i] * base2
                T.copy(own.row_sum, lse[split, s.b, row : row + HEADS])

    return Steps(
        load_queries=load_queries,
        load_tile=load_tile,
        take_registers=take_registers,
        start=start,
        issue_scores=issue_scores,
        wait_for_scores=wait_for_scores,
        wait_for_output=wait_for_output,
        release=release,
        weigh=weigh,
        publish=publish,
        add_up=add_up,
        adopt=adopt,
        rescale=rescale,
        finish=finish,
    )
