"""The report against the corpus of kernels, which other tests compile: neither stricter nor kinder than compiling."""

import pytest

import core
from core.portability import Status, report
from core.program import Program
from tests.kernels import all_kernels
from tests.kernels.silent import silent_cases

#: Kernels whose refusal only lowering finds: TileLang tries thread layouts and finds none.
LAYOUTS = {
    "silent.gemm_clears_slice",
    "silent.permuted_fragment",
    "reduction.reduce_rows[max-int32-10x6-ragged]",
    "reduction.reduce_rows[sum-float32-10x100-ragged]",
    "softmax.softmax[7x200]",
}
COMPILES = {case.name.partition("[")[0]: case for case in all_kernels() if not case.stock_refusal}
DOUBTFUL = {
    case.name: case for case in (*(c for c in all_kernels() if c.stock_refusal), *(s.case for s in silent_cases()))
}


@pytest.mark.parametrize("name", COMPILES)
def test_what_compiles_is_not_refused(name):
    found = report(Program(COMPILES[name].prim_func()), [core.chip("cuda:h200"), core.chip("cpu")])
    assert [
        remark
        for chip in found.chips
        for line in chip.lines
        for remark in line.remarks
        if remark.status is Status.REFUSED
    ] == []


@pytest.mark.parametrize("name", sorted(name for name in LAYOUTS if not name.startswith("silent")))
def test_rows_without_a_layout_are_warned_of_on_chips_lowered_by_tilelang(name):
    h200, cpu = report(Program(DOUBTFUL[name].prim_func()), [core.chip("cuda:h200"), core.chip("cpu")]).chips
    assert {r.rule for line in h200.lines for r in line.remarks if r.warning} == {"uneven-rows"}
    assert not any(r.warning for line in cpu.lines for r in line.remarks)


#: `softmax.layernorm` has rows of 768, which compile in this kernel and in few others.
@pytest.mark.parametrize("name", sorted(set(COMPILES) - {"softmax.layernorm"}))
def test_rows_with_a_layout_are_not_warned_of(name):
    [h200] = report(Program(COMPILES[name].prim_func()), [core.chip("cuda:h200")]).chips
    assert "uneven-rows" not in {r.rule for line in h200.lines for r in line.remarks}


@pytest.mark.parametrize("name", sorted(set(DOUBTFUL) - LAYOUTS))
def test_what_is_refused_is_refused_at_the_same_line(name):
    prim_func = DOUBTFUL[name].prim_func()
    [chip] = report(Program(prim_func), [core.chip("cuda:h200")]).chips
    refused_at = [line.location for line in chip.lines if line.status is Status.REFUSED]
    error: core.TileHALError | None = None
    try:
        core.compile(prim_func, target="cuda:h200", build=False)
    except core.TileHALError as caught:
        error = caught
    assert (error.location in refused_at) if error is not None else not refused_at
