"""What all schedules of latent-attention decoding take and leave, and the launch that combines shares of the keys."""

from collections.abc import Callable
from typing import Any, NamedTuple

from core._tilelang import import_tilelang

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)


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


def decode(shapes: Shapes, attend: Callable[..., Any]) -> Any:
    """The PrimFunc: the launch that a schedule makes of it, and the one that combines.

    Args:
        attend: a macro with a launch, called with the eight tensors.
    """
    batch, M, N, dim, rope, splits, dtype = shapes
    combine = _combine(shapes)

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
        if splits > 1:
            combine(O, partial, lse)

    return main


def _combine(shapes: Shapes) -> Callable[..., Any]:
    """A macro with a launch: O from the outputs of the shares and their log-sums, base 2."""
    batch, M, dim, splits = shapes.batch, shapes.M, shapes.dim, shapes.splits

    @T.macro
    def macro(O, partial, lse):  # noqa: E741  (the papers' letter)
        with T.Kernel(M, batch, threads=128) as (h, b):
            total = T.alloc_fragment((dim,), "float32")
            largest = T.alloc_var("float32")
            weight = T.alloc_var("float32")
            weight_sum = T.alloc_var("float32")
            largest = -T.infinity("float32")
            for s in T.serial(splits):
                largest = T.max(largest, lse[s, b, h])
            weight_sum = 0.0
            T.clear(total)
            for s in T.serial(splits):
                weight = T.exp2(lse[s, b, h] - largest)
                weight_sum = weight_sum + weight
                for j in T.Parallel(dim):
                    total[j] += weight * partial[s, b, h, j]
            for j in T.Parallel(dim):
                O[b, h, j] = total[j] / weight_sum

    launch: Callable[..., Any] = macro
    return launch
