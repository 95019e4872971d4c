"""Races are a matter of what is known, not of when something happened to run."""

from __future__ import annotations

import numpy as np
import pytest

from core.conformance.schedules.accesses import Access, Box, Shadow
from core.conformance.schedules.clocks import Clock
from core.conformance.schedules.faults import MissingFence, Race
from core.conformance.schedules.tree import Tensor
from core.errors import Location

TILE = Tensor("tile", "shared.dyn", "float16", np.dtype(np.float16), 0, (4, 64))
VIEW = Tensor("view", "shared.dyn", "float32", np.dtype(np.float32), 0, (128,))
ROW: Box = ((1, 2), (0, 64))


def access(warp: int, *, write: bool, time: int = 1, operation: int | None = None, box: Box = ROW) -> Access:
    return Access(TILE, box, write, warp, time, operation, Location("kernel.py", 10 + warp), f"an access by {warp}")


def test_two_writes_nobody_orders_are_a_race_that_names_both_lines():
    shadow = Shadow()
    shadow.add(access(0, write=True), Clock([1, 0]))
    with pytest.raises(Race, match=r"an access by 1 of tile\[1, 0:64\] .* kernel.py:10") as caught:
        shadow.add(access(1, write=True), Clock([0, 1]))
    assert caught.value.location == Location("kernel.py", 11)
    assert caught.value.related == (Location("kernel.py", 10),)


def test_who_knows_of_an_access_comes_after_it():
    shadow = Shadow()
    shadow.add(access(0, write=True), Clock([1, 0]))
    shadow.add(access(1, write=True), Clock([1, 1]))


def test_reads_go_together_and_places_apart_do_not_meet():
    shadow = Shadow()
    shadow.add(access(0, write=False), Clock([1, 0]))
    shadow.add(access(1, write=False), Clock([0, 1]))
    shadow.add(access(1, write=True, box=((2, 3), (0, 64))), Clock([0, 1]))


def test_all_readers_must_be_known_to_a_writer():
    shadow = Shadow()
    shadow.add(access(0, write=False), Clock([1, 0, 0]))
    shadow.add(access(1, write=False), Clock([0, 1, 0]))
    with pytest.raises(Race, match="an access by 1"):
        shadow.add(access(2, write=True), Clock([1, 0, 1]))


def test_an_operation_is_over_when_its_end_is_known():
    shadow = Shadow()
    shadow.add(access(0, write=True, operation=5), Clock([1, 0]))
    with pytest.raises(Race):
        shadow.add(access(0, write=False), Clock([9, 0]))
    shadow.add(access(1, write=False), Clock([0, 1], seen=1 << 5))


def test_the_async_proxy_needs_a_fence_behind_a_thread_s_write():
    shadow = Shadow()
    shadow.add(access(0, write=True), Clock([1, 0]))
    with pytest.raises(MissingFence, match="no proxy fence"):
        shadow.add(access(1, write=False, operation=0), Clock([1, 1]))
    fenced = Clock([1, 1])
    fenced.fence()
    shadow.add(access(1, write=False, operation=0), fenced)


def test_views_of_one_memory_meet_by_bytes():
    shadow = Shadow()
    shadow.add(access(0, write=True), Clock([1, 0]))  # bytes 128 to 256
    outside = Access(VIEW, ((0, 32),), True, 1, 1, None, None, "a write")
    shadow.add(outside, Clock([0, 1]))
    inside = Access(VIEW, ((32, 33),), True, 1, 1, None, None, "a write")
    with pytest.raises(Race):
        shadow.add(inside, Clock([0, 1]))
