"""The NVIDIA chips of `chips.toml`."""

from __future__ import annotations

from collections.abc import Sequence

from core.hardware import Chip, load_chips
from core.plugins import hookimpl


@hookimpl
def tilehal_chips() -> Sequence[Chip]:
    """Every chip described, the default first."""
    return load_chips("backends.cuda")
