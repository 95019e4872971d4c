"""Barriers as the hardware has them: phases and parities, counts, knowledge handed on."""

from __future__ import annotations

import pytest

from core.conformance.schedules.barriers import ClusterMeeting, CountedBarrier, SharedBarrier
from core.conformance.schedules.clocks import Clock
from core.conformance.schedules.faults import BarrierMisuse


def knowing(*times: int) -> Clock:
    return Clock(list(times))


def test_a_fresh_barrier_has_the_phase_before_its_first_behind_it():
    barrier = SharedBarrier("full", 1, 2)
    assert barrier.passed(1)
    assert not barrier.passed(0)


def test_a_phase_is_over_with_all_arrivals_and_all_bytes():
    barrier = SharedBarrier("full", 2, 2)
    barrier.expect(64)
    barrier.arrive(1, knowing(3, 0), None)
    barrier.complete(64, operation=0)
    assert not barrier.passed(0)
    barrier.arrive(1, knowing(0, 5), None)
    assert barrier.passed(0)
    assert not barrier.passed(1)
    assert barrier.done.times == [3, 5]
    assert barrier.done.seen == 1


def test_bytes_may_come_before_they_are_announced():
    barrier = SharedBarrier("full", 1, 1)
    barrier.complete(32, operation=0)
    barrier.expect(32)
    barrier.arrive(1, knowing(1), None)
    assert barrier.passed(0)


def test_bytes_alone_hand_on_that_they_are_there_and_nothing_else():
    barrier = SharedBarrier("full", 1, 1)
    barrier.expect(32)
    barrier.arrive(1, knowing(1), None)
    barrier.complete(32, operation=3)
    assert barrier.done.seen == 0b1000


def test_a_parity_tells_two_phases_apart_and_not_three():
    barrier = SharedBarrier("full", 1, 1)
    for _ in range(2):
        barrier.arrive(1, knowing(1), None)
    assert not barrier.passed(0)  # whoever waits for the first phase now has missed it


def test_a_phase_takes_so_many_arrivals():
    barrier = SharedBarrier("full", 1, 1)
    barrier.expect(32)
    barrier.arrive(1, knowing(1), None)
    with pytest.raises(BarrierMisuse, match="phase 0 takes 0 more of 1"):
        barrier.arrive(1, knowing(1), None)


def test_a_named_barrier_lets_all_go_when_the_last_comes():
    barrier = CountedBarrier("named barrier 8", 2)
    first = barrier.arrive(64, knowing(2, 0), None)
    assert barrier.generation == first
    assert barrier.arrive(64, knowing(0, 4), None) == first
    assert barrier.generation == first + 1
    assert barrier.done.times == [2, 4]
    barrier.arrive(64, knowing(1, 1), None)
    with pytest.raises(BarrierMisuse, match="used for 96 threads while 32 of 64"):
        barrier.arrive(96, knowing(1, 1), None)


def test_a_cluster_waits_for_nobody_who_has_ended():
    meeting = ClusterMeeting(3)
    meeting.arrive(0, knowing(1, 0, 0), None)
    meeting.leave(1)
    assert meeting.generation == 0
    with pytest.raises(BarrierMisuse, match="arrives twice"):
        meeting.arrive(0, knowing(1, 0, 0), None)
    meeting.arrive(2, knowing(0, 0, 1), None)
    assert meeting.generation == 1
    assert meeting.done.times == [1, 0, 1]
