"""What C++ code for one thread per block cannot express is refused with the user's line."""

from collections.abc import Callable
from typing import Any

import pytest
import tilelang.language as T

from core import UnsupportedOp

Compile = Callable[..., Any]


def line_of(caught: pytest.ExceptionInfo[UnsupportedOp]) -> str:
    """The source line an error points to."""
    location = caught.value.location
    assert location is not None
    with open(location.file) as source:
        return source.read().splitlines()[location.line - 1]


def test_per_thread_code(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding(0)
            X[tx] = 1.0

    with pytest.raises(UnsupportedOp, match="thread index") as caught:
        cpu(kernel)
    assert "T.Kernel" in line_of(caught) or "X[tx]" in line_of(caught)
    assert "T.Parallel" in caught.value.hint


def test_an_external_function(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((128,), "float32")):
        with T.Kernel(1):
            X[0] = 1.0
            T.call_extern("handle", "somebodys_function", X.data)

    with pytest.raises(UnsupportedOp, match="somebodys_function") as caught:
        cpu(kernel)
    assert "call_extern" in line_of(caught)
    assert "cuda" in caught.value.hint


@pytest.mark.parametrize("dtype", ["int4", "float4_e2m1fn", "float8_e8m0fnu"])
def test_a_dtype_without_a_cpp_type(cpu: Compile, dtype: str) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((128,), "int8")):
        with T.Kernel(1):
            tile = T.alloc_shared((128,), dtype)
            tile[0] = tile[1]
            X[0] = 1

    with pytest.raises(UnsupportedOp, match=dtype) as caught:
        cpu(kernel)
    assert "alloc_shared" in line_of(caught)


def test_a_barrier(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((128,), "int8")):
        with T.Kernel(1):
            bar = T.alloc_barrier(1)
            T.barrier_arrive(bar)
            X[0] = 1

    with pytest.raises(UnsupportedOp) as caught:
        cpu(kernel)
    assert "barrier" in line_of(caught)
