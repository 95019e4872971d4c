"""What a kernel can be given: numbers that a parameter can hold, tensors that an address says all about."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from core.errors import LaunchError
from core.runtime.arguments import Binder
from core.runtime.signature import ScalarArgument, Signature
from core.runtime.values import as_scalar, check_stream, why_unreadable

GREATEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize(
    ("value", "dtype", "passed"),
    [
        (2, "float32", 2.0),
        (True, "float32", 1.0),
        (2**64, "float32", 2.0**64),
        (10**400, "float64", None),
        (10**400, "int64", None),
        (Fraction(1, 2), "float64", 0.5),
        (np.float32(0.5), "float32", 0.5),
        (np.int64(-3), "float16", -3.0),
        (np.int64(-3), "int8", -3),
        (np.uint8(200), "int8", None),
        (np.bool_(True), "bool", True),
        (np.bool_(True), "int32", 1),
        (True, "uint8", 1),
        (1, "bool", True),
        (2, "bool", None),
        (2**63 - 1, "int64", 2**63 - 1),
        (2**63, "int64", None),
        (2**64 - 1, "uint64", 2**64 - 1),
        (1.0, "int32", None),
        (np.float64(1), "int32", None),
        # A type's greatest number is its own, and what it would round to infinity is beyond it.
        (GREATEST, "float32", GREATEST),
        (3.4028235e38, "float32", 3.4028235e38),
        (3.4028236e38, "float32", None),
        (-1e39, "float32", None),
        (1e39, "float64", 1e39),
        (65519.0, "float16", 65519.0),
        (65520.0, "float16", None),
        (3.39e38, "bfloat16", 3.39e38),
        (3.4e38, "bfloat16", None),
        (math.inf, "float16", math.inf),
        ("2", "float32", None),
        (2j, "float32", None),
        (None, "int32", None),
        (np.array(2.0), "float32", None),
        (torch.tensor(2.0), "float32", None),
        (torch.tensor(2), "int32", None),
    ],
)
def test_a_number_is_passed_as_python_s_or_refused(value: Any, dtype: str, passed: float | None) -> None:
    found = as_scalar(value, dtype)
    assert (found, type(found)) == (passed, type(passed))
    binder = Binder(Signature("f", (ScalarArgument("s", dtype),)), "cpu")
    if passed is not None:
        assert binder((value,), {})[0] == (passed,)
        return
    with pytest.raises(LaunchError, match=rf"argument 0 \(s\) is a scalar {dtype}, (got|which cannot hold) ") as caught:
        binder((value,), {})
    assert caught.value.hint


def test_nan_is_a_number() -> None:
    assert math.isnan(as_scalar(math.nan, "float16") or 0.0)


def freed() -> torch.Tensor:
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: torch.ones(4, 4).to_sparse(), "is a sparse_coo tensor"),
        (lambda: torch.ones(4, 4).to_sparse_csr(), "is a sparse_csr tensor"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "is a nested tensor"),
        (lambda: torch.ones(4, 4).to_mkldnn(), "is a _mkldnn tensor"),
        (lambda: torch.ones(4, dtype=torch.complex64).conj().imag, "is a view whose values torch negates"),
        (lambda: torch._efficientzerotensor((4,)), "has no memory"),
        (freed, "has no memory"),
        (torch.nn.UninitializedParameter, "has no shape yet"),
        (lambda: np.ones(4), "is no tensor but a ndarray"),
    ],
)
def test_tensors_whose_address_does_not_say_their_values_are_told_apart(made: Any, reason: str) -> None:
    found = why_unreadable(made())
    assert found is not None
    assert found[0].startswith(reason)
    assert found[1]


def test_tensors_inside_a_transform_have_no_memory() -> None:
    seen = []

    def note(x: torch.Tensor) -> torch.Tensor:
        seen.append(why_unreadable(x))
        return x * 2

    torch.vmap(note)(torch.ones(2, 3))
    torch.func.grad(lambda x: note(x).sum())(torch.ones(3))
    torch.func.functionalize(note)(torch.ones(3))
    assert [reason is not None and "torch.vmap" in reason[0] for reason in seen] == [True] * 3


@pytest.mark.parametrize("made", [torch.ones(0), torch.ones(4)[4:], torch.ones(4, device="meta"), torch.ones(4).t()])
def test_others_are_read(made: torch.Tensor) -> None:
    assert why_unreadable(made) is None


def test_a_stream_is_a_handle() -> None:
    class Stream:
        cuda_stream = 7

    check_stream(0, "f", None)
    check_stream(None, "f", None)
    with pytest.raises(LaunchError, match="an integer; got Stream") as caught:
        check_stream(Stream(), "f", None)
    assert caught.value.hint == "pass stream.cuda_stream"
    with pytest.raises(LaunchError, match="got str"):
        check_stream("0", "f", None)
