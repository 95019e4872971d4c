"""A profile as its structure and its numbers, and back; the structure as plain data for a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from core.tiling.profile import records
from core.tiling.profile.records import Profile

Number = int | float


@dataclass(frozen=True, slots=True)
class Flat:
    """`structure` is what is left of a profile when its numbers are taken out."""

    structure: Any
    numbers: tuple[Number, ...]


class _Hole:
    """Where a number was."""


_HOLE = _Hole()


def flatten(found: Any) -> Flat:
    """A nest of dataclasses and tuples as its structure and its numbers, in order."""
    numbers: list[Number] = []

    def visit(value: Any) -> Any:
        if isinstance(value, bool | str) or value is None:
            return value
        if isinstance(value, int | float):
            numbers.append(value)
            return _HOLE
        if isinstance(value, tuple):
            return tuple(map(visit, value))
        return (type(value), *(visit(getattr(value, part.name)) for part in fields(value)))

    return Flat(visit(found), tuple(numbers))


def unflatten(structure: Any, numbers: tuple[Number, ...]) -> Profile:
    """The profile with this structure and these numbers."""
    found = _unflatten(structure, iter(numbers))
    assert isinstance(found, Profile)
    return found


def _unflatten(structure: Any, numbers: Iterator[Number]) -> Any:
    if structure is _HOLE:
        return next(numbers)
    if not isinstance(structure, tuple):
        return structure
    if structure and isinstance(structure[0], type):
        return structure[0](*[_unflatten(part, numbers) for part in structure[1:]])
    return tuple([_unflatten(part, numbers) for part in structure])


def structure_to_json(structure: Any) -> Any:
    """A structure as plain data, for a file."""
    if structure is _HOLE:
        return 0
    if not isinstance(structure, tuple):
        return structure
    if structure and isinstance(structure[0], type):
        return [structure[0].__name__, *map(structure_to_json, structure[1:])]
    return ["", *map(structure_to_json, structure)]


def structure_from_json(data: Any) -> Any:
    """The structure that :func:`structure_to_json` wrote."""
    if data == 0 and not isinstance(data, bool):
        return _HOLE
    if not isinstance(data, list):
        return data
    name, *parts = data
    return (*((getattr(records, name),) if name else ()), *map(structure_from_json, parts))
