"""What every form of attention does with a tile of scores: hide what no query sees, and move the softmax on.

Both are macros over the caller's fragments, so that a schedule says when they happen and this module what they are.
"""

from collections.abc import Callable
from typing import Any

from core._tilelang import import_tilelang
from core.errors import KernelError

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

#: exp(x) = exp2(x · log2 e): every chip's exponential unit works in base 2.
LOG2_E = 1.4426950408889634
#: The smallest and the largest scale with which scores can be multiplied: times log2(e) they are normal float32
#: numbers. With `tl.enable_fast_math` smaller ones count as 0.
_LEAST_SCALE, _LARGEST_SCALE = 2.0**-126 / LOG2_E, 2.0**127 / LOG2_E


def in_base_two(scale: float | None, dim: int) -> float:
    """The scores' scale (None is 1 / sqrt(dim)) times log2(e).

    Raises:
        KernelError: it is not above 0, or float32 does not hold it. Scores are masked, and their maximum taken, before
            they are scaled: a factor of 0 times a masked score, minus infinity, is NaN, and a negative one would turn
            the maximum round.
    """
    if scale is None:
        return float(dim**-0.5 * LOG2_E)
    if not isinstance(scale, (int, float)) or not 0 < scale < float("inf"):
        raise KernelError(
            f"the scale of the scores is {scale!r}, and it is a number above 0",
            hint="negate the queries instead; without a scale it is 1 / sqrt(dim)",
        )
    if not _LEAST_SCALE <= scale <= _LARGEST_SCALE:
        raise KernelError(
            f"the scale of the scores is {scale!r}, and float32 holds scales from {_LEAST_SCALE:.3g} to"
            f" {_LARGEST_SCALE:.3g}",
            hint="multiply the queries by a part of it; without a scale it is 1 / sqrt(dim)",
        )
    return scale * LOG2_E


def sharing(operator: str, heads: Any, kv_heads: Any) -> int:
    """How many query heads share a key head: 1 where both are one symbolic size, the only one they may be.

    Raises:
        KernelError: they cannot be shared evenly.
    """
    if not isinstance(heads, int):
        return 1
    if heads % kv_heads:
        raise KernelError(
            f"{operator}: {heads} heads cannot share {kv_heads} key heads evenly", hint="kv_heads divides heads"
        )
    return int(heads // kv_heads)


def alike(M: Any, N: Any) -> bool:
    """Whether both are one number or one symbolic size."""
    return bool(M == N if isinstance(M, int) and isinstance(N, int) else not isinstance(M, int) and M.same_as(N))


def mask(block_M: int, block_N: int, N: Any, past: Any, *, causal: bool) -> Callable[..., Any]:
    """A macro that sets the scores of keys a query does not see to minus infinity.

    It is called with the scores (block_M x block_N, float32), the tile's first query and the number of its tile of
    keys. Query i of `M` sees the keys up to `i + past` where `causal`, else all `N`; both may be symbolic. A tile that
    is seen whole is left alone: only those that the diagonal or the end of the keys cuts cost anything.
    """
    lowest = -T.infinity("float32")

    @T.macro
    def macro(scores, first, t):
        # Every query of a block sees the keys before the diagonal of its first one: no mask there.
        if causal:
            if (t + 1) * block_N > first + past + 1:
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.if_then_else(t * block_N + j <= first + i + past, scores[i, j], lowest)
        elif N % block_N != 0:  # noqa: SIM102  (the condition below is the kernel's, this one Python's)
            if (t + 1) * block_N > N:
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.if_then_else(t * block_N + j < N, scores[i, j], lowest)

    hide: Callable[..., Any] = macro
    return hide


def online_softmax(block_M: int, block_N: int, base2: float, *, floor: float | None = None) -> Callable[..., Any]:
    """A macro that takes a tile of scores into a softmax over tiles seen one after the other.

    It is called with the scores (block_M x block_N), which become the tile's weights before their division by the sum,
    and with a value per row: `row_max`, the largest score so far, `old_max` and `tile_sum`, where it works, `rescale`,
    the factor by which all that was summed before must be multiplied, and `row_sum`, to which it does so itself. All
    are float32. The first tile finds `row_max` at minus infinity and `row_sum` at 0.

    Args:
        base2: the scores' scale times log2(e).
        floor: the least maximum to subtract; for rows that may see no key at all, whose maximum would be infinite.

    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
    """

    @T.macro
    def macro(scores, row_max, old_max, rescale, tile_sum, row_sum):
        T.copy(row_max, old_max)
        T.reduce_max(scores, row_max, dim=1, clear=False)
        if floor is not None:
            for i in T.Parallel(block_M):
                row_max[i] = T.max(row_max[i], floor)
        for i in T.Parallel(block_M):
            rescale[i] = T.exp2(old_max[i] * base2 - row_max[i] * base2)
        for i, j in T.Parallel(block_M, block_N):
            scores[i, j] = T.exp2(scores[i, j] * base2 - row_max[i] * base2)
        T.reduce_sum(scores, tile_sum, dim=1)
        for i in T.Parallel(block_M):
            row_sum[i] = row_sum[i] * rescale[i] + tile_sum[i]

    advance: Callable[..., Any] = macro
    return advance
