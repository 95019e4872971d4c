"""Who holds what of a fragment."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tilelang.language as T

import core
from core.conformance.schedules import prepare
from core.conformance.schedules.layouts import partition
from core.conformance.schedules.tree import Tensor
from core.errors import UnsupportedOp
from core.ops._gemm_warp_specialized import warp_specialized
from core.ops._product import Product

SQUARE, ROWS, COLUMNS = 0, 1, 2


@pytest.mark.parametrize(
    ("m", "n", "warps", "policy", "expected"),
    [
        (128, 128, 8, ROWS, (8, 1)),
        (128, 128, 8, COLUMNS, (4, 2)),
        (64, 256, 8, ROWS, (4, 2)),  # 64 rows are one warpgroup's
        (128, 8, 8, COLUMNS, (8, 1)),  # 8 columns cannot be divided
        (256, 64, 16, SQUARE, (4, 4)),  # as TileLang has it: parts as lopsided as the whole
        (128, 256, 8, SQUARE, (4, 2)),
        (48, 64, 4, ROWS, None),
        (64, 64, 8, ROWS, (4, 2)),
        (192, 64, 12, ROWS, (12, 1)),
    ],
)
def test_warps_share_a_product(m, n, warps, policy, expected):
    assert partition(m, n, warps, policy) == expected


def test_the_generated_instructions_are_as_wide():
    tile = {"block_M": 128, "block_N": 256, "block_K": 64, "num_stages": 2, "threads": 256}
    product = Product.typed(256, 256, 128, "float16", None, None)
    kernel = warp_specialized(product, **tile, panel=0, policy=SQUARE, cluster=1, workers=0)
    source = core.compile(kernel, target="cuda:h200", out_idx=[-1]).get_kernel_source()
    (width,) = set(re.findall(r"wgmma_ss<.*?, 64, (\d+), 16,", source))
    counts = partition(128, 256, 8, SQUARE)
    assert counts is not None
    assert int(width) == 256 // counts[1]


def fragments(kernel: Any) -> dict[str, Tensor]:
    (launch,) = prepare(kernel).launches
    return {tensor.name: tensor for tensor in launch.tensors if tensor.is_fragment}


def chain(policy: int = ROWS, second: int = ROWS) -> Any:
    @T.prim_func
    def main(A: T.Tensor((128, 64), "float16"), C: T.Tensor((128, 64), "float16")):
        with T.Kernel(1, threads=384):
            a = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            sums = T.alloc_fragment((128, 64), "float32")
            weights = T.alloc_fragment((128, 64), "float16")
            row_max = T.alloc_fragment((128,), "float32")
            loose = T.alloc_fragment((64, 64), "float16")
            thread = T.get_thread_binding()
            if thread >= 128:
                T.gemm(a, b, sums, policy=T.GemmWarpPolicy(policy), clear_accum=True)
                T.reduce_max(sums, row_max, dim=1)
                for i, j in T.Parallel(128, 64):
                    weights[i, j] = T.cast(sums[i, j] - row_max[i], "float16")
                if second != policy:
                    T.gemm(a, b, sums, policy=T.GemmWarpPolicy(second))
                T.copy(A[0:64, :], loose)
                T.copy(weights, C)

    return main


def test_a_product_divides_all_that_goes_with_it():
    made = fragments(chain())
    for name in ("sums", "weights", "row_max"):
        layout = made[name].layout
        assert layout is not None
        assert layout.of_product
        assert layout.part(0) is None  # a warp that does not get there
        part = layout.part(5)  # the second warp of the first of the two warpgroups
        assert part is not None
        np.testing.assert_array_equal(part[0], np.arange(16, 32))
        assert all(len(rest) == 64 for rest in part[1:])


def test_rows_that_no_product_divides_are_shared_out():
    layout = fragments(chain())["loose"].layout
    assert layout is not None
    assert not layout.of_product
    parts = [layout.part(warp) for warp in range(4, 12)]
    np.testing.assert_array_equal(np.concatenate([part[0] for part in parts if part is not None]), np.arange(64))


def test_warps_that_hold_the_same_write_it_once():
    layout = fragments(chain(COLUMNS, COLUMNS))["row_max"].layout
    assert layout is not None
    # Two warpgroups side by side hold the same rows.
    assert layout.writers(tuple(range(4, 12))) == {4, 5, 6, 7}


def test_one_fragment_is_divided_in_one_way():
    with pytest.raises(UnsupportedOp, match="sums would have to be divided among the warps in two ways") as caught:
        prepare(chain(ROWS, COLUMNS))
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
