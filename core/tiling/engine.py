"""Ranking: every candidate of a kernel on a chip gets a verdict, and the driver takes the best that compiles.

Values of the rules are multiplied out and pruned (`candidates`), a handful of traces gives the profile of every one
(`family`), what the chip cannot have is refused with the reason (`feasible`), the cost model predicts the rest, rules
weigh it (`judging`). Where nothing fits, smaller ones are made (`shrinking`). docs/tiling.md tells it for users.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from core.errors import KernelError, TileHALError
from core.tiling.candidates import Candidate, candidates, forbidding, standing
from core.tiling.classify import classified, shape_of
from core.tiling.family import ProfileFamily
from core.tiling.judging import in_order, judged
from core.tiling.profile import Profile
from core.tiling.ranking import Effort, Ranking, Verdict
from core.tiling.rules import KernelShape, TileRule, Tiles
from core.tiling.shrinking import smaller
from core.tiling.tracing import Tracer, sized

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.target import Target
    from core.tiling.factory import KernelFactory


def rank_for(
    factory: KernelFactory, args: tuple[Any, ...], kwargs: Mapping[str, Any], target: str | Target | Chip = "auto"
) -> Ranking:
    """The ranking of a factory's candidates for a target, as compiling would try them.

    Args:
        args, kwargs: the factory's arguments; tile parameters among them are used as they are.

    Raises:
        TargetNotFound, BackendLoadError: the target cannot be resolved.
        KernelError: an argument is missing, unknown or not allowed, or the kernel traces with no tiles.
        BackendHookError: a rule raised.
    """
    from core.tiling.problem import TileProblem

    return TileProblem.of(factory, args, kwargs, target).ranking()


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
    concrete, notes = sized(tracer)
    profiles = _Profiles(ProfileFamily.fit(concrete, factory.parameters, [one.tiles for one in accepted]))
    verdicts = [judged(one, profiles(one.tiles), shape, taking_part, chip) for one in accepted]
    verdicts += _shrunk(verdicts, shape, taking_part, overrides, chip, profiles)
    ranked = in_order(verdict for verdict in verdicts if verdict.status == "ranked")
    refused += [verdict for verdict in verdicts if verdict.status == "refused"]
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
            tracer.count + (concrete.count if concrete is not tracer else 0),
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
    chip: Chip,
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
            verdict = judged(step, profile, shape, rules, chip)
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


def given_tiles(factory: KernelFactory, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The tile parameters among a call's arguments.

    Raises:
        KernelError: one has a value that the parameter does not allow.
    """
    given = {name: value for name, value in kwargs.items() if name in factory.parameters}
    for name, value in given.items():
        parameter = factory.parameters[name]
        if isinstance(value, bool) or not isinstance(value, int if parameter.choices is None else int | str):
            reason: str | None = "it must be an int" if parameter.role != "choice" else "it must be an int or a str"
        else:
            reason = parameter.refuse(value)
        if reason is not None:
            raise KernelError(
                f"{factory.name}: {name}={value!r}: {reason}",
                hint=f"give another value, or leave {name} out: the chip's rules then choose it",
                location=factory.location,
            )
    return given
