"""Quantities: what may be written, what it means, and that printing loses nothing that matters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.hardware.units import dimension_of, format_bytes, format_quantity, parse


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("192 KiB", "bytes", 196608),
        ("128KiB", "bytes", 131072),
        ("64 KB", "bytes", 64000),
        ("80 GB", "bytes", 80_000_000_000),
        ("512", "bytes", 512),
        ("0.5 KiB", "bytes", 512),
        ("4.8 TB/s", "bytes_per_s", 4.8e12),
        ("1555 GB/s", "bytes_per_s", 1.555e12),
        ("1.83 GHz", "hz", 1.83e9),
        ("1410 MHz", "hz", 1.41e9),
        ("989.4 TFLOP/s", "ops_per_s", 989.4e12),
        ("989.4 TFLOPS", "ops_per_s", 989.4e12),
        ("624 TOP/s", "ops_per_s", 624e12),
        ("1 PFLOP/s", "ops_per_s", 1e15),
    ],
)
def test_quantities_as_people_write_them(text, dimension, value):
    assert parse(text, dimension) == value


@pytest.mark.parametrize(
    ("text", "dimension", "reason"),
    [
        ("192 KiB/s", "bytes", "unknown unit"),
        ("4.8 TB", "bytes_per_s", "unknown unit"),
        ("1.83 GHZ", "hz", "unknown unit"),
        ("many", "bytes", "not a quantity"),
        ("-1 KiB", "bytes", "not a quantity"),
        ("0.3 B", "bytes", "whole number of bytes"),
        ("", "hz", "not a quantity"),
    ],
)
def test_what_is_no_quantity_is_refused_with_the_reason(text, dimension, reason):
    with pytest.raises(ValueError, match=reason):
        parse(text, dimension)


def test_binary_and_decimal_prefixes_are_different():
    assert parse("1 MiB", "bytes") - parse("1 MB", "bytes") == 48576


@pytest.mark.parametrize(
    ("value", "text"),
    [(232448, "227 KiB"), (80 * 10**9, "80 GB"), (150109880320, "139.8 GiB"), (62914560, "60 MiB"), (512, "512 B")],
)
def test_bytes_print_in_the_prefix_that_reads_best(value, text):
    assert format_bytes(value) == text


def test_the_dimension_is_the_suffix_of_the_field():
    assert dimension_of("capacity_bytes") == "bytes"
    assert dimension_of("bandwidth_bytes_per_s") == "bytes_per_s"
    assert dimension_of("ops_per_s") == "ops_per_s"
    assert dimension_of("clock_hz") == "hz"
    assert dimension_of("ops_per_cycle_per_unit") is None
    assert dimension_of("count") is None


@given(st.integers(min_value=0, max_value=2**50))
def test_printed_bytes_read_back_to_four_digits(value):
    # A printed fraction may fall between two bytes, so it is read as a bandwidth, which may be fractional.
    again = parse(format_bytes(value).replace("iB", "").replace("B", "B/s").split()[0], "bytes_per_s")
    unit = format_bytes(value).split()[1]
    assert again * parse(f"1 {unit.replace('kB', 'KB')}", "bytes") == pytest.approx(value, rel=1e-3)


@given(
    st.floats(min_value=1, max_value=1e16, allow_nan=False),
    st.sampled_from(["bytes_per_s", "hz", "ops_per_s"]),
)
def test_printed_rates_read_back_to_four_digits(value, dimension):
    assert parse(format_quantity(value, dimension), dimension) == pytest.approx(value, rel=1e-3)
