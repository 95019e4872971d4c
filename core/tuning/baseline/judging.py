"""Which times changed beyond noise, with a stated chance of a false alarm in the whole comparison.

The unit is the pass: its median has everything in it that differs from one process to the next. Times are compared as
logarithms, where a ratio is a difference. With R passes on either side Welch's t says how far the two means may be
apart by chance; where the passes were taken in pairs (two builds in turn), it is the t of the pairs' differences.

A time is *slower* when it is shown to be longer by more than the tolerance, *faster* likewise. "Shown" means that among
all the times compared even one false alarm is less likely than `1 - confidence` (Holm's method). One that is neither,
but whose passes differ so much that a slowdown by `sensitivity` could have gone unseen, is *unclear*, not the same.

Between recordings a whole machine can become slower. Each has yardsticks, work of torch's on the same device; when
those are shown to have become slower, kernels count as slower only by what is beyond that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from core.tuning.baseline.snapshot import L2, Snapshot, Timing
from core.tuning.measure.statistics import Difference, holm, paired, welch

TimeVerdict = Literal["slower", "faster", "same", "unclear"]

#: No machine repeats a median better than this, whatever a few passes say; and the file rounds to half of it.
LEAST_DEVIATION = 1e-3
#: An interval that reaches further than a factor of a thousand says as little as one that reaches so far.
_WIDEST = math.log(1e3)


@dataclass(frozen=True, slots=True)
class Criteria:
    """What counts as a change.

    Attributes:
        confidence: that nothing called slower is a false alarm; and, separately, nothing called faster.
        tolerance: relative change that nobody needs to hear of.
        sensitivity: slowdown that must not go unseen; a time that could hide it is unclear.
        interleaved: the k-th passes of the two were taken one after the other.
    """

    confidence: float = 0.95
    tolerance: float = 0.03
    sensitivity: float = 0.10
    interleaved: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """Two timings of one row, with caches in the same state, to be judged."""

    key: str
    target: str
    l2: L2
    old: Timing
    new: Timing


@dataclass(frozen=True, slots=True)
class Change:
    """How a time changed.

    Attributes:
        ratio: new time over old; 1.1 is 10% slower.
        low, high: ends of its interval; all intervals of a comparison hold at once with the stated confidence.
        p_slower, p_faster: the chance of seeing this, among so many times, if it were within the tolerance (Holm).
        detectable: the smallest slowdown, beyond the machine's own, that would have been shown more often than not.
    """

    l2: L2
    old_s: float
    new_s: float
    ratio: float
    low: float
    high: float
    p_slower: float
    p_faster: float
    detectable: float
    verdict: TimeVerdict


@dataclass(frozen=True, slots=True)
class Shift:
    """How a yardstick changed: `ratio` of times with its interval, and whether the machine is shown to be slower."""

    target: str
    name: str
    ratio: float
    low: float
    high: float
    slower: bool


def judge(pairs: Sequence[Pair], shifts: Sequence[Shift], criteria: Criteria) -> list[Change]:
    """The verdict on every pair, in their order; every timing has two passes at least."""
    margin = math.log1p(criteria.tolerance)
    level = 1 - criteria.confidence
    machine = [slower_by(shifts, pair.target) for pair in pairs]
    found = [difference(pair.old, pair.new, criteria) for pair in pairs]
    slower = holm([one.upper_tail(margin + shift) for one, shift in zip(found, machine, strict=True)])
    faster = holm([replace(one, value=-one.value).upper_tail(margin) for one in found])
    changes = []
    for pair, one, p_slower, p_faster in zip(pairs, found, slower, faster, strict=True):
        half = min(_WIDEST, one.half_width(level / 2 / len(pairs)))
        detectable = margin + min(_WIDEST, one.half_width(level / len(pairs)))
        verdict: TimeVerdict = "same" if detectable <= math.log1p(criteria.sensitivity) else "unclear"
        if p_slower < level:
            verdict = "slower"
        elif p_faster < level:
            verdict = "faster"
        changes.append(
            Change(
                l2=pair.l2,
                old_s=pair.old.median_s,
                new_s=pair.new.median_s,
                ratio=math.exp(one.value),
                low=math.exp(one.value - half),
                high=math.exp(one.value + half),
                p_slower=p_slower,
                p_faster=p_faster,
                detectable=math.expm1(detectable),
                verdict=verdict,
            )
        )
    return changes


def shifts_between(old: Snapshot, new: Snapshot, criteria: Criteria) -> list[Shift]:
    """How the yardsticks that both snapshots have changed."""
    found = []
    for target, yardsticks in new.yardsticks.items():
        for name, after in yardsticks.items():
            before = old.yardsticks.get(target, {}).get(name)
            if before is None or min(len(before.passes_s), len(after.passes_s)) < 2:
                continue
            one = difference(before, after, criteria)
            half = min(_WIDEST, one.half_width((1 - criteria.confidence) / 2))
            slower = one.value - half > 0 and one.value > math.log1p(criteria.tolerance) / 2
            low, high = math.exp(one.value - half), math.exp(one.value + half)
            found.append(Shift(target, name, math.exp(one.value), low, high, slower))
    return found


def slower_by(shifts: Sequence[Shift], target: str) -> float:
    """Log of how much slower a target's machine is shown to have become; 0 where it is not."""
    return max((math.log(shift.ratio) for shift in shifts if shift.target == target and shift.slower), default=0.0)


def difference(old: Timing, new: Timing, criteria: Criteria) -> Difference:
    """The difference of the logarithms of two timings."""
    before, after = ([math.log(value) for value in timing.passes_s] for timing in (old, new))
    if criteria.interleaved and len(before) == len(after):
        return paired(before, after, LEAST_DEVIATION)
    return welch(before, after, LEAST_DEVIATION)
