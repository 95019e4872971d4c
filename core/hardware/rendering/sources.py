"""Every figure of a chip with where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.text import Text

from core.hardware.figures import numeric_figures
from core.hardware.rendering.cells import heading, indented, table, value_text

if TYPE_CHECKING:
    from rich.console import Console

    from core.hardware.model import Chip


def print_sources(chip: Chip, console: Console) -> None:
    """Prints the references of a chip, and under each the figures taken from it."""
    console.print(Text.assemble((chip.target, "bold cyan"), "  ", (chip.title, "bold")))
    values = dict(numeric_figures(chip))
    for key, source in chip.references.items():
        heading(console, f"[{key}] {source.title}")
        indented(console, Text(f"{source.trust}{f', {source.url}' if source.url else ''}", style="dim"))
        rows = table("", "", "")
        rows.show_header = False
        shown: dict[str, tuple[str, str]] = {}
        for path, own in chip.sources.items():
            if own == key and not path.endswith(".accumulator_dtype"):
                label, value = _row(chip, path, values)
                shown.setdefault(label, (value, chip.figure_notes.get(path, "")))
        for label, (value, note) in shown.items():
            rows.add_row(label, value, note)
        indented(console, rows)


def _row(chip: Chip, path: str, values: Mapping[str, object]) -> tuple[str, str]:
    """What a source covers, and the value where it is one figure or text."""
    if path in values:
        return path, value_text(values[path], path, _operands(path))
    if path.startswith("matrix_instructions.") and path.endswith("_layout"):
        return f"lane layout of operand {path[-8].upper()}, in several matrix instructions", ""
    if path.startswith("paths."):
        # The source of a path covers what is said about it: engine, asynchrony, remark.
        return next(f"paths.{one.key}" for one in chip.paths if path.startswith(f"paths.{one.key}")), ""
    value = chip.figure(path)
    return path, str(value) if isinstance(value, str) else ""


def _operands(path: str) -> str | None:
    """The operand type of a rate's path: `rates.matrix.float16>float16.ops_per_s` -> `float16`."""
    section, _, rest = path.partition(".")
    return rest.split(".")[1].partition(">")[0] if section == "rates" else None
