"""The CPU that the host's time is taken on."""

from __future__ import annotations

import os

import pytest

from core.bench import quiet_cpu
from core.bench.quiet_cpu import on_quietest_cpu


@pytest.fixture
def cpus(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """A machine of four CPUs, the third of them undisturbed; where the thread has been."""
    been: list[set[int]] = [{0, 1, 2, 3}]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(been[-1]))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, where: been.append(set(where)))
    monkeypatch.setattr(quiet_cpu, "_loop", lambda: {0: 700.0, 1: 402.26, 2: 401.14, 3: 650.0}[min(been[-1])])
    return been


def test_the_thread_stays_on_the_quietest_and_may_go_anywhere_afterwards(cpus: list[set[int]]) -> None:
    with on_quietest_cpu() as found:
        assert cpus[-1] == {2}
    assert cpus == [{0, 1, 2, 3}, {0}, {1}, {2}, {3}, {2}, {0, 1, 2, 3}]
    assert found is not None
    assert found.to_json() == {"number": 2, "cpus": 4, "loop_us": 401.1, "slowest_us": 700.0}


def test_a_block_that_fails_leaves_the_thread_free(cpus: list[set[int]]) -> None:
    with pytest.raises(OSError, match="of the block"), on_quietest_cpu():
        raise OSError("of the block")
    assert cpus[-1] == {0, 1, 2, 3}


def test_one_slow_loop_does_not_make_a_cpu_slow(cpus: list[set[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    turns = iter(range(1000))
    steady = quiet_cpu._loop
    monkeypatch.setattr(quiet_cpu, "_loop", lambda: 9e9 if next(turns) % 9 == 4 else steady())
    with on_quietest_cpu() as found:
        assert found is not None
        assert (found.number, found.slowest_us) == (2, 700.0)


def test_where_it_is_forbidden_nothing_is_chosen(cpus: list[set[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, where: set[int]) -> None:
        if len(where) == 1:
            raise PermissionError("not in this container")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with on_quietest_cpu() as found:
        assert found is None


def test_a_system_that_moves_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity")
    with on_quietest_cpu() as found:
        assert found is None


def test_on_this_machine() -> None:
    before = os.sched_getaffinity(0)
    with on_quietest_cpu() as found:
        assert found is None or os.sched_getaffinity(0) == {found.number}
        assert found is None or (found.cpus, found.number in before) == (len(before), True)
    assert os.sched_getaffinity(0) == before
