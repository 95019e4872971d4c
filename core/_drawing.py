"""Pictures with matplotlib: a figure to draw on, and its file."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.errors import TileHALError


def new_figure(width_inches: float, height_inches: float) -> Any:
    """An empty matplotlib figure.

    Raises:
        TileHALError: matplotlib is not installed.
    """
    canvas_of, figure_of = _matplotlib()
    figure = figure_of(figsize=(width_inches, height_inches), dpi=120, layout="constrained")
    canvas_of(figure)
    return figure


def check_picture(path: Path) -> None:
    """Refuses a picture that could not be drawn, before the work whose result it would show.

    Raises:
        TileHALError: matplotlib is not installed, or the suffix is that of no format.
    """
    if path.suffix.lower().removeprefix(".") not in _matplotlib()[0].get_supported_filetypes():
        raise TileHALError(
            f"{path} cannot be drawn: its name ends in no format of pictures", hint="name a .png, .svg or .pdf file"
        )


def _matplotlib() -> tuple[Any, Any]:
    """Its classes of canvases and figures. pyplot is not used: it would pick a backend by what displays there are."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise TileHALError(
            f"drawing needs matplotlib, which cannot be imported: {error}", hint="pip install 'tilehal[plot]'"
        ) from error
    return FigureCanvasAgg, Figure


def log_ticks(low: float, high: float, most: int = 9) -> list[float]:
    """Round numbers from `low` to `high` for a logarithmic axis: as many as can be read, at most `most`.

    Over less than a factor of eight they are evenly spaced. Over more they are the 1, 2 and 5 of each power of ten;
    where these are too many, the powers of ten, or every second one and so on.
    """
    if high / low < 8:
        steps = (factor * 10.0**power for power in range(-9, 19) for factor in (1, 2, 5))
        step = next(step for step in steps if step >= (high - low) / most)
        return [
            round(index * step, 12) for index in range(math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6) + 1)
        ]
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors, stride in (((1, 2, 5), 1), *(((1,), stride) for stride in range(1, last - first + 2))):
        powers = range(first - first % stride, last + 1, stride)
        ticks = [float(f"{factor}e{power}") for power in powers for factor in factors]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= most:
            break
    return ticks


def label_log_axis(axis: Any, low: float, high: float, label: Callable[[float], str]) -> None:
    """Gives a logarithmic axis from `low` to `high` ticks that do not touch, each with its label, and no others."""
    ticks = log_ticks(low, high)
    axis.set_major_locator(_fixed(ticks))
    axis.set_minor_locator(_fixed([]))
    axis.set_major_formatter(lambda value, position: label(value))


def _fixed(ticks: list[float]) -> Any:
    from matplotlib.ticker import FixedLocator

    return FixedLocator(ticks)


def save_figure(figure: Any, path: Path) -> None:
    """Writes a figure into a file; its suffix says which format: .svg, .png, .pdf.

    Raises:
        TileHALError: the file cannot be written.
    """
    from matplotlib import rc_context

    try:
        # Neither the date nor random identifiers, so that the same figures give the same file; text stays text.
        with rc_context({"svg.hashsalt": "tilehal", "svg.fonttype": "none"}):
            figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
    except (OSError, ValueError) as error:
        raise TileHALError(f"{path} cannot be written: {error}", hint="name a .png, .svg or .pdf file") from error
