"""Attention scheduled by hand, simulated: right in every order tried, and what is taken out of it is missed."""

from __future__ import annotations

import linecache
import math
from typing import Any

import pytest
import torch

from core.conformance.schedules import Deadlock, MissingFence, Race, RegistersInFlight, prepare, run_schedule
from core.ops._attention_schedule import Schedule
from core.ops.attention_hopper import warp_specialised
from tests.conformance.schedules.mutants import first_fault, mutant

MODULE = "core.ops.attention_hopper"
DIM = 64


def kernel(shape: tuple[int, int, int, int, int], make: Any = warp_specialised, **options: Any) -> Any:
    causal = options.pop("causal", False)
    tile = {"block_M": 128, "block_N": 64, "num_stages": 2, "threads": 256, **options}
    base2 = math.log2(math.e) / math.sqrt(DIM)
    return prepare(make(*shape, DIM, Schedule(**tile), causal=causal, base2=base2, dtype="float16"))


def tensors(shape: tuple[int, int, int, int, int]) -> list[torch.Tensor]:
    batch, heads, kv_heads, M, N = shape
    generator = torch.Generator().manual_seed(0)
    sizes = [(batch, heads, M, DIM), (batch, kv_heads, N, DIM), (batch, kv_heads, N, DIM)]
    given = [torch.randn(size, generator=generator).half() for size in sizes]
    return [*given, torch.full((batch, heads, M, DIM), float("nan")).half()]


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    shared = q.shape[1] // k.shape[1]
    mask = torch.ones(q.shape[2], k.shape[2]).tril(k.shape[2] - q.shape[2]).bool() if causal else None
    k, v = (x.float().repeat_interleave(shared, 1) for x in (k, v))
    return torch.nn.functional.scaled_dot_product_attention(q.float(), k, v, attn_mask=mask)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((1, 1, 1, 128, 330), {"ping_pong": True}),
        ((1, 2, 1, 200, 256), {"causal": True}),
        ((1, 1, 1, 256, 330), {"causal": True, "ping_pong": True, "workers": 1}),
        ((1, 2, 2, 256, 200), {"workers": 2}),
        ((1, 1, 1, 384, 384), {"causal": True, "workers": 1, "num_stages": 3}),
    ],
    ids=str,
)
def test_attention_is_right_in_every_order_tried(shape, options):
    made = kernel(shape, **options)
    for seed in range(2):
        q, k, v, o = tensors(shape)
        run_schedule(made, [q, k, v, o], seed=seed, fences="writers")
        torch.testing.assert_close(o.float(), reference(q, k, v, options.get("causal", False)), atol=2e-3, rtol=2e-3)


FAULTS = [
    # What is taken out or changed, by what, and what must be found.
    ("T.mbarrier_arrive(k_empty[stage])", "pass", {}, Deadlock),
    ("T.mbarrier_wait_parity(v_full[stage], phase)", "pass", {}, Race),
    # By the order, a wrong parity either returns at once or never.
    ("wait_parity(k_full[stage], phase)", "wait_parity(k_full[stage], phase ^ 1)", {}, (Race, Deadlock)),
    ("T.mbarrier_wait_parity(q_empty[0], (taken & 1) ^ 1)", "pass", {"workers": 1}, Race),
    ("T.named_barrier_arrive(2 * _TURN + 1 - order, 2 * GROUP)", "pass", {"ping_pong": True}, Deadlock),
    ("T.named_barrier_arrive(_TURN, 2 * GROUP)", "pass", {"ping_pong": True}, Deadlock),
    ("T.wait_wgmma(1)", "pass", {}, RegistersInFlight),
    ("T.fence_proxy_async()", "pass", {}, MissingFence),
]


@pytest.mark.parametrize(("old", "new", "options", "kind"), FAULTS, ids=lambda value: str(value)[:50])
def test_what_is_taken_out_is_missed(tmp_path, old, new, options, kind):
    shape = (1, 1, 1, 256 if "workers" in options else 128, 320)
    changed = mutant(MODULE, tmp_path, old, new)
    made = kernel(shape, changed.warp_specialised, **options)
    fault = first_fault(made, lambda: tensors(shape), fences="writers")
    assert isinstance(fault, kind)
    assert fault.location is not None
    assert fault.location.file == changed.__file__


def test_values_released_before_their_product_is_waited_for_are_overwritten(tmp_path):
    # The wait and the arrival after it change places.
    old, new = ("T.wait_wgmma(0)", "T.mbarrier_arrive(v_empty[last])")
    gap = "\n" + " " * 28
    changed = mutant(MODULE, tmp_path, old + gap + new, new + gap + old)
    shape = (1, 1, 1, 128, 320)
    fault = first_fault(kernel(shape, changed.warp_specialised), lambda: tensors(shape))
    assert isinstance(fault, Race)
    assert "the copy engine's write" in fault.message
    assert "the product" in fault.message
    lines = [linecache.getline(place.file, place.line) for place in fault.related]
    assert any("T.wgmma_gemm(weights" in line for line in lines)
