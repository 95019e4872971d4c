"""Lane layouts: every element of every operand is held exactly once, and only index arithmetic is understood."""

from __future__ import annotations

import pytest

from core.hardware import LaneLayout, load_chips
from core.hardware.layouts import compile_index

WAVES_PER_WARPGROUP = 4


def instructions_with_layouts():
    """Every described instruction with the lanes that hold it, each once however many chips share it."""
    found = {}
    for package in ("backends.cuda", "backends.metax", "backends.ascend"):
        for chip in load_chips(package):
            for instruction in chip.matrix_instructions:
                wave = chip.unit(instruction.unit).lanes_per_wave
                lanes = wave * WAVES_PER_WARPGROUP if instruction.issued_by == "warpgroup" else wave
                for operand in "abc":
                    if getattr(instruction, f"{operand}_layout") is not None:
                        found[instruction, operand] = lanes
    return [
        pytest.param(instruction, operand, lanes, id=f"{instruction.name}-{operand.upper()}")
        for (instruction, operand), lanes in found.items()
    ]


@pytest.mark.parametrize(("instruction", "operand", "lanes"), instructions_with_layouts())
def test_every_element_is_held_exactly_once(instruction, operand, lanes):
    layout = getattr(instruction, f"{operand}_layout")
    m, n, k = instruction.m, instruction.n, instruction.k
    rows, columns = {"a": (m, k), "b": (k, n), "c": (m, n)}[operand]
    held = list(layout.elements(lanes))
    assert sorted(held) == [(row, column) for row in range(rows) for column in range(columns)]


@pytest.mark.parametrize("n", [8, 64, 128, 248])
def test_a_narrower_wgmma_uses_the_first_registers_of_the_widest(n):
    chip = load_chips("backends.cuda")[0]
    widest = next(i for i in chip.matrix_instructions if i.name.endswith("m64nNk16.f32.f16.f16"))
    assert n in widest.n_choices
    registers = widest.m * n // 128
    held = [widest.c_layout.element(lane, i) for lane in range(128) for i in range(registers)]
    assert sorted(held) == [(row, column) for row in range(64) for column in range(n)]


def test_the_layouts_cuda_documents_for_lane_5():
    """PTX ISA 9.7.14.5.8, m16n8k16: lane 5 is group 1, position 1 in the group."""
    chip = load_chips("backends.cuda")[0]
    mma = next(i for i in chip.matrix_instructions if i.name == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    assert [mma.a_layout.element(5, i) for i in range(8)] == [
        (1, 2), (1, 3), (9, 2), (9, 3), (1, 10), (1, 11), (9, 10), (9, 11),
    ]  # fmt: skip
    assert [mma.b_layout.element(5, i) for i in range(4)] == [(2, 1), (3, 1), (10, 1), (11, 1)]
    assert [mma.c_layout.element(5, i) for i in range(4)] == [(1, 2), (1, 3), (9, 2), (9, 3)]


def test_a_metax_wave_spreads_k_over_its_quarters():
    chip = load_chips("backends.metax")[0]
    mma = next(i for i in chip.matrix_instructions if i.name.endswith("16x16x16f16"))
    assert mma.a_layout.element(33, 2) == (1, 10)
    assert mma.b_layout.element(33, 2) == (10, 1)
    assert mma.c_layout.element(33, 2) == (10, 1)


@pytest.mark.parametrize(
    "expression",
    ["lane / 4", "lane ** 2", "__import__('os')", "lane if i else 0", "lane + j", "lane +", "-lane", "1.5"],
)
def test_anything_but_index_arithmetic_is_refused(expression):
    with pytest.raises(ValueError, match=r"understood|not an expression"):
        compile_index(expression)


def test_a_layout_with_a_bad_expression_cannot_be_made():
    with pytest.raises(ValueError, match="understood"):
        LaneLayout(elements_per_lane=4, row="lane / 4", column="i")


def test_the_coverage_check_notices_an_element_held_twice():
    """Negative control: a plausible layout with one swapped operator fails the test above."""
    wrong = LaneLayout(elements_per_lane=4, row="(lane >> 2) + 8 * (i & 1)", column="2 * (lane & 3) + (i & 1)")
    assert len(set(wrong.elements(32))) < 16 * 8
