"""Every chip, a line each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from core.hardware.rendering.cells import UNKNOWN, marked, table

if TYPE_CHECKING:
    from rich.console import Console

    from core.hardware.model import Chip


def print_listing(vendors: Iterable[Sequence[Chip]], console: Console) -> None:
    """Prints the chips of each vendor, whose first one is its default."""
    rows = table("target", "chip", "units", "memory", "f16 matrix peak")
    for column in rows.columns[2:]:
        column.no_wrap = True
    count = 0
    for chips in vendors:
        for index, chip in enumerate(chips):
            name = Text(chip.target, style="cyan").append(" *" if index == 0 else "", style="bold")
            title = Text(chip.title)
            if chip.aliases:
                title.append(f"\nalso {', '.join(chip.aliases)}", style="dim")
            units = Text(UNKNOWN, style="dim")
            if chip.units:
                main = chip.main_unit
                units = marked(chip, f"units.{main.key}.count", suffix=f" {main.kind}")
            memory = chip.memories_for_scope("global")
            path = f"memories.{memory[0].name}" if memory else None
            rows.add_row(
                name,
                title,
                units,
                marked(chip, f"{path}.capacity_bytes") if path else UNKNOWN,
                _peak(chip),
            )
            count += 1
    console.print(rows)
    console.print()
    console.print(
        Text(
            "* what the vendor's name alone means where no device is found. (m) measured, (d) derived, (3p) third "
            "party.",
            style="dim",
        )
    )
    if not count:
        console.print("No backend is installed. Install one, for example tilehal-cpu.")


def _peak(chip: Chip) -> Text:
    if chip.rate("float16", "matrix") is None:
        return Text(UNKNOWN, style="dim")
    return marked(chip, "rates.matrix.float16.ops_per_s", "float16")
