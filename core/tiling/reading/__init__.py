"""Reads a profile off the tile-level view."""

from __future__ import annotations

from collections.abc import Mapping

from core.program.nodes import Var, View
from core.tiling.profile import Profile
from core.tiling.reading.launches import read_launch


def read(view: View, symbols: Mapping[str, int]) -> Profile:
    """See :func:`core.tiling.profile.profile`."""
    environment: dict[Var | str, int] = {}
    environment.update(symbols)
    unknown: dict[str, None] = {}
    launches = tuple(read_launch(launch, environment, unknown) for launch in view.launches)
    return Profile(view.name, launches, tuple(unknown))
