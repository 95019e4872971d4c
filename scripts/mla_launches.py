"""The two launches of latent-attention decoding, each as a program of its own, for `explore_mla.py --apart`."""

from typing import Any

from core._tilelang import import_tilelang
from core.ops._attention_steps import in_base_two
from core.ops._mla_launch import Combining, Shapes, combine_shares, decode
from core.ops.mla_hopper import two_groups

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)


def first_launch(shapes: Shapes) -> Any:
    """The PrimFunc of `two_groups_in_turn` without the launch that combines."""
    attend = two_groups(shapes, base2=in_base_two(None, shapes.dim + shapes.rope), in_turn=True)
    return decode(shapes, attend, combined=False)


def second_launch(shapes: Shapes, how: Combining) -> Any:
    """The PrimFunc that combines."""
    batch, M, dim, splits = shapes.batch, shapes.M, shapes.dim, shapes.splits
    combine = combine_shares(shapes, how)

    @T.prim_func
    def main(
        O: T.Tensor((batch, M, dim), shapes.dtype),  # noqa: E741  (the papers' letter)
        partial: T.Tensor((splits, batch, M, dim), "float32"),
        lse: T.Tensor((splits, batch, M), "float32"),
    ):
        combine(O, partial, lse)

    return main
