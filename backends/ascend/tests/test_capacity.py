"""The capacity check agrees with the vendor's compiler on every tiling it was asked about, and says what fits."""

import json
from pathlib import Path

import pytest

import core
from backends.ascend.tests.capacity_kernels import configurations, trace, verdicts
from tests.timing import within

ROWS = json.loads((Path(__file__).parent / "data" / "capacity_sweep.json").read_text())
CHIPS = ("910b3", "950pr_9589")


def test_the_sweep_is_as_wide_as_promised() -> None:
    wanted = list(configurations())
    assert len(wanted) >= 200
    assert {row["kernel"] for row in ROWS} == {"gemm", "softmax", "attention"}
    recorded = {(row["chip"], row["kernel"], json.dumps(row["parameters"])) for row in ROWS}
    assert recorded == {(chip, name, json.dumps(parameters)) for chip in CHIPS for name, parameters in wanted}
    for chip in CHIPS:
        overflowing = {row.get("overflow") for row in ROWS if row["chip"] == chip and not row["fits"]}
        assert overflowing == {"ub", "l1", "l0c"}, "each space overflows somewhere, and nothing failed otherwise"


@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.wide)])
def test_no_accepted_tile_is_refused_by_the_compiler_and_few_refused_ones_would_compile(half: int) -> None:
    # Tracing a configuration is what takes the time, so each is judged for both chips.
    wanted = [(name, json.dumps(parameters)) for name, parameters in configurations()][half::2]
    rows = [row for row in ROWS if (row["kernel"], json.dumps(row["parameters"])) in wanted]
    judged = list(verdicts(rows))
    assert [row for row, ours in judged if ours and not row["fits"]] == []
    for chip in CHIPS:
        refused = [row for row, ours in judged if not ours and row["chip"] == chip]
        assert len(refused) > 20
        assert sum(row["fits"] for row in refused) <= 0.1 * len(refused)


@pytest.mark.parametrize(
    ("space", "kernel", "parameters", "buffer"),
    [
        ("ub", "softmax", {"rows": 16, "columns": 8192, "dtype": "float16", "tail": False}, "x"),
        ("l1", "gemm", {"bm": 128, "bn": 256, "bk": 1024, "dtype": "float16", "epilogue": False}, "b"),
        ("l0c", "gemm", {"bm": 256, "bn": 512, "bk": 32, "dtype": "float16", "epilogue": False}, "c"),
    ],
)
def test_an_overflow_is_refused_at_once_with_the_buffer_its_line_and_what_fits(
    target: str, space: str, kernel: str, parameters: dict[str, object], buffer: str
) -> None:
    program = trace(kernel, parameters)
    with within(1.0), pytest.raises(core.ResourceExceeded) as caught:
        core.compile(program, target=target)
    error = caught.value
    assert error.details["memory"] == space
    assert error.details["needed_bytes"] > error.details["limit_bytes"]
    assert buffer in {row["name"] for row in error.details["buffers"]}
    assert f"for {buffer}" in error.hint
    assert error.location is not None
    assert error.location.file.endswith("capacity_kernels.py")


def test_a_what_if_chip_with_more_memory_takes_the_tile() -> None:
    program = trace("gemm", {"bm": 256, "bn": 256, "bk": 64, "dtype": "float16", "epilogue": False})
    with pytest.raises(core.ResourceExceeded):
        core.compile(program, target="ascend:910b3")
    assert core.compile(program, target="ascend:910b3+l0c=256KiB").target.startswith("ascend:910b3")
