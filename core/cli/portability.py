"""`tilehal portability FILE:FUNCTION`: which chips take each line of a kernel, and what to change."""

from __future__ import annotations

import json
import linecache
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core.cli._kernels import Dynamic, dynamic_arguments, load_kernel, parse_dynamic, parse_parameters
from core.cli._output import check_writable, console, print_json, write_file
from core.errors import Location

if TYPE_CHECKING:
    from rich.console import Console

    from core.hardware import Chip
    from core.portability import ChipReport, LineVerdict, MemoryVerdict, Remark, Report

#: Exit status when a chip refuses the kernel; errors of the command itself end with 2.
REFUSED_STATUS = 1
#: Chips side by side in 100 columns.
_COLUMNS = 4
_STYLES = {"native": "green", "emulated": "yellow", "unknown": "magenta", "refused": "bold red"}


def portability(
    kernel: Annotated[str, typer.Argument(metavar="FILE:FUNCTION", help="Python file and the kernel's name in it.")],
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="CHIP,...", help="Chips, separated by commas; default: each vendor's default chip."),
    ] = None,
    targets: Annotated[list[str] | None, typer.Option(hidden=True, help="The same as --target.")] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Argument of the factory; repeat it for each.")
    ] = None,
    dynamic: Dynamic = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    sarif: Annotated[Path | None, typer.Option(help="Also write SARIF 2.1.0, for editors and code hosts.")] = None,
) -> None:
    """Say, for each line of a kernel, which chips take it as it is, and what to change for the others.

    Nothing is compiled and no device is needed. The exit status is 1 when a chip refuses the kernel.
    """
    from core.portability import Status, report, to_sarif
    from core.portability.tracing import traced_program

    check_writable(sarif, "--sarif")
    chips = _chips([*(target or ()), *(targets or ())])
    function, sizes = load_kernel(kernel), parse_dynamic(dynamic or (), measured=False)
    arguments = dynamic_arguments(function, parse_parameters(param or ()), sizes)
    program, tiles = traced_program(function, (), arguments, chips)
    found = report(program, chips, tiles=tiles)
    if sarif is not None:
        write_file(sarif, json.dumps(to_sarif(found), indent=2) + "\n", "--sarif")
    if as_json:
        print_json(found.to_json())
    else:
        _show(found, console())
    if found.status is Status.REFUSED:
        raise typer.Exit(REFUSED_STATUS)


def _chips(items: Sequence[str]) -> list[Chip]:
    """The chips asked for, each once; without any, the default chip of every backend that loads."""
    from core.plugins import manager
    from core.target import chip

    names = [name.strip() for item in items for name in item.split(",") if name.strip()]
    if items and not names:
        raise typer.BadParameter("--target names no chip")
    chips = [chip(name) for name in names] or [backend.chips()[0] for backend in manager().load_all()]
    return list({one.target: one for one in chips}.values())


def _show(report: Report, out: Console) -> None:
    from rich.markup import escape

    where = f"  [dim]{escape(str(report.location))}[/dim]" if report.location else ""
    out.print(f"[bold]{escape(report.kernel)}[/bold]{where}", soft_wrap=True)
    if report.tiles:
        chosen = ", ".join(f"{name}={value}" for name, value in report.tiles.items())
        out.print(
            f"[dim]tile parameters of this report, one set for all chips: {chosen}. A compilation chooses its own by"
            " the rules of its chip; --param gives them to the report and `tilehal compile` alike.[/dim]"
        )
    notes: dict[Remark, int] = {}
    for start in range(0, len(report.chips), _COLUMNS):
        chips = report.chips[start : start + _COLUMNS]
        _show_lines(chips, notes, out)
        _show_memories(chips, out)
    for remark, number in notes.items():
        where = f"line {remark.location.line}: " if remark.location else ""
        style = _STYLES[remark.status.value]
        out.print(f"[{style}]{number}[/{style}] {where}{escape(remark.message)}")
        if remark.hint:
            out.print(f"    [bold green]change:[/bold green] {escape(remark.hint)}")
    for chip in report.chips:
        if chip.compiles:
            out.print(f"[dim]{chip.target}: {escape(chip.compiles)}[/dim]")


def _show_lines(chips: Sequence[ChipReport], notes: dict[Remark, int], out: Console) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("line", justify="right")
    table.add_column("", no_wrap=True, max_width=32, overflow="ellipsis")
    for chip in chips:
        table.add_column(_heading(chip.target), overflow="fold")
    places = {line.location: None for chip in chips for line in chip.lines}
    for place in sorted(places, key=lambda one: (one.file, one.line)):
        table.add_row(str(place.line), escape(_source(place)), *(_cell(chip, place, notes) for chip in chips))
    table.add_section()
    table.add_row("", "[bold]the kernel[/bold]", *(f"[{_STYLES[c.status]}]{c.status}[/]" for c in chips))
    out.print(table)


def _heading(target: str) -> str:
    """A target with each what-if change on a line of its own: `metax:c500` over `+shared=128KiB`."""
    return target.replace("+", "\n+")


def _source(place: Location) -> str:
    return linecache.getline(place.file, place.line).strip()


def _cell(chip: ChipReport, place: Location, notes: dict[Remark, int]) -> str:
    line: LineVerdict | None = next((one for one in chip.lines if one.location == place), None)
    if line is None:
        return ""
    numbers = [str(notes.setdefault(remark, len(notes) + 1)) for remark in line.remarks]
    warns = any(remark.warning for remark in line.remarks)
    text = f"[{_STYLES[line.status]}]{line.status}[/]" + ("[yellow]![/yellow]" if warns else "")
    return f"{text} [dim]{','.join(numbers)}[/dim]" if numbers else text


def _show_memories(chips: Sequence[ChipReport], out: Console) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("chip", "memory", "needed bytes", "limit bytes", "verdict"):
        table.add_column(name, justify="right" if "bytes" in name else "left")
    table.add_column("change", overflow="fold")
    several = any(memory.launch for chip in chips for memory in chip.memories)
    for chip in chips:
        for memory in chip.memories:
            name = f"{memory.memory} (launch {memory.launch})" if several else memory.memory
            limit = memory.room_bytes if memory.spills else memory.limit_bytes
            row = (_heading(chip.target), name, _figure(memory.needed_bytes), _figure(limit))
            table.add_row(*row, _verdict(memory), memory.hint)
    if table.row_count:
        out.print(table)


def _verdict(memory: MemoryVerdict) -> str:
    if not memory.spills:
        return {True: "[green]fits[/green]", False: "[bold red]too much[/bold red]", None: "not judged"}[memory.fits]
    if memory.needed_bytes is None or memory.room_bytes is None:
        return "what does not fit spills"
    return "[green]fits[/green]" if memory.needed_bytes <= memory.room_bytes else "[yellow]spills[/yellow]"


def _figure(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
