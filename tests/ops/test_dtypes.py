"""Every operator says what types it computes: those compile, others are refused with one error before anything else."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
import torch

import core
import core.ops
from core.ops import functional
from core.ops._dtypes import EIGHT_BIT_FLOATS, FLOATS, INTEGERS
from core.ops.activations import activation
from core.ops.gemm import gemm
from core.tiling import KernelFactory

PRODUCTS = (*FLOATS, *EIGHT_BIT_FLOATS, "float64")
ATTENTION = {"block_M": 16, "block_N": 16, "num_stages": 1, "threads": 32}
TILES = {**ATTENTION, "block_K": 16}
#: Each operator: a call of its factory, and what it is computed of.
OPERATORS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "activations.activation": ({"N": 32, "name": "silu"}, FLOATS),
    "activations.gated_activation": ({"M": 4, "N": 16}, FLOATS),
    "attention.attention": ({"batch": 1, "heads": 1, "kv_heads": 1, "M": 16, "N": 16, "dim": 16, **ATTENTION}, FLOATS),
    "attention_varlen.attention_varlen": (
        {"batch": 1, "heads": 1, "kv_heads": 1, "M": 16, "N": 16, "dim": 16, **ATTENTION},
        FLOATS,
    ),
    "conv2d.conv2d": (
        {"batch": 1, "height": 4, "width": 4, "channels": 16, "filters": 16, "size": 1, **TILES},
        (*FLOATS, *EIGHT_BIT_FLOATS),
    ),
    "gemm.gemm": ({"M": 16, "N": 16, "K": 16}, (*PRODUCTS, *INTEGERS)),
    "grouped_gemm.grouped_gemm": ({"groups": 1, "M": 16, "N": 16, "K": 16, **TILES}, (*FLOATS, *EIGHT_BIT_FLOATS)),
    "layernorm.layernorm": ({"M": 4, "N": 32}, FLOATS),
    "mla.mla_decode": ({"batch": 1, "M": 16, "N": 16, "dim": 16, "rope": 16, **ATTENTION}, FLOATS),
    "rmsnorm.add_rmsnorm": ({"M": 4, "N": 32}, FLOATS),
    "rmsnorm.rmsnorm": ({"M": 4, "N": 32}, FLOATS),
    "softmax.softmax": ({"M": 4, "N": 32}, FLOATS),
}
#: Names of types that a tensor can have, whoever computes them.
TYPES = (
    *PRODUCTS,
    *INTEGERS,
    "bool",
    "int4",
    "float8_e4m3fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn",
    "complex64",
    "half",
)


def factory(operator: str) -> KernelFactory:
    module, _, name = operator.partition(".")
    found: KernelFactory = getattr(import_module(f"core.ops.{module}"), name)
    return found


def factories() -> dict[str, KernelFactory]:
    """Every factory in `core.ops`, where it is defined."""
    found = {}
    for module in iter_modules(core.ops.__path__):
        for name, value in vars(import_module(f"core.ops.{module.name}")).items():
            if isinstance(value, KernelFactory) and value.function.__module__ == f"core.ops.{module.name}":
                found[f"{module.name}.{name}"] = value
    return found


def test_every_operator_is_here_and_declares_each_of_its_dtypes():
    found = factories()
    assert sorted(found) == sorted(OPERATORS)
    for operator, made in found.items():
        assert set(made.dtypes) == {name for name in made.signature.parameters if name.endswith("dtype")}, operator


@pytest.mark.parametrize("operator", OPERATORS)
def test_what_it_is_computed_of_compiles_and_the_rest_is_refused(operator: str):
    call, computed = OPERATORS[operator]
    for dtype in computed:
        source = factory(operator).compile(**call, dtype=dtype, target="cpu", build=False).get_kernel_source()
        assert source, dtype
    for dtype in set(TYPES) - set(computed):
        with pytest.raises(core.ShapeMismatch, match=f"has no dtype {dtype}") as caught:
            factory(operator).compile(**call, dtype=dtype, target="cpu", build=False)
        assert set(caught.value.details["allowed"]) == set(computed)
        assert caught.value.hint


def test_sums_hold_every_operand_and_results_are_of_their_kind():
    for wrong in (
        {"dtype": "int8", "accum_dtype": "float32"},
        {"dtype": "int64", "accum_dtype": "int32"},
        {"dtype": "float16", "accum_dtype": "int32"},
        {"dtype": "float16", "accum_dtype": "int64"},
        {"dtype": "float8_e4m3fn", "accum_dtype": "uint64"},
        {"dtype": "int16", "accum_dtype": "uint32"},
        {"dtype": "uint64", "accum_dtype": "int64"},
        {"dtype": "float64", "accum_dtype": "float32"},
        {"dtype": "bfloat16", "accum_dtype": "float16"},
        {"dtype": "float16", "accum_dtype": "bfloat16"},
        {"dtype": "float16", "out_dtype": "int32"},
    ):
        with pytest.raises(core.ShapeMismatch, match="gemm has no "):
            gemm.compile(16, 16, 16, target="cpu", build=False, **wrong)


def test_grouped_products_of_integers_are_told_their_sums():
    grouped, call = factory("grouped_gemm.grouped_gemm"), {"groups": 1, "M": 16, "N": 16, "K": 16, **TILES}
    with pytest.raises(core.ShapeMismatch, match="has no dtype int8 with these arguments") as caught:
        grouped.compile(**call, dtype="int8", target="cpu", build=False)
    assert "or give it with another accum_dtype" in caught.value.hint
    kernel = grouped.compile(**call, dtype="int8", accum_dtype="int32", out_dtype="int32", target="cpu")
    a, b = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((16, 16), (1, 16, 16)))
    got = kernel(a, b, torch.tensor([0, 16], dtype=torch.int32))
    assert torch.equal(got, a.int() @ b[0].int())


def test_a_call_with_tiles_and_a_ranking_refuse_the_same():
    with pytest.raises(core.ShapeMismatch, match="has no dtype int32"):
        factory("softmax.softmax").rank(4, 32, dtype="int32", target="cpu")
    with pytest.raises(core.ShapeMismatch, match="has no dtype bool"):
        activation(32, dtype="bool", block_N=32, threads=32)


def test_a_dtype_of_torch_is_its_name():
    a = torch.randn(16, 16, dtype=torch.float64)
    kernel = gemm.compile(16, 16, 16, dtype=torch.float64, target="cpu")
    torch.testing.assert_close(kernel(a, a), a @ a, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_relu_of_integers_keeps_every_digit(dtype: torch.dtype):
    most = torch.iinfo(dtype).max
    x = torch.tensor([most, most - 1, (1 << 24) + 1 if most > 255 else 1, torch.iinfo(dtype).min], dtype=dtype)
    assert torch.equal(functional.relu(x), x.clamp(min=0))
