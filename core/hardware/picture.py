"""Rooflines as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core._drawing import label_log_axis, new_figure, save_figure
from core.errors import DescriptorError
from core.hardware.rendering.cells import short_type
from core.hardware.roofline import Roofline, rooflines
from core.hardware.units import format_quantity

if TYPE_CHECKING:
    from core.hardware.model import Chip

#: Roofs drawn for one chip alone; several chips share one operand type, so that they can be compared.
_ALONE = (("matrix", "float8"), ("matrix", "float16"), ("matrix", "tfloat32"), ("vector", "float32"))


def draw_rooflines(chips: Sequence[Chip], path: Path, dtype: str | None = None) -> list[Roofline]:
    """Draws the rooflines of one or more chips into a file (its suffix says which format) and returns them.

    Args:
        chips: one chip gets a roof per operand type; several get one roof each, for `dtype`.
        path: the file to write.
        dtype: operand type of the roofs; by default float16 when several chips are compared.

    Raises:
        DescriptorError: none of the chips has a known peak and bandwidth.
        TileHALError: matplotlib is not installed, or the file cannot be written.
    """
    roofs = _roofs(chips, dtype)
    ridges = [roof.ridge_ops_per_byte for roof in roofs]
    left, right = min(ridges) / 64, max(ridges) * 16
    figure = new_figure(9, 5.5)
    axes = figure.add_subplot()
    for roof in roofs:
        ridge = roof.ridge_ops_per_byte
        points = [left, ridge, right]
        peak = format_quantity(roof.peak_ops_per_s, "ops_per_s")
        label = f"{roof.target}  {short_type(roof.dtype)} {roof.unit}: {peak}"
        (line,) = axes.plot(points, [roof.attainable(x) for x in points], label=label)
        axes.plot([ridge], [roof.peak_ops_per_s], "o", color=line.get_color(), markersize=4)
        axes.annotate(
            f"{ridge:.0f}", (ridge, roof.peak_ops_per_s), xytext=(-4, 5), textcoords="offset points", fontsize=8
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("arithmetic intensity, operations per byte of global memory traffic")
    axes.set_ylabel("attainable rate, operations per second")
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:g}")
    low, high = axes.get_ylim()
    label_log_axis(axes.yaxis, low, high, lambda rate: format_quantity(rate, "ops_per_s"))
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend(fontsize=8, loc="lower right")
    bandwidths = {roof.target: f"{roof.target} {roof.bandwidth_bytes_per_s / 1e12:.3g} TB/s" for roof in roofs}
    axes.set_title(f"Rooflines ({', '.join(bandwidths.values())})", fontsize=10)
    save_figure(figure, path)
    return roofs


def _roofs(chips: Sequence[Chip], dtype: str | None) -> list[Roofline]:
    if len(chips) == 1 and dtype is None:
        every = {(roof.unit, roof.dtype): roof for roof in rooflines(chips[0])}
        found = [every[key] for key in _ALONE if key in every] or list(every.values())
    else:
        found = []
        for chip in chips:
            found += [roof for roof in rooflines(chip) if roof.dtype == (dtype or "float16")][:1]
    if not found:
        names = ", ".join(chip.target for chip in chips)
        peak = f"the peak rate for {dtype}" if dtype else "a peak rate"
        drawable = ", ".join(sorted({roof.dtype for chip in chips for roof in rooflines(chip)}))
        known = f"`python -m core.describe --target {chips[0].target}` shows what is known"
        raise DescriptorError(
            f"no roofline can be drawn for {names}: {peak} or the memory bandwidth is unknown",
            hint=f"there are roofs for {drawable}" if drawable else known,
        )
    return found
