"""What a command shows while a compiler is at work: a line on a terminal that says which, for what and for how long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status

    from core.compiler.toolchain import RunningTool

#: A tool that is done sooner is not spoken of.
_PATIENCE_S = 1.0
_PERIOD_S = 0.5


@contextmanager
def running_tools_shown() -> Iterator[None]:
    """Shows the tools that :func:`core.compiler.toolchain.run_tool` waits for, where standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    over = threading.Event()
    console = Console(stderr=True)
    thread = threading.Thread(target=_show, args=(console.status("", spinner="dots"), over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _show(status: Status, over: threading.Event) -> None:
    from rich.markup import escape

    from core.compiler.toolchain import running_tools

    shown = False
    try:
        while not over.wait(_PERIOD_S):
            text = line(running_tools(), time.monotonic())
            if text:
                status.update(escape(text))
            if bool(text) != shown:
                shown = bool(text)
                (status.start if shown else status.stop)()
    finally:
        status.stop()


def line(tools: Sequence[RunningTool], now_s: float) -> str:
    """What is running, the oldest tool first; empty while nothing takes long.

    Args:
        now_s: on `time.monotonic`'s clock.
    """
    slow = [tool for tool in tools if now_s - tool.since_s >= _PATIENCE_S]
    return "; ".join(
        f"{tool.program}{f', to {tool.purpose}' if tool.purpose else ''}: {now_s - tool.since_s:.0f} s" for tool in slow
    )
