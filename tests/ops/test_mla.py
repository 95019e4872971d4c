"""`core.ops.mla.mla_decode`: caches of different lengths, keys shared by several blocks; CPU and simulators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.ops._mla_launch import Shapes, combining
from core.ops.mla import mla_decode
from tests.ops import references

TILES = {"block_M": 16, "block_N": 32, "num_stages": 2, "threads": 128}


def run(
    target: str, M: int, lengths: list[int], N: int, splits: int, dim: int = 64, rope: int = 16, **more: Any
) -> None:
    batch = len(lengths)
    kernel = mla_decode.compile(batch, M, N, dim, rope, target=target, **{**TILES, "splits": splits, **more})
    q, q_rope = torch.randn(batch, M, dim).half(), torch.randn(batch, M, rope).half()
    kv, k_rope = torch.randn(batch, N, dim).half(), torch.randn(batch, N, rope).half()
    counts = torch.tensor(lengths, dtype=torch.int32)
    # What lies behind a sequence's end is not read, or does not count.
    for b, length in enumerate(lengths):
        kv[b, length:] = 1e4
        k_rope[b, length:] = 1e4
    kept = (splits, batch, M) if splits > 1 else (1, 1, 1)
    outputs = [torch.full((batch, M, dim), float("nan"), dtype=torch.float16)]
    outputs += [torch.full((*kept, dim), float("nan")), torch.full(kept, float("nan"))]
    kernel(q, q_rope, kv, k_rope, counts, *outputs)
    expected = references.mla_decode(q, q_rope, kv, k_rope, counts)
    references.assert_near(outputs[0], expected, references.attention_tolerance("float16"))


@pytest.mark.parametrize(("M", "lengths", "splits"), [(16, [96, 33], 1), (16, [100, 1, 64], 4), (20, [70], 2)])
def test_on_the_cpu(M, lengths, splits):
    run("cpu", M, lengths, 100, splits)


@pytest.mark.parametrize("target", ["metax:c500", "ascend:910b3"])
def test_in_the_simulators(target):
    run(target, 16, [70, 9], 96, 2, simulate=True)


@pytest.mark.parametrize("target", ["cpu", "metax:c500", "ascend:910b3"])
@pytest.mark.parametrize(("batch", "splits"), [(1, 20), (1, 40), (9, 40)])
def test_many_shares_of_few_and_of_many_heads(target, batch, splits):
    """Few heads have their columns divided among blocks; 40 shares are read in two rounds and more."""
    divided = combining(Shapes(batch, 16, 300, 512, 64, splits, "float16")).parts
    assert divided == (4 if batch == 1 else 1)
    lengths = [300, 1, 33, 64, 65, 100, 299, 31, 32][:batch]
    run(target, 16, lengths, 300, splits, dim=512, rope=64, num_stages=1, simulate=target != "cpu")


def test_64_heads_lower_where_shared_memory_holds_32_keys_and_their_tiles_work_in_the_simulator():
    chosen = mla_decode.compile(4, 64, 2048, target="metax:c500", build=False).config
    assert not chosen.rejected
    tiles = {name: entry.effective for name, entry in chosen.entries.items()}
    run("metax:c500", 20, [70, 9], 96, dim=512, rope=64, simulate=True, **tiles)


@given(M=st.integers(1, 40), lengths=st.lists(st.integers(1, 90), min_size=1, max_size=3), splits=st.integers(1, 5))
@settings(max_examples=3, deadline=None)
def test_any_lengths(M, lengths, splits):
    run("cpu", M, lengths, max(lengths), splits)


def test_an_h200_is_offered_tiles_that_it_can_launch_and_shares_of_long_caches():
    candidates = mla_decode.rank(1, 64, 65536, target="cuda:h200").candidates
    assert {c.tiles["block_M"] for c in candidates} == {64}
    assert max(c.tiles["splits"] for c in candidates) > 100


@pytest.mark.parametrize("target", ["cuda:a100", "metax:c500", "ascend:910b3", "cpu"])
def test_chips_without_warpgroups_have_the_plain_variant_alone(target):
    ranked = mla_decode.rank(4, 64, 2048, target=target).candidates
    assert {c.tiles["variant"] for c in ranked} == {"pipelined"}
    assert min(c.weight for c in ranked) == 1.0
