"""`tilehal targets`: every known target and what it can do on this machine."""

from __future__ import annotations

from dataclasses import dataclass

import typer

from core.capabilities import TargetInfo, Verdict
from core.capabilities import targets as known_targets
from core.cli._output import console, print_json
from core.errors import TargetNotFound

STAGES = ("compile", "build", "run", "simulate")


def targets(
    target: str | None = typer.Argument(None, help="List every chip of this vendor, or one chip: metax, metax:c500."),
    every: bool = typer.Option(False, "--all", help="List every chip of every vendor."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON, every chip."),
) -> None:
    """List what each vendor's chips can do on this machine: compile, build, run, simulate.

    Chips of a vendor that can do the same share a line, unless a vendor or --all is given. A star marks the chip a
    vendor's name alone means where no device is found.
    """
    found = known_targets() if target is None else _asked(known_targets(), target)
    if as_json:
        print_json([info.to_json() for info in found])
    else:
        _print_table(_lines(found, grouped=target is None and not every))


def _asked(found: list[TargetInfo], target: str) -> list[TargetInfo]:
    """A vendor's chips, or the one chip that a target names, whatever figures of it are changed (`+shared=128KiB`)."""
    from core.target import chip

    vendor, colon, _ = target.strip().casefold().partition(":")
    own = [info for info in found if info.target.partition(":")[0] == vendor]
    if not own:
        known = dict.fromkeys(info.target.partition(":")[0] for info in found)
        raise TargetNotFound(f"no backend of a vendor {vendor!r} is installed", hint=f"there is {', '.join(known)}")
    if not colon:
        return own
    name = chip(target).target.partition("+")[0]
    return [info for info in own if info.target == name]


@dataclass(frozen=True, slots=True)
class _Line:
    """A chip, and how many more of its vendor can do exactly what it can."""

    info: TargetInfo
    more: int = 0


def _lines(found: list[TargetInfo], *, grouped: bool) -> list[_Line]:
    if not grouped:
        return [_Line(info) for info in found]
    groups: dict[tuple[object, ...], list[TargetInfo]] = {}
    for info in found:
        same = (info.target.partition(":")[0], *(getattr(info, stage) for stage in STAGES))
        groups.setdefault(same, []).append(info)
    # The default chip speaks for its group.
    return [
        _Line(next((info for info in group if info.default), group[0]), len(group) - 1) for group in groups.values()
    ]


def _print_table(lines: list[_Line]) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    out = console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("target", "chip", *STAGES):
        table.add_column(column, overflow="fold", no_wrap=column != "chip")  # a narrow terminal folds what is prose
    #: Reasons are shared by most chips of a vendor: each is printed once, below, under a number.
    notes: dict[str, int] = {}
    for line in lines:
        info = line.info
        name = f"{info.target} *" if info.default else info.target
        title = escape(info.title) + (f" [dim]and {line.more} more[/dim]" if line.more else "")
        table.add_row(name, title, *(_cell(getattr(info, stage), notes) for stage in STAGES))
    out.print(table)
    for reason, number in notes.items():
        out.print(f"[bold]{number}[/bold]  ", end="")
        out.print(reason, markup=False, soft_wrap=True)
    if any(line.more for line in lines):
        out.print("`tilehal targets VENDOR` lists each of a vendor's chips.", style="dim", markup=False)
    if not lines:
        out.print("No backend is installed. Install one, for example tilehal-cpu.")


def _cell(verdict: Verdict, notes: dict[str, int]) -> str:
    if verdict.possible:
        return "[green]yes[/green]"
    return f"[red]no[/red] [dim]{notes.setdefault(verdict.reason, len(notes) + 1)}[/dim]"
