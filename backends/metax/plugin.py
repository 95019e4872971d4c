"""Hooks of the MetaX backend. For now it describes, detects and diagnoses; it does not compile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backends.metax.chips import tilehal_chips
from backends.metax.detect import tilehal_detect
from core.plugins import hookimpl

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.plugins import Finding

__all__ = ["tilehal_chips", "tilehal_detect", "tilehal_diagnose"]


@hookimpl
def tilehal_diagnose(chip: Chip) -> Sequence[Finding]:
    """What is missing on this machine, and in this package."""
    from backends.metax.diagnose import diagnose

    return diagnose(chip)
