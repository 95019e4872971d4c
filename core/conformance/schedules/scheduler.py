"""Runs the warps and the operations of a cluster in an order drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np

from core.conformance.schedules.execute import run
from core.conformance.schedules.faults import Deadlock, EndsEarly, ScheduleFault
from core.conformance.schedules.lanes import WARP, Lanes
from core.conformance.schedules.state import Cluster
from core.conformance.schedules.warp import Pause, Steps, Warp
from core.errors import Location, UnsupportedOp


@dataclass(eq=False, slots=True)
class _Task:
    warp: Warp
    steps: Steps
    priority: float
    pause: Pause | None = None

    def ready(self) -> bool:
        return self.pause is None or self.pause.ready is None or self.pause.ready()


class Scheduler:
    """One run of a cluster.

    Two ways to choose who goes next, by the seed: anybody who can, each as likely; or the one of highest priority, with
    priorities drawn at the start and a few changes on the way, which lets one warp (or one operation) run far ahead
    of or behind the others.
    """

    def __init__(self, cluster: Cluster, random: Random, limit: int) -> None:
        self.cluster, self.random, self.limit = cluster, random, limit
        self.by_priority = random.random() < 0.5
        self.steps = 0
        self.tasks: list[_Task] = []
        self._running: list[_Task] = []
        for block in cluster.blocks:
            for number in range(cluster.warps_per_block):
                warp = Warp(block, number)
                launch = cluster.launch
                for slot, position in zip(launch.grid_slots, block.position, strict=True):
                    warp.slots[slot] = position
                if launch.thread_slot is not None:
                    warp.slots[launch.thread_slot] = Lanes(np.arange(number * WARP, number * WARP + WARP))
                self.tasks.append(_Task(warp, run(warp, launch.body), random.random()))

    def run(self) -> int:
        """To the end; gives the number of steps.

        Raises:
            ScheduleFault: what went wrong first.
        """
        self._running = list(self.tasks)
        while self._running:
            self.steps += 1
            if self.steps > self.limit:
                raise Deadlock(
                    f"no end after {self.limit} steps",
                    hint="a loop that never ends, or a larger case than this is meant for: raise max_steps",
                    location=self.cluster.launch.location,
                )
            runnable: list[_Task | int] = [task for task in self._running if task.ready()]
            runnable += [i for i, operation in enumerate(self.cluster.in_flight) if operation.ready()]
            if not runnable:
                raise _deadlock(self._running)
            chosen = self._choose(runnable)
            if isinstance(chosen, int):
                operation = self.cluster.in_flight.pop(chosen)
                operation.perform()
                operation.performed = True
            else:
                self._advance(chosen)
        return self.steps

    def _advance(self, task: _Task) -> None:
        """A warp goes on to its next pause, or to its end."""
        try:
            task.pause = next(task.steps, None)
            if task.pause is None:
                self._running.remove(task)
                self._ended(task.warp)
        except ScheduleFault as fault:
            fault.block = task.warp.block.number
            raise
        except UnsupportedOp as error:
            error.location = error.location or task.warp.location
            raise

    def _choose(self, runnable: list[_Task | int]) -> _Task | int:
        if not self.by_priority:
            return runnable[self.random.randrange(len(runnable))]

        def priority(one: _Task | int) -> float:
            return self.cluster.in_flight[one].priority if isinstance(one, int) else one.priority

        best = max(runnable, key=priority)
        if self.random.random() < 0.02:
            if isinstance(best, int):
                self.cluster.in_flight[best].priority = self.random.random()
            else:
                best.priority = self.random.random()
        return best

    def _ended(self, warp: Warp) -> None:
        """Raises EndsEarly when a warp leaves something behind."""
        self.cluster.meeting.leave(warp.index)
        for operation in [*warp.products, *(operation for group in warp.stores for operation in group)]:
            raise EndsEarly(
                f"threads {warp.number * WARP} to {warp.number * WARP + WARP - 1} end without having waited for "
                f"{operation.what} at {operation.location}",
                hint="T.wait_wgmma(0) after the last product, T.tma_store_wait(0) after the last store",
                location=operation.location,
            )
        block = warp.block
        block.ended = not any(task.warp.block is block for task in self._running)
        for operation in self.cluster.in_flight if block.ended else ():
            if block.rank in operation.blocks:
                raise EndsEarly(
                    f"block {block.rank} of the cluster ends while {operation.what} at {operation.location} still gets "
                    "at its shared memory",
                    hint="wait for the barrier that the copy completes, and T.cluster_sync() where others copy to it",
                    location=operation.location,
                )


def _deadlock(tasks: list[_Task]) -> Deadlock:
    """Who waits for what, warps of one block that wait for the same thing together."""
    waiting: dict[tuple[int, str, Location | None], list[int]] = {}
    for task in tasks:
        reason = task.pause.reason() if task.pause else ""
        location = task.pause.location if task.pause else None
        waiting.setdefault((task.warp.block.number, reason, location), []).append(task.warp.number)
    lines = []
    for (block, reason, location), warps in waiting.items():
        spans = ", ".join(f"{low * WARP}-{high * WARP - 1}" for low, high in _spans(warps))
        lines.append(f"block {block}, threads {spans} at {location}: {reason}")
    first = next(iter(waiting))
    return Deadlock(
        "everybody waits:\n  " + "\n  ".join(lines),
        hint="look for the arrival, or the copy, that should have ended the first of these waits",
        location=first[2],
        related=[location for _, _, location in waiting],
    )


def _spans(numbers: list[int]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number:
            spans[-1] = (spans[-1][0], number + 1)
        else:
            spans.append((number, number + 1))
    return spans
