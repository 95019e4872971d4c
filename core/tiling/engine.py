"""Ranking: every candidate of a kernel on a chip gets a verdict, and the driver takes the best that compiles."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core.errors import KernelError
from core.tiling.candidates import Candidate, candidates, standing
from core.tiling.classify import classified, shape_of
from core.tiling.ranking import Effort, Ranking, Verdict
from core.tiling.rules import KernelShape, TileRule, Tiles
from core.tiling.tracing import Tracer

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.plugins import Backend
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
    """
    from core.plugins import manager
    from core.target import resolve

    chip = resolve(target).chip
    backend = manager().backend(chip.vendor)
    arguments = factory.arguments(args, kwargs)
    return ranking_of(factory, arguments, chip, backend, given_tiles(factory, kwargs))[0]


def ranking_of(
    factory: KernelFactory, arguments: Mapping[str, Any], chip: Chip, backend: Backend, overrides: Tiles
) -> tuple[Ranking, Tracer]:
    """The ranking under the rules of the chip's backend and its extensions, and the traces made for it."""
    tracer = Tracer(factory, arguments)
    shape = classified(shape_of(factory, arguments), overrides, tracer)
    rules = gathered_rules(backend, chip, shape)
    return rank(factory, arguments, chip, rules, overrides, shape=shape, tracer=tracer), tracer


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
    """Ranks a factory's candidates on a chip under the given rules.

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
    accepted, refused = candidates(shape, rules, overrides)
    taking_part, replaced = standing(rules)
    return Ranking(
        kernel=factory.name,
        target=chip.target,
        shape=shape,
        candidates=tuple(map(_in_rule_order, accepted)),
        refused=refused,
        reasons={rule.name: rule.reason for rule in taking_part},
        replaced=replaced,
        effort=Effort(time.perf_counter() - started, tracer.count),
    )


def _in_rule_order(candidate: Candidate) -> Verdict:
    """The verdict on a candidate about which nothing is predicted."""
    reason = "in the order of the rules' values" if candidate.preferred is None else "preferred by a rule"
    return Verdict(
        candidate.tiles,
        candidate.chosen_by,
        "ranked",
        reason,
        rules=candidate.rules,
        preferred=candidate.preferred,
    )


def gathered_rules(backend: Backend, chip: Chip, shape: KernelShape) -> list[TileRule]:
    """The rules of the chip's backend and its extensions for a kernel, highest priority first."""
    if not backend.implements("tilehal_tile_rules", chip):
        return []
    return list(backend.call("tilehal_tile_rules", chip, kernel=shape))


def given_tiles(factory: KernelFactory, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The tile parameters among a call's arguments.

    Raises:
        KernelError: one has a value that the parameter does not allow.
    """
    given = {name: value for name, value in kwargs.items() if name in factory.parameters}
    for name, value in given.items():
        parameter = factory.parameters[name]
        is_number = isinstance(value, int) and not isinstance(value, bool)
        # Of a choice any type will do: the list of options decides.
        reason = parameter.refuse(value) if is_number or parameter.choices is not None else "it must be an int"
        if reason is None and isinstance(value, bool):
            reason = "it must be an int"
        if reason is not None:
            raise KernelError(
                f"{factory.name}: {name}={value!r}: {reason}",
                hint=f"give another value, or leave {name} out: the chip's rules then choose it",
                location=factory.location,
            )
    return given
