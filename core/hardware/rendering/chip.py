"""One chip, everything about it, in 100 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from rich.table import Table
from rich.text import Text

from core.hardware.figures import records
from core.hardware.rendering.cells import UNKNOWN, cell, has_waves, heading, indented, short_type, table

if TYPE_CHECKING:
    from rich.console import Console

    from core.hardware.model import Chip
    from core.hardware.records import MatrixInstruction, PeakRate

#: (field of a compute unit, what people call it); fields of its register file have a dot.
_UNIT_ROWS = (("count", "count"), ("clock_hz", "clock"))
_RATIO_ROW = ("per_main_unit", "per main unit")
#: Shown only when known: it is published for few chips, and what uses it has an answer without it.
_GROUP_ROW = ("per_group", "per group")
#: Rows that have no meaning on a unit that runs no waves of threads; shown there only when known.
_WAVE_ROWS = (
    ("lanes_per_wave", "lanes per wave"),
    ("sub_units", "sub-units"),
    ("fp32_lanes", "float32 lanes"),
    ("matrix_units", "matrix units"),
    ("max_threads", "resident threads"),
    ("max_waves", "resident waves"),
    ("max_blocks", "resident blocks"),
    ("registers.per_unit", "registers"),
    ("registers.per_block", "registers per block"),
    ("registers.per_thread", "registers per thread"),
    ("registers.width_bits", "register width, bits"),
    ("registers.allocation_unit", "register granule"),
)
_MEMORY_DETAILS = (
    ("static_per_block_bytes", "static per block"),
    ("reserved_per_block_bytes", "reserved per block"),
    ("allocation_unit_bytes", "granule"),
    ("alignment_bytes", "alignment"),
    ("banks", "banks"),
    ("bank_width_bytes", "bank width"),
    ("bus_width_bits", "bus width, bits"),
    ("carveouts_bytes", "carve-outs"),
    ("technology", "technology"),
)


def print_chip(chip: Chip, console: Console) -> None:
    """Prints a chip: identity, units, memories, paths, matrix instructions, rates, limits, features, notes."""
    console.print(Text.assemble((chip.target, "bold cyan"), "  ", (chip.title, "bold")))
    _print_identity(chip, console)
    _print_units(chip, console)
    _print_memories(chip, console)
    _print_paths(chip, console)
    _print_instructions(chip, console)
    _print_rates(chip, console)
    _print_limits(chip, console)
    heading(console, "Features")
    indented(console, Text(", ".join(chip.features) or "none described"))
    if chip.notes:
        heading(console, "Notes")
        for note in chip.notes:
            indented(console, Text(f"- {note}"))
    _print_legend(chip, console)


def _print_identity(chip: Chip, console: Console) -> None:
    parts = [Text("architecture ").append_text(cell(chip, "architecture"))]
    parts.append(Text("process ").append_text(cell(chip, "process")))
    if chip.aliases:
        parts.append(Text(f"also {', '.join(chip.aliases)}"))
    indented(console, Text(" · ").join(parts))


def _print_units(chip: Chip, console: Console) -> None:
    heading(console, "Compute units")
    if not chip.units:
        indented(console, Text(UNKNOWN))
        return
    rows = table("", *(unit.kind for unit in chip.units))
    unknown = []
    runs_waves = has_waves(chip)
    ratio = (_RATIO_ROW,) if len(chip.units) > 1 else ()
    for field, label in (*_UNIT_ROWS, *ratio, _GROUP_ROW, *_WAVE_ROWS):
        cells = [cell(chip, f"units.{unit.key}.{field}") for unit in chip.units]
        if any(chip.figure(f"units.{unit.key}.{field}") is not None for unit in chip.units):
            if field == "per_main_unit":
                cells[0] = Text("")
            rows.add_row(label, *cells)
        elif (field, label) != _GROUP_ROW and (runs_waves or (field, label) not in _WAVE_ROWS):
            unknown.append(label)
    indented(console, rows)
    if unknown:
        indented(console, Text(f"{UNKNOWN}: {', '.join(unknown)}", style="dim"))


def _print_memories(chip: Chip, console: Console) -> None:
    heading(console, "Memory")
    rows = table("", "belongs to", "capacity", "per block", "bandwidth", "TileLang scopes")
    details: list[tuple[str, Text]] = []
    for memory in chip.memories:
        path = f"memories.{memory.name}"
        owner = {"unit": memory.unit or "unit", "block": f"a block, in {memory.unit}", "thread": "a thread"}
        per_block = cell(chip, f"{path}.per_block_bytes") if memory.per_block_bytes is not None else Text("")
        rows.add_row(
            memory.name,
            owner.get(memory.owner, memory.owner),
            cell(chip, f"{path}.capacity_bytes"),
            per_block,
            cell(chip, f"{path}.bandwidth_bytes_per_s"),
            ", ".join(memory.scopes),
        )
        known = [(field, label) for field, label in _MEMORY_DETAILS if getattr(memory, field) is not None]
        if known:
            parts = [_detail(chip, f"{path}.{field}", label) for field, label in known]
            details.append((memory.name, Text(", ").join(parts)))
    indented(console, rows)
    if details:
        grid = Table.grid(padding=(0, 2))
        for name, text in details:
            grid.add_row(name, text)
        console.print()
        indented(console, grid)


def _detail(chip: Chip, path: str, label: str) -> Text:
    return Text(f"{label} ").append_text(cell(chip, path))


def _print_paths(chip: Chip, console: Console) -> None:
    if not chip.paths:
        return
    heading(console, "Paths between memories")
    rows = table("", "engine", "", "source")
    for path in chip.paths:
        kind = "asynchronous" if path.asynchronous else ""
        key = chip.source_key_of(f"paths.{path.key}") or ""
        note = f" ({path.note})" if path.note else ""
        rows.add_row(
            f"{path.source} → {path.destination}",
            path.engine or "",
            kind + note,
            Text(f"[{key}]" if key else "", style="dim"),
        )
    rows.show_header = False
    indented(console, rows)


def _print_instructions(chip: Chip, console: Console) -> None:
    heading(console, "Matrix instructions")
    if not chip.matrix_instructions:
        indented(console, Text("none described"))
        return
    rows = table("m×n×k", "types", "by", "layout", "instruction", "", gap=1)
    remarks: dict[str, list[str]] = {}
    for instruction in chip.matrix_instructions:
        layouts = "".join(name for name in "abc" if getattr(instruction, f"{name}_layout") is not None).upper()
        n = f"≤{instruction.n}" if instruction.n_choices else str(instruction.n)
        key = chip.source_key_of(f"matrix_instructions.{instruction.name}")
        rows.add_row(
            f"{instruction.m}×{n}×{instruction.k}",
            _types(instruction),
            instruction.issued_by,
            layouts,
            instruction.name,
            Text(f"[{key}]" if key else "", style="dim"),
        )
        if instruction.note:
            remarks.setdefault(instruction.note, []).append(_types(instruction))
    indented(console, rows)
    for remark, types in remarks.items():
        every = len(types) == len(chip.matrix_instructions)
        indented(console, Text(remark if every else f"{', '.join(dict.fromkeys(types))}: {remark}", style="dim"))


def _types(instruction: MatrixInstruction) -> str:
    a, b, accumulator = (short_type(dtype) for dtype in instruction.types)
    return f"{a} → {accumulator}" if a == b else f"{a}, {b} → {accumulator}"


def _print_rates(chip: Chip, console: Console) -> None:
    heading(console, "Dense peak rates")
    found = records(chip, "rates")
    if not found:
        indented(console, Text(UNKNOWN))
        return
    optional = {"ops_per_cycle_per_unit": "operations per cycle and unit", "clock_hz": "at clock"}
    shown = [name for name in optional if any(getattr(rate, name) is not None for rate in chip.rates)]
    rows = table("operands", "unit", "peak", *(optional[name] for name in shown))
    for key, rate in found.items():
        peak = cast("PeakRate", rate)
        into = f" → {short_type(peak.accumulator_dtype)}" if peak.accumulator_dtype else ""
        rows.add_row(
            f"{short_type(peak.dtype)}{into}",
            peak.unit,
            cell(chip, f"rates.{key}.ops_per_s", peak.dtype),
            *(cell(chip, f"rates.{key}.{name}") for name in shown),
        )
    indented(console, rows)


def _print_limits(chip: Chip, console: Console) -> None:
    heading(console, "Launch limits")
    labels = {
        "threads_per_block": "threads per block",
        "thread_multiple": "threads a multiple of",
        "block_dim": "block",
        "grid_dim": "grid",
        "grid_blocks": "blocks in a grid",
    }
    rows = table("", "")
    rows.show_header = False
    unknown = []
    for name, label in labels.items():
        if getattr(chip.limits, name) is None:
            unknown.append(label)
        else:
            rows.add_row(label, cell(chip, f"limits.{name}"))
    if rows.row_count:
        indented(console, rows)
    if unknown:
        indented(console, Text(f"{UNKNOWN}: {', '.join(unknown)}", style="dim"))


def _print_legend(chip: Chip, console: Console) -> None:
    console.print()
    keys = [f"[{key}] {source.trust}" for key, source in chip.references.items()]
    console.print(Text("Sources: " + ", ".join(keys), style="dim"))
    console.print(
        Text(
            "--sources spells them out, with remarks. unknown: nobody has published it; nothing is guessed.",
            style="dim",
        )
    )
