"""Which candidates are timed once more, in turn, before one of them is called the best.

Of several that are nearly equal, chance would pick one. And times of different runs are not comparable at all: another
process, a machine that is busier or cooler. So whoever was fastest in earlier runs is timed again beside what this run
found; and where it turns out that the machine is slower now, so are the others of earlier runs whose old times would
pass for the best.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from core.tuning.report import seconds_text, tiles_text
from core.tuning.results.records import Outcome, in_order

#: Candidates within this share of the fastest are timed again.
FINAL_MARGIN = 0.05
MOST_FINALISTS = 4
#: As many when earlier runs' times turn out not to hold any more.
MOST_AGAIN = 8


@dataclass(slots=True)
class Finals:
    """The rounds of one shape. Each round has all of those before it, so that its times are comparable.

    Attributes:
        measured: every outcome with a time, of this run and of earlier ones.
        fresh: identities of those that were measured in this run.
        timed: what the last round gave, by identity; what it replaces is in `measured` still.
    """

    measured: Sequence[Outcome]
    fresh: Collection[str]
    timed: dict[str, Outcome] = field(default_factory=dict)

    def next_round(self) -> list[Outcome]:
        """Whom to time in turn; nobody when there is nothing to find out, or no end in sight."""
        if self.timed:
            rivals = self._rivals()
            known = {outcome.identity: outcome for outcome in self.measured}
            everyone = [*(known[identity] for identity in self.timed), *rivals]
            return everyone if rivals and len(everyone) <= MOST_AGAIN else []
        ordered = in_order(list(self.measured))
        old = [outcome for outcome in ordered if outcome.identity not in self.fresh]
        new = [outcome for outcome in ordered if outcome.identity in self.fresh]
        if not new:
            return []
        near = [outcome for outcome in ordered if _time(outcome) <= _time(ordered[0]) * (1 + FINAL_MARGIN)]
        wanted = {outcome.identity: outcome for outcome in (*old[:1], *new[:1], *near)}
        found = list(in_order(list(wanted.values())[:MOST_FINALISTS]))
        return found if len(found) > 1 else []

    @property
    def mixed(self) -> bool:
        """Whether there are times of this run and of earlier ones."""
        return 0 < sum(outcome.identity in self.fresh for outcome in self.measured) < len(self.measured)

    @property
    def settled(self) -> bool:
        """Whether the last round's times can replace the old ones: no time of another run would then pass for best."""
        return bool(self.timed) and not self._rivals()

    def changes(self) -> list[str]:
        """For people: whose time of an earlier run is not what it is now, by more than both intervals allow."""
        said = []
        for old in self.measured:
            now = self.timed.get(old.identity)
            if now is None or old.identity in self.fresh or _overlap(old, now):
                continue
            said.append(
                f"{tiles_text(old.tiles)} took {seconds_text(old.median_s)} in an earlier run and takes"
                f" {seconds_text(now.median_s)} now: times of different runs are not comparable"
            )
        return said

    def _rivals(self) -> list[Outcome]:
        """Those of earlier runs, not timed again, whose old times are as good as the best of the last round."""
        best = min(map(_time, self.timed.values()))
        return [
            outcome
            for outcome in in_order(list(self.measured))
            if outcome.identity not in self.fresh
            and outcome.identity not in self.timed
            and _time(outcome) <= best * (1 + FINAL_MARGIN)
        ]


def _time(outcome: Outcome) -> float:
    assert outcome.median_s is not None
    return outcome.median_s


def _overlap(one: Outcome, other: Outcome) -> bool:
    def bounds(outcome: Outcome) -> tuple[float, float]:
        time = _time(outcome)
        return (
            time if outcome.low_s is None else outcome.low_s,
            time if outcome.high_s is None else outcome.high_s,
        )

    (low, high), (other_low, other_high) = bounds(one), bounds(other)
    return low <= other_high and other_low <= high
