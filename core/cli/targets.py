"""`tilehal targets`: every known target and what it can do on this machine."""

from __future__ import annotations

import typer

from core.capabilities import TargetInfo, Verdict
from core.capabilities import targets as known_targets
from core.cli._output import console, print_json

STAGES = ("compile", "build", "run", "simulate")


def targets(as_json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
    """List every known target and whether it can compile, build, run and simulate on this machine.

    A star marks the chip a vendor's name alone means where no device is found.
    """
    found = known_targets()
    if as_json:
        print_json([info.to_json() for info in found])
    else:
        _print_table(found)


def _print_table(found: list[TargetInfo]) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    out = console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("target", "chip", *STAGES):
        table.add_column(column, overflow="fold")
    #: Reasons are shared by most chips of a vendor: each is printed once, below, under a number.
    notes: dict[str, int] = {}
    for info in found:
        name = f"{info.target} *" if info.default else info.target
        table.add_row(name, escape(info.title), *(_cell(getattr(info, stage), notes) for stage in STAGES))
    out.print(table)
    for reason, number in notes.items():
        out.print(f"[bold]{number}[/bold]  ", end="")
        out.print(reason, markup=False, soft_wrap=True)
    if not found:
        out.print("No backend is installed. Install one, for example tilehal-cpu.")


def _cell(verdict: Verdict, notes: dict[str, int]) -> str:
    if verdict.possible:
        return "[green]yes[/green]"
    return f"[red]no[/red] [dim]{notes.setdefault(verdict.reason, len(notes) + 1)}[/dim]"
