"""`tilehal doctor`: what is wrong with this installation and its backends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from core.cli._output import console, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from core.doctor import Report

_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}


def doctor(
    target: Annotated[str | None, typer.Option(help="Examine this target's chip, and no other vendor.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find out what is wrong with this installation and its backends.

    Of code that raised, the whole traceback is shown; with --json it is under details.

    Exit status: 0 when nothing is wrong, 1 otherwise. docs/doctor.md explains every code.
    """
    from core.doctor import examine

    report = examine(target)
    if as_json:
        print_json(report.to_json())
    else:
        _print(report, console())
    raise typer.Exit(report.exit_status)


def _print(report: Report, out: Console) -> None:
    from rich.markup import escape
    from rich.table import Table

    def section(title: str, *columns: str) -> Table:
        table = Table(
            title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
        )
        for column in columns:
            table.add_column(column, style="", header_style="dim", overflow="fold")
        return table

    out.print("  ".join(f"{name} [bold]{escape(value)}[/bold]" for name, value in report.host.items()))
    out.print()
    plugins = section("Plugins", "package", "role", "target", "status")
    for plugin in report.plugins:
        colour = "green" if plugin.status == "loaded" else "dim" if plugin.status == "left out" else "red"
        plugins.add_row(plugin.package, plugin.role, plugin.target, f"[{colour}]{plugin.status}[/{colour}]")
    out.print(plugins)
    out.print()
    backends = section("Backends", "vendor", "examined", "devices", "toolchain")
    for backend in report.backends:
        backends.add_row(
            backend.vendor, backend.examined, escape("\n".join(backend.detector)), escape(backend.toolchain)
        )
    out.print(backends)
    out.print()
    out.print("[bold]Imports[/bold]")
    for module in report.imports:
        status = f"[green]{module.status}[/green]" if module.status == "ok" else f"[red]{module.status}[/red]"
        out.print(f"{module.module}  {status}  {escape(module.distribution or module.detail)}", soft_wrap=True)
        if module.file:
            # One line whatever the width, so that it can be copied.
            out.print(f"  [dim]{escape(module.file)}[/dim]", soft_wrap=True)
    out.print()
    for finding in report.findings:
        colour = _COLOURS[finding.severity]
        out.print(f"[{colour}]{finding.severity}[/{colour}] [bold]{escape(finding.code)}[/bold]", soft_wrap=True)
        out.print(f"  {escape(finding.message)}", soft_wrap=True)
        if finding.hint:
            out.print(f"  [green]hint:[/green] {escape(finding.hint)}", soft_wrap=True)
        for line in str(finding.details.get("traceback", "")).splitlines():
            out.print(f"    [dim]{escape(line)}[/dim]", soft_wrap=True)
    count = report.problems
    out.print(
        "[green]No problem found.[/green]" if count == 0 else f"[red]{count} problem{'s' * (count > 1)} found.[/red]"
    )
