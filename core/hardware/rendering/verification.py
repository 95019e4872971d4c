"""What a descriptor says beside what the device answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from core.hardware.rendering.cells import UNKNOWN, heading, indented, table, value_text

if TYPE_CHECKING:
    from rich.console import Console

    from core.hardware.model import Chip
    from core.hardware.verification import Check


def print_verification(chip: Chip, evidence: str, checks: Sequence[Check], console: Console) -> None:
    """Prints differences first, then what only the device knows, then what agrees; figures not asked are counted."""
    console.print(Text.assemble((chip.target, "bold cyan"), "  against ", (evidence, "bold")))
    groups = (
        ("differs", "Different", "red"),
        ("undescribed", "Not in the descriptor", "yellow"),
        ("same", "The same", "green"),
    )
    for verdict, title, style in groups:
        found = [check for check in checks if check.verdict == verdict]
        if not found:
            continue
        heading(console, f"{title} ({len(found)})")
        rows = table("figure", "descriptor", "answer", "descriptor from")
        for check in found:
            source = chip.source_of(check.path)
            rows.add_row(
                check.path,
                value_text(check.described, check.path) if check.described is not None else UNKNOWN,
                Text(value_text(check.found, check.path), style=style),
                Text(
                    f"[{chip.source_key_of(check.path)}] {source.trust}"
                    if source and check.described is not None
                    else ""
                ),
            )
        indented(console, rows)
    unasked = sum(check.verdict == "not asked" for check in checks)
    console.print()
    console.print(Text(f"{unasked} figures come from documents and were not asked.", style="dim"))
