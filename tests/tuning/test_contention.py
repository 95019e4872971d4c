"""Whose work the CPUs did while something was timed on them."""

from __future__ import annotations

import os

import pytest

from core.tuning.measure import contention
from core.tuning.measure.contention import OthersShare

TICK = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Two CPUs that this process may use and one that it may not; a function moves all clocks on."""
    ticks = {name: [0] * 10 for name in ("cpu", "cpu0", "cpu1", "cpu2")}
    clocks = {"wall": 100.0, "own": 5.0}
    stat = tmp_path / "stat"

    def move(wall: float = 0.0, own: float = 0.0, **columns: dict[int, float]) -> None:
        clocks["wall"] += wall
        clocks["own"] += own
        for name, seconds in columns.items():
            for column, value in seconds.items():
                ticks[name][column] += round(value * TICK)
        lines = [f"{name} {' '.join(map(str, values))}" for name, values in ticks.items()]
        stat.write_text("\n".join([*lines, "intr 1 2 3", "btime 7"]) + "\n")

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    monkeypatch.setattr(contention.time, "monotonic", lambda: clocks["wall"])
    monkeypatch.setattr(contention.time, "process_time", lambda: clocks["own"])
    move()
    return stat, move


def test_it_is_what_the_cpus_did_less_what_this_process_did(machine):
    stat, move = machine
    watch = OthersShare(stat)
    # 10 s on two CPUs: we worked 12 s, others 3 s at user, nice and system work, a neighbour stole 1 s.
    move(wall=10.0, own=12.0, cpu0={0: 9.0, 3: 1.0}, cpu1={0: 4.0, 1: 1.0, 2: 1.0, 3: 2.0, 4: 1.0, 7: 1.0})
    assert watch.share() == pytest.approx(4.0 / 20.0)


def test_cpus_that_are_not_ours_and_guests_do_not_count(machine):
    stat, move = machine
    watch = OthersShare(stat)
    move(wall=10.0, own=0.0, cpu0={3: 10.0}, cpu1={3: 10.0, 8: 5.0}, cpu2={0: 10.0}, cpu={0: 10.0})
    assert watch.share() == 0.0


def test_clocks_of_different_grain_give_no_share_below_nothing(machine):
    stat, move = machine
    watch = OthersShare(stat)
    move(wall=1.0, own=1.005, cpu0={0: 1.0})
    assert watch.share() == 0.0


def test_clocks_of_different_grain_give_no_more_than_everything(machine):
    stat, move = machine
    watch = OthersShare(stat)
    move(wall=1.0, cpu0={0: 2.0}, cpu1={0: 2.0})
    assert watch.share() == 1.0


def test_where_none_of_our_cpus_is_listed_nothing_is_said(machine, monkeypatch):
    stat, _ = machine
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {7}, raising=False)
    assert OthersShare(stat).share() is None


def test_where_the_system_does_not_say_nothing_is_said(tmp_path):
    assert OthersShare(tmp_path / "absent").share() is None
