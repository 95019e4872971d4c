"""The demo's rows as a table for people."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table

from demo.measure import TOLERANCE, Row


def table(rows: list[Row]) -> Table:
    """One line per kernel and target."""
    made = Table(
        title="One source per kernel, every target that can compile",
        title_justify="left",
        box=box.SIMPLE,
        pad_edge=False,
    )
    for name in ("kernel", "target", "lowering\nroute", "tile\nparameters", "predicted\nresources"):
        made.add_column(name, no_wrap=True)
    for name in ("largest\nerror", "time"):
        made.add_column(name, justify="right", no_wrap=True)
    kernel = ""
    for row in rows:
        if kernel and kernel != row.kernel:
            made.add_section()
        label = f"{row.kernel}\n[dim]{row.shape}[/dim]" if kernel != row.kernel else ""
        kernel = row.kernel
        made.add_row(label, row.target, _route(row), _tiles(row), _resources(row.resources), _error(row), _time(row))
    return made


def _route(row: Row) -> str:
    return f"{row.route}\n[dim]simulated at\n{row.simulated}[/dim]" if row.simulated else row.route


def _tiles(row: Row) -> str:
    return "\n".join(f"{name}={value}" for name, value in row.tiles.items())


def _resources(resources: dict[str, Any]) -> str:
    parts = [f"{name} {_bytes(value)}" for name, value in resources.get("memory_bytes", {}).items() if value]
    if "threads" in resources:
        parts.append(f"{resources['threads']} threads")
    if "flops" in resources:
        parts.append(f"{resources['flops'] / 1e9:.3g} GFLOP")
    moved = resources.get("bytes_read", 0) + resources.get("bytes_written", 0)
    if moved:
        parts.append(f"{moved / 1e6:.3g} MB moved")
    return "\n".join(parts)


def _bytes(count: int) -> str:
    return f"{count / 1024:.4g} KiB" if count >= 1024 else f"{count} B"


def _error(row: Row) -> str:
    if row.failure:
        return "[red]failed[/red]"
    if row.error is None:
        return "[dim]not run[/dim]"
    return f"{'[green]' if row.passed else '[red]'}{row.error:.1e}{'[/green]' if row.passed else '[/red]'}"


def _time(row: Row) -> str:
    return "" if row.run_s is None else f"{row.run_s * 1e3:.3g} ms"


def summary(rows: list[Row], left_out: dict[str, str]) -> str:
    """What the table shows, in words; `left_out` are the vendors that cannot compile here, with the reason."""
    compiled = [row for row in rows if row.compile_s is not None]
    ran = [row for row in rows if row.error is not None]
    agree = sum(row.passed for row in ran)
    simulated = sum(bool(row.simulated) for row in ran)
    lines = [
        f"{len(compiled)} of {len(rows)} compiled. {len(ran) - simulated} ran on this machine and {simulated} on a"
        f" simulator; {agree} of these agree with torch in float32 (largest error within {TOLERANCE:g} of the largest"
        " value). A simulator runs the generated code on this CPU: it proves what the code means, not its speed."
    ]
    lines += [f"Not compiled for {vendor}: {reason}." for vendor, reason in left_out.items()]
    lines += [f"{row.kernel} for {row.target}: {row.failure}" for row in rows if row.failure]
    return "\n".join(lines)
