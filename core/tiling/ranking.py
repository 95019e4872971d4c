"""Ranking: every candidate of a kernel on a chip gets a verdict, and compiling takes the best that lowers.

Values of the rules are multiplied out and pruned (`candidates`), a handful of traces gives the profile of every one
(`profile.family`), what the chip cannot have is refused with the reason (`feasibility`), the cost model predicts the
rest and rules weigh it (`evaluation`). Where nothing fits, smaller ones are made (`shrinking`). docs/tiling.md tells it
for users.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from core.errors import TileHALError
from core.tiling.candidates import candidates, forbidding, standing
from core.tiling.classify import classified, shape_of
from core.tiling.evaluation import evaluate
from core.tiling.profile import Profile
from core.tiling.profile.family import ProfileFamily
from core.tiling.rules import KernelShape, TileRule, Tiles
from core.tiling.shrinking import smaller
from core.tiling.tracing import Tracer, assumed
from core.tiling.verdict import Candidate, Verdict

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.tiling.factory import KernelFactory


@dataclass(frozen=True, slots=True)
class Effort:
    """What a ranking cost.

    Attributes:
        seconds: wall time, traces included.
        traces: times the kernel was traced.
        predictions: candidates the cost model was asked about.
        recalled: `process` or `disk` when the ranking was remembered there and nothing of this was spent again.
    """

    seconds: float = 0.0
    traces: int = 0
    predictions: int = 0
    recalled: Literal["", "process", "disk"] = ""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Every candidate of one kernel on one chip.

    Attributes:
        kernel: the factory's name.
        target: the chip, `vendor:chip`.
        shape: what the rules were told of the kernel.
        candidates: the ranked ones, best first, as the driver tries them.
        refused: the others, each with its reason: first those that rules would have had, which the chip cannot have.
        passed_over: of the refused ones, the configurations that a rule prefers by name.
        reasons: each rule's own reason, by name, in order of priority.
        replaced: rules that took no part, and which rule stands for each.
        notes: what was done about the candidates as a whole, one sentence each.
        fingerprint: of the program that the first candidate makes.
        effort: what it cost.
    """

    kernel: str
    target: str
    shape: KernelShape
    candidates: tuple[Verdict, ...]
    refused: Sequence[Verdict]
    reasons: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)
    passed_over: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()
    fingerprint: str = ""
    effort: Effort = Effort()

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """All of them: best first, then the refused ones."""
        return (*self.candidates, *self.refused)

    def to_json(self) -> dict[str, Any]:
        """Plain data: what `tilehal tile --json` prints."""
        return {
            "kernel": self.kernel,
            "target": self.target,
            "operator": self.shape.operator,
            "dimensions": dict(self.shape.dimensions),
            "dtypes": list(self.shape.dtypes),
            "rules": dict(self.reasons),
            "replaced": dict(self.replaced),
            "notes": list(self.notes),
            "effort": asdict(self.effort),
            "candidates": [verdict.to_json() for verdict in self.candidates],
            "refused": [verdict.to_json() for verdict in self.refused],
        }


def rank(
    factory: KernelFactory,
    arguments: Mapping[str, Any],
    chip: Chip,
    rules: Sequence[TileRule],
    overrides: Tiles,
    *,
    shape: KernelShape | None = None,
    tracer: Tracer | None = None,
) -> Ranking:
    """Ranks a factory's candidates on a chip under the given rules. Nothing is remembered.

    Args:
        arguments: every argument but the tile parameters, by name.
        rules: highest priority first.
        overrides: the user's tile parameters, in every candidate as they are.
        shape: what the kernel is, when it is known already; else it is read off a trace.
        tracer: traces made already.

    Raises:
        KernelError: the kernel traces with no tiles.
        BackendHookError: a rule raised.
    """
    started = time.perf_counter()
    tracer = tracer or Tracer(factory, arguments)
    if shape is None:
        shape = classified(shape_of(factory, arguments), overrides, tracer)
    taking_part, replaced = standing(rules)
    accepted, refused = candidates(shape, rules, overrides)
    symbols, notes = assumed(arguments)
    profiles = _Profiles(ProfileFamily.fit(tracer, factory.parameters, [one.tiles for one in accepted], symbols))
    judge = partial(evaluate, shape=shape, rules=taking_part, chip=chip, grid_known=not symbols)
    verdicts = [judge(one, profiles(one.tiles)) for one in accepted]
    verdicts += _shrunk(verdicts, shape, taking_part, overrides, judge, profiles)
    ranked = _in_order(verdict for verdict in verdicts if verdict.status == "ranked")
    refused = [*(verdict for verdict in verdicts if verdict.status == "refused"), *refused]
    return Ranking(
        kernel=factory.name,
        target=chip.target,
        shape=shape,
        candidates=tuple(ranked),
        refused=refused,
        reasons={rule.name: rule.reason for rule in taking_part},
        replaced=replaced,
        passed_over=tuple(verdict for verdict in refused if verdict.preferred is not None),
        notes=(*notes, *profiles.family.notes),
        fingerprint=_fingerprint(ranked, tracer),
        effort=Effort(
            time.perf_counter() - started,
            tracer.count,
            sum(verdict.prediction is not None for verdict in ranked),
        ),
    )


class _Profiles:
    """What a configuration does, or the error it is traced with."""

    def __init__(self, family: ProfileFamily) -> None:
        self.family = family

    def __call__(self, tiles: Tiles) -> Profile | TileHALError:
        try:
            return self.family.profile(tiles)
        except TileHALError as error:
            return error


def _shrunk(
    verdicts: Sequence[Verdict],
    shape: KernelShape,
    rules: Sequence[TileRule],
    overrides: Tiles,
    judge: Callable[[Candidate, Profile | TileHALError], Verdict],
    profiles: _Profiles,
) -> list[Verdict]:
    """Verdicts on smaller tiles: for each preferred configuration that is too large, and where all candidates are."""
    too_large = [verdict for verdict in verdicts if verdict.excess_bytes is not None]
    starts: dict[int | None, Verdict] = {}
    for verdict in too_large:
        known = starts.get(verdict.preferred)
        if known is None or (verdict.excess_bytes or 0) < (known.excess_bytes or 0):
            starts[verdict.preferred] = verdict
    fitting = {verdict.preferred for verdict in verdicts if verdict.status == "ranked"}
    found: list[Verdict] = []
    for preferred, start in starts.items():
        if preferred in fitting or (preferred is None and (fitting or found)):
            continue
        candidate = Candidate(start.tiles, start.chosen_by, preferred)
        for step, profile in smaller(candidate, shape, overrides, profiles):
            if forbidding(shape, rules, step.tiles) is not None:
                continue
            verdict = judge(step, profile)
            if verdict.status == "ranked":
                changes = ", ".join(
                    f"{name} {start.tiles[name]} -> {value}"
                    for name, value in step.tiles.items()
                    if value != start.tiles[name]
                )
                found.append(replace(verdict, reason=f"{changes}, so that it fits ({start.reason}); {verdict.reason}"))
                break
    return found


def _fingerprint(ranked: Sequence[Verdict], tracer: Tracer) -> str:
    """Of the program of the first choice; empty when there is none that can be traced."""
    try:
        return tracer(ranked[0].tiles).fingerprint() if ranked else ""
    except TileHALError:
        return ""


def _in_order(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """What rules prefer in their order, then the shortest time; what nothing is predicted of comes last, as given."""

    def order(verdict: Verdict) -> tuple[bool, int, float]:
        seconds = verdict.seconds
        return verdict.preferred is None, verdict.preferred or 0, math.inf if seconds is None else seconds

    return sorted(verdicts, key=order)
