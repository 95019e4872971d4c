"""Roofline arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import DescriptorError, TileHALError
from core.hardware import Roofline, load_chips, rooflines
from core.hardware.picture import draw_rooflines

H200 = load_chips("backends.cuda")[0]
ROOF = Roofline(
    target="x:y", dtype="float16", unit="matrix", memory="global", peak_ops_per_s=1e15, bandwidth_bytes_per_s=4e12
)


def test_the_ridge_is_peak_over_bandwidth():
    assert ROOF.ridge_ops_per_byte == 250
    assert ROOF.attainable(250) == 1e15
    assert ROOF.attainable(125) == 5e14
    assert ROOF.attainable(0) == 0


def test_the_roof_of_a_chip_has_its_figures():
    roof = Roofline.of(H200, "bfloat16")
    assert (roof.peak_ops_per_s, roof.bandwidth_bytes_per_s) == (989.5e12, 4.8e12)
    assert roof.unit == "matrix"
    assert Roofline.of(H200, "float32").unit == "vector"
    assert Roofline.of(H200, "float8_e4m3fn").peak_ops_per_s == 1979e12


def test_a_copy_is_bound_by_memory_and_a_large_product_by_compute():
    n = 8192
    product = Roofline.of(H200, "float16").bound(operations=2 * n**3, bytes_moved=3 * n * n * 2)
    assert product.limited_by == "compute"
    assert product.seconds == pytest.approx(2 * n**3 / 989.5e12)
    copy = Roofline.of(H200, "float16").bound(operations=0, bytes_moved=2 * 4.8e12)
    assert (copy.limited_by, copy.seconds, copy.attainable_ops_per_s) == ("memory", 2.0, 0.0)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_attainable_rate_never_falls_with_intensity(first, second):
    low, high = sorted((first, second))
    assert ROOF.attainable(low) <= ROOF.attainable(high) <= ROOF.peak_ops_per_s


@given(st.floats(1, 1e18), st.floats(1, 1e15))
def test_no_kernel_beats_either_limit(operations, bytes_moved):
    bound = ROOF.bound(operations, bytes_moved)
    assert bound.seconds >= operations / ROOF.peak_ops_per_s
    assert bound.seconds >= bytes_moved / ROOF.bandwidth_bytes_per_s
    assert bound.attainable_ops_per_s == pytest.approx(ROOF.attainable(bound.intensity), rel=1e-9)


def test_an_unknown_peak_or_bandwidth_is_an_error_that_names_it():
    ascend = load_chips("backends.ascend")[0]
    with pytest.raises(DescriptorError, match=r"memories\.global\.bandwidth_bytes_per_s is unknown"):
        Roofline.of(ascend, "float16")
    with pytest.raises(DescriptorError, match="peak rate for float4 is unknown"):
        Roofline.of(H200, "float4")
    assert rooflines(ascend) == ()


def test_impossible_kernels_are_refused():
    with pytest.raises(ValueError, match="operations or moves"):
        ROOF.bound(0, 0)
    with pytest.raises(ValueError, match="negative"):
        ROOF.attainable(-1)


def test_a_picture_is_drawn(tmp_path):
    file = tmp_path / "roofs.png"
    roofs = draw_rooflines([H200, load_chips("backends.metax")[0]], file)
    assert [roof.target for roof in roofs] == ["cuda:h200", "metax:c500"]
    assert file.read_bytes().startswith(b"\x89PNG")


def test_nothing_to_draw_is_an_error(tmp_path):
    with pytest.raises(DescriptorError, match="no roofline can be drawn for ascend:910b3"):
        draw_rooflines([load_chips("backends.ascend")[0]], tmp_path / "roofs.png")
    assert not (tmp_path / "roofs.png").exists()


def test_a_type_without_a_roof_is_named_with_those_that_have_one(tmp_path):
    with pytest.raises(DescriptorError, match="the peak rate for float12") as caught:
        draw_rooflines([H200], tmp_path / "roofs.png", "float12")
    assert "bfloat16, float16, float32" in caught.value.hint


def test_without_matplotlib_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(TileHALError, match="needs matplotlib") as caught:
        draw_rooflines([H200], tmp_path / "roofs.png")
    assert "tilehal[plot]" in caught.value.hint
