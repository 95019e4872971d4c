"""Reads a profile off the tile-level view: one walk over the statements of each launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from core.program.nodes import Var, View
from core.tiling.profile.reading.launches import read_launch
from core.tiling.profile.records import Profile

if TYPE_CHECKING:
    from core.program.program import Program


def profile(source: Program | View, symbols: Mapping[str, int] | None = None) -> Profile:
    """The profile of a program.

    Args:
        source: the program, or its tile-level view.
        symbols: values of symbolic dimensions and scalar parameters by name.
    """
    view = source if isinstance(source, View) else source.view
    environment: dict[Var | str, int] = {}
    environment.update(symbols or {})
    unknown: dict[str, None] = {}
    launches = tuple(read_launch(launch, environment, unknown) for launch in view.launches)
    return Profile(view.name, launches, tuple(unknown))
