"""From the profile of one candidate to its verdict: refused by the chip or by a rule, or predicted and weighed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from core.errors import TileHALError, summary
from core.tiling.candidates import by_key, rule_error
from core.tiling.cost import predict
from core.tiling.feasibility import misfit
from core.tiling.profile import Profile
from core.tiling.rules import KernelShape, TileRule
from core.tiling.verdict import Candidate, Verdict

if TYPE_CHECKING:
    from core.hardware import Chip


def evaluate(
    candidate: Candidate,
    profile: Profile | TileHALError,
    shape: KernelShape,
    rules: Sequence[TileRule],
    chip: Chip,
    *,
    grid_known: bool = True,
) -> Verdict:
    """The verdict on one candidate that no rule forbids.

    Args:
        profile: what it does, or why that cannot be known: the error it is traced with.
        rules: those that take part.
        grid_known: as for :func:`core.tiling.feasibility.misfit`.

    Raises:
        BackendHookError: a rule raised, or gave a weight that is none.
    """
    if isinstance(profile, TileHALError):
        return candidate.refused(f"it cannot be traced: {summary(profile)}")
    found = misfit(profile, chip, grid_known=grid_known)
    if found is not None:
        return candidate.refused(found.reason, excess_bytes=found.excess_bytes)
    keyed = by_key(shape, candidate.tiles)
    for rule in rules:
        if rule.inspect is None:
            continue
        try:
            reason = rule.inspect(shape, keyed, profile)
        except Exception as error:
            raise rule_error(rule, "inspect", shape, keyed, error) from error
        if reason is not None:
            return candidate.refused(reason, rule=rule.name)
    try:
        prediction = predict(profile, chip)
    except TileHALError as error:
        return candidate.ranked(f"nothing can be predicted: {summary(error)}")
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
    names = dict.fromkeys((*candidate.rules, *(name for name, _ in weighed_by)))
    return replace(candidate.ranked(reason), prediction=prediction, weight=weight, rules=tuple(names))
