"""Arguments to measure with: random where the kernel reads, poisoned where it writes, enough copies for a cache."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import core
from core.runtime.signature import ScalarArgument, Signature, TensorArgument
from core.tuning.inputs import (
    CACHE_TURNOVER,
    argument_bytes,
    copy_arguments,
    make_arguments,
    moved_bytes,
    poison,
    rotation,
)


def signature(*arguments: TensorArgument | ScalarArgument, symbols: tuple[str, ...] = ()) -> Signature:
    outputs = tuple(i for i, a in enumerate(arguments) if isinstance(a, TensorArgument) and a.is_output)
    return Signature("kernel", arguments, symbols, outputs)


def read(
    name: str, *shape: int | str, dtype: str = "float32", strides: tuple[int | str, ...] | None = None
) -> TensorArgument:
    return TensorArgument(name, dtype, shape, strides)


def written(name: str, *shape: int | str, dtype: str = "float32", **flags: Any) -> TensorArgument:
    return TensorArgument(name, dtype, shape, **{"is_output": True, "reads": False, "writes": True, **flags})


FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
INTEGERS = ("int8", "uint8", "int16", "int32", "int64", "uint32", "bool")


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_inputs_are_random_finite_and_not_zero(dtype: str) -> None:
    (made,) = make_arguments(signature(read("A", 64, 65, dtype=dtype)), "cpu", seed=1)
    assert made.shape == (64, 65)
    values = made.view(torch.uint8).float() if dtype.startswith("float8_e8") else made.to(torch.float64)
    assert values.isfinite().all()
    assert values.unique().numel() > (1 if dtype in ("bool", "int16", "int32", "int64", "uint32") else 8)
    assert (values != 0).float().mean() > 0.4
    (again,) = make_arguments(signature(read("A", 64, 65, dtype=dtype)), "cpu", seed=1)
    (other,) = make_arguments(signature(read("A", 64, 65, dtype=dtype)), "cpu", seed=2)
    assert torch.equal(made.view(torch.uint8), again.view(torch.uint8))
    assert not torch.equal(made.view(torch.uint8), other.view(torch.uint8))


def test_bytes_use_their_whole_range_and_wider_integers_could_be_indices() -> None:
    narrow, wide = make_arguments(signature(read("A", 9999, dtype="int8"), read("B", 9999, dtype="int32")), "cpu")
    assert (narrow.min(), narrow.max()) == (-128, 127)
    assert set(wide.tolist()) == {0, 1}


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d != "float8_e8m0fnu"])
def test_an_unwritten_float_is_nan(dtype: str) -> None:
    (made,) = make_arguments(signature(written("C", 8, 8, dtype=dtype)), "cpu")
    assert made.float().isnan().all()


@pytest.mark.parametrize(("dtype", "value"), [("int8", 0x7D), ("int32", 0x7D7D7D7D), ("bool", True)])
def test_an_unwritten_integer_is_a_pattern(dtype: str, value: int) -> None:
    (made,) = make_arguments(signature(written("C", 8, dtype=dtype)), "cpu")
    assert set(made.tolist()) == {value}


def test_a_view_with_gaps_is_poisoned_and_what_lies_between_is_not() -> None:
    for dtype, expected in ((torch.float16, math.nan), (torch.int16, 0x7D7D)):
        base = torch.zeros(4, 8, dtype=dtype)
        poison(base[:, :4])
        assert torch.equal(base[:, 4:], torch.zeros(4, 4, dtype=dtype))
        assert base[0, 0].item() == pytest.approx(expected, nan_ok=True)


def test_what_is_written_without_being_declared_an_output_is_poisoned_too() -> None:
    made = make_arguments(
        signature(written("C", 8, is_output=False), written("D", 8, reads=True, is_output=False)), "cpu"
    )
    assert made[0].isnan().all()
    assert made[1].isfinite().all()
    assert (made[1] != 0).all()


def test_an_output_that_accumulates_starts_at_zero() -> None:
    (made,) = make_arguments(signature(written("C", 8, reads=True)), "cpu")
    assert torch.equal(made, torch.zeros(8))


def test_extents_and_strides_follow_symbols_and_scalars() -> None:
    kernel = signature(
        read("A", "M", "2*n", strides=("2*n + 8", 1)), ScalarArgument("n", "int32"), written("C", "M"), symbols=("M",)
    )
    made = make_arguments(kernel, "cpu", symbols={"M": 3}, values={"n": 5})
    assert (made[0].shape, made[0].stride(), made[1], made[2].shape) == ((3, 10), (18, 1), 5, (3,))
    assert (made[0] != 0).all()


def test_given_values_are_used_as_they_are_or_made_for_the_shape() -> None:
    kernel = signature(read("A", 4), read("index", 4, dtype="int32"), ScalarArgument("scale", "float32"))
    mine = torch.arange(4.0)
    made = make_arguments(
        kernel, "cpu", values={"A": mine, "index": lambda shape, dtype, device: torch.arange(*shape, dtype=dtype)}
    )
    assert made[0] is mine
    assert made[1].dtype is torch.int32
    assert made[1].tolist() == [0, 1, 2, 3]
    assert made[2] != 0


def test_what_nothing_says_is_asked_for() -> None:
    with pytest.raises(core.KernelError, match="symbolic dimensions: M") as caught:
        make_arguments(signature(read("A", "M"), symbols=("M",)), "cpu")
    assert "symbols={'M'" in caught.value.hint
    with pytest.raises(core.KernelError, match="int32 scalar n") as caught:
        make_arguments(signature(ScalarArgument("n", "int32")), "cpu")
    assert "values={'n'" in caught.value.hint
    with pytest.raises(core.KernelError, match="no parameter 'B'"):
        make_arguments(signature(read("A", 4)), "cpu", values={"B": 1})


def test_traffic_counts_what_is_read_and_what_is_written_once() -> None:
    kernel = signature(read("A", 8, dtype="float16"), written("C", 4), written("D", 2, reads=True, is_output=False))
    made = make_arguments(kernel, "cpu")
    assert moved_bytes(kernel, made) == 16 + 16 + 2 * 8
    assert argument_bytes([made[0], made[0], 3]) == 16


def test_a_rotation_outgrows_the_cache_in_memory_of_its_own() -> None:
    arguments = [torch.randn(256), torch.randn(16, 32)[:, :16], 7]
    sets = rotation(arguments, cache_bytes=10_000)
    assert sets is not None
    each = argument_bytes(arguments)
    assert (len(sets) - 1) * each >= CACHE_TURNOVER * 10_000 > (len(sets) - 2) * each
    assert sets[0][0] is arguments[0]
    assert len({one[0].data_ptr() for one in sets}) == len(sets)
    assert all(torch.equal(one[1], arguments[1]) and one[1].stride() == (32, 1) and one[2] == 7 for one in sets)


def test_a_rotation_that_takes_too_many_sets_or_too_much_memory_is_not_made() -> None:
    assert rotation([torch.zeros(1)], cache_bytes=10_000) is None
    assert rotation([torch.zeros(256)], cache_bytes=10_000, most_bytes=20_000) is None
    assert rotation([], cache_bytes=10_000) is None


def test_copies_do_not_share_memory() -> None:
    arguments = [torch.zeros(4), 2]
    copied = copy_arguments(arguments)
    arguments[0].fill_(1)
    assert copied[0].tolist() == [0, 0, 0, 0]
