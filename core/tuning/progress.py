"""What a tuning run shows while it is at work: a bar with the best so far, or nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

from core.tuning.report import seconds_text, tiles_text

if TYPE_CHECKING:
    from core.tuning.results.records import Outcome


class Progress(Protocol):
    """Told what happens, by one thread."""

    def start(self, kernel: str, target: str, shapes: int, where: str) -> None:
        """The run begins."""

    def shape(self, number: int, label: str, candidates: int, known: int) -> None:
        """A shape begins; `known` of its candidates need no measuring."""

    def compiled(self) -> None:
        """A candidate of the shape was compiled, or failed to."""

    def settled(self, outcome: Outcome, best: Outcome | None) -> None:
        """A candidate of the shape was measured or failed."""

    def say(self, text: str) -> None:
        """Something worth knowing happened."""

    def stop(self) -> None:
        """The run is over."""


class Silent:
    """Shows nothing."""

    def start(self, kernel: str, target: str, shapes: int, where: str) -> None: ...
    def shape(self, number: int, label: str, candidates: int, known: int) -> None: ...
    def compiled(self) -> None: ...
    def settled(self, outcome: Outcome, best: Outcome | None) -> None: ...
    def say(self, text: str) -> None: ...
    def stop(self) -> None: ...


class Live:
    """A live bar on standard error."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[best]}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, best="")
        self._shapes = 0
        self._compiled = 0
        self._best = ""

    def start(self, kernel: str, target: str, shapes: int, where: str) -> None:
        self._shapes = shapes
        self._bar.start()
        self.say(f"tuning {kernel} for {target}: {where}")

    def shape(self, number: int, label: str, candidates: int, known: int) -> None:
        self._compiled, self._best = 0, ""
        self._bar.reset(
            self._task,
            total=candidates,
            completed=known,
            description=f"{number}/{self._shapes} {label}" if self._shapes > 1 else label,
            best="",
        )

    def compiled(self) -> None:
        self._compiled += 1
        self._show()

    def settled(self, outcome: Outcome, best: Outcome | None) -> None:
        if best is not None:
            self._best = f"best {seconds_text(best.median_s)} with {tiles_text(best.tiles)}"
        if not outcome.ok:
            self.say(f"{outcome.status}: {tiles_text(outcome.tiles)}: {outcome.reason}")
        self._bar.advance(self._task)
        self._show()

    def say(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)

    def stop(self) -> None:
        self._bar.stop()

    def _show(self) -> None:
        self._bar.update(self._task, best=self._best or f"{self._compiled} compiled")


def progress_for(wanted: bool | None) -> Progress:
    """A live bar when it is wanted; when nobody says, where standard error is a terminal."""
    return Live() if wanted or (wanted is None and sys.stderr.isatty()) else Silent()
