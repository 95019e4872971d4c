"""Mathematical functions against torch in float64, within the accuracy docs/program.md promises."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import tilelang.language as T
import torch

Compile = Callable[..., Any]

#: Function, its reference, and the interval arguments are drawn from.
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[torch.Tensor], torch.Tensor], float, float]] = {
    "exp": (T.exp, torch.exp, -20, 20),
    "exp2": (T.exp2, torch.exp2, -30, 30),
    "exp10": (T.exp10, lambda x: 10.0**x, -8, 8),
    "log": (T.log, torch.log, 1e-3, 1e4),
    "log2": (T.log2, torch.log2, 1e-3, 1e4),
    "log10": (T.log10, torch.log10, 1e-3, 1e4),
    "log1p": (T.log1p, torch.log1p, -0.9, 100),
    "sqrt": (T.sqrt, torch.sqrt, 0, 1e4),
    "rsqrt": (T.rsqrt, torch.rsqrt, 1e-3, 1e4),
    "tanh": (T.tanh, torch.tanh, -5, 5),
    "sigmoid": (T.sigmoid, torch.sigmoid, -10, 10),
    "erf": (T.erf, torch.erf, -3, 3),
    "sin": (T.sin, torch.sin, -3, 3),
    "cos": (T.cos, torch.cos, -3, 3),
    "tan": (T.tan, torch.tan, -1.4, 1.4),
    "sinh": (T.sinh, torch.sinh, -5, 5),
    "cosh": (T.cosh, torch.cosh, -5, 5),
    "asin": (T.asin, torch.asin, -0.99, 0.99),
    "acos": (T.acos, torch.acos, -0.99, 0.99),
    "atan": (T.atan, torch.atan, -10, 10),
    "asinh": (T.asinh, torch.asinh, -10, 10),
    "acosh": (T.acosh, torch.acosh, 1.1, 10),
    "atanh": (T.atanh, torch.atanh, -0.9, 0.9),
    "floor": (T.floor, torch.floor, -10, 10),
    "ceil": (T.ceil, torch.ceil, -10, 10),
    "trunc": (T.trunc, torch.trunc, -10, 10),
    "abs": (T.abs, torch.abs, -10, 10),
}
EXACT = ("sqrt", "floor", "ceil", "trunc", "abs")
#: Units in the last place of the type: 4 promised for float32 (2 for exp and log), half a unit more for the rounding.
ULPS = {"float32": 4.0, "float64": 4.0, "float16": 0.51, "bfloat16": 0.51}


def unary(dtype: str, elements: int, function: Callable[[Any], Any], result: str | None = None) -> Any:
    out = result or dtype

    @T.prim_func
    def kernel(X: T.Tensor((elements,), dtype), Y: T.Tensor((elements,), out)):
        with T.Kernel(T.ceildiv(elements, 512)) as bx:
            for i in T.Parallel(512):
                Y[bx * 512 + i] = function(X[bx * 512 + i])

    return kernel


def ulp_error(got: torch.Tensor, exact: torch.Tensor) -> float:
    """Largest distance in units in the last place of `got`'s type at the exact value, where that is a normal number."""
    info = torch.finfo(got.dtype)
    normal = (exact.abs() < info.max) & ((exact.abs() >= info.tiny) | (exact == 0))
    assert int(normal.sum()) > normal.numel() // 4
    got, exact = got[normal], exact[normal]
    exponent = torch.floor(torch.log2(exact.abs().clamp_min(info.tiny)))
    ulp = torch.exp2(exponent) * info.eps
    return float(((got.double() - exact).abs() / ulp).max())


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "float32") for name in FUNCTIONS),
        *((name, "float16") for name in ("exp", "exp2", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "floor")),
        *((name, "bfloat16") for name in ("exp", "log", "sqrt", "sigmoid")),
    ],
)
def test_function_is_accurate(cpu: Compile, name: str, dtype: str) -> None:
    function, reference, low, high = FUNCTIONS[name]
    gen = torch.Generator().manual_seed(3)
    x = (torch.rand(5000, generator=gen, dtype=torch.float64) * (high - low) + low).to(getattr(torch, dtype))
    y = cpu(unary(dtype, 5000, function), [1])(x)
    limit = 0.5000001 if name in EXACT else ULPS[dtype]
    assert ulp_error(y, reference(x.double())) <= limit


def test_the_measure_of_error_sees_one_wrong_bit() -> None:
    x = torch.tensor([1.5, 3.0])
    assert ulp_error(x.nextafter(torch.tensor(9.0)), x.double()) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sin"])
def test_float64_functions_are_float64(cpu: Compile, name: str) -> None:
    function, reference, low, high = FUNCTIONS[name]
    x = torch.linspace(low, high, 1000, dtype=torch.float64)
    assert ulp_error(cpu(unary("float64", 1000, function), [1])(x), reference(x)) < 3.0


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
@pytest.mark.parametrize("function", [T.round, T.nearbyint])
def test_rounding_sends_ties_to_even(cpu: Compile, dtype: str, function: Callable[[Any], Any]) -> None:
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 2.4, 2.6, -7.5, 101.5]).to(getattr(torch, dtype))
    assert cpu(unary(dtype, 10, function), [1])(x).tolist() == [0, 2, 2, 0, -2, -2, 2, 3, -8, 102]


@pytest.mark.parametrize("name", ["exp", "exp2", "log", "sqrt", "tanh", "sigmoid", "rsqrt", "floor", "abs"])
def test_special_values(cpu: Compile, name: str) -> None:
    x = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 89.0, -104.0, 1e-40])
    y = cpu(unary("float32", 8, FUNCTIONS[name][0]), [1])(x)
    want = FUNCTIONS[name][1](x)
    assert torch.equal(y.isnan(), want.isnan())
    assert torch.allclose(y, want, rtol=1e-6, atol=0, equal_nan=True)


def test_classification(cpu: Compile) -> None:
    x = torch.tensor([0.0, math.inf, -math.inf, math.nan, 3e38])
    for ours, theirs in ((T.isnan, torch.isnan), (T.isinf, torch.isinf), (T.isfinite, torch.isfinite)):
        assert torch.equal(cpu(unary("float32", 5, ours, "bool"), [1])(x), theirs(x))
        assert torch.equal(cpu(unary("float16", 5, ours, "bool"), [1])(x.half()), theirs(x.half()))


def test_clamp_keeps_nan_and_orders_its_bounds(cpu: Compile) -> None:
    x = torch.tensor([-3.0, 0.25, 7.0, math.nan, math.inf])
    y = cpu(unary("float32", 5, lambda v: T.clamp(v, -1.0, 1.0)), [1])(x)
    assert torch.allclose(y, x.clamp(-1, 1), equal_nan=True)
    crossed = cpu(unary("float32", 5, lambda v: T.clamp(v, T.float32(2.0), T.float32(1.0))), [1])(x)
    assert crossed.tolist()[:3] == [1.0, 1.0, 1.0]  # min(max(x, low), high)


TWO_ARGUMENTS: dict[str, tuple[Callable[..., Any], Callable[..., torch.Tensor]]] = {
    "pow": (T.pow, torch.pow),
    "atan2": (T.atan2, torch.atan2),
    "fmod": (T.fmod, torch.fmod),
    "copysign": (T.copysign, torch.copysign),
    "hypot": (T.hypot, torch.hypot),
}


@pytest.mark.parametrize("name", TWO_ARGUMENTS)
def test_two_argument_functions(cpu: Compile, name: str) -> None:
    function, reference = TWO_ARGUMENTS[name]

    @T.prim_func
    def kernel(X: T.Tensor((1000,), "float32"), Y: T.Tensor((1000,), "float32"), Z: T.Tensor((1000,), "float32")):
        with T.Kernel(1):
            for i in T.Parallel(1000):
                Z[i] = function(X[i], Y[i])

    gen = torch.Generator().manual_seed(1)
    x, y = torch.rand(1000, generator=gen) * 4 + 0.1, torch.randn(1000, generator=gen)
    assert ulp_error(cpu(kernel, [2])(x, y), reference(x.double(), y.double())) <= 4.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_fma_rounds_once(cpu: Compile, dtype: str) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((4000,), dtype), Y: T.Tensor((4000,), dtype), Z: T.Tensor((4000,), dtype)):
        with T.Kernel(1):
            for i in T.Parallel(4000):
                Z[i] = T.fma(X[i], Y[i], X[(i * 7) % 4000])

    gen = torch.Generator().manual_seed(2)
    x, y = (torch.randn(4000, generator=gen).to(getattr(torch, dtype)) for _ in range(2))
    addend = x[torch.arange(4000) * 7 % 4000]
    exact = x.double() * y.double() + addend.double()  # exact but for the last of float64's 53 bits
    want = exact.to(x.dtype) if dtype == "float32" else torch.tensor(exact.tolist(), dtype=torch.float64).to(x.dtype)
    got = cpu(kernel, [2])(x, y)
    assert ulp_error(got, exact) <= 0.5000001
    if dtype == "float32":
        assert torch.equal(got, want)


def test_integer_functions(cpu: Compile) -> None:
    x = torch.tensor([0, 1, -1, 255, 2**31 - 1, -(2**31)], dtype=torch.int32)
    assert cpu(unary("int32", 6, T.abs), [1])(x).tolist() == [0, 1, 1, 255, 2**31 - 1, -(2**31)]
    assert cpu(unary("int32", 6, T.popcount), [1])(x).tolist() == [0, 1, 32, 8, 31, 1]
    assert cpu(unary("int32", 6, T.clz), [1])(x).tolist() == [32, 31, 0, 24, 1, 0]
