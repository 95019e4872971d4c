"""Tensors with a layout of their own through the stock pipeline: bulk copies know nothing of it."""

import pytest
import tilelang.language as T
import torch

import core


def transposed(how: str):
    """A's rows, kept as B's columns."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(2, threads=64) as bx:
            T.annotate_layout({B: T.Layout((64, 64), lambda i, j: [j, i])})
            tile = T.alloc_shared((32, 64), "float32")
            T.copy(A[bx * 32, 0], tile)
            if how == "in bulk":
                T.atomic_add(B[bx * 32, 0], tile, use_tma=True)
            else:
                T.copy(tile, B[bx * 32, 0])

    return main


def test_a_bulk_copy_of_a_whole_tile_would_ignore_the_layout():
    kernel = core.compile(transposed("copy"), target="cuda:h200", build=False)
    assert "tma_store(" not in kernel.get_kernel_source()
    assert any("not copied in bulk" in line for line in kernel.provenance.rewrites)


def test_a_bulk_atomic_that_the_author_asks_for_is_refused():
    with pytest.raises(core.UnsupportedOp, match="non-trivial layout") as caught:
        core.compile(transposed("in bulk"), target="cuda:h200", build=False)
    assert "leave use_tma" in caught.value.hint


@pytest.mark.parametrize("target", ["cpu", "ascend:910b3", "metax:c500"])
def test_every_target_puts_elements_where_the_layout_says(target):
    a, b = torch.randn(64, 64), torch.zeros(64, 64)
    core.compile(transposed("copy"), target=target, simulate=target != "cpu")(a, b)
    assert torch.equal(b, a.T)


@pytest.mark.parametrize("target", ["cpu", "ascend:910b3"])
def test_the_layout_of_a_gradient_that_blocks_add_to(target):
    """Flash attention's dQ: 8 by 8 elements in the order in which a matrix instruction's lanes hold them."""

    @T.prim_func
    def main(A: T.Tensor((2, 16, 16), "float32"), B: T.Tensor((2, 16, 16), "float32")):
        with T.Kernel(2, 2, threads=64) as (head, _):
            T.annotate_layout(
                {B: T.Layout((2, 16, 16), lambda h, row, d: [h, row // 8, d // 8, d % 2, 4 * (row % 8) + d % 8 // 2])}
            )
            tile = T.alloc_fragment((16, 16), "float32")
            T.copy(A[head, 0, 0], tile)
            for i, j in T.Parallel(16, 16):
                T.atomic_add(B[head, i, j], tile[i, j])

    a, b = torch.randn(2, 16, 16), torch.zeros(2, 16, 16)
    core.compile(main, target=target, simulate=target != "cpu")(a, b)
    kept = b.view(2, 2, 2, 2, 8, 4)  # head, row // 8, d // 8, d % 2, row % 8, d % 8 // 2
    assert torch.equal(kept.permute(0, 1, 4, 2, 5, 3).reshape(2, 16, 16), 2 * a)
