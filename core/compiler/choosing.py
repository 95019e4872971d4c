"""From a ranking to a kernel: candidates are compiled in order until one does, and what failed on the way is kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.errors import KernelError, ResourceExceeded, ShapeMismatch, TileHALError, UnsupportedOp, summary
from core.runtime.report import TileChoice
from core.tiling.ranking import Ranking
from core.tiling.rules import Rejection, Tiles, tiles_in_words
from core.tiling.verdict import Verdict

if TYPE_CHECKING:
    from core.compiler.artifacts import CompileOptions
    from core.runtime.kernel import Kernel
    from core.tiling.problem import TileProblem

#: What a tile chosen by rule may fail with, so that the next candidate is tried.
_TILE_FAULTS = (ResourceExceeded, UnsupportedOp, ShapeMismatch, KernelError)
#: Candidates lowered before giving up.
_MOST_CANDIDATES = 64
#: Candidates that may fail with one and the same message, other than for room, before the kernel is taken to be at
#: fault.
_FAULTS_BEFORE_BLAME = 8


@dataclass(frozen=True, slots=True)
class Chosen:
    """One candidate as it is compiled: its tile parameters, who chose them, and what could not be had instead."""

    tiles: Tiles
    chosen_by: Mapping[str, str]
    choice: TileChoice
    rejected: tuple[Rejection, ...] = ()


def first_that_compiles(problem: TileProblem, options: CompileOptions, attempt: Callable[[Chosen], Kernel]) -> Kernel:
    """The kernel of the tiles that were measured to be fastest, else of the best candidate that compiles.

    Args:
        options: the call's; tiles measured under others do not count.
        attempt: compiles a candidate.

    Raises:
        TileHALError: no candidate compiles: what stands in the way. With every tile parameter given by the user, the
            failure as it is.
    """
    rejected: list[Rejection] = []
    measured = _measured(problem, options)
    if measured is not None:
        try:
            return attempt(measured)
        except _TILE_FAULTS as error:
            source = measured.choice.source
            rejected.append(Rejection(measured.tiles, f"{source}: {summary(error)}"))
    ranking = problem.ranking(checked=True)
    if len(problem.overrides) == len(problem.factory.parameters):
        return _as_given(problem, ranking, attempt)
    # A configuration that a rule's author asked for by name and that could not be had is part of the answer.
    rejected += [Rejection(verdict.tiles, verdict.reason) for verdict in ranking.passed_over]
    failures: list[tuple[Verdict, TileHALError]] = []
    untried = dict(enumerate(ranking.candidates, 1))
    while untried and len(failures) < _MOST_CANDIDATES and not _not_the_tiles([error for _, error in failures]):
        place = _next(untried, failures)
        verdict = untried.pop(place)
        try:
            return attempt(Chosen(verdict.tiles, verdict.chosen_by, _choice(ranking, verdict, place), tuple(rejected)))
        except _TILE_FAULTS as error:
            rejected.append(Rejection(verdict.tiles, summary(error)))
            failures.append((verdict, error))
    raise _no_tile(problem, ranking, failures or _nearest_misfit(problem, ranking), rejected)


def _as_given(problem: TileProblem, ranking: Ranking, attempt: Callable[[Chosen], Kernel]) -> Kernel:
    """The kernel with every tile parameter given by the user: lowering says whether there is room for it, no estimate.

    Raises:
        ResourceExceeded: a rule forbids it.
        TileHALError: what compiling it fails with.
    """
    (verdict,) = ranking.verdicts
    if verdict.status == "refused" and verdict.excess_bytes is None:
        raise _no_tile(problem, ranking, [], [])
    return attempt(Chosen(verdict.tiles, verdict.chosen_by, _choice(ranking, verdict, 1)))


def _next(untried: Mapping[int, Verdict], failures: Sequence[tuple[Verdict, TileHALError]]) -> int:
    """The place of the candidate to try next: the best, or the best that is unlike those that failed for one reason.

    Neighbours in the ranking are alike. Where two or more failed with one message, which is not want of room, what they
    have in common may be the cause, and the next one has something else there.
    """
    first = next(iter(untried))
    if not failures or isinstance(failures[-1][1], ResourceExceeded):
        return first
    said = _said(failures[-1][1])
    alike = [verdict.tiles for verdict, error in failures if _said(error) == said]
    if len(alike) < 2:
        return first
    common = {name: value for name, value in alike[0].items() if all(tiles[name] == value for tiles in alike)}
    return next(
        (
            place
            for place, verdict in untried.items()
            if any(verdict.tiles[name] != value for name, value in common.items())
        ),
        first,
    )


def _said(error: TileHALError) -> str:
    """An error's message without its numbers, which differ from tile to tile."""
    return re.sub(r"\d+", "#", error.message)


def _measured(problem: TileProblem, options: CompileOptions) -> Chosen | None:
    """The tiles that tuning or a shipped table knows for this problem, or None. Nothing is traced for it."""
    found = problem.measured(options)
    if found is None:
        return None
    took = "" if found.outcome.median_s is None else f": {found.outcome.median_s * 1e6:.4g} us"
    choice = TileChoice(
        source=found.chosen_by,
        reason=f"the fastest that was measured{took}",
        predicted_s=found.outcome.predicted_s,
    )
    chosen_by = {name: "user" if name in problem.overrides else found.chosen_by for name in found.tiles}
    return Chosen(found.tiles, chosen_by, choice)


def _nearest_misfit(problem: TileProblem, ranking: Ranking) -> list[tuple[Verdict, TileHALError]]:
    """The refused candidate that came nearest to fitting, with the error that compiling it would end in: a table."""
    from core.program.capacity import violations

    misfits = [verdict for verdict in ranking.refused if verdict.excess_bytes is not None]
    if not misfits:
        return []
    nearest = min(misfits, key=lambda verdict: verdict.excess_bytes or 0)
    found = violations(problem.tracer(nearest.tiles).footprint(), problem.chip)
    error = next((error for error in found if isinstance(error, ResourceExceeded)), None)
    return [] if error is None else [(nearest, error)]


def _choice(ranking: Ranking, verdict: Verdict, place: int) -> TileChoice:
    said = {name: ranking.reasons[name] for name in verdict.rules if name in ranking.reasons}
    return TileChoice(
        source="user" if set(verdict.chosen_by.values()) <= {"user"} else "ranking",
        reason=verdict.reason,
        place=place,
        ranked=len(ranking.candidates),
        refused=len(ranking.refused),
        predicted_s=None if verdict.prediction is None else verdict.prediction.seconds,
        bound=None if verdict.prediction is None else verdict.prediction.bound,
        rules=said,
    )


def _not_the_tiles(failures: Sequence[TileHALError]) -> bool:
    """Whether several tiles failed for one reason, which is not want of room: then the kernel is at fault."""
    return (
        len(failures) >= _FAULTS_BEFORE_BLAME
        and len({_said(error) for error in failures}) == 1
        and not any(isinstance(error, ResourceExceeded) for error in failures)
    )


def _no_tile(
    problem: TileProblem,
    ranking: Ranking,
    failures: Sequence[tuple[Verdict, TileHALError]],
    rejected: Sequence[Rejection],
) -> TileHALError:
    """The error for a factory none of whose candidates compiled: what stands in the way, not how many were tried."""
    factory, fixed = problem.factory, tiles_in_words(problem.overrides)
    given = f" with {fixed}" if fixed else ""
    details = {"rejected": [{"tiles": dict(r.tiles), "reason": r.reason} for r in rejected]}
    # A candidate that fitted and failed otherwise says more than one that was too large.
    others = [error for _, error in failures if not isinstance(error, ResourceExceeded)]
    if others:
        return others[0]
    if failures:
        # The one that came nearest, with its table of buffers.
        verdict, best = min(failures, key=lambda failure: failure[1].details.get("excess_bytes", float("inf")))
        return ResourceExceeded(
            f"{factory.name}: no tile fits {ranking.target}{given} ({len(failures)} tried)."
            f" The nearest, {tiles_in_words(verdict.tiles)}: {best.message}",
            hint=f"leave {fixed} to the chip's rules, or give less: {best.hint}" if fixed else best.hint,
            location=best.location or factory.location,
            details={**best.details, **details},
        )
    details = {"rejected": [{"tiles": dict(v.tiles), "reason": v.reason} for v in ranking.refused]}
    # One of those that differ in their numbers says it.
    kinds = list({re.sub(r"\d[\d,]*", "#", verdict.reason): verdict for verdict in ranking.refused}.values())
    return ResourceExceeded(
        f"{factory.name}: {ranking.target} allows no tile{given}: {'; '.join(one.reason for one in kinds[:3])}",
        hint=f"change {fixed}, or leave it to the chip's rules" if fixed else _other_tiles(problem, kinds),
        location=factory.location,
        details=details,
    )


def _other_tiles(problem: TileProblem, refused: Sequence[Verdict]) -> str:
    """What to do where a chip has no tile for a kernel: give it smaller ones, or larger ones where blocks are too many.

    Args:
        refused: one candidate for each kind of reason.
    """
    from core.program.capacity import IN_PARTS

    limits = f"`tilehal describe --target {problem.chip.target}` has the chip's limits"
    blocks = next(filter(None, (_too_many_blocks(problem, verdict) for verdict in refused)), None)
    if blocks is not None:
        return f"{blocks.hint}; {limits}"
    return f"{IN_PARTS}; {limits}" if problem.shape.operator == "reduction" else f"give it smaller tiles; {limits}"


def _too_many_blocks(problem: TileProblem, refused: Verdict) -> TileHALError | None:
    """The error that a candidate has more blocks than a grid of the chip, or None."""
    from core.program.capacity import violations

    if len(refused.tiles) < len(problem.factory.parameters):
        return None
    try:
        found = list(violations(problem.tracer(refused.tiles).footprint(), problem.chip))
    except TileHALError:  # one that cannot be traced
        return None
    return next((error for error in found if "blocks" in error.details), None)
