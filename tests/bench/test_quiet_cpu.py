"""The CPU that the host's time is taken on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from core.bench import quiet_cpu as module
from core.bench.launch import host_time, repeated
from core.bench.quiet_cpu import quiet_cpu


class Machine:
    """Four CPUs, what a loop takes on each, and where the thread has been."""

    def __init__(self) -> None:
        self.takes = {0: 70.0, 1: 40.26, 2: 40.14, 3: 65.0}
        self.been: list[set[int]] = [{0, 1, 2, 3}]
        self.jumps: Iterator[float] = iter(())

    def loop(self) -> float:
        return next(self.jumps, 0.0) + self.takes[min(self.been[-1])]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(made.been[-1]))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, where: made.been.append(set(where)))
    monkeypatch.setattr(module, "_loop", made.loop)
    return made


def test_the_thread_stays_on_the_quietest_and_may_go_anywhere_afterwards(machine: Machine) -> None:
    with quiet_cpu() as cpu:
        assert cpu is not None
        for _ in range(3):
            cpu.settle()
            assert machine.been[-1] == {2}
    assert machine.been == [{0, 1, 2, 3}, {0}, {1}, {2}, {3}, {2}, {0, 1, 2, 3}]
    assert cpu.to_json() == {"cpus": 4, "loop_us": 40.1, "slowest_us": 70.0, "moves": 0}


def test_it_goes_elsewhere_when_it_is_disturbed_and_only_then(machine: Machine) -> None:
    with quiet_cpu() as cpu:
        assert cpu is not None
        cpu.settle()
        machine.takes[2] = 1.14 * 40.14
        cpu.settle()
        assert machine.been[-1] == {2}
        assert len(machine.been) == 6
        machine.takes[2] = 1.16 * 40.14
        cpu.settle()
        assert machine.been[-1] == {1}
        # Nowhere is it quiet: on the least disturbed, and looking each time.
        machine.takes = {0: 90.0, 1: 80.0, 2: 70.0, 3: 60.0}
        cpu.settle()
        cpu.settle()
        assert machine.been[-1] == {3}
        found = cpu.to_json()
    assert found is not None
    assert (found["moves"], found["slowest_us"]) == (2, 90.0)


def test_one_slow_loop_is_no_disturbance(machine: Machine) -> None:
    with quiet_cpu() as cpu:
        assert cpu is not None
        cpu.settle()
        machine.jumps = iter([0.0, 9e9, 0.0])
        cpu.settle()
        assert len(machine.been) == 6


def test_a_block_that_fails_leaves_the_thread_free(machine: Machine) -> None:
    with pytest.raises(OSError, match="of the block"), quiet_cpu():
        raise OSError("of the block")
    assert machine.been[-1] == {0, 1, 2, 3}


def test_where_it_is_forbidden_nothing_is_chosen(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[int]] = []

    def refuse(_: int, where: set[int]) -> None:
        asked.append(where)
        if len(where) == 1:
            raise PermissionError("not in this container")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with quiet_cpu() as cpu:
        assert cpu is not None
        cpu.settle()
        cpu.settle()
        assert cpu.to_json() is None
    assert asked == [{0}, {0, 1, 2, 3}, {0, 1, 2, 3}]


def test_after_a_cpu_is_lost_the_thread_is_as_free_as_before(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def move(_: int, where: set[int]) -> None:
        if set(where) == {2}:
            raise OSError("no such CPU any more")
        machine.been.append(set(where))

    monkeypatch.setattr(os, "sched_setaffinity", move)
    with quiet_cpu() as cpu:
        assert cpu is not None
        cpu.settle()
        assert machine.been == [{0, 1, 2, 3}, {0}, {1}, {0, 1, 2, 3}]
        assert cpu.to_json() is None


def test_a_container_that_lost_all_its_cpus_costs_no_figures(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("none of these CPUs any more")

    with quiet_cpu() as cpu:
        assert cpu is not None
        cpu.settle()
        monkeypatch.setattr(os, "sched_setaffinity", refuse)
    assert cpu.to_json() is not None


def test_one_cpu_is_nothing_to_tell_of(machine: Machine) -> None:
    machine.been = [{1}]
    with quiet_cpu() as cpu:
        assert cpu is not None
        cpu.settle()
        assert cpu.to_json() is None


def test_a_system_that_moves_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity")
    with quiet_cpu() as cpu:
        assert cpu is None


def test_on_this_machine_before_each_round() -> None:
    before, settled, seen = os.sched_getaffinity(0), 0, set()
    with quiet_cpu() as cpu:
        assert cpu is not None

        def settle() -> None:
            nonlocal settled
            settled += 1
            cpu.settle()

        look = repeated(lambda: seen.add(frozenset(os.sched_getaffinity(0))))
        host_time({"a": look}, 9, 1, lambda: None, settle=settle)
    assert settled == 9
    assert os.sched_getaffinity(0) == before
    free = {frozenset(before)}  # the warm-up, before the first round
    assert len(before) == 1 or cpu._free or all(len(where) == 1 for where in seen - free)
