"""Two snapshots side by side: which rows regressed, and what else changed."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from core.errors import BaselineError
from core.tuning.baseline import environment
from core.tuning.baseline.judging import Change, Criteria, Pair, Shift, judge, shifts_between
from core.tuning.baseline.snapshot import STATES, Row, Snapshot
from core.tuning.baseline.suite import Case

Verdict = Literal["slower", "faster", "same", "unclear", "wrong", "failed", "broken", "fixed", "new", "gone"]

#: Verdicts that make a comparison fail.
REGRESSIONS: tuple[Verdict, ...] = ("failed", "wrong", "slower")
#: Every verdict, what needs looking at first in front.
ORDER: tuple[Verdict, ...] = (*REGRESSIONS, "broken", "unclear", "faster", "fixed", "new", "gone", "same")

#: An error counts as grown when it is so many times what it was.
_ERROR_FACTOR = 2.0
#: Compiling is timed once, so only a large change is worth a note.
_COMPILE_FACTOR, _COMPILE_S = 1.5, 0.5


@dataclass(frozen=True, slots=True)
class RowChange:
    """How a row changed.

    Attributes:
        verdict: the worst of its times' verdicts; or `failed` or `wrong` where it was fine, `broken` where it was not
            fine before either, `fixed`, `new`, `gone`.
        changes: of its times, by the state of the caches; empty where there are no two to compare.
        notes: what else changed, or why it failed.
    """

    case: Case
    verdict: Verdict
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two snapshots side by side.

    Attributes:
        rows: regressions first, then by how much they changed.
        shifts: what became of the yardsticks.
        differences: what differs between the two environments, one line each.
    """

    rows: tuple[RowChange, ...]
    shifts: tuple[Shift, ...]
    differences: tuple[str, ...]
    criteria: Criteria

    @property
    def regressions(self) -> tuple[RowChange, ...]:
        """Rows that got slower, wrong, or no longer run."""
        return tuple(row for row in self.rows if row.verdict in REGRESSIONS)

    def count(self, verdict: Verdict) -> int:
        """Rows with this verdict."""
        return sum(row.verdict == verdict for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {
            "regressions": len(self.regressions),
            **asdict(self.criteria),
            "differences": list(self.differences),
            "yardsticks": [asdict(shift) for shift in self.shifts],
            "rows": [
                {
                    **row.case.to_json(),
                    "verdict": row.verdict,
                    "changes": [asdict(change) for change in row.changes],
                    "notes": list(row.notes),
                }
                for row in self.rows
            ],
        }


def compare(old: Snapshot, new: Snapshot, criteria: Criteria | None = None, *, any_chip: bool = False) -> Comparison:
    """Compares two snapshots row by row.

    Args:
        criteria: what counts as a change.
        any_chip: compare what was measured on different chips too, by the work alone.

    Raises:
        BaselineError: the snapshots are of different chips or devices, share no row, or have a single pass.
    """
    criteria = criteria or Criteria()
    if not any_chip:
        _check_chips(old, new)
    rows = _matched(old, new, any_chip=any_chip)
    pairs = [
        Pair(key, after.case.target, l2, one, other)
        for key, (before, after) in rows.items()
        if before is not None and after is not None and before.status == after.status == "ok"
        for l2 in STATES
        if (one := before.timing(l2)) is not None and (other := after.timing(l2)) is not None
    ]
    if any(min(len(pair.old.passes_s), len(pair.new.passes_s)) < 2 for pair in pairs):
        raise BaselineError(
            "a snapshot with a single pass says nothing of noise", hint="record both with --passes 5, or more"
        )
    shifts = [] if any_chip else shifts_between(old, new, criteria)
    changes: dict[str, list[Change]] = {key: [] for key in rows}
    for pair, change in zip(pairs, judge(pairs, shifts, criteria), strict=True):
        changes[pair.key].append(change)
    judged = [_row_change(before, after, tuple(changes[key])) for key, (before, after) in rows.items()]
    return Comparison(
        rows=tuple(sorted(judged, key=_order)),
        shifts=tuple(shifts),
        differences=tuple(environment.differences(old.environment, new.environment)),
        criteria=criteria,
    )


def _check_chips(old: Snapshot, new: Snapshot) -> None:
    hint = "compare recordings of one chip, or say that this is meant (--any-chip)"
    shared = set(old.targets) & set(new.targets)
    if not shared:
        raise BaselineError(
            f"the snapshots are of different chips: {', '.join(old.targets)} and {', '.join(new.targets)}", hint=hint
        )
    for target in sorted(shared):
        one, other = old.device(target), new.device(target)
        if one != other:
            raise BaselineError(f"{target} was {one!r} in the one snapshot and {other!r} in the other", hint=hint)


def _matched(old: Snapshot, new: Snapshot, *, any_chip: bool) -> dict[str, tuple[Row | None, Row | None]]:
    """Rows of the same work, old and new."""

    def by_key(snapshot: Snapshot) -> dict[str, Row]:
        return {row.case.work if any_chip else row.case.key: row for row in snapshot.rows}

    before, after = by_key(old), by_key(new)
    if not before.keys() & after.keys():
        raise BaselineError(
            "the snapshots have no row in common", hint="`tilehal baseline show FILE` lists the rows of each"
        )
    return {key: (before.get(key), after.get(key)) for key in {**after, **before}}


def _row_change(old: Row | None, new: Row | None, changes: tuple[Change, ...]) -> RowChange:
    if new is None:
        assert old is not None  # it is in one of them
        return RowChange(old.case, "gone")
    reason = (new.reason,) if new.reason else ()
    if new.status != "ok":
        return RowChange(new.case, new.status if old is not None and old.status == "ok" else "broken", notes=reason)
    if old is None:
        return RowChange(new.case, "new")
    if old.status != "ok":
        return RowChange(new.case, "fixed", notes=(f"was {old.status}: {old.reason}",))
    verdict: Verdict = min((change.verdict for change in changes), key=ORDER.index, default="same")
    return RowChange(new.case, verdict, changes, tuple(_notes(old, new)))


def _notes(old: Row, new: Row) -> list[str]:
    """What changed besides times; none of it fails a comparison by itself."""
    notes = []
    if old.error is not None and new.error is not None and new.error > _ERROR_FACTOR * old.error:
        notes.append(f"error {old.error:.2g}, now {new.error:.2g}")
    for name in sorted(old.memory.keys() | new.memory.keys()):
        before, after = old.memory.get(name, 0), new.memory.get(name, 0)
        if before != after:
            notes.append(f"{name.removesuffix('_bytes')} {before:,}, now {after:,}")
    tiles = [
        f"{name} {old.tiles.get(name)}, now {new.tiles.get(name)}"
        for name in sorted(old.tiles.keys() | new.tiles.keys())
        if old.tiles.get(name) != new.tiles.get(name)
    ]
    if tiles:
        notes.append("tiles: " + "; ".join(tiles))
    if old.compile_s and new.compile_s and new.compile_s > _COMPILE_FACTOR * old.compile_s + _COMPILE_S:
        notes.append(f"compiled in {old.compile_s:.2g} s, now {new.compile_s:.2g} s")
    return notes


def _order(row: RowChange) -> tuple[int, float, str]:
    largest = max((abs(math.log(change.ratio)) for change in row.changes), default=0.0)
    return ORDER.index(row.verdict), -largest, row.case.key
