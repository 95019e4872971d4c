"""Attention by hand follows the scores' maximum only from 2^8 on: right whatever they do, and seldom multiplied."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tilelang.language as T
import torch

import core
from core.conformance.schedules import prepare, run_schedule
from core.ops import attention_hopper
from core.ops._attention_schedule import Schedule
from core.ops._attention_steps import GROWTH, LOG2_E, online_softmax
from core.ops.attention import attention
from tests.conformance.schedules.mutants import mutant
from tests.kernels.case import torch_dtype
from tests.ops import references

HOPPER, STEPS = "core.ops.attention_hopper", "core.ops._attention_steps"
#: Keys of a tile, and elements of a head.
KEYS, DIM = 32, 64
#: By tile, in base 2: the level of its scores for a query of weight 1. Each begins where the maximum is known.
LEVELS = {
    "creeping by 1": list(range(20)),
    "up to the threshold and over it": [0, 8, 8, 8.5, 8, 16, 16.5, 16.5, 24.5, 25],
    "jumping by 100": [0, 100, 200, 300, 400],
    "falling by 100": [0, -100, -200, -7, 1, 8],
    "creeping, jumping, falling": [-50, -49, -42, -42, 58, 59, 65, -35, 66.5, 66, 70, 170],
}
#: What the queries of a tile make of the levels: rows of one thread and of one warp differ.
WEIGHTS = (1.0, -1.0, 0.5, 0.0, 2.0, 0.875, 0.25)


def tensors(
    levels: list[float], queries: int = 128, heads: int = 1, dtype: str = "float16", device: str = "cpu"
) -> list[torch.Tensor]:
    """Queries, keys and values for scores of these levels in base 2, give or take 1; and an output of NaN."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(1, heads, n, DIM, generator=generator) for n in (queries, len(levels) * KEYS, len(levels) * KEYS)
    )
    q[..., 1:] /= DIM**0.5
    q[..., 0] = torch.tensor(WEIGHTS).repeat(-(-queries // len(WEIGHTS)))[:queries]
    k[..., 0] = torch.tensor(levels).repeat_interleave(KEYS)
    given = [x.to(torch_dtype(dtype)).to(device) for x in (q, k, v)]
    return [*given, torch.full_like(given[0], float("nan"))]


def expected(given: list[torch.Tensor], causal: bool = False) -> torch.Tensor:
    return references.attention(*given[:3], causal, 1 / LOG2_E)


def simulated(given: list[torch.Tensor], causal: bool = False, dtype: str = "float16", **options: Any) -> torch.Tensor:
    """What the simulator makes of the kernel as it is now; scores count in base 2 as they are."""
    q, k, _, o = given
    schedule = Schedule(**{"block_M": 128, "block_N": KEYS, "num_stages": 2, "threads": 256, **options})
    shape = (1, q.shape[1], k.shape[1], q.shape[2], k.shape[2], DIM)
    made = attention_hopper.warp_specialised(*shape, schedule, causal=causal, base2=1.0, dtype=dtype)
    run_schedule(prepare(made), given, seed=1, fences="writers")
    return o


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("levels", LEVELS.values(), ids=LEVELS)
def test_scores_that_grow_from_tile_to_tile(levels, dtype):
    given = tensors(levels, dtype=dtype)
    got = simulated(given, dtype=dtype)
    references.assert_near(got, expected(given), references.attention_tolerance(dtype))


@pytest.mark.parametrize("ping_pong", [False, True])
def test_causal_queries_of_persistent_blocks(ping_pong):
    # The diagonal hides tiles of some rows only, and the second tile of queries starts over.
    given = tensors([*range(7), 100], queries=256)
    got = simulated(given, causal=True, workers=1, ping_pong=ping_pong)
    references.assert_near(got, expected(given, causal=True), references.attention_tolerance("float16"))


MISTAKES = [
    (HOPPER, "changed = True", "pass"),
    (HOPPER, "if row_max[i] != old_max[i]:", "if row_max[i] < old_max[i]:"),
    # Weights that float16 cannot hold.
    (STEPS, "GROWTH = 8.0", "GROWTH = 18.0"),
    (STEPS, "T.if_then_else(grown, row_max[i], old_max[i])", "old_max[i]"),
    (STEPS, "row_sum[i] = row_sum[i] * rescale[i]", "row_sum[i] = row_sum[i]"),
]


@pytest.mark.parametrize(("module", "old", "new"), MISTAKES)
def test_a_mistake_in_it_shows(tmp_path, monkeypatch, module, old, new):
    changed = mutant(module, tmp_path, old, new)
    for name in ("GROWTH", "online_softmax", "warp_specialised"):
        if hasattr(changed, name):
            monkeypatch.setattr(attention_hopper, name, getattr(changed, name))
    given = tensors(LEVELS["creeping by 1"])
    got = simulated(given)
    with pytest.raises(AssertionError):
        references.assert_near(got, expected(given), references.attention_tolerance("float16"))


def followed(levels: list[list[float]], base2: float) -> tuple[torch.Tensor, torch.Tensor]:
    """By tile and row, the maximum that is subtracted and the factor, for tiles whose rows have scores of one level."""
    tiles, rows, keys = len(levels), len(levels[0]), 16
    advance = online_softmax(rows, keys, base2, growth=GROWTH)

    @T.prim_func
    def main(
        X: T.Tensor((tiles, rows, keys), "float32"),
        maxima: T.Tensor((tiles, rows), "float32"),
        factors: T.Tensor((tiles, rows), "float32"),
    ):
        with T.Kernel(1, threads=32):
            scores = T.alloc_fragment((rows, keys), "float32")
            row_max = T.alloc_fragment((rows,), "float32")
            old_max = T.alloc_fragment((rows,), "float32")
            rescale = T.alloc_fragment((rows,), "float32")
            tile_sum = T.alloc_fragment((rows,), "float32")
            row_sum = T.alloc_fragment((rows,), "float32")
            T.fill(row_sum, 0)
            T.fill(row_max, -T.infinity("float32"))
            for t in T.serial(tiles):
                T.copy(X[t, :, :], scores)
                advance(scores, row_max, old_max, rescale, tile_sum, row_sum)
                T.copy(row_max, maxima[t, :])
                T.copy(rescale, factors[t, :])

    x = torch.tensor(levels)[:, :, None].expand(tiles, rows, keys).contiguous()
    maxima, factors = (torch.full((tiles, rows), float("nan")) for _ in range(2))
    core.compile(main, target="cpu")(x, maxima, factors)
    return maxima.T, factors.T


def test_the_maximum_follows_what_is_more_than_the_threshold_above_it():
    hidden = -float("inf")
    creeps, jumps, falls = [3.0, 11, 19, 21], [0.0, 200, 208, 218], [5.25, -90, hidden, 21.25]
    # Scores count half: the threshold of 8 in base 2 is 16.
    maxima, factors = followed([list(tile) for tile in zip(creeps, jumps, falls, strict=True)], 0.5)
    assert maxima.tolist() == [[3, 3, 3, 21], [0, 200, 200, 218], [5.25] * 4]
    # Nothing was before the first tile; and where the maximum stays, the factor is 1 exactly.
    assert factors.tolist() == [[0, 1, 1, 2**-9], [0, 2**-100, 1, 2**-9], [0, 1, 1, 1]]


def test_a_scale_that_makes_nothing_of_all_scores_still_starts_at_the_first():
    maxima, factors = followed([[-2e30], [3e30]], 1e-40)
    assert maxima.tolist() == [[torch.tensor(-2e30).item()] * 2]
    assert factors.tolist() == [[0, 1]]


def test_on_hopper_the_output_is_multiplied_behind_a_branch_of_each_thread():
    kernel = attention.compile(
        4, 32, 32, 2048, 2048, 128, target="cuda:h200", build=False, variant="overlapped", workers=132,
        block_M=128, block_N=160, num_stages=2, threads=256,
    )  # fmt: skip
    source = kernel.get_kernel_source()
    (branch,) = re.findall(r"if \(\(bool\)changed\) \{(.*?)\n        \}", source, re.DOTALL)
    assert "rescale" in branch
    assert "sync" not in branch
    assert source.count("(output + ") > branch.count("(output + ") > 0


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("variant", ["overlapped", "ping_pong"])
@pytest.mark.parametrize("levels", LEVELS.values(), ids=LEVELS)
def test_on_a_device(levels, variant, causal, dtype):
    levels = [level for level in levels for _ in range(4)]  # a level for each of its tiles of 128 keys
    given = tensors(levels, queries=len(levels) * KEYS, heads=4, dtype=dtype, device="cuda")
    q, k, _, o = given
    kernel = attention.compile(
        1, 4, 4, q.shape[2], k.shape[2], DIM, causal=causal, scale=1 / LOG2_E, dtype=dtype, target="cuda",
        variant=variant, block_M=128, block_N=128, num_stages=2, threads=256, workers=3,
    )  # fmt: skip
    kernel(*given)
    references.assert_near(o, expected(given, causal), references.attention_tolerance(dtype))
