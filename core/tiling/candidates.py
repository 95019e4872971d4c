"""The candidates of one kernel on one chip, before anything is traced, and what was pruned with its reason.

Each tile parameter gets the values that rules name for its key, generic ones where no rule does, and the user's number
alone where there is one. Values that the parameter does not allow are dropped, and tiles larger than the smallest that
covers the dimension. Candidates are the product of what is left, without what a rule forbids.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from core.errors import BackendHookError
from core.tiling.constraints import power_of_two
from core.tiling.parameters import TileParameter, Value
from core.tiling.rules import KernelShape, TileRule, Tiles
from core.tiling.verdict import Candidate, Verdict

#: Most configurations looked at; the longest lists of values are cut to their front beyond it.
MOST_CONFIGURATIONS = 8192

#: Values by role where no rule names the parameter's key, most wanted first. A choice has its own.
_GENERIC: Mapping[str, tuple[Value, ...]] = {
    "tile": (64, 32, 16, 8, 4, 2, 1, 128),
    "split": (1,),
    "stages": (2, 1, 0),
    "threads": (128, 64, 256),
    "unroll": (1,),
    "swizzle": (0,),
    "warp_policy": (0,),
    "buffers": (1,),
    "workers": (0,),
}


def standing(rules: Sequence[TileRule]) -> tuple[list[TileRule], dict[str, str]]:
    """The rules that take part, highest priority first, and who stands for each that does not.

    A replaced rule takes no part at all: what it replaced itself is back, unless its successor names that as well.
    """
    found: list[TileRule] = []
    successors: dict[str, str] = {}
    replaced: dict[str, str] = {}
    for rule in rules:
        if rule.name in successors:
            replaced[rule.name] = successors[rule.name]
            continue
        found.append(rule)
        for name in rule.replaces:
            successors.setdefault(name, rule.name)
    return found, replaced


def candidates(
    shape: KernelShape, rules: Sequence[TileRule], overrides: Tiles | None = None
) -> tuple[list[Candidate], list[Verdict]]:
    """What may be compiled as far as parameters and rules know, in order of preference, and what may not.

    Args:
        rules: highest priority first.
        overrides: the user's numbers by parameter name, in every candidate as they are.

    Returns:
        Preferred configurations in the order of the rules' lists, then the product of values; and the refused ones.

    Raises:
        BackendHookError: a rule's `forbid` or `leave_out` raised.
    """
    found = _Space(shape, standing(rules)[0], overrides or {})
    accepted: list[Candidate] = []
    possible: list[Candidate] = []
    left_out: list[Verdict] = []
    for candidate in found:
        forbidden = forbidding(shape, found.rules, candidate.tiles)
        if forbidden is not None:
            found.refused.append(candidate.refused(forbidden[1], rule=forbidden[0]))
            continue
        # What a rule asks for by name it does not leave out, unless the user's numbers made something else of it.
        asked = candidate.preferred is not None and not found.changes(candidate.preferred)
        unwanted = None if asked else _leaving_out(shape, found.rules, candidate.tiles)
        if unwanted is None:
            accepted.append(candidate)
        else:
            candidate = replace(candidate, preferred=None)
            left_out.append(candidate.refused(f"left out: {unwanted[1]}", rule=unwanted[0]))
        possible.append(candidate)
    if not accepted:
        return possible, found.refused
    return accepted, [*found.refused, *left_out]


def forbidding(shape: KernelShape, rules: Sequence[TileRule], tiles: Tiles) -> tuple[str, str] | None:
    """The first rule that forbids a configuration (by parameter name) with its reason, or None.

    Raises:
        BackendHookError: a rule's `forbid` raised.
    """
    return _first_reason("forbid", shape, rules, tiles)


def _leaving_out(shape: KernelShape, rules: Sequence[TileRule], tiles: Tiles) -> tuple[str, str] | None:
    """The first rule that would not consider a configuration (by parameter name) with its reason, or None.

    Raises:
        BackendHookError: a rule's `leave_out` raised.
    """
    return _first_reason("leave_out", shape, rules, tiles)


def _first_reason(part: str, shape: KernelShape, rules: Sequence[TileRule], tiles: Tiles) -> tuple[str, str] | None:
    keyed = by_key(shape, tiles)
    for rule in rules:
        judge = rule.forbid if part == "forbid" else rule.leave_out
        if judge is None:
            continue
        try:
            reason = judge(shape, keyed)
        except Exception as error:
            raise rule_error(rule, part, shape, keyed, error) from error
        if reason is not None:
            return rule.name, reason
    return None


def by_key(shape: KernelShape, tiles: Tiles) -> dict[str, Value]:
    """The values by the keys that rules use."""
    return {shape.parameters[name].key: value for name, value in tiles.items()}


def rule_error(rule: TileRule, part: str, shape: KernelShape, tiles: Tiles, error: Exception) -> BackendHookError:
    """The error for a rule whose function raised."""
    return BackendHookError(
        f"the tile rule {rule.name} cannot judge {shape.name} with {dict(tiles)}: its `{part}` raised"
        f" {type(error).__name__}: {error}",
        hint=f"a fault of the package that gives {rule.name}; give every tile parameter yourself to go without rules",
        details={"rule": rule.name, "part": part, "tiles": dict(tiles)},
    )


@dataclass(slots=True)
class _Space:
    """The configurations that values and preferences span; `refused` grows while they are walked."""

    shape: KernelShape
    rules: Sequence[TileRule]
    overrides: Tiles
    refused: list[Verdict] = field(default_factory=list)
    #: By parameter name: the values, each with who proposed it.
    values: dict[str, dict[Value, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, parameter in self.shape.parameters.items():
            self.values[name] = self._values(name, parameter)
        self._thin()

    def __iter__(self) -> Iterator[Candidate]:
        seen: set[tuple[Value, ...]] = set()
        for preferred, choices in self._choices():
            names = tuple(choices)
            for picked in itertools.product(*(options.items() for options in choices.values())):
                identity = tuple(value for value, _ in picked)
                if identity in seen:
                    continue
                seen.add(identity)
                yield Candidate(
                    dict(zip(names, identity, strict=True)),
                    dict(zip(names, (who for _, who in picked), strict=True)),
                    preferred,
                )

    def changes(self, place: int) -> bool:
        """Whether the user's numbers are others than those of a preferred configuration, by its place."""
        wanted = [tiles for rule in self.rules for tiles in rule.prefer][place]
        keyed = by_key(self.shape, self.overrides)
        return any(wanted.get(key, value) != value for key, value in keyed.items())

    def _choices(self) -> Iterator[tuple[int | None, dict[str, dict[Value, str]]]]:
        """The values of each parameter: one set per preferred configuration, then the whole."""
        wanted = ((rule, tiles) for rule in self.rules for tiles in rule.prefer)
        for place, (rule, tiles) in enumerate(wanted):
            choices = dict(self.values)
            for name, parameter in self.shape.parameters.items():
                if parameter.key in tiles and name not in self.overrides:
                    choices[name] = {self._nearest(parameter, tiles[parameter.key]): f"rule:{rule.name}"}
            yield place, choices
        yield None, self.values

    def _values(self, name: str, parameter: TileParameter) -> dict[Value, str]:
        if name in self.overrides:
            return {self.overrides[name]: "user"}
        proposed: dict[Value, str] = {}
        for rule in self.rules:
            for value in rule.values.get(parameter.key, ()):
                proposed.setdefault(value, f"rule:{rule.name}")
        if not proposed:
            proposed = dict.fromkeys(self._generic(parameter), "default")
        allowed: dict[Value, str] = {}
        for value, who in proposed.items():
            reason = parameter.refuse(value)
            if reason is None:
                allowed[value] = who
            elif who != "default":
                self._drop(name, value, who, reason)
        if not allowed:
            # None of what was proposed is allowed: what is nearest to it is the best there is.
            return {self._nearest(parameter, value): "default" for value in proposed}
        return self._covering(name, parameter, allowed)

    def _generic(self, parameter: TileParameter) -> tuple[Value, ...]:
        if parameter.role == "choice" and parameter.choices is not None:
            return parameter.choices[:1] if parameter.by_rule else parameter.choices
        extent = self._extent(parameter)
        if self.shape.operator == "reduction" and extent is not None:
            # What reduces over a dimension may hold it whole.
            return (*_GENERIC[parameter.role], power_of_two(extent))
        return _GENERIC[parameter.role]

    def _covering(self, name: str, parameter: TileParameter, values: dict[Value, str]) -> dict[Value, str]:
        """Without the tiles larger than the smallest that covers the dimension; with one that wastes little of it."""
        extent = self._extent(parameter)
        numbers = [value for value in values if isinstance(value, int)]
        if extent is None or len(numbers) < len(values):
            return values
        covering = min((value for value in numbers if value >= extent), default=None)
        if covering is None:
            return values
        kept: dict[Value, str] = {
            value: who for value, who in values.items() if isinstance(value, int) and value <= covering
        }
        for value, who in values.items():
            if value not in kept and who != "default":
                self._drop(name, value, who, f"{parameter.dimension}={extent} is covered by {covering}")
        enough = self._nearest(parameter, extent)
        if isinstance(enough, int) and 2 * enough <= min(numbers):
            kept.setdefault(enough, "default")
        return kept

    def _extent(self, parameter: TileParameter) -> int | None:
        return self.shape.dimensions.get(parameter.dimension or "") if parameter.role == "tile" else None

    def _nearest(self, parameter: TileParameter, value: Value) -> Value:
        """The value nearest to the wanted one that the parameter allows and the dimension needs."""
        if parameter.choices is not None:
            return value if value in parameter.choices else parameter.choices[0]
        assert isinstance(value, int), parameter
        extent = self._extent(parameter)
        if extent is not None:
            value = min(value, power_of_two(extent))
        if parameter.maximum is not None:
            value = min(value, parameter.maximum)
        value -= value % parameter.multiple
        return max(value, parameter.minimum or 0)

    def _drop(self, name: str, value: Value, who: str, reason: str) -> None:
        rules = (who.removeprefix("rule:"),) if who.startswith("rule:") else ()
        self.refused.append(Verdict({name: value}, {name: who}, "refused", f"{name}: {reason}", rules=rules))

    def _thin(self) -> None:
        """Cuts the longest lists to their front until the product can be looked at."""
        while prod(map(len, self.values.values())) > MOST_CONFIGURATIONS:
            name = max(self.values, key=lambda one: len(self.values[one]))
            value = next(reversed(self.values[name]))
            who = self.values[name].pop(value)
            self._drop(name, value, who, f"more than {MOST_CONFIGURATIONS} configurations: the last values go")
