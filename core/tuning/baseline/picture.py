"""A comparison as a picture: a row's ratio of times with its interval, against what counts as the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from core._drawing import label_log_axis, new_figure, save_figure
from core.errors import BaselineError

if TYPE_CHECKING:
    from core.tuning.baseline.comparing import Comparison

#: Colours that stay apart for most colour-blind eyes (Okabe and Ito).
_COLOURS = {"slower": "#D55E00", "faster": "#009E73", "same": "#0072B2", "unclear": "#999999"}
_ROW_INCHES = 0.32


def draw_comparison(comparison: Comparison, path: Path) -> None:
    """Draws a comparison into a file; its suffix says which format: .svg, .png, .pdf.

    Raises:
        BaselineError: there are no times to draw.
        TileHALError: matplotlib is not installed, or the file cannot be written.
    """
    rows = [row for row in comparison.rows if row.changes]
    if not rows:
        raise BaselineError("there is nothing to draw: no row was timed in both", hint="compare without a picture")
    figure = new_figure(9, 1.6 + _ROW_INCHES * len(rows))
    axes = figure.add_subplot()
    _draw(axes, comparison, rows)
    save_figure(figure, path)


def _draw(axes: Any, comparison: Comparison, rows: list[Any]) -> None:
    tolerance = comparison.criteria.tolerance
    axes.axvspan(1 / (1 + tolerance), 1 + tolerance, color="#000000", alpha=0.07, label=f"within {tolerance:.0%}")
    axes.axvline(1.0, color="#000000", linewidth=0.8)
    labelled: set[str] = set()
    for place, row in enumerate(rows):
        for change in row.changes:
            offset = -0.14 if change.l2 == "cold" else 0.14
            label = f"{change.verdict}, {change.l2} caches"
            axes.errorbar(
                [change.ratio],
                [place + offset],
                xerr=[[change.ratio - change.low], [change.high - change.ratio]],
                fmt="o" if change.l2 == "cold" else "s",
                markersize=4,
                linewidth=1.2,
                color=_COLOURS[change.verdict],
                markerfacecolor=_COLOURS[change.verdict] if change.l2 == "cold" else "white",
                label=None if label in labelled else label,
            )
            labelled.add(label)
    axes.set_yticks(range(len(rows)), [_label(row) for row in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xscale("log")
    left, right = axes.get_xlim()
    label_log_axis(axes.xaxis, left, right, lambda ratio: f"{ratio:.4g}x")
    axes.tick_params(axis="x", labelsize=7)
    axes.set_xlabel(f"new time over old; intervals hold together with {comparison.criteria.confidence:.0%}", fontsize=8)
    axes.grid(visible=True, axis="x", which="both", alpha=0.2)
    axes.figure.legend(fontsize=7, loc="outside lower center", ncols=3)  # beside the data, however many rows there are
    axes.set_title(f"{len(comparison.regressions)} of {len(comparison.rows)} rows regressed", fontsize=10)


def _label(row: Any) -> str:
    name: str = row.case.name
    return name if len(name) <= 60 else name[:57] + "..."
