"""The two launches of latent-attention decoding, each as a program of its own, for `explore_mla.py --apart`."""

from typing import Any

from core._tilelang import import_tilelang
from core.ops._attention_steps import in_base_two
from core.ops._mla_launch import Shapes, decode
from core.ops.mla_hopper import two_groups

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)


def first_launch(shapes: Shapes) -> Any:
    """The PrimFunc of `two_groups_in_turn` without the launch that combines."""
    attend = two_groups(shapes, base2=in_base_two(None, shapes.dim + shapes.rope), in_turn=True)
    return decode(shapes, attend, combined=False)


def second_launch(shapes: Shapes, together: int, parts: int, threads: int) -> Any:
    """The PrimFunc that combines, `parts` blocks for the columns of a head, each reading `together` shares at once."""
    batch, M, dim, splits = shapes.batch, shapes.M, shapes.dim, shapes.splits
    width, columns, rounds = 1 << (splits - 1).bit_length(), dim // parts, -(-splits // together)
    lowest = -T.infinity("float32")

    @T.prim_func
    def main(
        O: T.Tensor((batch, M, dim), shapes.dtype),  # noqa: E741  (the papers' letter)
        partial: T.Tensor((splits, batch, M, dim), "float32"),
        lse: T.Tensor((splits, batch, M), "float32"),
    ):
        with T.Kernel(M, batch, parts, threads=threads) as (h, b, c):
            outputs = T.alloc_fragment((together, columns), "float32")
            weights = T.alloc_shared((width,), "float32")
            logarithms = T.alloc_fragment((width,), "float32")
            largest = T.alloc_fragment((1,), "float32")
            weight_sum = T.alloc_fragment((1,), "float32")
            part = T.alloc_fragment((columns,), "float32")
            total = T.alloc_fragment((columns,), "float32")
            first = c * columns
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
                T.reduce_sum(outputs, part, dim=0)
                for j in T.Parallel(columns):
                    total[j] += part[j]
            for j in T.Parallel(columns):
                O[b, h, first + j] = total[j] / weight_sum[0]

    return main
