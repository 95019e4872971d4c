"""Sums that iterations of a `T.Parallel` make together, as the simulator computes them; scalars as tiles."""

import warnings
from typing import Any

import pytest
import tilelang.language as T
import torch

import core


def simulated(prim_func: Any) -> core.Kernel:
    return core.compile(prim_func, target="ascend:910b3", simulate=True)


@pytest.mark.parametrize("op", ["sum", "max"])
def test_a_legacy_reducer(op: str) -> None:
    @T.prim_func
    def main(A: T.Tensor((32, 64), "float32"), y: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=64):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                total = T.alloc_reducer(32, "float32", op=op, replication="all")
            T.fill(total, 0.5)
            for k in T.serial(2):
                tile = T.alloc_fragment((32, 32), "float32")
                T.copy(A[0, k * 32], tile)
                for i, j in T.Parallel(32, 32):
                    if op == "sum":
                        total[i] += tile[i, j]
                    else:
                        total[i] = T.max(total[i], tile[i, j])
            T.finalize_reducer(total)
            T.copy(total, y)

    a, y = torch.randn(32, 64), torch.empty(32)
    kernel = simulated(main)
    kernel(a, y)
    want = a.sum(1) + 0.5 if op == "sum" else a.amax(1).clamp_min(0.5)
    torch.testing.assert_close(y, want, rtol=1e-5, atol=1e-5)
    assert not any("one by one" in line for line in kernel.provenance.rewrites)


def totals(how: str) -> Any:
    """Sums of A in a way that no tile operation has; bins of 16 elements where there are several."""

    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), bin_of: T.Tensor((64,), "int32"), y: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((4,), "float32")
            T.clear(tile)
            for i in T.Parallel(64):
                if how == "some":
                    if i % 4 != 1:
                        tile[0] = tile[0] + A[i]
                elif how == "named":
                    before = tile[0]
                    tile[0] = before + A[i]
                elif how == "scattered":
                    tile[bin_of[i]] += A[i]
                elif how == "divided":
                    tile[i // 16] += A[i]
            T.copy(tile, y)

    return main


@pytest.mark.parametrize("how", ["some", "named", "scattered", "divided"])
def test_elements_that_iterations_share_get_every_iterations_part(how: str) -> None:
    a, bin_of = torch.randn(64), torch.arange(64, dtype=torch.int32) % 4
    y = torch.empty(4)
    kernel = simulated(totals(how))
    kernel(a, bin_of, y)
    quarters = a.view(16, 4)
    want = {
        "some": torch.stack([quarters[:, [0, 2, 3]].sum(), *torch.zeros(3)]),
        "named": torch.stack([a.sum(), *torch.zeros(3)]),
        "scattered": quarters.sum(0),
        "divided": a.view(4, 16).sum(1),
    }[how]
    torch.testing.assert_close(y, want, rtol=1e-5, atol=1e-5)


def test_only_the_iterations_that_share_an_element_run_one_by_one() -> None:
    @T.prim_func
    def main(A: T.Tensor((8, 32), "float32"), row_of: T.Tensor((8,), "int32"), y: T.Tensor((4, 32), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((4, 32), "float32")
            T.clear(tile)
            for i, j in T.Parallel(8, 32):
                tile[row_of[i], j] += A[i, j]
            T.copy(tile, y)

    a, y = torch.randn(8, 32), torch.empty(4, 32)
    row_of = torch.tensor([0, 1, 1, 3, 0, 0, 2, 3], dtype=torch.int32)
    kernel = simulated(main)
    kernel(a, row_of, y)
    torch.testing.assert_close(y, torch.zeros(4, 32).index_add_(0, row_of.long(), a), rtol=1e-5, atol=1e-5)
    assert "tensor<32xf32>" in kernel.get_kernel_source()


@pytest.mark.parametrize("start", [0.0, 2.0])
def test_a_scalar_is_cleared_and_filled_like_a_tile(start: float) -> None:
    @T.prim_func
    def main(A: T.Tensor((4, 64), "float32"), y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            total = T.alloc_var("float32")
            if start == 0.0:
                T.clear(total)
            else:
                T.fill(total, start)
            for k in T.serial(4):
                total += A[k, 0]
            for i in T.Parallel(64):
                y[i] = total

    a, y = torch.randn(4, 64), torch.empty(64)
    simulated(main)(a, y)
    torch.testing.assert_close(y, (start + a[:, 0].sum()).expand(64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2])
def test_iterations_that_run_one_by_one_have_their_variables_to_themselves(size: int) -> None:
    @T.prim_func
    def main(
        A: T.Tensor((16,), "float32"),
        bin_of: T.Tensor((16,), "int32"),
        y: T.Tensor((16,), "float32"),
        counts: T.Tensor((4,), "int32"),
    ):
        with T.Kernel(1, threads=64):
            own = T.alloc_local((size,), "float32")
            count = T.alloc_shared((4,), "int32")
            T.clear(count)
            own[0] = 2.0
            for i in T.Parallel(16):
                own[0] = own[0] + A[i]
                count[bin_of[i]] += 1
                y[i] = own[0]
            T.copy(count, counts)

    a, bin_of = torch.randn(16), torch.arange(16, dtype=torch.int32) % 3
    y, counts = torch.empty(16), torch.empty(4, dtype=torch.int32)
    simulated(main)(a, bin_of, y, counts)
    assert counts.tolist() == [6, 5, 5, 0]
    torch.testing.assert_close(y, a + 2, rtol=1e-6, atol=1e-6)
