"""Who is timed once more before one is called the best, and what those times replace."""

from __future__ import annotations

import pytest

from core.tuning.finals import MOST_AGAIN, MOST_FINALISTS, Finals
from core.tuning.results.records import Outcome


def outcome(block: int, milliseconds: float, spread: float = 0.01) -> Outcome:
    time = milliseconds * 1e-3
    return Outcome({"block": block}, "ok", time, time * (1 - spread), time * (1 + spread), samples=9)


def finals(old: dict[int, float], new: dict[int, float]) -> Finals:
    """Blocks with their milliseconds, of earlier runs and of this one."""
    fresh = [outcome(block, time) for block, time in new.items()]
    return Finals([*(outcome(b, t) for b, t in old.items()), *fresh], {one.identity for one in fresh})


def blocks(outcomes: list[Outcome]) -> list[int]:
    return [one.tiles["block"] for one in outcomes]


def time_round(run: Finals, now: dict[int, float]) -> None:
    """The next round, in which every block takes what it takes `now`."""
    run.timed = {one.identity: outcome(one.tiles["block"], now[one.tiles["block"]]) for one in run.next_round()}


def test_of_one_run_those_near_the_fastest():
    assert blocks(finals({}, {1: 1.0, 2: 1.04, 3: 1.06}).next_round()) == [1, 2]
    assert blocks(finals({}, {block: 1.0 + block / 1000 for block in range(9)}).next_round()) == [0, 1, 2, 3]
    assert MOST_FINALISTS == 4


@pytest.mark.parametrize(("old", "new"), [({}, {1: 1.0, 2: 1.2}), ({1: 1.0, 2: 1.01}, {}), ({}, {})])
def test_nobody_where_nothing_is_open(old, new):
    run = finals(old, new)
    assert run.next_round() == []
    assert not run.settled


def test_the_best_of_earlier_runs_is_held_against_the_best_of_this_one_however_far_apart():
    assert blocks(finals({1: 1.69, 2: 1.9}, {3: 2.5, 4: 2.6}).next_round()) == [1, 3]
    assert blocks(finals({1: 2.5}, {3: 1.0, 4: 1.01, 5: 1.02, 6: 1.03}).next_round()) == [3, 4, 5, 1]


def test_a_busier_machine_has_the_rest_of_the_known_timed_too():
    """1 is the fastest, as before; on the old clock 2 would pass for the best, and 5 would not."""
    run = finals({1: 1.69, 2: 1.80, 5: 3.0}, {3: 2.2, 4: 2.5})
    now = {1: 2.12, 2: 2.3, 3: 2.25, 4: 2.5, 5: 3.8}
    time_round(run, now)
    assert blocks(list(run.timed.values())) == [1, 3]
    assert not run.settled
    time_round(run, now)
    assert sorted(blocks(list(run.timed.values()))) == [1, 2, 3]
    assert run.settled
    assert run.next_round() == []
    assert [text.split(" in an earlier run and takes ") for text in run.changes()] == [
        ["block=1 took 1.69 ms", "2.12 ms now: times of different runs are not comparable"],
        ["block=2 took 1.8 ms", "2.3 ms now: times of different runs are not comparable"],
    ]


def test_a_time_that_holds_is_not_spoken_of():
    run = finals({1: 1.69}, {3: 1.70})
    time_round(run, {1: 1.70, 3: 1.68})
    assert run.settled
    assert run.changes() == []


def test_on_a_machine_so_much_busier_that_all_would_have_to_be_timed_the_old_times_stay():
    run = finals({block: 1.0 + block / 100 for block in range(MOST_AGAIN)}, {100: 9.0})
    time_round(run, dict.fromkeys([*range(MOST_AGAIN), 100], 9.0))
    assert run.mixed
    assert not run.settled
    assert run.next_round() == []
