"""Tiles handed from one warpgroup to another through shared memory: each mistake is found, and named by its lines."""

from __future__ import annotations

import linecache

import numpy as np
import pytest
import torch

from core.conformance import run_schedule
from core.conformance.schedules import (
    BarrierMisuse,
    Deadlock,
    EndsEarly,
    MissingFence,
    Race,
    RegistersInFlight,
    prepare,
)
from tests.conformance.schedules.exchange import exchange
from tests.conformance.schedules.mutants import first_fault

TILES = 5


def tensors() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(rows, 128, generator=generator).half() / 4 for rows in (64, TILES * 64))
    return [q, k, torch.full((64, 128), float("nan"))]


def reference(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return (q.float() @ k.float().T).half().float() @ k.float()


def test_it_is_right_in_every_order_tried():
    made = prepare(exchange(TILES, stages=3))
    for seed in range(4):
        q, k, o = tensors()
        run_schedule(made, [q, k, o], seed=seed, fences="writers")
        torch.testing.assert_close(o, reference(q, k), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("fault", "kind", "line"),
    [
        ("arrival", Deadlock, "T.mbarrier_wait_parity(k_empty"),
        ("count", Deadlock, "T.mbarrier_wait_parity(k_empty"),
        ("parity", Deadlock, "T.mbarrier_wait_parity(k_empty"),
        ("turn", Race, "T.copy(weights, p)"),
        ("fence", MissingFence, "T.wgmma_gemm(p, k"),
        ("early release", Race, "T.tma_copy(K["),
        ("registers", RegistersInFlight, "T.copy(scores, weights)"),
        ("store", EndsEarly, "T.tma_copy(left"),
    ],
)
def test_each_mistake_is_found_at_its_line(fault, kind, line):
    found = first_fault(prepare(exchange(TILES, fault=fault)), tensors)
    assert isinstance(found, kind)
    places = [found.location, *found.related]
    assert any(line in linecache.getline(place.file, place.line) for place in places if place is not None), str(found)
    assert "simulated" in str(found)


def test_a_barrier_that_is_arrived_at_twice_is_misused_or_loses_step():
    # By the order: no arrival is left in the phase, or the next phase is over too early, or somebody misses one.
    kinds = (BarrierMisuse, Race, Deadlock)
    assert isinstance(first_fault(prepare(exchange(TILES, fault="double arrival")), tensors), kinds)


def test_a_named_barrier_has_one_count():
    assert isinstance(first_fault(prepare(exchange(TILES, fault="named count")), tensors), BarrierMisuse)


def test_what_was_never_written_is_not_a_number():
    q, k, o = tensors()
    run_schedule(exchange(TILES, fault="no scale"), [q, k, o])
    assert torch.isfinite(o[:, :64]).all()
    assert torch.isnan(o[:, 64:]).all()


def test_a_race_names_both_sides():
    found = first_fault(prepare(exchange(TILES, fault="turn")), tensors)
    assert found is not None
    (other,) = found.related
    assert "T.wgmma_gemm(p, k" in linecache.getline(other.file, other.line)
    assert f"{other.file}:{other.line}" in found.message
    assert found.block == 0


def test_a_deadlock_lists_who_waits_for_what():
    found = first_fault(prepare(exchange(TILES, fault="arrival")), tensors)
    assert found is not None
    assert "threads 0-127" in found.message
    assert "parity 0 of k_empty[0] (phase 0, 128 of 256 arrivals missing)" in found.message
    assert "named barrier 8 (128 of 256 threads have arrived)" in found.message


def test_a_seed_is_an_order():
    made = prepare(exchange(TILES, fault="turn"))
    texts = set()
    for _ in range(2):
        with pytest.raises(Race) as caught:
            run_schedule(made, tensors(), seed=3)
        texts.add(str(caught.value))
    assert len(texts) == 1
    assert "seed 3" in texts.pop()


def test_numpy_arrays_do_as_well():
    q, k, o = (np.ascontiguousarray(tensor.numpy()) for tensor in tensors())
    run = run_schedule(exchange(TILES), [q, k, o], blocks=[0])
    assert run.blocks == 1
    np.testing.assert_allclose(o, reference(torch.from_numpy(q), torch.from_numpy(k)).numpy(), atol=1e-3, rtol=1e-3)
