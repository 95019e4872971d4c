"""What users of neighbouring projects ran into with their kernels. The number in a test's name is its row."""

from __future__ import annotations

import pytest
import torch

import core
from core.errors import ResourceExceeded, ShapeMismatch
from core.program import Program
from tests.users_ask import kernels
from tests.users_ask.refusing import refused


def test_row_39_a_request_beyond_the_part_names_buffers_numbers_and_a_tile_that_fits():
    found = refused(kernels.pipelined_product(256, 3), "cuda:rtx4090", ResourceExceeded, "alloc_shared")
    assert "99 KiB of shared memory" in found.message
    assert "192 KiB" in found.message
    assert [row["name"] for row in found.details["buffers"] if row["scope"].startswith("shared")] == ["a", "b"]
    assert found.details["limit_bytes"] == 99 * 1024
    assert "num_stages=1" in found.hint


def test_row_40_a_product_of_128_kib_is_refused_when_compiled_not_when_run():
    found = refused(kernels.pipelined_product(256, 2), "metax:c500", ResourceExceeded, "alloc_shared")
    assert found.details["needed_bytes"] == 128 * 1024


def test_row_42_more_than_the_unified_buffer_is_refused_before_any_planner():
    found = refused(kernels.in_shared(200), "ascend:910b3", ResourceExceeded, "# the buffer")
    assert "196,608 bytes of UB" in found.message


def test_row_45_fewer_stages_come_before_smaller_tiles():
    found = refused(kernels.pipelined_product(128, 8), "cuda:h200", ResourceExceeded, "alloc_shared")
    assert found.hint == "it fits with num_stages=7 instead of 8"
    assert core.compile(kernels.pipelined_product(128, 7), target="cuda:h200", build=False).get_kernel_source()


@pytest.mark.parametrize("target", ["cpu", "cuda:h200"])
def test_row_49_a_slice_past_the_end_is_refused(target):
    found = refused(kernels.slice_past_the_end(), target, ShapeMismatch, "# wholly outside")
    assert "64 elements" in found.message


def test_row_54_a_literal_32_is_a_warning_where_waves_are_64_wide():
    from core.portability import report

    found = report(Program(kernels.lanes_of_32()), [core.chip("metax:c500"), core.chip("cuda:h200")])
    [warning] = [r for line in found.chip("metax:c500").lines for r in line.remarks if r.warning]
    assert warning.rule == "wave-width"
    assert "on metax:c500 it is 64" in warning.message
    assert not [r for line in found.chip("cuda:h200").lines for r in line.remarks if r.warning]


@pytest.mark.parametrize("n", [1, 255, 256, 257, 1000])
def test_row_57_addition_with_a_tail(n):
    a, b, c = torch.randn(n), torch.randn(n), torch.full((n,), torch.nan)
    core.compile(kernels.add(n), target="cpu")(a, b, c)
    assert torch.equal(c, a + b)
    assert core.compile(kernels.add(n), target="cuda:h200", build=False).get_kernel_source()


def test_row_60_the_key_does_not_depend_on_what_was_built_before():
    first = core.compile(kernels.add(700), target="cpu", build=False).provenance.cache_key
    core.compile(kernels.add(701), target="cpu", build=False)
    core.compile(kernels.softmax, 8, 64, target="cuda:h200", build=False)
    assert core.compile(kernels.add(700), target="cpu", build=False).provenance.cache_key == first


def test_row_69_a_refusal_begins_with_file_and_line_and_is_no_wall_of_text(capfd):
    found = refused(kernels.fill_past_the_end(), "cuda:h200", ShapeMismatch, "# past the end")
    assert str(found).startswith(f"{kernels.__file__}:")
    assert len(str(found).splitlines()) <= 3
    assert capfd.readouterr() == ("", "")
