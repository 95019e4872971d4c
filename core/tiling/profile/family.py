"""The profiles of all candidates of a kernel from a handful of traces.

Tracing a kernel takes 10 to 100 ms, so that tracing hundreds of candidates takes too long. Their profiles differ only
in numbers, and nearly every number is a product of functions of one tile parameter each: the bytes of a tile are
`block_M` times `block_K` times a constant, the blocks of a grid a ceil-division by `block_M`. So one candidate is
traced, then the same with each other value of each parameter; the ratios make a table, and a product of table entries
is the number of any candidate. Candidates that were left out are traced to check that.

Where a value changes the *structure* (another statement, another loop), the candidates with it make a family of their
own. What cannot be explained is traced when it is asked for, and `notes` says so.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose
from typing import TYPE_CHECKING, Any

from core.errors import TileHALError
from core.tiling.parameters import TileParameter, Value
from core.tiling.profile.flat import Flat, Number, flatten, unflatten
from core.tiling.profile.reading import profile
from core.tiling.profile.records import Estimate, Profile
from core.tiling.rules import Tiles, tiles_in_words

if TYPE_CHECKING:
    from core.program.program import Program

#: How far an :class:`Estimate` may be from what a trace says, as a share of the larger.
ESTIMATE_TOLERANCE = 2 / 3
#: Candidates traced to check a family, beside those it is made from.
_CHECKS = 8
#: Candidates that those are chosen from.
_LOOKED_AT = 300


class ProfileFamily:
    """Profiles by tiles. Made with :meth:`fit`.

    Attributes:
        traces: traces that were asked for so far.
        notes: what could not be explained, one sentence each.
    """

    def __init__(
        self, trace: Callable[[Tiles], Program], names: Sequence[str], symbols: Mapping[str, int] | None = None
    ) -> None:
        self.notes: list[str] = []
        self._trace = trace
        self._symbols = symbols
        self._names = tuple(names)
        self._traced: dict[tuple[Value, ...], Flat | TileHALError] = {}
        self._members: list[_Member] = []

    @classmethod
    def fit(
        cls,
        trace: Callable[[Tiles], Program],
        parameters: Mapping[str, TileParameter],
        candidates: Sequence[Tiles],
        symbols: Mapping[str, int] | None = None,
    ) -> ProfileFamily:
        """A family that covers `candidates`.

        Args:
            trace: the program of a configuration, by parameter name.
            parameters: the tile parameters by name.
            candidates: configurations, every parameter in each.
            symbols: what symbolic dimensions are taken as, by name.
        """
        family = cls(trace, tuple(parameters), symbols)
        keys = list(dict.fromkeys(family._key(tiles) for tiles in candidates))
        for connected in _connected(keys):
            family._cover(connected)
        return family

    @property
    def traces(self) -> int:
        return len(self._traced)

    def profile(self, tiles: Tiles) -> Profile:
        """The profile of a configuration: explained, or traced where it is not.

        Raises:
            TileHALError: the kernel cannot be traced with it.
        """
        key = self._key(tiles)
        if key not in self._traced:
            for member in self._members:
                numbers = member.numbers(key)
                if numbers is not None:
                    return unflatten(member.structure, numbers)
        found = self._at(key)
        if isinstance(found, TileHALError):
            raise found
        return unflatten(found.structure, found.numbers)

    # -- Fitting ----------------------------------------------------------------------------------------------

    def _key(self, tiles: Tiles) -> tuple[Value, ...]:
        return tuple(tiles[name] for name in self._names)

    def _at(self, key: tuple[Value, ...]) -> Flat | TileHALError:
        """The trace of a configuration, flattened; the error where it has none."""
        if key not in self._traced:
            try:
                found = profile(self._trace(dict(zip(self._names, key, strict=True))), self._symbols)
                self._traced[key] = flatten(found)
            except TileHALError as error:
                self._traced[key] = error
        return self._traced[key]

    def _cover(self, keys: list[tuple[Value, ...]]) -> None:
        """Families for these candidates: one, or one for each group of values of a parameter that need their own."""
        if not self._worth_it(keys):
            return
        values = self._values(keys)
        base = _middle(keys, values)
        center = self._at(base)
        if isinstance(center, TileHALError):
            self._cover_without(keys, values, base)
            return
        for position, own in enumerate(values):
            groups: dict[Any, list[Value]] = {}
            for value in own:
                found = self._at(_with(base, position, value))
                groups.setdefault(None if isinstance(found, TileHALError) else found.structure, []).append(value)
            if len(groups) > 1:
                # Where the one that stands for a group cannot be traced, another of them may.
                for group in groups.values():
                    self._cover([key for key in keys if key[position] in group])
                return
        self._explain(keys, values, base, center)

    def _values(self, keys: list[tuple[Value, ...]]) -> list[list[Value]]:
        return [sorted({key[i] for key in keys}, key=_order) for i in range(len(self._names))]

    def _worth_it(self, keys: list[tuple[Value, ...]]) -> bool:
        """Whether explaining them takes fewer traces than tracing each of them."""
        return len(keys) > 1 + sum(len(own) - 1 for own in self._values(keys))

    def _cover_without(self, keys: list[tuple[Value, ...]], values: list[list[Value]], base: tuple[Value, ...]) -> None:
        """The middle one cannot be traced: the largest group of candidates without one of its values."""
        for position, own in enumerate(values):
            if len(own) > 1:
                for rest in ([v for v in own if v != base[position]], [base[position]]):
                    self._cover([key for key in keys if key[position] in rest])
                return

    def _explain(
        self, keys: list[tuple[Value, ...]], values: list[list[Value]], base: tuple[Value, ...], center: Flat
    ) -> None:
        member = _Member(base, center)
        for position, own in enumerate(values):
            for value in own:
                found = self._at(_with(base, position, value))
                assert not isinstance(found, TileHALError)
                member.learn(position, value, found.numbers)
        samples = [(key, self._at(key)) for key in _far_from(base, keys)]
        wrong = [(key, found) for key, found in samples if not _agrees(member, key, found)]
        if not wrong:
            self._members.append(member)
            return
        split = _interacting(member, *wrong[0], values)
        parts = [] if split is None else [[key for key in keys if key[split] == value] for value in values[split]]
        if any(self._worth_it(part) for part in parts):
            for part in parts:
                self._cover(part)
            return
        one = tiles_in_words(dict(zip(self._names, wrong[0][0], strict=True)))
        self.notes.append(f"{len(keys)} candidates are traced one by one: {one} is not what others make it")


@dataclass(slots=True)
class _Member:
    """Profiles of one structure: the numbers at `base`, and what each other value of a parameter makes of them."""

    base: tuple[Value, ...]
    center: Flat
    effects: dict[tuple[int, Value], list[tuple[int, float, bool]]] = field(default_factory=dict)

    @property
    def structure(self) -> Any:
        return self.center.structure

    def learn(self, position: int, value: Value, numbers: tuple[Number, ...]) -> None:
        """Which numbers change with this value: by what factor, or by how much where they were nothing."""
        self.effects[position, value] = [
            (index, after / before if before else float(after), bool(before))
            for index, (before, after) in enumerate(zip(self.center.numbers, numbers, strict=True))
            if before != after
        ]

    def numbers(self, key: tuple[Value, ...]) -> tuple[Number, ...] | None:
        """The numbers of a configuration; None when a value of it was not seen."""
        found: list[Number] = list(self.center.numbers)
        for position, value in enumerate(key):
            effect = self.effects.get((position, value))
            if effect is None:
                return None
            for index, change, is_factor in effect:
                found[index] = found[index] * change if is_factor else found[index] + change
        for index, before in enumerate(self.center.numbers):
            if isinstance(before, int):
                whole = round(found[index])
                if abs(found[index] - whole) > 1e-6 * max(1, whole):
                    return None  # a count that comes out broken is no product of what was seen
                found[index] = whole
        return tuple(found)


def _far_from(base: tuple[Value, ...], keys: Sequence[tuple[Value, ...]]) -> list[tuple[Value, ...]]:
    """A few candidates that between them change as many pairs of parameters as can be, to as many values.

    Two parameters that act together show when both are changed: a ceil-division that one of them has already brought
    down to 1, a minimum of what two of them give.
    """
    others = [key for key in keys if sum(a != b for a, b in zip(key, base, strict=True)) > 1]
    others = random.Random(0).sample(others, min(_LOOKED_AT, len(others)))
    pairs = {}
    for key in others:
        changed = [(i, value) for i, (value, own) in enumerate(zip(key, base, strict=True)) if value != own]
        pairs[key] = {(a, b) for n, a in enumerate(changed) for b in changed[n + 1 :]}
    found: list[tuple[Value, ...]] = []
    while pairs and len(found) < _CHECKS:
        best = max(pairs, key=lambda key: len(pairs[key]))
        covered = pairs.pop(best)
        if not covered:
            break
        found.append(best)
        pairs = {key: rest - covered for key, rest in pairs.items()}
    return found


def _connected(keys: Sequence[tuple[Value, ...]]) -> list[list[tuple[Value, ...]]]:
    """The candidates in groups that single parameters lead through: a variant with parameters of its own is one."""
    leaders = list(range(len(keys)))

    def leader(index: int) -> int:
        while leaders[index] != index:
            leaders[index] = leaders[leaders[index]]
            index = leaders[index]
        return index

    seen: dict[tuple[int, tuple[Value, ...]], int] = {}
    for index, key in enumerate(keys):
        for position in range(len(key)):
            others = (position, (*key[:position], *key[position + 1 :]))
            leaders[leader(index)] = leader(seen.setdefault(others, index))
    groups: dict[int, list[tuple[Value, ...]]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(leader(index), []).append(key)
    return list(groups.values())


def _interacting(
    member: _Member, key: tuple[Value, ...], found: Flat | TileHALError, values: list[list[Value]]
) -> int | None:
    """A parameter that acts together with another on a number which is not what it should be: by it candidates part.

    One that acts on such a number alone too goes first, then the one with fewest values. None where the structure is
    another: that no number explains.
    """
    numbers = member.numbers(key)
    if isinstance(found, TileHALError) or numbers is None or found.structure != member.structure:
        return None
    wrong = {index for index, (a, b) in enumerate(zip(numbers, found.numbers, strict=True)) if not _near(a, b)}
    other = [position for position, value in enumerate(key) if value != member.base[position]]

    def order(position: int) -> tuple[bool, int]:
        return all(i not in wrong for i, _, _ in member.effects[position, key[position]]), len(values[position])

    return min(other, key=order)


def _agrees(member: _Member, key: tuple[Value, ...], found: Flat | TileHALError) -> bool:
    if isinstance(found, TileHALError):
        return True  # it is refused when its turn comes
    numbers = member.numbers(key)
    return (
        numbers is not None
        and found.structure == member.structure
        and all(_near(a, b) for a, b in zip(numbers, found.numbers, strict=True))
    )


def _near(explained: Number, traced: Number) -> bool:
    """Whether a number that was explained is the one that a trace has."""
    tolerance = ESTIMATE_TOLERANCE if isinstance(traced, Estimate) else 1e-6
    return isclose(explained, traced, rel_tol=tolerance, abs_tol=1e-9)


def _order(value: Value) -> tuple[bool, Any]:
    return isinstance(value, str), value


def _middle(keys: list[tuple[Value, ...]], values: list[list[Value]]) -> tuple[Value, ...]:
    """The candidate nearest to the middle of every parameter's values."""
    middles = [own[len(own) // 2] for own in values]
    return min(keys, key=lambda key: sum(a != b for a, b in zip(key, middles, strict=True)))


def _with(key: tuple[Value, ...], position: int, value: Value) -> tuple[Value, ...]:
    return (*key[:position], value, *key[position + 1 :])
