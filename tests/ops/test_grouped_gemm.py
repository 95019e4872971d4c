"""`core.ops.grouped_gemm.grouped_gemm`: groups of any size, empty ones included; on the CPU and in both simulators."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.ops.grouped_gemm import grouped_gemm
from tests.ops import references
from tests.properties import compiling

TILES = {"block_M": 16, "block_N": 32, "block_K": 32, "num_stages": 2, "threads": 128}


def run(target: str, sizes: list[int], N: int, K: int, trans_b: bool = False, **more: Any) -> None:
    groups, M = len(sizes), sum(sizes)
    kernel = grouped_gemm.compile(groups, M, N, K, trans_b=trans_b, target=target, **TILES, **more)
    a = torch.randn(M, K).half()
    b = torch.randn(groups, *((N, K) if trans_b else (K, N))).half()
    offsets = list(accumulate(sizes, initial=0))
    poisoned = torch.full((M, N), float("nan"), dtype=torch.float16)
    kernel(a, b, torch.tensor(offsets, dtype=torch.int32), poisoned)
    expected = torch.cat(
        [references.gemm(a[offsets[g] : offsets[g + 1]], b[g], trans_b=trans_b) for g in range(groups)]
    )
    references.assert_near(poisoned, expected, references.gemm_tolerance("float16", K, "float16"))


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("sizes", [[32, 16], [5, 0, 40, 1], [70]])
def test_on_the_cpu(sizes, trans_b):
    run("cpu", sizes, 40, 72, trans_b)


@pytest.mark.parametrize("target", ["metax:c500", "ascend:910b3"])
def test_in_the_simulators(target):
    run(target, [20, 0, 7], 32, 64, True, simulate=True)


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=5).filter(sum), N=st.integers(1, 50), K=st.integers(1, 70)
)
@compiling(3)
def test_any_groups(sizes, N, K):
    run("cpu", sizes, N, K)
