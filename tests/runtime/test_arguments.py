"""Binding arguments: what is accepted, what is refused and how the refusal reads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.errors import LaunchError, Location, ShapeMismatch, TileHALError
from core.runtime.arguments import Binder
from core.runtime.refusals import Refusals
from core.runtime.signature import ScalarArgument, Signature, TensorArgument


def tensor(name: str, dtype: str, *shape: int | str, **kw: Any) -> TensorArgument:
    return TensorArgument(name, dtype, shape, **kw)


ADD = Signature(
    "add",
    (tensor("A", "float32", 4, 8), tensor("B", "float32", 4, 8), tensor("C", "float32", 4, 8, is_output=True)),
    outputs=(2,),
)
DYNAMIC = Signature(
    "dynamic",
    (
        tensor("A", "float16", "M", "K"),
        tensor("B", "float16", "K", "2*N"),
        ScalarArgument("scale", "float32"),
        tensor("C", "float16", "M", "(N + 7)//8", is_output=True),
    ),
    symbols=("M", "K", "N"),
    outputs=(3,),
)


def test_outputs_are_allocated_when_left_out_and_returned() -> None:
    a, b = torch.ones(4, 8), torch.ones(4, 8)
    arguments, symbols, result = Binder(ADD, "cpu")((a, b), {})
    assert arguments[0] is a
    assert arguments[1] is b
    assert arguments[2] is result
    assert (result.shape, result.dtype, symbols) == (torch.Size([4, 8]), torch.float32, {})


def test_given_outputs_are_used() -> None:
    a, b, c = torch.ones(4, 8), torch.ones(4, 8), torch.empty(4, 8)
    assert Binder(ADD, "cpu")((a, b, c), {})[2] is c
    assert Binder(ADD, "cpu")((a,), {"B": b, "C": c})[2] is c


def test_some_of_several_outputs_are_not_left_out_silently() -> None:
    signature = Signature(
        "pair", (tensor("A", "float32", 4), *(tensor(n, "float32", 4, is_output=True) for n in "BC")), outputs=(1, 2)
    )
    a, b = torch.ones(4), torch.ones(4)
    with pytest.raises(LaunchError, match="pair misses C"):
        Binder(signature, "cpu")((a,), {"B": b})
    assert Binder(signature, "cpu")((), {"A": a})[2][1].shape == (4,)


def test_symbols_are_solved_from_plain_and_scaled_extents() -> None:
    a, b = torch.ones(3, 5, dtype=torch.float16), torch.ones(5, 18, dtype=torch.float16)
    arguments, symbols, result = Binder(DYNAMIC, "cpu")((a, b, 2.0), {})
    assert symbols == {"M": 3, "K": 5, "N": 9}
    assert result.shape == (3, 2)
    assert arguments[2] == 2.0


@pytest.mark.parametrize(
    ("args", "error", "text"),
    [
        ((torch.ones(4, 8),), LaunchError, "takes 2 inputs, or 3 arguments"),
        ((torch.ones(4, 8), 3), LaunchError, "argument 1 (B) is a tensor, got int"),
        ((torch.ones(4, 8), torch.ones(4, 8).half()), ShapeMismatch, "argument 1 (B) is float32, got float16"),
        ((torch.ones(4, 8), torch.ones(4)), ShapeMismatch, "rank 1 (4,), expected rank 2 (4, 8)"),
        ((torch.ones(4, 8), torch.ones(4, 9)), ShapeMismatch, "axis 1 must be 8"),
        ((torch.ones(4, 8), torch.ones(8, 4).t()), LaunchError, "must be contiguous"),
        ((torch.ones(4, 8), torch.ones(4, 8, device="meta")), LaunchError, "is on meta, the kernel runs on cpu"),
    ],
)
def test_refusals_name_the_argument_and_the_reason(args: tuple[Any, ...], error: type, text: str) -> None:
    with pytest.raises(error) as caught:
        Binder(ADD, "cpu")(args, {})
    assert text in str(caught.value)


def test_tensors_of_a_call_are_on_one_device() -> None:
    binder, refusals = Binder(ADD, "meta"), Refusals(ADD, "meta", (None,) * 3, None)
    one, other = torch.ones(4, 8, device="meta"), torch.ones(4, 8, device="meta")
    assert binder((one, other), {})[2].device == one.device
    assert "is on cpu, the kernel runs on meta" in str(refusals.explain((one, torch.ones(4, 8))))


def test_disagreeing_symbols_are_named() -> None:
    a, b = torch.ones(3, 5, dtype=torch.float16), torch.ones(6, 18, dtype=torch.float16)
    with pytest.raises(ShapeMismatch, match=r"axis 0 must be 5 \(K = 5\)"):
        Binder(DYNAMIC, "cpu")((a, b, 2.0), {})


def test_a_scaled_extent_that_does_not_divide_is_refused() -> None:
    a, b = torch.ones(3, 5, dtype=torch.float16), torch.ones(5, 17, dtype=torch.float16)
    with pytest.raises(ShapeMismatch, match="axis 1 must be 16"):
        Binder(DYNAMIC, "cpu")((a, b, 2.0), {})


def test_an_unsolvable_symbol_is_refused_when_the_binder_is_made() -> None:
    signature = Signature("f", (tensor("A", "float32", "(M + 1)//2"),), symbols=("M",))
    with pytest.raises(ShapeMismatch, match="no argument's shape determines M"):
        Binder(signature, "cpu")


def test_declared_strides_are_checked_instead_of_contiguity() -> None:
    signature = Signature("f", (tensor("A", "float32", 4, 8, strides=("s", 1)),), symbols=("s",))
    whole = torch.ones(4, 16)
    assert Binder(signature, "cpu")((whole[:, :8],), {})[1] == {"s": 16}
    with pytest.raises(ShapeMismatch, match="strides"):
        Binder(signature, "cpu")((torch.ones(8, 4).t(),), {})


def test_inputs_too_small_for_the_output_are_refused() -> None:
    signature = Signature(
        "inner",
        (
            tensor("A", "float32", "M"),
            tensor("C", "float32", "M - 4", "8//n", is_output=True),
            ScalarArgument("n", "int32"),
        ),
        symbols=("M",),
        outputs=(1,),
    )
    binder = Binder(signature, "cpu")
    assert binder((torch.ones(5), 2), {})[2].shape == (1, 4)
    assert binder((torch.ones(4), 2), {})[2].shape == (0, 4)
    with pytest.raises(ShapeMismatch, match=r"its output C, \(M - 4, 8//n\), is \(-1, 4\)"):
        binder((torch.ones(3), 2), {})
    with pytest.raises(LaunchError, match="do not fit its signature"):
        binder((torch.ones(5), 0), {})


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_fast_path_and_explanation_agree(declared: list[int], actual: list[int]) -> None:
    binder = Binder(Signature("f", (tensor("A", "float32", *declared),)), "cpu")
    value = torch.ones(*actual)
    if declared == actual:
        assert binder((value,), {})[0] == (value,)
    else:
        with pytest.raises(TileHALError, match="argument 0"):
            binder((value,), {})


ALIGNED = Signature(
    "aligned",
    (tensor("A", "float16", "M", alignment=16), tensor("B", "float16", "M", alignment=4, is_output=True)),
    symbols=("M",),
    outputs=(1,),
)


@given(offset=st.integers(0, 20), other=st.integers(0, 20), rows=st.integers(0, 4))
def test_data_must_start_where_the_kernel_can_access_it(offset: int, other: int, rows: int) -> None:
    a, b = (torch.zeros(64, dtype=torch.float16)[start : start + rows] for start in (offset, other))
    binder = Binder(ALIGNED, "cpu", [Location("kernel.py", 7), Location("kernel.py", 8)])
    assert binder((a.clone(),), {})[0][1].data_ptr() % 4 == 0
    if rows == 0 or (offset % 8 == 0 and other % 2 == 0):
        assert binder((a, b), {})[2] is b
        return
    with pytest.raises(LaunchError) as caught:
        binder((a, b), {})
    wrong, name, needed, line = (a, "A", 16, 7) if offset % 8 else (b, "B", 4, 8)
    found = wrong.data_ptr() & -wrong.data_ptr()
    assert caught.value.details == {"address": wrong.data_ptr(), "alignment": needed, "found": found}
    assert f"({name}) starts at {wrong.data_ptr():#x}, which is a multiple of {found} bytes" in caught.value.message
    assert caught.value.hint is not None
    assert ".clone()" in caught.value.hint
    assert caught.value.location == Location("kernel.py", line)


def test_a_wrong_shape_is_said_before_wrong_strides() -> None:
    with pytest.raises(ShapeMismatch, match="argument 1 \\(B\\) has shape \\(4, 9\\)"):
        Binder(ADD, "cpu")((torch.ones(4, 8), torch.ones(9, 4).T), {})
    with pytest.raises(LaunchError, match="argument 1 \\(B\\) must be contiguous"):
        Binder(ADD, "cpu")((torch.ones(4, 8), torch.ones(8, 4).T), {})
