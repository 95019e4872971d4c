"""What can be run, and what is said of the rest."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tilelang.language as T
import torch

from core.conformance import run_schedule
from core.conformance.schedules import Deadlock, OutOfBounds, prepare
from core.errors import LaunchError, UnsupportedOp
from core.program import Program


def plain(dtype: str = "float16", rows: Any = 200) -> Any:
    """A kernel that leaves everything to the compiler."""
    K, N = 72, 64

    @T.prim_func
    def main(A: T.Tensor((rows, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((rows, N), "float32")):
        with T.Kernel(T.ceildiv(rows, 64), threads=128) as bx:
            a = T.alloc_shared((64, 32), dtype)
            b = T.alloc_shared((32, N), dtype)
            c = T.alloc_shared((64, N), "float32")
            sums = T.alloc_fragment((64, N), "float32")
            total = T.alloc_fragment((64,), "float32")
            T.clear(sums)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=2):
                T.copy(A[bx * 64, k * 32], a)
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, sums)
            T.reduce_sum(sums, total, dim=1)
            for i, j in T.Parallel(64, N):
                if j % 2 == 0:
                    sums[i, j] = sums[i, j] + total[i]
            T.copy(sums, c)
            T.copy(c, C[bx * 64, 0])

    return main


def expected(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = a.float() @ b.float()
    even = (torch.arange(c.shape[1]) % 2 == 0).float()
    return c + even * c.sum(1, keepdim=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_the_compiler_schedules_runs_as_well(dtype):
    kind = getattr(torch, dtype)
    a, b = torch.randn(200, 72).to(kind), torch.randn(72, 64).to(kind)
    made = prepare(Program(plain(dtype)))
    for seed in range(2):
        c = torch.full((200, 64), float("nan"))
        assert run_schedule(made, [a, b, c], seed=seed).blocks == 4
        torch.testing.assert_close(c, expected(a, b), atol=1e-3, rtol=1e-4)


def test_symbolic_rows_come_from_the_arguments():
    rows = T.dynamic("rows")
    a, b, c = torch.randn(70, 72).half(), torch.randn(72, 64).half(), torch.full((70, 64), float("nan"))
    assert run_schedule(plain(rows=rows), [a, b, c]).blocks == 2
    torch.testing.assert_close(c, expected(a, b), atol=1e-3, rtol=1e-4)


def test_some_blocks_leave_the_others_alone():
    a, b, c = torch.randn(200, 72).half(), torch.randn(72, 64).half(), torch.full((200, 64), float("nan"))
    assert run_schedule(plain(), [a, b, c], blocks=[1]).blocks == 1
    assert torch.isfinite(c[64:128]).all()
    assert torch.isnan(c[:64]).all()
    assert torch.isnan(c[128:]).all()


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([np.zeros((200, 72), np.float16)], "takes 3 arguments, not 1"),
        ([np.zeros((200, 72), ml_dtypes.bfloat16), None, None], r"A is float16 of \[200, 72\], not bfloat16"),
        ([np.zeros((100, 72), np.float16), None, None], r"not float16 of \[100, 72\]"),
        ([torch.zeros(72, 200).half().T, None, None], "contiguous tensors on the CPU"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tensors, message):
    with pytest.raises(LaunchError, match=message):
        run_schedule(plain(), tensors)


def test_what_is_not_modelled_is_named_with_its_line():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            T.atomic_add(A[0], 1.0)

    with pytest.raises(UnsupportedOp, match=r"does not model the operation tl\.atomic_add_elem_op") as caught:
        prepare(main)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__


def test_on_chip_memory_has_an_end():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((64,), "float32")
            n = T.alloc_var("int32", init=8)
            for i in T.Parallel(64):
                s[i + n] = A[i]

    with pytest.raises(OutOfBounds, match=r"s\[.*:72\] is outside \[64\]"):
        run_schedule(main, [np.zeros(64, np.float32)])


def test_a_loop_without_end_ends():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            n = T.alloc_var("int32", init=1)
            while n > 0:
                T.sync_threads()
                n = n + 1

    with pytest.raises(Deadlock, match="no end after 1000 steps"):
        run_schedule(main, [np.zeros(64, np.float32)], max_steps=1000)


def test_lanes_that_part_arrive_each_for_itself():
    def kernel(arrivals: int) -> Any:
        @T.prim_func
        def main(A: T.Tensor((128,), "float32")):
            with T.Kernel(1, threads=128):
                ready = T.alloc_barrier([arrivals])
                thread = T.get_thread_binding()
                if thread % 8 == 0:
                    T.mbarrier_arrive(ready[0])
                T.mbarrier_wait_parity(ready[0], 0)
                for i in T.Parallel(128):
                    A[i] = 1.0

        return main

    a = np.zeros(128, np.float32)
    run_schedule(kernel(16), [a])
    assert (a == 1).all()
    with pytest.raises(Deadlock, match="1 of 17 arrivals missing"):
        run_schedule(kernel(17), [a])
