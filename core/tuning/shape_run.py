"""Tuning one shape: candidates are compiled in parallel, held against the reference, timed one at a time, and stored.

Whatever ends it (the time is up, Ctrl-C, an error), each candidate that was settled is in the store already.
"""

from __future__ import annotations

import heapq
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from core.tuning.outcomes import TOLD, Outcomes
from core.tuning.results.records import Outcome, identity_of
from core.tuning.workers.jobs import Artifact, CompileJob, Conditions, CrossCheckJob, FinalJob, MeasureJob, Reply
from core.tuning.workers.sites import reply_of

if TYPE_CHECKING:
    from core.tiling import Tiles
    from core.tiling.factory import KernelFactory
    from core.tuning.planning import Plan
    from core.tuning.progress import Progress
    from core.tuning.report import ShapeReport
    from core.tuning.results.store import Store
    from core.tuning.workers.sites import Future, Site

#: Candidates within this share of the fastest are timed again, in turn, before one of them is called the best.
FINAL_MARGIN = 0.05
MOST_FINALISTS = 4
#: Candidates compiled before the next are timed, where the two disturb each other.
_BATCH = 4
#: How often the clock is looked at while nothing happens.
_TICK_S = 0.25
#: How many times the time of one candidate the last round, and the comparison with the CPU, may take.
_FINAL_TIMES = 3


@dataclass(slots=True)
class _Candidate:
    """A candidate on its way: `place` in the ranking, what compiling and measuring it gave so far."""

    place: int
    tiles: Tiles
    predicted_s: float | None
    compiled: Reply | None = None


class ShapeRun:
    """One shape's run. `deadline` is on `time.monotonic`'s clock."""

    def __init__(
        self,
        factory: KernelFactory,
        plan: Plan,
        conditions: Conditions,
        site: Site,
        store: Store,
        progress: Progress,
        *,
        number: int,
        timeout_s: float,
        deadline: float,
        resume: bool,
    ) -> None:
        self._factory = factory
        self._plan = plan
        self._conditions = conditions
        self._site = site
        self._progress = progress
        self._number = number
        self._timeout_s = timeout_s
        self._deadline = deadline
        self._events: queue.SimpleQueue[tuple[Callable[[Any], None], Any]] = queue.SimpleQueue()
        self._outcomes = Outcomes(plan, store)
        self._artifacts: dict[str, Artifact] = {}
        self._ready: list[tuple[int, _Candidate]] = []
        self._compiling = 0
        self._measuring = 0
        self._started: list[Future] = []
        self._measured_now = 0
        #: What outputs are compared with, in words; empty until it is known.
        self._reference = "the user's reference" if conditions.reference is not None else ""
        #: Whether the reference has run: until then nothing else does, or its fault would be taken for another's.
        self._proved = conditions.reference is not None
        given = (conditions.reference, conditions.values, conditions.tolerance)
        self._told = any(value is not None for value in given)
        known = self._outcomes.recall(timeout_s, told=self._told) if resume else None
        if known is not None and conditions.reference is None:
            # Its outputs were found right when it was measured.
            self._conditions, self._proved = replace(conditions, trusted=known.tiles), True
            self._reference = "a candidate that was found right before"
        self._waiting = [
            _Candidate(place, verdict.tiles, verdict.seconds)
            for place, verdict in enumerate(plan.candidates)
            if verdict.tiles not in self._outcomes
        ]

    # ------------------------------------------------------------------------------------------------ the run

    def run(self) -> None:
        """Settles the candidates that are not known yet, as far as the time goes.

        Raises:
            TuningError, TileHALError: something other than a candidate is in the way.
        """
        self._progress.shape(self._number, self._plan.key.shape, len(self._plan.candidates), self._outcomes.reused)
        try:
            while self._waiting or self._compiling or self._ready or self._measuring:
                if self._out_of_time() and not self._measuring:
                    return
                self._start_compiling()
                self._start_measuring()
                self._wait()
            self._finals()
        finally:
            for future in self._started:
                future.cancel()

    def report(self) -> ShapeReport:
        """What is known now."""
        return self._outcomes.report(self._reference)

    def _out_of_time(self) -> bool:
        return time.monotonic() >= self._deadline

    # ------------------------------------------------------------------------------------------------ compiling

    def _start_compiling(self) -> None:
        if self._out_of_time():
            return
        if self._site.compile_first:
            # In batches: nothing is timed while something is being compiled, and time may run out.
            if self._ready or self._measuring or self._compiling:
                return
            batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
        else:
            batch, self._waiting = self._waiting, []
        for candidate in batch:
            job = CompileJob(self._plan.subject, candidate.tiles, self._timeout_s, ship=self._site.ships)
            self._compiling += 1
            self._watch(self._site.compile(job), partial(self._compiled, candidate))

    def _compiled(self, candidate: _Candidate, reply: Reply) -> None:
        self._compiling -= 1
        self._progress.compiled()
        if reply.verdict != "ok":
            self._settle(candidate, reply)
            return
        candidate.compiled = reply
        if reply.artifact is not None:
            self._artifacts[identity_of(candidate.tiles)] = reply.artifact
        heapq.heappush(self._ready, (candidate.place, candidate))

    # ------------------------------------------------------------------------------------------------ measuring

    def _start_measuring(self) -> None:
        if self._site.compile_first and self._compiling:
            return
        while self._ready and self._measuring < self._site.slots and not self._out_of_time():
            if self._proved:
                _, candidate = heapq.heappop(self._ready)
                self._measure(candidate)
            elif self._measuring:
                return  # until the reference is known to run
            elif self._reference:
                self._measure(self._take_trusted())
            elif self._plan.subject.chip.vendor == "cpu":
                self._trust(self._ready[0][1], "the best ranked candidate (on the CPU nothing else is at hand)")
            else:
                _, candidate = heapq.heappop(self._ready)
                self._cross_check(candidate)

    def _measure(self, candidate: _Candidate) -> None:
        best = self._outcomes.best
        job = MeasureJob(
            self._plan.subject,
            candidate.tiles,
            replace(self._conditions, best_s=best.median_s if best is not None else None),
            self._timeout_s,
        )
        self._measuring += 1
        self._watch(self._site.measure(job, candidate.compiled), partial(self._measured, candidate))

    def _take_trusted(self) -> _Candidate:
        """The trusted candidate, which is ready."""
        found = next(item for item in self._ready if item[1].tiles == self._conditions.trusted)
        self._ready.remove(found)
        heapq.heapify(self._ready)
        return found[1]

    def _measured(self, candidate: _Candidate, reply: Reply) -> None:
        self._measuring -= 1
        if not self._proved:
            self._proved = reply.verdict == "ok"
            if not self._proved:  # it does not run: another must be found right
                self._reference = ""
                self._conditions = replace(self._conditions, trusted=None, trusted_artifact=None)
        if reply.environment is not None:
            self._outcomes.environment = reply.environment
        self._measured_now += reply.verdict == "ok"
        self._settle(candidate, reply)

    def _cross_check(self, candidate: _Candidate) -> None:
        job = CrossCheckJob(
            self._plan.subject,
            self._plan.smaller(self._factory, candidate.tiles),
            candidate.tiles,
            self._conditions,
            _FINAL_TIMES * self._timeout_s,
        )
        self._measuring += 1
        self._watch(self._site.measure(job, None), partial(self._checked, candidate))

    def _checked(self, candidate: _Candidate, reply: Reply) -> None:
        """The first candidate that the CPU backend does not contradict is what the others are compared with."""
        self._measuring -= 1
        if reply.verdict == "impossible":
            raise reply.error
        if reply.verdict == "wrong":
            self._settle(candidate, reply)
            return
        why = reply.reason if reply.verdict == "ok" else f"not checked: comparing with the CPU ended in {reply.verdict}"
        self._trust(candidate, f"the best ranked candidate, {_joined(why)}")
        heapq.heappush(self._ready, (candidate.place, candidate))

    def _trust(self, candidate: _Candidate, reference: str) -> None:
        self._reference = reference
        self._conditions = replace(
            self._conditions,
            trusted=candidate.tiles,
            trusted_artifact=self._artifacts.get(identity_of(candidate.tiles)),
        )
        self._progress.say(f"outputs are compared with {reference}")

    def _finals(self) -> None:
        """Times the fastest again, in turn: of several that are nearly equal, chance would have picked one."""
        best = self._outcomes.best
        if best is None or best.median_s is None or not self._measured_now or self._out_of_time():
            return
        limit = best.median_s * (1 + FINAL_MARGIN)
        near = [outcome for outcome in self._outcomes.measured if (outcome.median_s or 0.0) <= limit][:MOST_FINALISTS]
        if len(near) < 2:
            return
        job = FinalJob(
            self._plan.subject,
            [outcome.tiles for outcome in near],
            self._conditions,
            _FINAL_TIMES * self._timeout_s,
            [self._artifacts.get(outcome.identity) for outcome in near],
        )
        self._measuring += 1
        self._watch(self._site.measure(job, None), partial(self._compared, near))
        while self._measuring:
            self._wait()

    def _compared(self, near: Sequence[Outcome], reply: Reply) -> None:
        self._measuring -= 1
        if reply.verdict == "impossible":
            raise reply.error
        if reply.verdict != "ok":
            self._progress.say(f"the fastest could not be timed together: {reply.reason}")
            return
        for outcome, timing in zip(near, reply.timings, strict=True):
            self._outcomes.keep(replace(outcome, **timing.of_outcome(), measured_at=time.time(), source=""))

    # ------------------------------------------------------------------------------------------------ settling

    def _settle(self, candidate: _Candidate, reply: Reply) -> None:
        if reply.verdict == "impossible":
            raise reply.error
        timing = reply.timings[0].of_outcome() if reply.timings else {"reason": reply.reason}
        compile_s = candidate.compiled.compile_s if candidate.compiled is not None else None
        outcome = Outcome(
            tiles=dict(candidate.tiles),
            status=reply.verdict,
            details={**reply.details, TOLD: True} if reply.verdict == "wrong" and self._told else reply.details,
            compile_s=compile_s,
            place=candidate.place,
            predicted_s=candidate.predicted_s,
            measured_at=time.time(),
            **timing,
        )
        self._outcomes.keep(outcome)
        self._progress.settled(outcome, self._outcomes.best)

    # ------------------------------------------------------------------------------------------------ events

    def _watch(self, future: Future, then: Callable[[Reply], None]) -> None:
        """Has `then` called in this thread when the future is done."""
        self._started.append(future)
        future.add_done_callback(lambda done: self._events.put((then, done)))

    def _wait(self) -> None:
        try:
            then, done = self._events.get(timeout=_TICK_S)
        except queue.Empty:
            return
        then(reply_of(done))


def _joined(why: str) -> str:
    return f"checked with {why}" if why.startswith("the CPU backend") else why
