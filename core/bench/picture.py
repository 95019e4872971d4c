"""The roofline of a benchmark's own ceilings, with the operators on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core._drawing import label_log_axis, new_figure, save_figure
from core.bench.contenders import CUBLAS, CUDNN, FLASHMLA, RULE, TORCH, TRITON, title
from core.errors import BenchError
from core.hardware.units import format_quantity

#: Colours that stay apart for most colour-blind eyes (Okabe and Ito), and a shape for each operator.
_LOOKS = {
    "gemm": ("#0072B2", "o"),
    "softmax": ("#D55E00", "s"),
    "layernorm": ("#E69F00", "D"),
    "rmsnorm": ("#CC79A7", "^"),
    "attention": ("#009E73", "v"),
    "mla": ("#56B4E9", "P"),
}
#: What ours is drawn beside: the first of these that a row has.
_BESIDE = (CUBLAS, TRITON, CUDNN, FLASHMLA, TORCH)


def draw_operators(document: Mapping[str, Any], path: Path) -> None:
    """Draws the measured rows into a file; its suffix says which format: .svg, .png, .pdf.

    Filled: ours; hollow: what it is held against. The roofs are a copy's bandwidth and the fastest library product of
    each type, as measured in the same run.

    Raises:
        BenchError: nothing was measured.
        TileHALError: matplotlib is not installed, or the file cannot be written.
    """
    rows = [row for row in document["rows"] if "cold" in row["contenders"].get(RULE, {})]
    if not rows:
        raise BenchError("there is nothing to draw: no row was measured", hint="measure without a picture")
    figure = new_figure(9, 6)
    axes = figure.add_subplot()
    _roofs(axes, document["ceilings"], [row["flops"] / row["bytes_moved"] for row in rows])
    _points(axes, rows)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("operations per byte of the least global memory traffic")
    axes.set_ylabel("operations per second, cold caches")
    _frame(axes, document["ceilings"], rows)
    axes.grid(visible=True, which="both", alpha=0.2)
    figure.legend(fontsize=7, loc="outside right upper")  # beside the data, wherever the points are
    target = document["environment"]["target"]
    axes.set_title(f"{target['name']}: {_product(target['device'])}", fontsize=10)
    save_figure(figure, path)


def _product(device: str) -> str:
    """The product's name in what identifies a device: `/proc/cpuinfo: NAME; ...`, where the front is who said it."""
    front, separator, name = device.partition(";")[0].partition(": ")
    return name if separator else front


def _rate(row: Mapping[str, Any], name: str) -> float:
    """Operations per second of a contender of a row."""
    rate: float = row["flops"] / row["contenders"][name]["cold"]["median_s"]
    return rate


def _drawn(row: Mapping[str, Any]) -> list[str]:
    """The contenders of a row that are drawn: what ours is beside, then ours."""
    beside = next((name for name in _BESIDE if "cold" in row["contenders"].get(name, {})), None)
    return [*([] if beside is None else [beside]), RULE]


def _frame(axes: Any, ceilings: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Frames the points and the flat part of the roofs, with at least half as many octaves upwards as sidewards.

    Fewer, and the slope of a roof would look vertical.
    """
    left, right = axes.get_xlim()
    rates = [_rate(row, name) for row in rows for name in _drawn(row)]
    high = 2 * max(*rates, *ceilings["ops_per_s"].values())
    low = min(min(rates) / 2, high / math.sqrt(right / left))
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:g}")
    label_log_axis(axes.yaxis, low, high, lambda rate: format_quantity(rate, "ops_per_s"))


def _roofs(axes: Any, ceilings: Mapping[str, Any], intensities: list[float]) -> None:
    bandwidth = ceilings["bytes_per_s"]
    left, right = min(intensities) / 2, max(intensities) * 2
    for place, (dtype, rate) in enumerate(ceilings["ops_per_s"].items()):
        ridge = rate / bandwidth
        xs = [min(left, ridge / 2), ridge, max(right, ridge * 2)]
        axes.plot(
            xs,
            [min(rate, x * bandwidth) for x in xs],
            color="#000000",
            linewidth=1,
            linestyle="-" if place == 0 else "--",
            label=f"{format_quantity(rate, 'ops_per_s')} {dtype}, {format_quantity(bandwidth, 'bytes_per_s')}",
        )


def _points(axes: Any, rows: list[Any]) -> None:
    labelled: set[str] = set()
    for row in rows:
        colour, marker = _LOOKS[row["operator"]]
        x = row["flops"] / row["bytes_moved"]
        for name in _drawn(row):
            label = f"{row['operator']}, {title(name)}"
            axes.plot(
                [x],
                [_rate(row, name)],
                marker,
                color=colour,
                markersize=7 if name == RULE else 10,
                markerfacecolor=colour if name == RULE else "none",
                linestyle="none",
                label=None if label in labelled else label,
            )
            labelled.add(label)
