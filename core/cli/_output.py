"""How the commands print: tables and panels for people, JSON for programs, and errors the same way everywhere."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from core.errors import TileHALError

if TYPE_CHECKING:
    from rich.console import Console

#: Width used where there is no terminal to ask: what documentation and review tools show.
DEFAULT_WIDTH = 100


def console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, or 100 columns where the output is no terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else DEFAULT_WIDTH, highlight=False)


def print_json(data: Any) -> None:
    """Prints data as JSON, two spaces deep, in the order it has."""
    print(json.dumps(data, indent=2, ensure_ascii=False, default=str))


def print_error(error: TileHALError, *, as_json: bool) -> None:
    """Prints an error: as JSON on stdout, where whoever asked for JSON reads, else as a panel on stderr."""
    if as_json:
        print_json({"error": error.to_json()})
        return
    from rich.panel import Panel
    from rich.text import Text

    body = Text(error.message)
    if error.location is not None:
        body = Text(f"{error.location}\n", style="bold") + body
    cause = error.__cause__
    if cause is not None and str(cause) not in error.message:
        body.append(f"\n\ncaused by {type(cause).__name__}: {cause}", style="dim")
    if error.hint:
        body.append("\n\nhint: ", style="bold green")
        body.append(error.hint)
    console(stderr=True).print(Panel(body, title=type(error).__name__, title_align="left", border_style="red"))


def wants_traceback() -> bool:
    """Whether `TILEHAL_TRACEBACK` asks for Python tracebacks instead of the short form."""
    return os.environ.get("TILEHAL_TRACEBACK", "") not in ("", "0")
