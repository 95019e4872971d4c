"""Mathematical functions against torch in float64, within the accuracy docs/program.md promises."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
import tilelang.language as T
import torch

Compile = Callable[..., Any]
Results = dict[str, torch.Tensor]

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


def each(cpu: Compile, functions: Mapping[str, Callable[..., Any]], *x: torch.Tensor, result: str = "") -> Results:
    """What each function gives row by row: row k of `x` holds the arguments of function k. One kernel computes all."""
    dtype, elements, rows = str(x[0].dtype).removeprefix("torch."), x[0].shape[-1], len(functions)
    given = [a.expand(rows, elements).contiguous() for a in (*x, *[x[0]] * (2 - len(x)))]
    arguments = len(x)

    @T.prim_func
    def kernel(
        X: T.Tensor((rows, elements), dtype),
        Y: T.Tensor((rows, elements), dtype),
        Z: T.Tensor((rows, elements), result or dtype),
    ):
        with T.Kernel(T.ceildiv(elements, 512)) as bx:
            for i in T.Parallel(512):
                for row, function in enumerate(functions.values()):
                    Z[row, bx * 512 + i] = function(*(a[row, bx * 512 + i] for a in (X, Y)[:arguments]))

    return dict(zip(functions, cpu(kernel, [2])(*given), strict=True))


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
    ("dtype", "names"),
    [
        ("float32", FUNCTIONS),
        ("float16", ("exp", "exp2", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "floor")),
        ("bfloat16", ("exp", "log", "sqrt", "sigmoid")),
    ],
)
def test_functions_are_accurate(cpu: Compile, dtype: str, names: Iterable[str]) -> None:
    functions = {name: FUNCTIONS[name] for name in names}
    gen = torch.Generator().manual_seed(3)
    random = torch.rand(len(functions), 5000, generator=gen, dtype=torch.float64)
    low, high = (torch.tensor([f[side] for f in functions.values()]).unsqueeze(1) for side in (2, 3))
    x = (random * (high - low) + low).to(getattr(torch, dtype))
    y = each(cpu, {name: f[0] for name, f in functions.items()}, x)
    for (name, (_, reference, _, _)), given in zip(functions.items(), x, strict=True):
        limit = 0.5000001 if name in EXACT else ULPS[dtype]
        assert ulp_error(y[name], reference(given.double())) <= limit, name


#: Written here rather than called in the C library (core/codegen/cpp/runtime/math.hpp), for float32.
OURS = ("exp", "exp2", "log", "log2", "tanh", "erf")


def test_functions_of_ours_over_all_of_float32(cpu: Compile) -> None:
    x = torch.arange(-(2**31), 2**31, 65537).to(torch.int32).view(torch.float32)
    for name, y in each(cpu, {name: FUNCTIONS[name][0] for name in OURS}, x).items():
        exact = FUNCTIONS[name][1](x.double())
        rounded = exact.float()
        assert torch.equal(y.isnan(), rounded.isnan()), name
        # Of a result beyond the largest float either neighbour may come out, and infinity is one of them.
        finite = rounded.isfinite() & (rounded.abs() < 3.4028233e38)
        assert torch.equal(y[~finite & ~y.isnan()], rounded[~finite & ~y.isnan()]), name
        spacing = torch.exp2(torch.floor(torch.log2(rounded[finite].abs().double().clamp_min(2.0**-126))) - 23)
        assert float(((y[finite].double() - exact[finite]).abs() / spacing).max()) <= 2.0, name
        assert torch.equal(y[finite].signbit(), rounded[finite].signbit()), name


def test_functions_of_ours_are_no_calls(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((1024,), "float32"), Y: T.Tensor((1024,), "float32")):
        with T.Kernel(1):
            for i in T.Parallel(1024):
                for name in OURS:
                    Y[i] += FUNCTIONS[name][0](X[i])

    compiled = cpu(kernel)
    compiled.build()
    imported = compiled.binary("library").read_bytes()
    assert not [name for name in OURS if f"{name}f".encode() in imported]


def test_the_measure_of_error_sees_one_wrong_bit() -> None:
    x = torch.tensor([1.5, 3.0])
    assert ulp_error(x.nextafter(torch.tensor(9.0)), x.double()) == pytest.approx(1.0)


def test_float64_functions_are_float64(cpu: Compile) -> None:
    names = ("exp", "log", "tanh", "erf", "sin")
    x = torch.stack([torch.linspace(*FUNCTIONS[name][2:], 1000, dtype=torch.float64) for name in names])
    y = each(cpu, {name: FUNCTIONS[name][0] for name in names}, x)
    for name, given in zip(names, x, strict=True):
        assert ulp_error(y[name], FUNCTIONS[name][1](given)) < 3.0, name


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_rounding_sends_ties_to_even(cpu: Compile, dtype: str) -> None:
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 2.4, 2.6, -7.5, 101.5]).to(getattr(torch, dtype))
    for name, y in each(cpu, {"round": T.round, "nearbyint": T.nearbyint}, x).items():
        assert y.tolist() == [0, 2, 2, 0, -2, -2, 2, 3, -8, 102], name


def test_special_values(cpu: Compile) -> None:
    x = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 89.0, -104.0, 1e-40, 1e-45, -1.0, 3e38])
    names = ("exp", "exp2", "log", "log2", "sqrt", "tanh", "erf", "sigmoid", "rsqrt", "floor", "abs")
    for name, y in each(cpu, {name: FUNCTIONS[name][0] for name in names}, x).items():
        want = FUNCTIONS[name][1](x)
        assert torch.equal(y.isnan(), want.isnan()), name
        assert torch.allclose(y, want, rtol=1e-6, atol=0, equal_nan=True), name


def test_classification(cpu: Compile) -> None:
    x = torch.tensor([0.0, math.inf, -math.inf, math.nan, 3e38])
    functions = {"isnan": T.isnan, "isinf": T.isinf, "isfinite": T.isfinite}
    for given in (x, x.half()):
        for name, y in each(cpu, functions, given, result="bool").items():
            assert torch.equal(y, getattr(torch, name)(given)), name


def test_clamp_keeps_nan_and_orders_its_bounds(cpu: Compile) -> None:
    x = torch.tensor([-3.0, 0.25, 7.0, math.nan, math.inf])
    functions = {
        "in order": lambda v: T.clamp(v, -1.0, 1.0),
        "crossed": lambda v: T.clamp(v, T.float32(2), T.float32(1)),
    }
    y = each(cpu, functions, x)
    assert torch.allclose(y["in order"], x.clamp(-1, 1), equal_nan=True)
    assert y["crossed"].tolist()[:3] == [1.0, 1.0, 1.0]  # min(max(x, low), high)


TWO_ARGUMENTS: dict[str, tuple[Callable[..., Any], Callable[..., torch.Tensor]]] = {
    "pow": (T.pow, torch.pow),
    "atan2": (T.atan2, torch.atan2),
    "fmod": (T.fmod, torch.fmod),
    "copysign": (T.copysign, torch.copysign),
    "hypot": (T.hypot, torch.hypot),
}


def test_two_argument_functions(cpu: Compile) -> None:
    gen = torch.Generator().manual_seed(1)
    x, y = torch.rand(1000, generator=gen) * 4 + 0.1, torch.randn(1000, generator=gen)
    for name, z in each(cpu, {name: f[0] for name, f in TWO_ARGUMENTS.items()}, x, y).items():
        assert ulp_error(z, TWO_ARGUMENTS[name][1](x.double(), y.double())) <= 4.0, name


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
    y = {name: z.tolist() for name, z in each(cpu, {"abs": T.abs, "popcount": T.popcount, "clz": T.clz}, x).items()}
    assert y["abs"] == [0, 1, 1, 255, 2**31 - 1, -(2**31)]
    assert y["popcount"] == [0, 1, 32, 8, 31, 1]
    assert y["clz"] == [32, 31, 0, 24, 1, 0]
