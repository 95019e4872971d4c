"""Activations, alone and gating: every function, special values, odd extents, on the CPU and in both simulators."""

from __future__ import annotations

import pytest
import torch

import core
from core.ops.activations import ACTIVATIONS, activation, gated_activation
from tests.ops import references


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_each_function(name):
    kernel = activation.compile(1000, name=name, dtype="float32", target="cpu", block_N=256, threads=128)
    x = torch.cat([torch.randn(994) * 4, torch.tensor([0.0, -0.0, 100.0, -100.0, float("inf"), float("nan")])])
    # Differences of numbers near 1 (erf, tanh) leave a few ulp of 1, whatever is left of them.
    torch.testing.assert_close(
        kernel(x).double(), references.ACTIVATIONS[name](x.double()), atol=5e-7, rtol=2e-6, equal_nan=True
    )


@pytest.mark.parametrize(("target", "name"), [("metax:c500", "gelu"), ("ascend:910b3", "gelu_tanh")])
def test_gating_in_the_simulators(target, name):
    tiles = {"block_M": 4, "block_N": 32, "threads": 128}
    kernel = gated_activation.compile(7, 100, name=name, target=target, simulate=True, **tiles)
    x = (torch.randn(7, 2, 100) * 2).half()
    y = torch.full((7, 100), float("nan"), dtype=torch.float16)
    kernel(x, y)
    wide = x.double()
    expected = references.ACTIVATIONS[name](wide[:, 0]) * wide[:, 1]
    references.assert_near(y, expected, references.rows_tolerance("float16"))


def test_an_unknown_function_is_refused():
    with pytest.raises(core.KernelError, match="there is no activation 'swish'"):
        activation.compile(1000, name="swish", target="cpu")
