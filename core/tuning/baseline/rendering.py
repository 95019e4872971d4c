"""Snapshots and comparisons as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from core.tuning.baseline.snapshot import Timing, to_significance

if TYPE_CHECKING:
    from rich.console import Console

    from core.tuning.baseline.comparing import Comparison, RowChange
    from core.tuning.baseline.judging import Change
    from core.tuning.baseline.snapshot import Row, Snapshot

_STYLES = {"slower": "bold red", "wrong": "bold red", "failed": "bold red", "broken": "red", "unclear": "yellow"}
_STYLES |= {"faster": "green", "fixed": "green"}


def print_snapshot(snapshot: Snapshot, console: Console) -> None:
    """Where a snapshot was taken, and a line for each row."""
    host = snapshot.environment.get("host", {})
    console.print(f"[bold]{escape(str(host.get('date', '')))}[/bold]  {escape(_versions(host))}")
    for target, facts in snapshot.environment.get("targets", {}).items():
        named = [facts.get("device"), facts.get("driver") and f"driver {facts['driver']}", facts.get("toolchain")]
        console.print(f"{escape(target)}: {escape('; '.join(str(one) for one in named if one))[:300]}", soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("kernel", overflow="fold")
    for name in ("cold us", "warm us", "TFLOP/s", "GB/s", "error", "compile s"):
        table.add_column(name, justify="right")
    for row in snapshot.rows:
        table.add_row(*_snapshot_cells(row))
    console.print(table)
    passes = snapshot.environment.get("settings", {}).get("passes")
    console.print(f"[dim]± half of the 95% interval over {passes} passes; rates with cold caches[/dim]")


def _snapshot_cells(row: Row) -> list[Text | str]:
    name = Text(row.case.name)
    name.append(f"  {row.case.target}", style="dim")
    if row.status != "ok":
        name.append(f"\n{row.status}: {row.reason}", style="red")
    tflops, gb_per_s = row.tflops(), row.gb_per_s()
    return [
        name,
        _time(row.cold),
        _time(row.warm),
        f"{tflops:.3g}" if tflops is not None else "",
        f"{gb_per_s:.4g}" if gb_per_s is not None else "",
        f"{row.error:.1e}" if row.error is not None else "",
        f"{row.compile_s:.2g}" if row.compile_s is not None else "",
    ]


def print_comparison(comparison: Comparison, console: Console) -> None:
    """What changed, regressions first, and in one sentence whether anything regressed."""
    for line in comparison.differences:
        console.print(f"[yellow]differs[/yellow] {escape(line)}", soft_wrap=True)
    for shift in comparison.shifts:
        said = f"{shift.ratio:.3f}x [{shift.low:.3f}, {shift.high:.3f}]"
        style = "yellow" if shift.slower else "dim"
        what = "the machine is slower" if shift.slower else "not shown to be slower"
        console.print(f"[{style}]yardstick {shift.target} {shift.name}: {escape(said)}, {what}[/{style}]")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("kernel", overflow="fold")
    table.add_column("caches")
    for name in ("old us", "new us", "ratio"):
        table.add_column(name, justify="right")
    table.add_column("interval")
    table.add_column("verdict")
    for row in comparison.rows:
        _add(table, row)
    console.print(table)
    console.print(summary(comparison), soft_wrap=True)


def summary(comparison: Comparison) -> str:
    """What came out, in two sentences."""
    criteria = comparison.criteria
    lost = len(comparison.regressions)
    head = f"{lost} of {len(comparison.rows)} rows regressed" if lost else "no regression"
    how = "in turn" if criteria.interleaved else "one after the other"
    text = (
        f"{head}: beyond {criteria.tolerance:.0%}, with {criteria.confidence:.0%} confidence over all rows together,"
        f" recorded {how}."
    )
    unclear = [change.detectable for row in comparison.rows for change in row.changes if change.verdict == "unclear"]
    if unclear:
        text += (
            f" {comparison.count('unclear')} unclear: the passes differ so much that slowdowns up to {max(unclear):.0%}"
            " could have gone unseen; record more passes, or on a quieter machine."
        )
    return text


def _add(table: Table, row: RowChange) -> None:
    name = Text(row.case.name)
    for note in row.notes:
        name.append(f"\n  {note}", style="dim")
    style = _STYLES.get(row.verdict, "")
    if not row.changes:
        table.add_row(name, "", "", "", "", "", Text(row.verdict, style=style))
    for place, change in enumerate(row.changes):
        table.add_row(name if place == 0 else "", change.l2, *_change_cells(change))


def _change_cells(change: Change) -> list[Text | str]:
    return [
        f"{change.old_s * 1e6:.4g}",
        f"{change.new_s * 1e6:.4g}",
        f"{change.ratio:.3f}x",
        f"{change.low:.3f} to {change.high:.3f}",
        Text(change.verdict, style=_STYLES.get(change.verdict, "")),
    ]


def _time(timing: Timing | None) -> str:
    """The median in microseconds and, relative to it, half of its interval."""
    if timing is None:
        return ""
    low, high = timing.interval_s
    half = (high - low) / 2 / timing.median_s
    said = f"{half:.1%}" if half < 1 else "> 100%"
    return f"{to_significance(timing.median_s * 1e6, (high - low) / 2 * 1e6):g} ± {said}"


def _versions(host: dict[str, object]) -> str:
    names = ("cpu", "system", "python", "torch", "tilehal", "revision")
    return ", ".join(f"{name} {host[name]}" for name in names if name in host)
