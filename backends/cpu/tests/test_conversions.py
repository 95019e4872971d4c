"""Casts between every pair of dtypes, exhaustively where a type has 16 bits or fewer, against torch."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tilelang.language as T
import torch

NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}

Compile = Callable[..., Any]


#: The widest row of outputs below; a kernel that converts to fewer types has outputs of one element that nobody writes.
OUTPUTS = 8


def casts(source: str, targets: Sequence[str], elements: int) -> Any:
    """A cast per element and target, the conversion written as an expression."""
    out = [*(((elements,), target) for target in targets), *[((1,), "int8")] * (OUTPUTS - len(targets))]

    @T.prim_func
    def cast(
        X: T.Tensor((elements,), source),
        A: T.Tensor(*out[0]), B: T.Tensor(*out[1]), C: T.Tensor(*out[2]), D: T.Tensor(*out[3]),
        E: T.Tensor(*out[4]), F: T.Tensor(*out[5]), G: T.Tensor(*out[6]), H: T.Tensor(*out[7]),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(elements, 4096)) as bx:
            for i in T.Parallel(4096):
                for y, target in zip((A, B, C, D, E, F, G, H), targets, strict=False):
                    y[bx * 4096 + i] = T.cast(X[bx * 4096 + i], target)

    return cast


def copies(source: str, targets: Sequence[str], elements: int) -> Any:
    """The same by copies: global to a tile of the source's type, to one of each target's, to global."""
    out = [*(((elements,), target) for target in targets), *[((1,), "int8")] * (OUTPUTS - len(targets))]

    @T.prim_func
    def copy(
        X: T.Tensor((elements,), source),
        A: T.Tensor(*out[0]), B: T.Tensor(*out[1]), C: T.Tensor(*out[2]), D: T.Tensor(*out[3]),
        E: T.Tensor(*out[4]), F: T.Tensor(*out[5]), G: T.Tensor(*out[6]), H: T.Tensor(*out[7]),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(elements, 4096)) as bx:
            x = T.alloc_shared((4096,), source)
            T.copy(X[bx * 4096], x)
            for y, target in zip((A, B, C, D, E, F, G, H), targets, strict=False):
                tile = T.alloc_fragment((4096,), target)
                T.copy(x, tile)
                T.copy(tile, y[bx * 4096])

    return copy


def convert(
    cpu: Compile, x: torch.Tensor, targets: Sequence[str], form: Callable[..., Any] = casts
) -> dict[str, torch.Tensor]:
    """`x` converted to each target, by one kernel."""
    kernel = cpu(form(str(x.dtype).removeprefix("torch."), targets, x.numel()), list(range(1, OUTPUTS + 1)))
    return dict(zip(targets, kernel(x), strict=False))


def every_value(dtype: str) -> torch.Tensor:
    """Every bit pattern of a type of at most 16 bits."""
    bits = torch.arange(2 ** (8 * getattr(torch, dtype).itemsize), dtype=torch.int32)
    integer = torch.uint8 if getattr(torch, dtype).itemsize == 1 else torch.uint16
    return bits.to(integer).view(getattr(torch, dtype))


def floats_around(dtype: str) -> torch.Tensor:
    """float32 values on, and one step to either side of, each value of a narrow type and each midpoint between two."""
    values = every_value(dtype).to(torch.float32)
    values = values[values.isfinite()].unique()
    middles = (values[1:].double() + values[:-1].double()).div(2).float()
    beyond = torch.tensor([float("inf"), 1e38, 3e38, 1e-45, 1e-40, 70000.0, 65519.99, 65520.0, 464.0, 480.0, 61440.0])
    points = torch.cat([values, middles, beyond, -beyond, torch.tensor([float("nan")])])
    steps = torch.cat([points, points.nextafter(torch.tensor(torch.inf)), points.nextafter(torch.tensor(-torch.inf))])
    return steps


def converted(x: torch.Tensor, target: str) -> torch.Tensor:
    """torch's conversion, except that float8 saturates instead of giving NaN or infinity."""
    if target in LARGEST:
        x = x.float().clamp(-LARGEST[target], LARGEST[target])
    return x.to(getattr(torch, target))


def same(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Equal bits, any NaN for a NaN."""
    nan = want.float().isnan()
    bytes_differ = (got.view(torch.uint8).view(got.numel(), -1) != want.view(torch.uint8).view(want.numel(), -1)).any(1)
    return bool((got.float().isnan() == nan).all()) and not bool((bytes_differ & ~nan).any())


@pytest.mark.parametrize("form", [casts, copies])
@pytest.mark.parametrize("source", NARROW)
def test_narrow_floats_convert_exactly_as_torch_does_from_every_value(cpu: Compile, source: str, form: Any) -> None:
    x = every_value(source)
    for target, y in convert(cpu, x, [*NARROW, "float32", "float64"], form).items():
        assert same(y, x if source == target else converted(x, target)), target


@pytest.mark.parametrize("form", [casts, copies])
def test_float32_rounds_to_nearest_even_around_every_value_of_a_narrow_type(cpu: Compile, form: Any) -> None:
    x = torch.cat([floats_around(target) for target in NARROW])
    for target, y in convert(cpu, x, NARROW, form).items():
        assert same(y, converted(x, target)), target


def test_the_comparison_sees_a_single_wrong_bit() -> None:
    x = every_value("float16")
    y = x.clone()
    y.view(torch.int16)[1234] ^= 1
    assert not same(y, x)


def test_float64_rounds_once_to_a_narrow_type(cpu: Compile) -> None:
    # Just above the midpoint between 1 and the next float16: float32 would round it to the midpoint, then down to 1.
    x = torch.tensor([1.0 + 2.0**-11 + 2.0**-40, -(1.0 + 2.0**-11 + 2.0**-40), 1.0 + 2.0**-11], dtype=torch.float64)
    assert convert(cpu, x, ["float16"])["float16"].tolist() == [1.0 + 2.0**-10, -(1.0 + 2.0**-10), 1.0]


def test_wide_integers_round_once_to_a_narrow_type(cpu: Compile) -> None:
    x = torch.tensor([2**24 + 2**16 + 1, 2**24 + 2**16, -(2**30) - 2**22 - 1], dtype=torch.int32)
    assert convert(cpu, x, ["bfloat16"])["bfloat16"].tolist() == [2**24 + 2**17, 2**24, -(2.0**30) - 2.0**23]
    x = torch.tensor([2**62 + 2**54 + 1, 2**62 + 2**54], dtype=torch.int64)
    assert convert(cpu, x, ["bfloat16"])["bfloat16"].tolist() == [2.0**62 + 2.0**55, 2.0**62]


@pytest.mark.parametrize("source", INTEGERS)
def test_integers_wrap(cpu: Compile, source: str) -> None:
    info = torch.iinfo(getattr(torch, source))
    values = sorted({info.min, info.max, 0, 1, min(info.max, 127), min(info.max, 200), max(info.min, -1)})
    values += [v for v in (300, 70000, 2**31 + 5, -129, -40000) if info.min <= v <= info.max]
    for target, y in convert(cpu, torch.tensor(values, dtype=getattr(torch, source)), INTEGERS).items():
        out = torch.iinfo(getattr(torch, target))
        assert y.tolist() == [(v - out.min) % 2**out.bits + out.min for v in values], target


@pytest.mark.parametrize("source", ["float16", "float32", "float64", "bfloat16"])
def test_floats_truncate_towards_zero(cpu: Compile, source: str) -> None:
    values = [0.0, 0.5, 0.99, 1.5, 2.5, 100.75, 127.0, -0.5, -1.5, -100.75, -128.0]
    x = torch.tensor(values).to(getattr(torch, source))
    truncated = [int(v) for v in x.double().tolist()]
    for target, y in convert(cpu, x, ["int8", "uint8", "int32", "int64"]).items():
        assert y.tolist() == ([max(v, 0) for v in truncated] if target == "uint8" else truncated), target


def test_floats_outside_an_integer_type_give_its_nearest_value(cpu: Compile) -> None:
    x = torch.tensor([1e10, -1e10, float("inf"), float("-inf"), float("nan"), 2147483520.0, -2147483648.0])
    y = convert(cpu, x, ["int32", "uint8"])
    assert y["int32"].tolist() == [2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 0, 2147483520, -(2**31)]
    assert y["uint8"].tolist() == [255, 0, 255, 0, 0, 255, 0]


@pytest.mark.parametrize("form", [casts, copies])
@pytest.mark.parametrize("source", ["float16", "float32", "int8", "int32", "bool"])
def test_a_number_is_true_when_it_is_not_zero(cpu: Compile, source: str, form: Any) -> None:
    x = torch.tensor([0, 1, 2, 0, 5, 0]).to(getattr(torch, source))
    want = [False, True, True, False, True, False]
    if source.startswith("float"):
        x = torch.cat([x, torch.tensor([-0.0, float("nan"), 1e-7, 0.25]).to(x.dtype)])
        want += [False, True, True, True]
    assert convert(cpu, x, ["bool"], form)["bool"].tolist() == want


def test_a_bool_is_zero_or_one(cpu: Compile) -> None:
    x = torch.tensor([True, False, True])
    for target, y in convert(cpu, x, ["float16", "float32", "int8", "int64", "float8_e5m2"]).items():
        assert y.float().tolist() == [1.0, 0.0, 1.0], target
