"""Several chips side by side: what somebody choosing hardware compares."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from core.errors import DescriptorError
from core.hardware.rendering.cells import (
    NONE,
    TRUST_MARKS,
    UNKNOWN,
    has_waves,
    mark,
    marked,
    short_type,
    table,
    value_text,
)
from core.hardware.roofline import Roofline

if TYPE_CHECKING:
    from rich.console import Console

    from core.hardware.model import Chip

_MATRIX_DTYPES = ("float64", "float32", "tfloat32", "float16", "bfloat16", "float8", "float4", "int8")
_VECTOR_DTYPES = ("float64", "float32", "float16")

Row = Callable[["Chip"], Text | str]


def print_comparison(chips: Sequence[Chip], console: Console) -> None:
    """Prints chips in columns. Peak rates that are described for none of them are left out; other rows never are."""
    rows = table("", *(chip.target for chip in chips))
    for column in rows.columns[1:]:
        column.header_style = "bold cyan"
    listed = _rows(chips)
    # What each column gets where all of them want more; a name that is wider breaks at its underscores.
    width = (console.width - max(len(label) for label, _ in listed)) // max(1, len(chips)) - 2
    listed.append(("features", lambda chip: ", ".join(_broken(name, width - 1) for name in chip.features) or NONE))
    for label, row in listed:
        rows.add_row(Text(label, style="bold"), *(row(chip) for chip in chips))
    console.print(rows)
    legend = ", ".join(f"({mark}) {trust}" for trust, mark in TRUST_MARKS.items() if trust != "what-if")
    console.print()
    console.print(
        Text(
            f"{legend}; others from the vendor or its tools. {NONE} none described; {UNKNOWN}: not published.",
            style="dim",
        )
    )
    for chip in chips:
        for note in chip.notes:
            console.print(Text(f"- {chip.target}: {note}", style="dim"))


def _rows(chips: Sequence[Chip]) -> list[tuple[str, Row]]:
    rows: list[tuple[str, Row]] = [
        ("chip", lambda chip: chip.title),
        ("architecture", lambda chip: chip.architecture or UNKNOWN),
        ("compute units", _units),
        ("clock", lambda chip: _main(chip, "clock_hz")),
        ("lanes per wave", lambda chip: _if_waves(chip, lambda: _main(chip, "lanes_per_wave"))),
        ("threads per unit", lambda chip: _if_waves(chip, lambda: _main(chip, "max_threads"))),
        ("registers per unit", lambda chip: _if_waves(chip, lambda: _main(chip, "registers.per_unit"))),
        ("threads per block", lambda chip: _if_waves(chip, lambda: marked(chip, "limits.threads_per_block"))),
        ("memory", lambda chip: _scope(chip, "global", "capacity_bytes")),
        ("bandwidth", lambda chip: _scope(chip, "global", "bandwidth_bytes_per_s")),
        ("L2", lambda chip: _named(chip, "l2", "capacity_bytes")),
        ("shared, per block", lambda chip: _scope(chip, "shared", "per_block_bytes", "capacity_bytes")),
        ("fragments, per block", lambda chip: _scope(chip, "fragment", "per_block_bytes", "capacity_bytes")),
    ]
    rated = {(rate.unit, rate.dtype) for chip in chips for rate in chip.rates}
    rows += [(f"{short_type(d)} matrix peak", _rate("matrix", d)) for d in _MATRIX_DTYPES if ("matrix", d) in rated]
    rows += [(f"{short_type(d)} vector peak", _rate("vector", d)) for d in _VECTOR_DTYPES if ("vector", d) in rated]
    rows += [
        ("f16 ridge, FLOP/byte", _ridge),
        ("matrix operands", _operands),
        ("asynchronous copies", _copies),
    ]
    return rows


def _broken(name: str, width: int) -> str:
    """A name over as many lines as it needs to stay within `width`, each but the last ending in an underscore."""
    lines = [""]
    for part in re.findall(r"[^_]*_|[^_]+$", name):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _units(chip: Chip) -> Text:
    parts = []
    for unit in chip.units:
        count = marked(chip, f"units.{unit.key}.count")
        parts.append(Text(f"{unit.kind} × ").append_text(count))
    return Text("\n").join(parts) if parts else Text(UNKNOWN)


def _main(chip: Chip, field: str) -> Text:
    return marked(chip, f"units.{chip.main_unit.key}.{field}") if chip.units else Text(UNKNOWN)


def _if_waves(chip: Chip, row: Callable[[], Text]) -> Text | str:
    """A row that has no meaning on a chip without threads, such as one of cube and vector cores."""
    return row() if has_waves(chip) else NONE


def _scope(chip: Chip, scope: str, *fields: str) -> Text:
    """The first known of some figures of each memory that serves a scope."""
    parts = []
    for memory in chip.memories_for_scope(scope):
        paths = [f"memories.{memory.name}.{field}" for field in fields]
        path = next((path for path in paths if chip.figure(path) is not None), paths[0])
        text = marked(chip, path)
        if scope != "global":
            text.append(f" in {memory.name}")
        parts.append(text)
    return Text("\n").join(parts) if parts else Text(NONE)


def _named(chip: Chip, name: str, field: str) -> Text:
    known = any(memory.name == name for memory in chip.memories)
    return marked(chip, f"memories.{name}.{field}") if known else Text(NONE)


def _rate(unit: str, dtype: str) -> Row:
    def row(chip: Chip) -> Text:
        if any(rate.unit == unit and rate.dtype == dtype for rate in chip.rates):
            return marked(chip, f"rates.{unit}.{dtype}.ops_per_s", dtype)
        return Text(UNKNOWN if unit == "vector" or _multiplies(chip, dtype) else NONE)

    return row


def _multiplies(chip: Chip, dtype: str) -> bool:
    """Whether a matrix instruction takes operands of a type; `float8` stands for each of its encodings."""
    operands = (instruction.a_dtype for instruction in chip.matrix_instructions)
    return any(one == dtype or one.startswith(f"{dtype}_") for one in operands)


def _ridge(chip: Chip) -> Text:
    """The ridge of the matrix peak over the bandwidth, with the marks of both."""
    try:
        roof = Roofline.of(chip, "float16")
    except DescriptorError:
        return Text(UNKNOWN)
    paths = (f"rates.{roof.unit}.float16.ops_per_s", f"memories.{roof.memory}.bandwidth_bytes_per_s")
    marks = [found for found in dict.fromkeys(mark(chip, path) for path in paths) if found]
    text = Text(value_text(round(roof.ridge_ops_per_byte), ""))
    return text.append(f" ({', '.join(marks)})", style="dim") if marks else text


def _operands(chip: Chip) -> str:
    names = dict.fromkeys(short_type(instruction.a_dtype) for instruction in chip.matrix_instructions)
    return ", ".join(names) or NONE


def _copies(chip: Chip) -> str:
    engines = dict.fromkeys(path.engine or path.key for path in chip.paths if path.asynchronous)
    return ", ".join(engines) or NONE
