"""What Python says of a function beyond calling it."""

from __future__ import annotations

import types
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
