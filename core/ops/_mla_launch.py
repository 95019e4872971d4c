"""What all schedules of latent-attention decoding take and leave, and the launch that combines shares of the keys."""

from collections.abc import Callable
from typing import Any, NamedTuple

from core._tilelang import import_tilelang

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

#: Heads of all sequences that leave a large chip's units without a block each.
_FEW_HEADS = 128


class Shapes(NamedTuple):
    """Of :func:`core.ops.mla.mla_decode`'s tensors.

    Attributes:
        batch, M, N: sequences, heads, rows of a sequence's cache.
        dim, rope: elements of the cache's compressed and of its rotated part.
        splits: blocks that share the keys of a sequence.
        dtype: of the tensors; sums are float32.
    """

    batch: int
    M: int
    N: int
    dim: int
    rope: int
    splits: int
    dtype: str

    @property
    def kept(self) -> tuple[int, int, int]:
        """Results that wait to be combined: (splits, batch, M), or one element each way where nothing waits."""
        return (self.splits, self.batch, self.M) if self.splits > 1 else (1, 1, 1)


class Combining(NamedTuple):
    """How the second launch is done.

    Attributes:
        together: shares whose outputs a block reads at once.
        parts: blocks that divide the columns of a head.
        threads: of a block.
    """

    together: int
    parts: int
    threads: int = 128


def combining(shapes: Shapes) -> Combining:
    """What was fastest on an H200 (`scripts/explore_mla.py --apart`), where the time goes into waiting for the shares.

    Many shares of few heads are read by more blocks, each with more of them on its way.
    """
    width = 1 << (shapes.splits - 1).bit_length()
    few = isinstance(shapes.batch, int) and shapes.batch * shapes.M <= _FEW_HEADS
    if few and width >= 32 and shapes.dim % 512 == 0:
        return Combining(32, 4)
    return Combining(min(width, 8), 1)


def decode(shapes: Shapes, attend: Callable[..., Any], *, combined: bool = True) -> Any:
    """The PrimFunc: the launch that a schedule makes of it, and the one that combines.

    Args:
        attend: a macro with a launch, called with the eight tensors.
        combined: False leaves the second launch out, to time or to simulate the first by itself.
    """
    batch, M, N, dim, rope, splits, dtype = shapes
    combine = combine_shares(shapes, combining(shapes))
    combines = combined and splits > 1

    @T.prim_func
    def main(
        Q: T.Tensor((batch, M, dim), dtype),
        Q_rope: T.Tensor((batch, M, rope), dtype),
        KV: T.Tensor((batch, N, dim), dtype),
        K_rope: T.Tensor((batch, N, rope), dtype),
        lengths: T.Tensor((batch,), "int32"),
        O: T.Tensor((batch, M, dim), dtype),  # noqa: E741  (the papers' letter)
        partial: T.Tensor((*shapes.kept, dim), "float32"),
        lse: T.Tensor(shapes.kept, "float32"),
    ):
        attend(Q, Q_rope, KV, K_rope, lengths, O, partial, lse)
        if combines:
            combine(O, partial, lse)

    return main


def combine_shares(shapes: Shapes, how: Combining) -> Callable[..., Any]:
    """A macro with a launch: O from the outputs of the shares and their log-sums, base 2."""
    batch, M, dim, splits = shapes.batch, shapes.M, shapes.dim, shapes.splits
    # Whole powers of two, which warps share evenly; what is beyond the shares is nought.
    width = 1 << (splits - 1).bit_length()
    together, parts, threads = how
    columns, rounds = dim // parts, -(-splits // together)
    lowest = -T.infinity("float32")

    @T.macro
    def macro(O, partial, lse):  # noqa: E741  (the papers' letter)
        with T.Kernel(M, batch, parts, threads=threads) as (h, b, part):
            outputs = T.alloc_fragment((together, columns), "float32")
            weights = T.alloc_shared((width,), "float32")
            logarithms = T.alloc_fragment((width,), "float32")
            largest = T.alloc_fragment((1,), "float32")
            weight_sum = T.alloc_fragment((1,), "float32")
            some = T.alloc_fragment((columns,), "float32")
            total = T.alloc_fragment((columns,), "float32")
            first = part * columns
            # Before the weights are known: nothing waits for these before they are.
            T.copy(partial[0:together, b, h, first : first + columns], outputs)
            for s in T.Parallel(width):
                logarithms[s] = T.if_then_else(s < splits, lse[T.min(s, splits - 1), b, h], lowest)
            T.reduce_max(logarithms, largest, dim=0)
            for s in T.Parallel(width):
                logarithms[s] = T.exp2(logarithms[s] - largest[0])
            T.reduce_sum(logarithms, weight_sum, dim=0)
            T.copy(logarithms, weights)
            T.clear(total)
            for r in T.serial(rounds):
                if r > 0:
                    T.copy(partial[r * together : (r + 1) * together, b, h, first : first + columns], outputs)
                for s, j in T.Parallel(together, columns):
                    outputs[s, j] *= weights[r * together + s]
                T.reduce_sum(outputs, some, dim=0)
                for j in T.Parallel(columns):
                    total[j] += some[j]
            for j in T.Parallel(columns):
                O[b, h, first + j] = total[j] / weight_sum[0]

    launch: Callable[..., Any] = macro
    return launch
