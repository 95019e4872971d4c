"""Speed that must not be lost: a matrix product, and loops that become vector code."""

import time
from collections.abc import Callable
from typing import Any

import tilelang.language as T
import torch

Compile = Callable[..., Any]


def fastest(call: Callable[[], Any], repeats: int = 5) -> float:
    """Least CPU time of one call in seconds, over all threads: other processes on the machine do not count."""
    call()
    times = []
    for _ in range(repeats):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return min(times)


def test_a_float16_product_of_1024_takes_under_a_tenth_of_a_second(cpu: Compile) -> None:
    @T.prim_func
    def matmul(
        A: T.Tensor((1024, 1024), "float16"), B: T.Tensor((1024, 1024), "float16"), C: T.Tensor((1024, 1024), "float16")
    ):
        with T.Kernel(8, 8) as (bx, by):
            a = T.alloc_shared((128, 32), "float16")
            b = T.alloc_shared((32, 128), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(32, num_stages=3):
                T.copy(A[by * 128, k * 32], a)
                T.copy(B[k * 32, bx * 128], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 128, bx * 128])

    a, b = torch.randn(1024, 1024).half(), torch.randn(1024, 1024).half()
    kernel = cpu(matmul, [2])
    assert float((kernel(a, b).float() - a.float() @ b.float()).abs().max()) < 0.2
    assert fastest(lambda: kernel(a, b)) < 0.2  # two cores' time


def test_elementwise_float16_runs_many_elements_at_a_time(cpu: Compile) -> None:
    n = 1 << 22

    @T.prim_func
    def kernel(X: T.Tensor((n,), "float16"), Y: T.Tensor((n,), "float16")):
        with T.Kernel(n // 4096) as bx:
            for i in T.Parallel(4096):
                Y[bx * 4096 + i] = X[bx * 4096 + i] * X[bx * 4096 + i] + X[bx * 4096 + i]

    x, y = torch.randn(n).half(), torch.empty(n).half()
    compiled = cpu(kernel)
    # Scalar code takes over 5 ns an element for three conversions and two roundings; vector code well under 1.
    assert fastest(lambda: compiled(x, y)) / n < 2.5e-9
    assert torch.equal(y, x * x + x)


def test_a_launch_costs_microseconds(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((64,), "float32")):
        with T.Kernel(4) as bx:
            for i in T.Parallel(16):
                X[bx * 16 + i] = X[bx * 16 + i] + 1.0

    x = torch.zeros(64)
    compiled = cpu(kernel)

    def many() -> None:
        for _ in range(1000):
            compiled(x)

    assert fastest(many, 3) / 1000 < 50e-6
