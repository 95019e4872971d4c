"""Axes of pictures: labels that can be read apart, whatever the range."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from core._drawing import check_picture, label_log_axis, log_ticks, new_figure
from core.errors import TileHALError


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.97, 1.03, [0.97, 0.98, 0.99, 1.0, 1.01, 1.02, 1.03]),
        (0.07, 0.11, [0.07, 0.075, 0.08, 0.085, 0.09, 0.095, 0.1, 0.105, 0.11]),
        (0.05, 10, [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]),
        (1e-5, 3e-2, [1e-5, 1e-4, 1e-3, 1e-2]),
        (1e-9, 1e12, [1e-9, 1e-6, 1e-3, 1, 1e3, 1e6, 1e9, 1e12]),
    ],
)
def test_ticks_are_round_and_few(low: float, high: float, ticks: list[float]) -> None:
    assert log_ticks(low, high) == pytest.approx(ticks)


@pytest.mark.parametrize("name", ["a.svg", "a.PNG", "a.b.pdf"])
def test_a_picture_of_a_known_format_is_accepted(name: str) -> None:
    check_picture(Path(name))


@pytest.mark.parametrize("name", ["a", "a.txt", ".svg", "svg"])
def test_a_picture_of_no_known_format_is_refused(name: str) -> None:
    with pytest.raises(TileHALError, match="ends in no format"):
        check_picture(Path(name))


@pytest.mark.parametrize(("low", "high"), [(0.93, 1.08), (0.066, 0.118), (0.3, 1.4), (0.047, 11), (1e-6, 40)])
def test_labels_of_an_axis_do_not_touch(low: float, high: float) -> None:
    figure = new_figure(9, 2)
    axes = figure.add_subplot()
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    label_log_axis(axes.xaxis, low, high, lambda value: f"{value:.4g}x")
    figure.draw_without_rendering()
    labels = [label for label in axes.get_xticklabels(which="both") if label.get_text()]
    assert len(labels) >= 3
    boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: box.x0)
    assert all(one.x1 < two.x0 for one, two in pairwise(boxes))
