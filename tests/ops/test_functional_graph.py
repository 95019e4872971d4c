"""Which calls of `core.ops.functional` become operators of a graph that torch traces: those that their schema holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import core
from core.ops import functional

X, WEIGHT = torch.zeros(4, 8), torch.zeros(8)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: functional.gemm(X, [X]), core.LaunchError, "gemm: b is a tensor, got list"),
        (lambda: functional.gemm(X), TypeError, "missing 1 required positional argument: 'b'"),
        (
            lambda: functional.add_rmsnorm(X, X, WEIGHT, out=(X.clone(), [0.0])),
            core.LaunchError,
            r"add_rmsnorm: out\[1\] is a tensor, got list",
        ),
        (lambda: functional.softmax(X, out=[X]), core.LaunchError, "out is a tensor, got list"),
    ],
    ids=["an operand of two", "one operand left out", "a result of two", "several results for one"],
)
def test_a_call_is_no_operator_where_one_part_of_it_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    """It runs as it is instead, whose error is ours: torch's would name a schema that nobody wrote."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with pytest.raises(error, match=message):
        call()
