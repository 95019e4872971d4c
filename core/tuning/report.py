"""What a tuning run found, as data and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from core.tuning.results.neighbours import reach
from core.tuning.results.records import Outcome

if TYPE_CHECKING:
    from rich.console import RenderableType

    from core.tuning.environment import Environment


@dataclass(frozen=True, slots=True)
class ShapeReport:
    """One shape.

    Attributes:
        arguments: as they are stored.
        outcomes: of the candidates that were to be measured, fastest first, then failures.
        waiting: how many of them were not reached, for want of time.
        reused: how many were known from an earlier run.
        first: what an untuned compilation takes: the best ranked candidate that compiles; None when it was not reached.
        structural: see :class:`core.tuning.results.records.Result`.
        reference: what outputs were compared with.
        error: why nothing was measured, where something was in the way.
        notes: what to know of the times, a sentence each.
    """

    arguments: Mapping[str, Any]
    outcomes: Sequence[Outcome] = ()
    waiting: int = 0
    reused: int = 0
    first: Outcome | None = None
    structural: tuple[str, ...] = ()
    reference: str = ""
    error: str = ""
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The arguments for people."""
        return ", ".join(f"{name}={value}" for name, value in self.arguments.items())

    @property
    def best(self) -> Outcome | None:
        """The fastest, or None."""
        return next((outcome for outcome in self.outcomes if outcome.ok), None)

    @property
    def failures(self) -> list[Outcome]:
        """The candidates that failed."""
        return [outcome for outcome in self.outcomes if not outcome.ok]

    @property
    def speedup(self) -> float | None:
        """Time of the untuned first choice over the best; None where one of them is not known."""
        if self.best is None or self.first is None or not self.first.ok:
            return None
        assert self.first.median_s is not None
        assert self.best.median_s is not None
        return self.first.median_s / self.best.median_s

    @property
    def covers(self) -> dict[str, tuple[int, int]]:
        """The extents this shape stands for: others within them take its result."""
        return {
            name: reach(value, structural=name in self.structural)
            for name, value in self.arguments.items()
            if isinstance(value, int) and not isinstance(value, bool) and value > 0
        }

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {
            "arguments": dict(self.arguments),
            "best": _outcome_json(self.best),
            "first": _outcome_json(self.first),
            "speedup": self.speedup,
            "covers": {name: list(extents) for name, extents in self.covers.items()},
            "reference": self.reference,
            "reused": self.reused,
            "waiting": self.waiting,
            "error": self.error,
            "notes": list(self.notes),
            "outcomes": [_outcome_json(outcome) for outcome in self.outcomes],
        }


@dataclass(frozen=True, slots=True)
class TuneReport:
    """A tuning run.

    Attributes:
        kernel, target: what was tuned for what.
        environment: what the results are stored under.
        shapes: in the order they were asked for.
        seconds: how long it took.
        store: the file the results are in.
        interrupted: it was ended by Ctrl-C; the same call goes on where it stopped.
        out_of_time: the time budget ended it; likewise.
    """

    kernel: str
    target: str
    environment: Environment
    shapes: Sequence[ShapeReport]
    seconds: float
    store: str
    interrupted: bool = False
    out_of_time: bool = False

    def __str__(self) -> str:
        """The run in a few lines: what is fastest for each shape, and where the results are."""
        lines = [f"{self.kernel} on {self.target}"]
        for shape in self.shapes:
            best = _best_text(shape)
            if shape.best is not None:
                best = f"{seconds_text(shape.best.median_s)} with {best}"
                best += "" if shape.speedup is None else f", {shape.speedup:.2f} times as fast as the first choice"
            failed = f", {len(shape.failures)} failed" if shape.failures else ""
            counted = f"{len(shape.outcomes)} of {len(shape.outcomes) + shape.waiting} candidates measured{failed}"
            lines.append(f"  {shape.label}: {best} ({counted})")
        return "\n".join([*lines, self._closing()])

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {
            "kernel": self.kernel,
            "target": self.target,
            "environment": self.environment.to_json(),
            "seconds": self.seconds,
            "store": self.store,
            "interrupted": self.interrupted,
            "out_of_time": self.out_of_time,
            "shapes": [shape.to_json() for shape in self.shapes],
        }

    def renderables(self) -> list[RenderableType]:
        """Tables for rich: the shapes, then what failed and why."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, title=f"{self.kernel} on {self.target}", title_justify="left"
        )
        for name in ("shape", "best tiles"):
            table.add_column(name, overflow="fold")
        for name in ("time", "first choice", "speed-up", "measured", "failed"):
            table.add_column(name, justify="right", no_wrap=True)
        for shape in self.shapes:
            speedup = "" if shape.speedup is None else f"{shape.speedup:.2f}x"
            counted = f"{len(shape.outcomes)}/{len(shape.outcomes) + shape.waiting}"
            table.add_row(
                Text(shape.label),
                Text(_best_text(shape), style="" if shape.best or not shape.outcomes else "red"),
                seconds_text(shape.best.median_s if shape.best else None),
                _first_text(shape),
                speedup,
                f"{counted} ({shape.reused} known)" if shape.reused else counted,
                str(len(shape.failures) or ""),
            )
        found: list[RenderableType] = [table]
        failures = [(shape, outcome) for shape in self.shapes for outcome in shape.failures]
        if failures:
            causes = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="failed", title_justify="left")
            for name in ("shape", "tiles", "how", "cause"):
                causes.add_column(name, overflow="fold")
            for shape, outcome in failures:
                causes.add_row(
                    *(Text(t) for t in (shape.label, tiles_text(outcome.tiles), outcome.status, outcome.reason))
                )
            found.append(causes)
        found.append(Text(self._closing()))
        return found

    def _closing(self) -> str:
        references = dict.fromkeys(shape.reference for shape in self.shapes if shape.reference)
        lines = [f"outputs compared with {reference}" for reference in references]
        several = len(self.shapes) > 1
        lines += [f"{shape.label}: {note}" if several else note for shape in self.shapes for note in shape.notes]
        lines.append(f"{self.seconds:.0f} s; results in {self.store}")
        if self.interrupted or self.out_of_time:
            why = "interrupted" if self.interrupted else "out of time"
            lines.append(f"{why}: the same command goes on where this stopped")
        return "\n".join(lines)


def tiles_text(tiles: Mapping[str, Any]) -> str:
    """Tiles for people: `block_M=128 threads=256`."""
    return " ".join(f"{name}={value}" for name, value in tiles.items())


def seconds_text(seconds: float | None) -> str:
    """A time in the unit that suits it: `12.3 us`, `1.20 ms`."""
    if seconds is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def _first_text(shape: ShapeReport) -> str:
    if shape.first is None:
        return "not reached" if shape.outcomes else ""
    return seconds_text(shape.first.median_s) if shape.first.ok else shape.first.status


def _best_text(shape: ShapeReport) -> str:
    if shape.best is not None:
        return tiles_text(shape.best.tiles)
    return shape.error or ("nothing ran" if shape.outcomes else "not reached")


def _outcome_json(outcome: Outcome | None) -> dict[str, Any] | None:
    if outcome is None:
        return None
    return {**asdict(outcome), "tiles": dict(outcome.tiles)}
