"""Arithmetic in expressions: rounding after every operation, wrapping integers, division, NaN."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import tilelang.language as T
import torch

Compile = Callable[..., Any]

FLOATS = ("float16", "bfloat16", "float32", "float64")


def binary(dtype: str, elements: int, operation: Callable[[Any, Any], Any], result: str | None = None) -> Any:
    """`Z[i] = operation(X[i], Y[i])`."""
    out = result or dtype

    @T.prim_func
    def kernel(X: T.Tensor((elements,), dtype), Y: T.Tensor((elements,), dtype), Z: T.Tensor((elements,), out)):
        with T.Kernel(T.ceildiv(elements, 1024)) as bx:
            for i in T.Parallel(1024):
                Z[bx * 1024 + i] = operation(X[bx * 1024 + i], Y[bx * 1024 + i])

    return kernel


def each(
    cpu: Compile,
    operations: Mapping[str, Callable[[Any, Any], Any]],
    x: torch.Tensor,
    y: torch.Tensor,
    result: str = "",
) -> dict[str, torch.Tensor]:
    """What each operation gives for `x` and `y`; one kernel computes them all."""
    dtype, elements, shape = str(x.dtype).removeprefix("torch."), x.numel(), (len(operations), x.numel())

    @T.prim_func
    def kernel(X: T.Tensor((elements,), dtype), Y: T.Tensor((elements,), dtype), Z: T.Tensor(shape, result or dtype)):
        with T.Kernel(T.ceildiv(elements, 1024)) as bx:
            for i in T.Parallel(1024):
                for row, operation in enumerate(operations.values()):
                    Z[row, bx * 1024 + i] = operation(X[bx * 1024 + i], Y[bx * 1024 + i])

    return dict(zip(operations, cpu(kernel, [2])(x, y), strict=True))


def operands(dtype: str, elements: int = 3000) -> tuple[torch.Tensor, torch.Tensor]:
    gen = torch.Generator().manual_seed(5)
    kind = getattr(torch, dtype)
    if kind.is_floating_point:
        x, y = (torch.randn(elements, generator=gen) * 30 for _ in range(2))
        x[:6] = torch.tensor([float("inf"), -0.0, 6e4, 6e-8, 1.0, float("nan")])
        return x.to(kind), y.to(kind)
    info = torch.iinfo(kind)
    low, high = max(info.min, -(2**62)), min(info.max, 2**62)
    x, y = (torch.randint(low, high, (elements,), generator=gen) for _ in range(2))
    return x.to(kind), y.to(kind)


def equal(got: torch.Tensor, want: torch.Tensor) -> bool:
    return (
        bool(((got == want) | (got.isnan() & want.isnan())).all())
        if want.is_floating_point()
        else torch.equal(got, want)
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_round_once_per_operation(cpu: Compile, dtype: str) -> None:
    x, y = operands(dtype)
    operations = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv}
    for name, z in each(cpu, operations, x, y).items():
        assert equal(z, operations[name](x, y)), name


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_chain_of_narrow_operations_rounds_after_each(cpu: Compile, dtype: str) -> None:
    x, y = operands(dtype)
    z = cpu(binary(dtype, x.numel(), lambda a, b: (a * b + a) * b - a), [2])(x, y)
    stepwise = (x * y + x) * y - x
    assert equal(z, stepwise)
    wide = ((x.float() * y.float() + x.float()) * y.float() - x.float()).to(x.dtype)
    assert not equal(wide, stepwise)  # the test can tell


def test_a_float32_literal_computes_in_float32_and_an_int_literal_in_the_operand_s_type(cpu: Compile) -> None:
    x, y = operands("float16")
    got = each(cpu, {"float": lambda a, b: a * 0.1 + b, "int": lambda a, b: a * 3 + b}, x, y)
    assert equal(got["float"], ((x.float() * 0.1) + y.float()).half())
    assert equal(got["int"], x * 3 + y)


def test_float32_multiply_and_add_are_not_fused_and_subtraction_keeps_its_grouping(cpu: Compile) -> None:
    x, y = operands("float32")
    operations: dict[str, Callable[[Any, Any], Any]] = {
        "multiply and add": lambda a, b: a * b + a,
        "subtractions": lambda a, b: a - (b - a) - (b + (a - b)),
    }
    for name, z in each(cpu, operations, x, y).items():
        assert equal(z, operations[name](x, y)), name


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_integers_wrap_at_their_own_width(cpu: Compile, dtype: str) -> None:
    x, y = operands(dtype)
    operations = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
    for name, z in each(cpu, operations, x, y).items():
        assert torch.equal(z, operations[name](x, y)), name


def test_a_narrow_sum_wraps_before_it_is_widened(cpu: Compile) -> None:
    x = torch.tensor([200, 100], dtype=torch.uint8)
    assert cpu(binary("uint8", 2, lambda a, b: a + b, "int32"), [2])(x, x).tolist() == [144, 200]


def test_unsigned_32_and_64_bit_arithmetic_wraps(cpu: Compile) -> None:
    x = torch.tensor([2**32 - 1, 5], dtype=torch.uint32)
    y = torch.tensor([3, 7], dtype=torch.uint32)
    assert cpu(binary("uint32", 2, lambda a, b: a * b + a), [2])(x, y).tolist() == [(2**32 - 1) * 4 % 2**32, 40]


def test_integer_hashes_of_the_index_wrap(cpu: Compile) -> None:
    @T.prim_func
    def kernel(Y: T.Tensor((100000,), "int32")):
        with T.Kernel(T.ceildiv(100000, 1000)) as bx:
            for i in T.Parallel(1000):
                Y[bx * 1000 + i] = (bx * 1000 + i) * 1103515245 + 12345

    want = (torch.arange(100000) * 1103515245 + 12345) % 2**32
    want = torch.where(want >= 2**31, want - 2**32, want).int()
    assert torch.equal(cpu(kernel, [0])(), want)


def test_an_index_that_hashes_is_reduced_after_wrapping(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((64,), "int32"), Y: T.Tensor((5000,), "int32")):
        with T.Kernel(T.ceildiv(5000, 1000)) as bx:
            for i in T.Parallel(1000):
                Y[bx * 1000 + i] = X[((bx * 1000 + i) * 1664525 + 1013904223) % 64]

    hashed = (torch.arange(5000) * 1664525 + 1013904223) % 2**32
    index = torch.where(hashed >= 2**31, hashed - 2**32, hashed) % 64
    x = torch.arange(64, dtype=torch.int32) * 7
    assert torch.equal(cpu(kernel, [1])(x), x[index])


DIVISIONS: dict[str, Callable[[Any, Any], Any]] = {
    "//": operator.floordiv, "%": operator.mod, "truncdiv": T.truncdiv, "truncmod": T.truncmod
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
def test_floor_and_truncating_division_agree_with_python(cpu: Compile, dtype: str) -> None:
    a = torch.tensor([7, -7, 7, -7, 0, 6, -6, 1, -1], dtype=getattr(torch, dtype))
    b = torch.tensor([3, 3, -3, -3, 5, 3, 3, -4, 4], dtype=getattr(torch, dtype))
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    truncated = [int(x / y) for x, y in pairs]
    got = {name: z.tolist() for name, z in each(cpu, DIVISIONS, a, b).items()}
    assert got["//"] == [x // y for x, y in pairs]
    assert got["%"] == [x % y for x, y in pairs]
    assert got["truncdiv"] == truncated
    assert got["truncmod"] == [x - q * y for (x, y), q in zip(pairs, truncated, strict=True)]


def test_division_by_zero_of_integers_does_not_end_the_process(cpu: Compile) -> None:
    a = torch.tensor([5, -(2**31)], dtype=torch.int32)
    b = torch.tensor([0, -1], dtype=torch.int32)
    assert all(z.shape == (2,) for z in each(cpu, DIVISIONS, a, b).values())


def test_division_by_a_literal_floors_for_negative_values(cpu: Compile) -> None:
    a = torch.arange(-20, 20, dtype=torch.int32)
    assert torch.equal(cpu(binary("int32", 40, lambda x, y: x // 8 + x % 8 * 100), [2])(a, a), a // 8 + a % 8 * 100)


def test_bits_and_shifts(cpu: Compile) -> None:
    x, _ = operands("int32", 64)
    y = torch.arange(64, dtype=torch.int32) % 32
    same: dict[str, Callable[[Any, Any], Any]] = {
        "&": operator.and_, "|": operator.or_, "^": operator.xor, "~": lambda a, b: ~a, ">>": operator.rshift
    }  # fmt: skip
    got = each(cpu, {**same, "<<": operator.lshift}, x, y)
    for name, operation in same.items():
        assert torch.equal(got[name], operation(x, y)), name
    assert torch.equal(got["<<"], (x.long() << y.long()).int())


def test_comparisons_with_nan_are_false_but_for_not_equal(cpu: Compile) -> None:
    nan = float("nan")
    x, y = torch.tensor([1.0, nan, 2.0, nan]), torch.tensor([nan, 1.0, 2.0, nan])
    expected = {
        "lt": [False] * 4, "le": [False, False, True, False], "eq": [False, False, True, False],
        "gt": [False] * 4, "ge": [False, False, True, False], "ne": [True, True, False, True],
    }  # fmt: skip
    operations: dict[str, Callable[[Any, Any], Any]] = {
        "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "eq": lambda a, b: a == b,
        "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "ne": lambda a, b: a != b,
    }  # fmt: skip
    assert {name: z.tolist() for name, z in each(cpu, operations, x, y, "bool").items()} == expected


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_min_and_max_ignore_one_nan(cpu: Compile, dtype: str) -> None:
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([1.0, nan, nan, 2.0, -inf, nan], dtype=getattr(torch, dtype))
    y = torch.tensor([nan, 1.0, nan, -3.0, nan, inf], dtype=getattr(torch, dtype))
    got = each(cpu, {"max": T.max, "min": T.min}, x, y)
    assert equal(got["max"], torch.fmax(x, y))
    assert equal(got["min"], torch.fmin(x, y))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_min_and_max_of_integers(cpu: Compile, dtype: str) -> None:
    x, y = operands(dtype)
    got = each(cpu, {"max": T.max, "min": T.min}, x, y)
    assert torch.equal(got["max"], torch.maximum(x, y))
    assert torch.equal(got["min"], torch.minimum(x, y))


def test_select_evaluates_no_load_that_is_outside(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((100,), "float32"), Y: T.Tensor((200,), "float32")):
        with T.Kernel(1):
            x = T.alloc_shared((100,), "float32")
            T.copy(X, x)
            for i in T.Parallel(200):
                Y[i] = T.if_then_else(i < 100, x[T.min(i, 99)], -1.0)

    x = torch.randn(100)
    assert torch.equal(cpu(kernel, [1])(x), torch.cat([x, torch.full((100,), -1.0)]))


def test_reinterpret_keeps_the_bits(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "uint32")):
        with T.Kernel(1):
            for i in T.Parallel(64):
                Y[i] = T.reinterpret(X[i], "uint32")

    x = torch.randn(64)
    assert torch.equal(cpu(kernel, [1])(x), x.view(torch.uint32))


def test_logical_operators(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "bool")):
        with T.Kernel(1):
            for i in T.Parallel(64):
                Y[i] = T.Or(T.And(X[i] > 10, X[i] < 20), T.Not(X[i] < 50))

    x = torch.arange(64, dtype=torch.int32)
    assert torch.equal(cpu(kernel, [1])(x), ((x > 10) & (x < 20)) | ~(x < 50))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_computes_in_float32_and_rounds_after_each_operation(cpu: Compile, dtype: str) -> None:
    values = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(getattr(torch, dtype))
    values = values[values.float().isfinite()]
    x, y = values, values.view(torch.uint8).flip(0).view(values.dtype)
    largest = values.float().max().item()
    z = cpu(binary(dtype, x.numel(), lambda a, b: a * b + a), [2])(x, y)

    def rounded(v: torch.Tensor) -> torch.Tensor:
        return v.clamp(-largest, largest).to(x.dtype).float()

    assert torch.equal(z.float(), rounded(rounded(x.float() * y.float()) + x.float()))
