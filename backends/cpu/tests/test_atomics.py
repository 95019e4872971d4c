"""Atomics while blocks run in parallel."""

from collections.abc import Callable
from typing import Any

import pytest
import tilelang.language as T
import torch

Compile = Callable[..., Any]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int32", "int64"])
def test_no_addition_is_lost(cpu: Compile, dtype: str) -> None:
    @T.prim_func
    def kernel(Y: T.Tensor((4,), dtype)):
        with T.Kernel(64) as bx:
            for i in T.serial(400):
                T.atomic_add(Y[(bx + i) % 4], T.cast(1, dtype))

    y = torch.zeros(4, dtype=getattr(torch, dtype))
    cpu(kernel)(y)
    # Each element takes 6400 ones; narrow floats stop growing where one is half a unit.
    limit = {"float16": 2048.0, "bfloat16": 256.0}.get(dtype, 6400.0)
    assert y.tolist() == [limit] * 4


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64"])
def test_atomic_max_and_min(cpu: Compile, dtype: str) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((5000,), dtype), Y: T.Tensor((2,), dtype)):
        with T.Kernel(T.ceildiv(5000, 100)) as bx:
            for i in T.Parallel(100):
                T.atomic_max(Y[0], X[bx * 100 + i])
                T.atomic_min(Y[1], X[bx * 100 + i])

    x = (torch.randn(5000, generator=torch.Generator().manual_seed(0)) * 1000).to(getattr(torch, dtype))
    y = torch.zeros(2, dtype=x.dtype)
    cpu(kernel)(x, y)
    assert y.tolist() == [x.max().item(), x.min().item()]


def test_a_tile_is_added_where_the_tensor_exists(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((4, 20, 30), "float32"), Y: T.Tensor((20, 30), "float32")):
        with T.Kernel(4, 2, 2) as (b, i, j):
            x = T.alloc_fragment((16, 16), "float32")
            T.copy(X[b, i * 16, j * 16], x)
            T.atomic_add(Y[i * 16, j * 16], x)

    x = torch.randint(-100, 100, (4, 20, 30), generator=torch.Generator().manual_seed(0)).float()
    y = torch.zeros(20, 30)
    cpu(kernel)(x, y)
    assert torch.equal(y, x.sum(0))


def test_the_old_value_makes_tickets(cpu: Compile) -> None:
    @T.prim_func
    def kernel(Counter: T.Tensor((1,), "int32"), Y: T.Tensor((1000,), "int32")):
        with T.Kernel(1000) as bx:
            Y[T.atomic_add(Counter[0], 1, return_prev=True)] = bx

    counter = torch.zeros(1, dtype=torch.int32)
    y = torch.full((1000,), -1, dtype=torch.int32)
    cpu(kernel)(counter, y)
    assert counter.item() == 1000
    assert y.sort().values.tolist() == list(range(1000))


def test_histogram_in_shared_memory(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((4096,), "int32"), Y: T.Tensor((16,), "int32")):
        with T.Kernel(8) as bx:
            bins = T.alloc_shared((16,), "int32")
            T.clear(bins)
            for i in T.Parallel(512):
                T.atomic_add(bins[X[bx * 512 + i]], 1)
            T.atomic_add(Y[0], bins)

    x = torch.randint(0, 16, (4096,), generator=torch.Generator().manual_seed(0)).int()
    y = torch.zeros(16, dtype=torch.int32)
    cpu(kernel)(x, y)
    assert torch.equal(y, torch.bincount(x, minlength=16).int())


def test_elements_outside_are_skipped(cpu: Compile) -> None:
    @T.prim_func
    def kernel(Index: T.Tensor((6,), "int32"), Y: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            for i in T.Parallel(6):
                T.atomic_add(Y[Index[i]], 1)

    index = torch.tensor([0, 3, 4, -1, 3, 100], dtype=torch.int32)
    y = torch.zeros(4, dtype=torch.int32)
    cpu(kernel)(index, y)
    assert y.tolist() == [1, 0, 0, 2]
