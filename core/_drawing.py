"""Pictures with matplotlib: a figure to draw on, and its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.errors import TileHALError


def new_figure(width_inches: float, height_inches: float) -> Any:
    """An empty matplotlib figure.

    Raises:
        TileHALError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise TileHALError(
            f"drawing needs matplotlib, which cannot be imported: {error}", hint="pip install 'tilehal[plot]'"
        ) from error
    figure = Figure(figsize=(width_inches, height_inches), dpi=120, layout="constrained")
    # pyplot is not used: it would pick a backend by what displays there are.
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Any, path: Path) -> None:
    """Writes a figure into a file; its suffix says which format: .svg, .png, .pdf.

    Raises:
        TileHALError: the file cannot be written.
    """
    from matplotlib import rc_context

    try:
        # Neither the date nor random identifiers, so that the same figures give the same file; text stays text.
        with rc_context({"svg.hashsalt": "tilehal", "svg.fonttype": "none"}):
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    except (OSError, ValueError) as error:
        raise TileHALError(f"{path} cannot be written: {error}", hint="name a .png, .svg or .pdf file") from error
