"""What Python says of a function beyond calling it."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable
from typing import Any


def closure_of(function: types.FunctionType) -> dict[str, Any]:
    """The variables of enclosing functions that a function uses, by name; without those that have no value yet."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def near_name(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that a misspelt name most likely means, or None; capitals do not count (`block_m`)."""
    spelt: dict[str, str] = {}
    for one in names:
        spelt.setdefault(one.lower(), one)
    near = difflib.get_close_matches(name.lower(), spelt, 1, cutoff=0.8)
    return spelt[near[0]] if near else None
