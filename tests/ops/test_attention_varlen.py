"""`core.ops.attention_varlen.attention_varlen`: sequences of any lengths, empty ones included; CPU and simulators."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import core
from core.ops import functional
from core.ops.attention_varlen import attention_varlen
from tests.ops import references
from tests.properties import compiling

TILES = {"block_M": 32, "block_N": 32, "num_stages": 2, "threads": 128}


def run(
    target: str, queries: list[int], keys: list[int], causal: bool = False, heads: int = 2, dim: int = 16, **more: Any
) -> None:
    kernel = attention_varlen.compile(
        len(queries), heads, 1, sum(queries), sum(keys), dim, causal=causal, target=target, **TILES, **more
    )
    q = torch.randn(sum(queries), heads, dim).half()
    k, v = (torch.randn(sum(keys), 1, dim).half() for _ in range(2))
    starts = [list(accumulate(lengths, initial=0)) for lengths in (queries, keys)]
    poisoned = torch.full_like(q, float("nan"))
    kernel(q, k, v, *(torch.tensor(offsets, dtype=torch.int32) for offsets in starts), poisoned)
    for s in range(len(queries)):
        one = [
            x[starts[which][s] : starts[which][s + 1]].transpose(0, 1)[None] for x, which in ((q, 0), (k, 1), (v, 1))
        ]
        # A query that sees no key gives 0, torch's softmax of nothing NaN.
        expected = references.attention(*one, causal).nan_to_num(0.0)
        got = poisoned[starts[0][s] : starts[0][s + 1]].transpose(0, 1)[None]
        references.assert_near(got, expected, references.attention_tolerance("float16"))


@pytest.mark.parametrize("causal", [False, True])
def test_on_the_cpu(causal):
    run("cpu", [40, 0, 7, 64], [33, 5, 70, 64], causal)


@pytest.mark.parametrize("target", ["metax:c500", "ascend:910b3"])
def test_in_the_simulators(target):
    run(target, [20, 3], [35, 3], True, heads=1, simulate=True)


@given(
    lengths=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=4), causal=st.booleans()
)
@compiling(3)
def test_any_lengths(lengths, causal):
    queries, keys = ([pair[which] for pair in lengths] for which in (0, 1))
    run("cpu", [*queries, 3], [*keys, 9], causal)


def test_an_h200_compiles_it_to_warpgroup_instructions():
    kernel = attention_varlen.compile(
        8, 32, 8, 16384, 16384, 128, causal=True, target="cuda:h200", build=False,
        block_M=128, block_N=128, num_stages=2, threads=256,
    )  # fmt: skip
    assert "wgmma" in kernel.get_kernel_source()
    assert "tma_load" in kernel.get_kernel_source()


def test_as_a_function_of_tensors_it_is_attention_of_each_sequence():
    q, k, v = (torch.randn(50, heads, 32).half() for heads in (4, 2, 2))
    offsets = torch.tensor([0, 20, 50], dtype=torch.int32)
    got = functional.attention_varlen(q, k, v, offsets, offsets, causal=True, target="cpu", **TILES)
    for piece in (slice(0, 20), slice(20, 50)):
        alone = functional.attention(
            *(x[piece].transpose(0, 1)[None].contiguous() for x in (q, k, v)), causal=True, target="cpu", **TILES
        )
        references.assert_near(got[piece], alone[0].transpose(0, 1), references.attention_tolerance("float16"))
    with pytest.raises(core.ShapeMismatch, match="q_offsets"):
        functional.attention_varlen(q, k[0], v, offsets, offsets, target="cpu")


def test_heads_that_cannot_share_keys_are_refused():
    with pytest.raises(core.KernelError, match="cannot share 2 key heads"):
        attention_varlen.compile(1, 3, 2, 64, 64, 64, target="cpu")
    with pytest.raises(core.KernelError, match="scale of the scores is '1'"):
        attention_varlen.compile(1, 4, 2, 64, 64, 64, scale="1", target="cpu")
