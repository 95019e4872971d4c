"""What is known of the candidates of one shape while it is tuned: of earlier runs, and of this one as it goes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from core.tuning.report import ShapeReport
from core.tuning.results.records import Outcome, identity_of, in_order

if TYPE_CHECKING:
    from core.tiling import Tiles
    from core.tuning.planning import Plan
    from core.tuning.results.store import Store


#: Among an outcome's details: the user said what is right, by a reference, by values or by a tolerance.
TOLD = "by_the_users_word"


class Outcomes:
    """The outcomes of a plan's candidates, kept in the store as they come.

    Attributes:
        environment: where new measurements belong: on a cluster, the environment of the worker that took them.
        reused: how many were known from earlier runs.
    """

    def __init__(self, plan: Plan, store: Store) -> None:
        self._plan = plan
        self._store = store
        self._known: dict[str, Outcome] = {}
        self.environment = plan.key.environment
        self.reused = 0

    def recall(self, timeout_s: float, *, told: bool) -> Outcome | None:
        """Takes what the store knows of the candidates, and gives the fastest of all that it knows of the shape.

        Args:
            timeout_s: what took too long is tried again when it may take longer now.
            told: whether the user says what is right. What was wrong by the user's word, now or then, is tried again:
                it may be the word that was wrong.
        """
        known = self._store.lookup(self._plan.key)
        found = [
            outcome
            for outcome in (known.outcomes if known is not None else ())
            if not _gave_up(outcome, timeout_s) and not _may_appeal(outcome, told=told)
        ]
        wanted = {identity_of(verdict.tiles) for verdict in self._plan.candidates}
        self._known = {outcome.identity: outcome for outcome in found if outcome.identity in wanted}
        self.reused = len(self._known)
        return next((outcome for outcome in in_order(found) if outcome.ok), None)

    def __contains__(self, tiles: Tiles) -> bool:
        return identity_of(tiles) in self._known

    def keep(self, outcome: Outcome) -> None:
        """Stores what became of a candidate. Raises TuningStoreError."""
        key = replace(self._plan.key, environment=self.environment)
        self._store.record(key, outcome, structural=self._plan.structural)
        self._known[outcome.identity] = outcome

    @property
    def measured(self) -> list[Outcome]:
        """Those with a time, fastest first."""
        return [outcome for outcome in in_order(list(self._known.values())) if outcome.ok]

    @property
    def best(self) -> Outcome | None:
        """The fastest, or None."""
        return next(iter(self.measured), None)

    def report(self, reference: str) -> ShapeReport:
        """What is known now. `reference`: what outputs were compared with."""
        places = {identity_of(verdict.tiles): place for place, verdict in enumerate(self._plan.candidates)}
        mine = [replace(outcome, place=places[text]) for text, outcome in self._known.items() if text in places]
        # An untuned compilation passes over what does not build; a crash or a wrong value it would not notice.
        built = [outcome for outcome in mine if outcome.status != "build"]
        first = min(built, key=lambda outcome: outcome.place or 0, default=None)
        reached = first is not None and all(
            text in self._known for text, place in places.items() if place < (first.place or 0)
        )
        return ShapeReport(
            arguments=self._plan.key.values,
            outcomes=in_order(mine),
            waiting=len(places) - len(mine),
            reused=self.reused,
            first=first if reached else None,
            structural=self._plan.structural,
            reference=reference or "outputs of the earlier run",
        )


def _may_appeal(outcome: Outcome, *, told: bool) -> bool:
    return outcome.status == "wrong" and (told or bool(outcome.details.get(TOLD)))


def _gave_up(outcome: Outcome, timeout_s: float) -> bool:
    """Whether a candidate was given up sooner than it would be now."""
    return outcome.status == "timeout" and bool(outcome.details.get("timeout_s", 0.0) < timeout_s)
