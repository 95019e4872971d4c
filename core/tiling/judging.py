"""From profiles to verdicts: what the chip cannot have is refused, the rest is predicted, weighed and put in order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from core.errors import TileHALError
from core.tiling.candidates import Candidate, by_key, rule_error
from core.tiling.cost import predict
from core.tiling.feasible import misfit
from core.tiling.profile import Profile
from core.tiling.ranking import Verdict
from core.tiling.rules import KernelShape, TileRule

if TYPE_CHECKING:
    from core.hardware import Chip


def judged(
    candidate: Candidate, profile: Profile | TileHALError, shape: KernelShape, rules: Sequence[TileRule], chip: Chip
) -> Verdict:
    """The verdict on one candidate that no rule forbids.

    Args:
        profile: what it does, or why that cannot be known: the error it is traced with.
        rules: those that take part.

    Raises:
        BackendHookError: a rule raised, or gave a weight that is none.
    """
    if isinstance(profile, TileHALError):
        return _refused(candidate, f"it cannot be traced: {profile.message.splitlines()[0]}")
    found = misfit(profile, chip)
    if found is not None:
        return _refused(candidate, found.reason, found.excess_bytes)
    keyed = by_key(shape, candidate.tiles)
    for rule in rules:
        if rule.inspect is None:
            continue
        try:
            reason = rule.inspect(shape, keyed, profile)
        except Exception as error:
            raise rule_error(rule, "inspect", shape, keyed, error) from error
        if reason is not None:
            refused = _refused(candidate, f"{rule.name}: {reason}")
            return replace(refused, rules=tuple(dict.fromkeys((*candidate.rules, rule.name))))
    try:
        prediction = predict(profile, chip, keyed)
    except TileHALError as error:
        return _ranked(candidate, f"nothing can be predicted: {error.message.splitlines()[0]}")
    weight, weighed_by = 1.0, []
    for rule in rules:
        if rule.weigh is None:
            continue
        try:
            factor = rule.weigh(shape, keyed, prediction)
            if not (math.isfinite(factor) and factor > 0):
                raise ValueError(f"{factor!r} is no weight: it must be a positive number")
        except Exception as error:
            raise rule_error(rule, "weigh", shape, keyed, error) from error
        if factor != 1.0:
            weight *= factor
            weighed_by.append((rule.name, factor))
    reason = f"bound by {prediction.bound}"
    if weighed_by:
        reason += "; " + ", ".join(f"x {factor:.3g} by {name}" for name, factor in weighed_by)
    verdict = _ranked(candidate, reason)
    names = dict.fromkeys((*candidate.rules, *(name for name, _ in weighed_by)))
    return replace(verdict, prediction=prediction, weight=weight, rules=tuple(names))


def in_order(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """What rules prefer in their order, then the shortest time; what nothing is predicted of comes last, as given."""

    def order(verdict: Verdict) -> tuple[bool, int, float]:
        seconds = verdict.seconds
        return verdict.preferred is None, verdict.preferred or 0, math.inf if seconds is None else seconds

    return sorted(verdicts, key=order)


def _ranked(candidate: Candidate, reason: str) -> Verdict:
    if candidate.preferred is not None:
        reason = f"a rule prefers it; {reason}"
    return Verdict(
        candidate.tiles,
        candidate.chosen_by,
        "ranked",
        reason,
        rules=candidate.rules,
        preferred=candidate.preferred,
    )


def _refused(candidate: Candidate, reason: str, excess_bytes: int | None = None) -> Verdict:
    return Verdict(
        candidate.tiles,
        candidate.chosen_by,
        "refused",
        reason,
        rules=candidate.rules,
        preferred=candidate.preferred,
        excess_bytes=excess_bytes,
    )
