"""The maths, atomics and conversions that kernels reach for, one by one: lowered, run, compared with torch."""

from collections.abc import Callable
from typing import Any

import pytest
import tilelang.language as T
import torch

import core

N = 128

UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[torch.Tensor], torch.Tensor]]] = {
    "exp": (T.exp, torch.exp),
    "exp2": (T.exp2, torch.exp2),
    "log": (lambda x: T.log(T.abs(x)), lambda x: torch.log(x.abs())),
    "log2": (lambda x: T.log2(T.abs(x)), lambda x: torch.log2(x.abs())),
    "sin": (T.sin, torch.sin),
    "cos": (T.cos, torch.cos),
    "tanh": (T.tanh, torch.tanh),
    "sigmoid": (T.sigmoid, torch.sigmoid),
    "sqrt": (lambda x: T.sqrt(T.abs(x)), lambda x: torch.sqrt(x.abs())),
    "rsqrt": (lambda x: T.rsqrt(T.abs(x)), lambda x: torch.rsqrt(x.abs())),
    "floor": (T.floor, torch.floor),
    "ceil": (T.ceil, torch.ceil),
    "trunc": (T.trunc, torch.trunc),
    "round": (T.round, torch.round),
    "abs": (T.abs, torch.abs),
}


def simulated(prim_func: Any, *out: int) -> Any:
    return core.compile(prim_func, target="metax:c500", out_idx=list(out) or None, simulate=True)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_maths(dtype: str) -> None:
    @T.prim_func
    def main(X: T.Tensor((N,), dtype), Y: T.Tensor((len(UNARY), N), dtype)):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(N):
                for row, (function, _) in enumerate(UNARY.values()):
                    Y[row, i] = function(X[i])

    x = torch.cat([torch.randn(N - 4), torch.tensor([0.5, 1.5, 2.5, -0.5])]).to(getattr(torch, dtype))
    ulp = {"float32": 2.0**-20, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    for (name, (_, reference)), y in zip(UNARY.items(), simulated(main, 1)(x), strict=True):
        want = reference(x.float()).to(x.dtype)
        torch.testing.assert_close(y, want, atol=ulp / 4, rtol=ulp, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32"])
def test_atomics(dtype: str) -> None:
    @T.prim_func
    def main(X: T.Tensor((N,), dtype), Y: T.Tensor((3, 4), dtype)):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(N):
                T.atomic_add(Y[0, i % 4], X[i])
                T.atomic_max(Y[1, i % 4], X[i])
                T.atomic_min(Y[2, i % 4], X[i])

    x = torch.randint(-8, 8, (N,)).to(getattr(torch, dtype))
    y = torch.zeros(3, 4, dtype=x.dtype)
    columns = x.view(-1, 4).float()
    want = [columns.sum(0), columns.max(0).values.clamp(min=0), columns.min(0).values.clamp(max=0)]
    simulated(main)(x, y)
    torch.testing.assert_close(y.float(), torch.stack(want))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float16", "bfloat16"])
def test_conversions_round_to_even_and_saturate_8_bits(dtype: str) -> None:
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), dtype), Z: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(N):
                Y[i] = X[i]
            for i in T.Parallel(N):
                Z[i] = Y[i]

    narrow = getattr(torch, dtype)
    special = torch.tensor([0.0, 1e9, -1e9, 1e-9, 2.0**-9, 3 * 2.0**-10, 448.0, 464.0, float("nan")])
    x = torch.cat([special, torch.randn(N - len(special)) * 10])
    finite = torch.finfo(narrow).max
    want = (x.clamp(-finite, finite) if "8" in dtype[:6] else x).to(narrow).float()
    _, z = simulated(main, 1, 2)(x)
    torch.testing.assert_close(z, want, equal_nan=True, atol=0, rtol=0)


def test_integers_bits_and_conditions() -> None:
    @T.prim_func
    def main(X: T.Tensor((N,), "int32"), Y: T.Tensor((N,), "int32"), Z: T.Tensor((N,), "uint8")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(N):
                Y[i] = T.if_then_else(X[i] > 0, T.popcount(X[i]) + T.clz(X[i]), (X[i] >> 1) ^ 5) + X[i] % 7
                Z[i] = T.Cast("uint8", X[i]) + T.uint8(200)

    x = torch.randint(-1000, 1000, (N,), dtype=torch.int32)
    y, z = simulated(main, 1, 2)(x)
    ones = torch.tensor([bin(int(v)).count("1") + 32 - int(v).bit_length() if v > 0 else int(v) >> 1 ^ 5 for v in x])
    torch.testing.assert_close(y, (ones + x % 7).int())
    torch.testing.assert_close(z, (x.to(torch.uint8) + 200).to(torch.uint8))


def test_printing_names_the_block_and_thread(capfd: pytest.CaptureFixture[str]) -> None:
    @T.prim_func
    def main(X: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                if i == 3:
                    T.print(X[i], msg="x")

    simulated(main)(torch.arange(64.0))
    out = capfd.readouterr().out
    assert "thread=(3, 0, 0)" in out
    assert "value=3" in out


def test_an_atomic_that_orders_memory_has_its_fences() -> None:
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(N):
                T.atomic_add(Y[0], X[i], memory_order="release")

    kernel = simulated(main)
    (call,) = (line for line in kernel.get_kernel_source().splitlines() if "AtomicAdd(" in line)
    assert call.rstrip().endswith(", 3);")
    y = torch.zeros(1)
    kernel(torch.ones(N), y)
    assert y.item() == N
