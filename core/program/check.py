"""Static checks of a view."""

from __future__ import annotations

from core.program.nodes import View


def check(view: View) -> None:
    """Refuses what cannot mean anything."""
