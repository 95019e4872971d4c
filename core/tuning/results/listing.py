"""What a store holds, for people: each shape with its best, and whether it counts here and for today's source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.errors import BackendLoadError, DescriptorError, TargetNotFound
from core.tiling.fingerprint import source_fingerprint
from core.tuning.environment import Environment, environment_here, said
from core.tuning.report import seconds_text, tiles_text
from core.tuning.results.records import Result

if TYPE_CHECKING:
    from rich.table import Table

    from core.tiling.factory import KernelFactory


@dataclass(frozen=True, slots=True)
class Listed:
    """One result.

    Attributes:
        elsewhere: how its environment differs from this machine's; empty where it does not.
        other_source: it was measured for another text of the kernel; None where nobody knows the text.
    """

    result: Result
    elsewhere: str
    other_source: bool | None

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data."""
        key, best = self.result.key, self.result.best
        return {
            "kernel": key.kernel,
            "chip": key.chip,
            "arguments": key.values,
            "options": key.options,
            "fingerprint": key.fingerprint,
            "environment": key.environment.to_json(),
            "elsewhere": self.elsewhere,
            "other_source": self.other_source,
            "best": None if best is None else {"tiles": dict(best.tiles), "median_s": best.median_s},
            "measured": len(self.result.measured),
            "failed": len(self.result.failures),
            "sources": sorted({outcome.source for outcome in self.result.outcomes if outcome.source}),
        }


def listed(results: Sequence[Result], factory: KernelFactory | None = None) -> list[Listed]:
    """Results with how they stand to this machine and, where the kernel is given, to its source."""
    here: dict[str, Environment | None] = {}
    rows = []
    for result in results:
        chip = result.key.chip
        if chip not in here:
            here[chip] = _here(chip)
        environment = here[chip]
        if environment is None:
            elsewhere = f"nothing here knows {chip}"
        else:
            elsewhere = said(environment.differences(result.key.environment))
        other = None if factory is None else source_fingerprint(factory) != result.key.fingerprint
        rows.append(Listed(result, elsewhere, other))
    return rows


def table(rows: Sequence[Listed]) -> Table:
    """The rows for rich."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    found = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("kernel", "chip", "shape", "best tiles"):
        found.add_column(name, overflow="fold")
    for name in ("time", "measured", "failed"):
        found.add_column(name, justify="right", no_wrap=True)
    found.add_column("environment", overflow="fold")
    for row in rows:
        result, best = row.result, row.result.best
        notes = [row.elsewhere or "this one"]
        if row.other_source:
            notes.append("another text of the kernel")
        notes += sorted({f"from {outcome.source}" for outcome in result.outcomes if outcome.source})
        shape = ", ".join(part for part in (result.key.shape, _options_text(result.key.options)) if part)
        cells = (
            result.key.kernel,
            result.key.chip,
            shape,
            tiles_text(best.tiles) if best else "none ran",
            seconds_text(best.median_s if best else None),
            str(len(result.measured)),
            str(len(result.failures) or ""),
            "; ".join(notes),
        )
        found.add_row(*(Text(cell) for cell in cells), style="dim" if row.elsewhere or row.other_source else "")
    return found


def _options_text(options: str) -> str:
    """Compile options, which are stored as JSON, for people: `fast_math=True`."""
    return ", ".join(f"{name}={value}" for name, value in (json.loads(options) if options else {}).items())


def _here(chip: str) -> Environment | None:
    """The environment of this machine for a chip; None where no installed backend knows it."""
    from core.target import resolve

    try:
        return environment_here(resolve(chip).chip)
    except (TargetNotFound, BackendLoadError, DescriptorError):
        return None
