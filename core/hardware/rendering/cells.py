"""How single figures are written: units, `unknown`, the key of their source, short type names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from core.hardware.units import dimension_of, format_quantity

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from core.hardware.model import Chip

UNKNOWN = "unknown"
#: What the descriptor has none of, or what has no meaning on the chip.
NONE = "–"

#: Figures of these trusts are marked where no room is left for the key of their source.
TRUST_MARKS = {"measured": "m", "derived": "d", "third-party": "3p", "what-if": "?"}

_SHORT_TYPES = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "tfloat32": "tf32", "bfloat16": "bf16"}


def short_type(dtype: str) -> str:
    """`float16` -> `f16`, `float8_e4m3fn` -> `e4m3`, `uint8` -> `u8`."""
    if dtype in _SHORT_TYPES:
        return _SHORT_TYPES[dtype]
    for long, short in (("float", "f"), ("uint", "u"), ("int", "i")):
        if dtype.startswith(long):
            return short + dtype[len(long) :]
    return dtype


def value_text(value: Any, path: str, dtype: str | None = None) -> str:
    """A figure in the unit its path ends with; `unknown` for None."""
    if value is None:
        return UNKNOWN
    field = path.rpartition(".")[2]
    if isinstance(value, (tuple, list)):
        # Sizes in bytes are choices; other numbers are the extents of one thing.
        return (", " if dimension_of(field) else " × ").join(value_text(item, path) for item in value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    text = format_quantity(value, dimension_of(field))
    if field == "ops_per_s" and dtype and not dtype.startswith(("int", "uint")):
        text = text.replace("OP/s", "FLOP/s")
    return text


def cell(chip: Chip, path: str, dtype: str | None = None) -> Text:
    """A figure with the key of its source behind it: `227 KiB [PG]`."""
    value = chip.figure(path)
    text = Text(value_text(value, path, dtype), style="dim" if value is None else "")
    key = chip.source_key_of(path) if value is not None else None
    if key:
        text.append(f" [{key}]", style="dim")
    return text


def marked(chip: Chip, path: str, dtype: str | None = None, *, suffix: str = "") -> Text:
    """A figure with a mark when its source is weak: `280 TFLOP/s (3p)`. The suffix goes between them."""
    value = chip.figure(path)
    text = Text(value_text(value, path, dtype) + suffix, style="dim" if value is None else "")
    found = mark(chip, path) if value is not None else None
    if found:
        text.append(f" ({found})", style="dim")
    return text


def mark(chip: Chip, path: str) -> str | None:
    """The mark of a figure whose source is weak: `3p`; None for others."""
    source = chip.source_of(path)
    return TRUST_MARKS.get(source.trust) if source else None


def has_waves(chip: Chip) -> bool:
    """Whether blocks of threads run on this chip, in waves, with shared memory of their own."""
    shared = chip.memories_for_scope("shared")
    return bool(shared) and shared[0].owner == "block"


def heading(console: Console, text: str) -> None:
    """Prints a section's heading, a blank line before it."""
    console.print()
    console.print(Text(text, style="bold"))


def indented(console: Console, content: RenderableType) -> None:
    """Prints something under a heading."""
    console.print(Padding(content, (0, 0, 0, 2)))


def table(*headers: str, gap: int = 2) -> Table:
    """A table without rules: the first column stays on one line, cells of the others wrap, none is cut off."""
    made = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for index, header in enumerate(headers):
        made.add_column(header, overflow="fold", no_wrap=index == 0)
    return made
