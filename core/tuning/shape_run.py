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

from core.tuning.finals import Finals
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
    """One shape's run.

    Args:
        deadline: on `time.monotonic`'s clock: nothing is begun after it, nor before it what would not be done in time.
        ends: likewise, when what is being timed is given up.
    """

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
        ends: float,
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
        self._ends = ends
        self._events: queue.SimpleQueue[tuple[Callable[[Any], None], Any]] = queue.SimpleQueue()
        self._outcomes = Outcomes(plan, store)
        self._artifacts: dict[str, Artifact] = {}
        self._ready: list[tuple[int, _Candidate]] = []
        self._compiling = 0
        self._measuring = 0
        self._started: list[Future] = []
        #: Identities of the candidates that were measured in this run, and the shortest time that one took with all
        #: that belongs to it; 0 while that is not known.
        self._fresh: set[str] = set()
        self._shortest_s = 0.0
        self._notes: list[str] = []
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
                if self._out_of_time(self._needed_s) and (not self._measuring or self._must_end()):
                    break
                self._start_compiling()
                self._start_measuring()
                self._wait()
            self._finals()
        finally:
            for future in self._started:
                future.cancel()

    def report(self) -> ShapeReport:
        """What is known now."""
        return replace(self._outcomes.report(self._reference), notes=tuple(self._notes))

    def _out_of_time(self, needed_s: float = 0.0) -> bool:
        """Whether nothing more is to be begun that takes so long."""
        return time.monotonic() + needed_s >= self._deadline

    @property
    def _needed_s(self) -> float:
        """What measuring one more takes at least; with known ones about, comparing the best of both after that too."""
        return self._shortest_s * (3 if self._outcomes.reused else 1)

    def _must_end(self) -> bool:
        return time.monotonic() >= self._ends

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
        while self._ready and self._measuring < self._site.slots and not self._out_of_time(self._needed_s):
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
        self._watch(self._site.measure(job, candidate.compiled), partial(self._measured, candidate, time.monotonic()))

    def _take_trusted(self) -> _Candidate:
        """The trusted candidate, which is ready."""
        found = next(item for item in self._ready if item[1].tiles == self._conditions.trusted)
        self._ready.remove(found)
        heapq.heapify(self._ready)
        return found[1]

    def _measured(self, candidate: _Candidate, began_s: float, reply: Reply) -> None:
        self._measuring -= 1
        if not self._proved:
            self._proved = reply.verdict == "ok"
            if not self._proved:  # it does not run: another must be found right
                self._reference = ""
                self._conditions = replace(self._conditions, trusted=None, trusted_artifact=None)
        if reply.environment is not None:
            self._outcomes.environment = reply.environment
        if reply.verdict == "ok":
            took_s = time.monotonic() - began_s
            if self._fresh:  # the first has what all share made too
                self._shortest_s = min(took_s, self._shortest_s or took_s)
            self._fresh.add(identity_of(candidate.tiles))
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
        """Times the fastest again, in turn, and keeps those times where they settle who is fastest."""
        finals = Finals(self._outcomes.measured, self._fresh)
        while (near := finals.next_round()) and not self._out_of_time(len(near) * self._shortest_s):
            timed = self._together(near)
            if timed is None:
                break
            finals.timed = {outcome.identity: outcome for outcome in timed}
        for note in finals.changes():
            self._note(note)
        if finals.settled:
            for outcome in finals.timed.values():
                self._outcomes.keep(outcome)
        elif finals.mixed:
            self._note("the fastest of this run and of earlier ones could not be timed side by side: tune again")

    def _together(self, near: Sequence[Outcome]) -> list[Outcome] | None:
        """These outcomes with the times they have in turn; None when that cannot be had."""
        job = FinalJob(
            self._plan.subject,
            [outcome.tiles for outcome in near],
            self._conditions,
            _FINAL_TIMES * self._timeout_s,
            [self._artifacts.get(outcome.identity) for outcome in near],
        )
        replies: list[Reply] = []
        self._watch(self._site.measure(job, None), replies.append)
        while not replies:
            if self._must_end():
                return None
            self._wait()
        (reply,) = replies
        if reply.verdict == "impossible":
            raise reply.error
        if reply.verdict != "ok":
            self._progress.say(f"the fastest could not be timed together: {reply.reason}")
            return None
        now = time.time()
        return [
            replace(outcome, **timing.of_outcome(), measured_at=now, source="")
            for outcome, timing in zip(near, reply.timings, strict=True)
        ]

    def _note(self, text: str) -> None:
        """Says something that belongs into the report as well."""
        self._notes.append(text)
        self._progress.say(text)

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
