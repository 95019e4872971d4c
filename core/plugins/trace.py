"""`TILEHAL_TRACE_PLUGINS=1`: one line on stderr for every hook call, with who answered and how long it took."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from core.plugins.entries import Entry

TRACE_PLUGINS = "TILEHAL_TRACE_PLUGINS"


def is_enabled() -> bool:
    """Whether the environment asks for the trace."""
    return os.environ.get(TRACE_PLUGINS, "") not in ("", "0")


def hook_called(entry: Entry, hook: str, arguments: Sequence[Any], seconds: float) -> None:
    """Reports one finished call. A wrapper's time includes what it wraps."""
    if not is_enabled():
        return
    target = next((str(argument.target) for argument in arguments if type(argument).__name__ == "Chip"), entry.name)
    sys.stderr.write(f"tilehal: {seconds * 1e3:9.3f} ms  {hook}({target})  {entry.package}\n")
    sys.stderr.flush()
