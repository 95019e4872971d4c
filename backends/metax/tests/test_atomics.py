"""Atomics of every type of value on every type of tensor: the value is converted to the tensor's type."""

from typing import Any

import pytest
import tilelang.language as T
import torch

import core

N = 64
VALUES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "uint64")


def combining(form: str, value: str, tensor: str) -> Any:
    """C combined with A by the atomic of a form; `returned` leaves what was in C."""
    several = {"pairs": 2, "fours": 4}.get(form, 1)

    @T.prim_func
    def main(A: T.Tensor((N,), value), C: T.Tensor((N,), tensor)):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((N,), value)
            T.copy(A, f)
            if form == "tile":
                T.atomic_add(C, f)
            else:
                for i in T.Parallel(N // several):
                    if form == "pairs":
                        T.atomic_addx2(C[i * 2], A[i * 2])
                    elif form == "fours":
                        T.atomic_addx4(C[i * 4], A[i * 4])
                    elif form == "returned":
                        C[i] = T.atomic_add(C[i], f[i], return_prev=True)
                    elif form == "max":
                        T.atomic_max(C[i], f[i])
                    elif form == "min":
                        T.atomic_min(C[i], f[i])
                    else:
                        T.atomic_add(C[i], f[i])

    return main


@pytest.mark.parametrize("form", ["add", "tile", "pairs", "fours", "max", "min", "returned"])
@pytest.mark.parametrize("tensor", ["float16", "bfloat16", "float32", "int32"])
def test_a_value_of_any_type_is_converted(form: str, tensor: str) -> None:
    for value in VALUES:
        kernel = core.compile(combining(form, value, tensor), target="metax:c500", simulate=True)
        a = (torch.arange(N) % 7 + 1).to(getattr(torch, value))
        c = torch.full((N,), 3).to(getattr(torch, tensor))
        kernel(a, c)
        small = a.double()
        expected = {"max": small.clamp(min=3), "min": small.clamp(max=3), "returned": torch.full_like(small, 3)}
        assert torch.equal(c.double(), expected.get(form, small + 3)), value


def test_many_elements_of_a_narrower_tensor_are_added_at_once() -> None:
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((64, 64), "float32")
            T.copy(A, f)
            for i, j in T.Parallel(64, 64):
                T.atomic_add(C[i, j], f[i, j])

    kernel = core.compile(main, target="metax:c500", simulate=True)
    assert "AtomicAddx2(" in kernel.get_kernel_source()
    assert any("get their value in the element's type" in line for line in kernel.provenance.rewrites)
    a, c = torch.randn(64, 64), torch.zeros(64, 64).half()
    kernel(a, c)
    assert torch.equal(c, a.half())


def test_on_cuda_too_a_value_of_another_type_is_converted_before_it_is_added() -> None:
    @T.prim_func
    def main(A: T.Tensor((64, 64), "bfloat16"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((64, 64), "bfloat16")
            T.copy(A, f)
            for i, j in T.Parallel(64, 64):
                T.atomic_add(C[i, j], f[i, j])

    # Two bfloat16 in a word, which AtomicAddx2 of half would have taken for two half.
    source = core.compile(main, target="cuda:h200", build=False).get_kernel_source()
    assert "AtomicAddx2(" in source
    assert "*(uint1*)(f + " not in source.partition("AtomicAddx2(")[2].partition(";")[0]
