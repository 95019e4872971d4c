"""`core.ops.attention.attention`: shared heads, causal, any extent; on the CPU and in both simulators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import core
from core.ops.attention import attention
from tests.kernels.case import torch_dtype
from tests.ops import references
from tests.properties import compiling

TILES = {"block_M": 32, "block_N": 32, "num_stages": 2, "threads": 128, "variant": "pipelined", "workers": 0}
#: Batch, heads, key heads, queries, keys, width of a head.
Shape = tuple[int, int, int, int, int, int]
CASES: list[tuple[Shape, dict[str, Any]]] = [
    ((1, 2, 2, 64, 64, 32), {}),
    ((2, 4, 2, 33, 50, 16), {}),
    ((1, 2, 1, 64, 64, 32), {"causal": True}),
    ((1, 3, 1, 20, 71, 40), {"causal": True}),
    ((1, 1, 1, 1, 100, 64), {"block_M": 16}),
    ((1, 2, 2, 40, 40, 32), {"dtype": "bfloat16", "scale": 0.3}),
]


def run(target: str, shape: Shape, options: dict[str, Any], **more: Any) -> None:
    batch, heads, kv_heads, M, N, dim = shape
    kernel = attention.compile(*shape, target=target, **{**TILES, **options}, **more)
    dtype = torch_dtype(options.get("dtype", "float16"))
    q = torch.randn(batch, heads, M, dim).to(dtype)
    k, v = (torch.randn(batch, kv_heads, N, dim).to(dtype) for _ in range(2))
    poisoned = torch.full_like(q, float("nan"))
    kernel(q, k, v, poisoned)
    expected = references.attention(q, k, v, bool(options.get("causal")), options.get("scale"))
    references.assert_near(poisoned, expected, references.attention_tolerance(options.get("dtype", "float16")))


@pytest.mark.parametrize(("shape", "options"), CASES)
def test_on_the_cpu(shape, options):
    run("cpu", shape, options)


@pytest.mark.parametrize("target", ["metax:c500", "ascend:910b3"])
def test_in_the_simulators(target):
    run(target, (1, 2, 1, 17, 40, 16), {"causal": True}, simulate=True)


@given(
    group=st.integers(1, 3),
    M=st.integers(1, 70),
    more_keys=st.integers(0, 40),
    dim=st.sampled_from([16, 24, 50, 64]),
    causal=st.booleans(),
    block=st.sampled_from([16, 32, 64]),
)
@compiling(3)
def test_any_shape(group, M, more_keys, dim, causal, block):
    run("cpu", (1, 2 * group, 2, M, M + more_keys, dim), {"causal": causal, "block_M": block, "block_N": 32})


def test_scores_far_from_zero_neither_overflow_nor_vanish():
    kernel = attention.compile(1, 1, 1, 32, 64, 32, target="cpu", **TILES)
    q, k, v = (torch.randn(1, 1, n, 32).half() for n in (32, 64, 64))
    k = k + 60 * q[:, :, :1] / q[:, :, :1].norm()
    references.assert_near(
        kernel(20 * q, k, v), references.attention(20 * q, k, v), references.attention_tolerance("float16")
    )


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((1, 3, 2, 64, 64, 64), {}, "cannot share 2 key heads"),
        ((1, 1, 1, 64, 32, 64), {"causal": True}, "see nothing"),
        ((1, 1, 1, 256, 256, 64), {"variant": "overlapped", "block_M": 64, "threads": 256}, "a warpgroup takes 64"),
        (
            (1, 1, 1, 256, 256, 64),
            {"variant": "ping_pong", "block_M": 64, "threads": 128},
            "orders two warpgroups",
        ),
        (
            (1, 1, 1, 256, 256, 64),
            {"variant": "overlapped", "block_M": 128, "threads": 256, "num_stages": 1},
            "keys of the next tile",
        ),
        ((1, 1, 1, 64, 64, 64), {"scale": 0}, "scale of the scores is 0, and it is a number above 0"),
        ((1, 1, 1, 64, 64, 64), {"scale": -0.125}, "scale of the scores is -0.125"),
        ((1, 1, 1, 64, 64, 64), {"scale": float("nan")}, "scale of the scores is nan"),
        (
            (1, 1, 1, 64, 64, 64),
            {"scale": 1e-39},
            "scale of the scores is 1e-39, and float32 holds scales from 8.15e-39",
        ),
        ((1, 1, 1, 64, 64, 64), {"scale": 3e38}, r"scale of the scores is 3e\+38, .* to 1.18e\+38"),
        ((1, 1, 1, 64, 64, 64), {"scale": 10**400}, "scale of the scores is 1000"),
    ],
)
def test_what_cannot_be_is_refused(shape, options, message):
    with pytest.raises(core.KernelError, match=message) as caught:
        attention.compile(*shape, target="cuda:h200", build=False, **{**TILES, **options})
    assert caught.value.hint


@pytest.mark.parametrize(("variant", "workers"), [("overlapped", 132), ("ping_pong", 0)])
def test_by_hand_products_are_issued_together(variant, workers):
    kernel = attention.compile(
        4, 32, 8, 2048, 2048, 128, target="cuda:h200", build=False, variant=variant, workers=workers,
        block_M=128, block_N=128, num_stages=2, threads=256,
    )  # fmt: skip
    source = kernel.get_kernel_source()
    # In the loop a product with keys has one with values behind it, in flight; the first stands alone before the loop.
    assert source.count("tl::wait_wgmma<1>()") == 1
    assert source.count("tl::wgmma_ss<") == 2
    after_setup = source.split("__syncthreads();", 1)[1]
    assert "__syncthreads" not in after_setup
    # In turns, they meet at two barriers of their own; otherwise only around the tile that is stored.
    assert after_setup.count("__sync_thread_partial") == (4 if variant == "ping_pong" else 2)
    assert kernel.config.relaxations[0].startswith("tl.enable_fast_math")


def test_an_h200_is_offered_every_variant_and_other_chips_the_portable_one():
    offered = {c.tiles["variant"] for c in attention.rank(4, 32, 32, 2048, 2048, 128, target="cuda:h200").candidates}
    assert offered == {"pipelined", "overlapped", "ping_pong"}
    for target, dim in (("cuda:a100", 128), ("cuda:h200", 80)):
        candidates = attention.rank(4, 32, 32, 2048, 2048, dim, target=target).candidates
        assert {c.tiles["variant"] for c in candidates} == {"pipelined"}
        assert {c.tiles["workers"] for c in candidates} == {0}
