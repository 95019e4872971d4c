"""Activations, alone and gating: every function, special values, odd extents, on the CPU and in both simulators."""

from __future__ import annotations

import pytest
import tilelang.language as T
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


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("factory", "shape"),
    [(activation, (1 << 24,)), (gated_activation, (4096, 4096)), (gated_activation, (70000, 11008))],
)
def test_an_h200_moves_16_bytes_at_a_time(factory, shape, dtype):
    code = factory.compile(*shape, dtype=dtype, target="cuda:h200", build=False).get_kernel_source()
    vector = "uint4" if dtype == "float16" else "float4"
    assert f"*({vector}*)(Y + " in code
    assert f"*({vector}*)(X + " in code
    assert not any(f"*({narrow}*)({tensor} + " in code for narrow in ("uint2", "uint1", "float2") for tensor in "XY")


@pytest.mark.parametrize("rows", [1 << 20, T.dynamic("M")], ids=["known", "symbolic"])
def test_gating_has_all_its_blocks_along_the_axis_that_takes_millions(rows):
    kernel = gated_activation.compile(rows, 2048, target="cuda:h200", build=False)
    (launch,) = kernel.program.view.launches
    assert [name for name, _ in launch.grid][1:] == []
    assert kernel.config.tiles["block_M"] * 65535 < 1 << 20  # as rows of blocks along y, they would be too many
    assert " / " not in kernel.get_kernel_source()  # nor are the columns divided by what a call says


def test_gating_of_a_symbolic_width_divides_by_nothing():
    kernel = gated_activation.compile(T.dynamic("M"), T.dynamic("N"), target="cuda:h200", build=False)
    assert "% ((" not in kernel.get_kernel_source()


def test_an_unknown_function_is_refused():
    with pytest.raises(core.KernelError, match="there is no activation 'swish'"):
        activation.compile(1000, name="swish", target="cpu")
