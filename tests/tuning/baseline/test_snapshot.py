"""Snapshot files: what git sees of them, and that reading one back changes nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import core
from core.tuning.baseline import Case, Row, Snapshot, Timing
from core.tuning.baseline.environment import comparable, describe_host, describe_target
from core.tuning.baseline.rendering import print_snapshot
from core.tuning.baseline.snapshot import rounded, to_significance

PASSES = (1.23456e-5, 1.2401e-5, 1.2299e-5)


def row(M: int = 64, **fields: Any) -> Row:
    figures = {
        "cold": Timing.of(PASSES, "graph"),
        "warm": Timing.of([value * 0.9 for value in PASSES], "graph"),
        "flops": 2.0 * M * 64 * 64,
        "bytes_moved": 123_456,
        "error": 2.3456e-4,
        "compile_s": 3.14159,
        "memory": {"shared": 4096, "global": 0},
        "tiles": {"threads": 128, "block_M": 64},
    }
    return Row(Case("kernels.py:gemm", "cuda:h200", {"M": M, "dtype": "float16"}), **{**figures, **fields})


def snapshot(*rows: Row) -> Snapshot:
    facts = {"device": "NVIDIA H200", "driver": "570.1"}
    return Snapshot(
        {"host": {"cpu": "EPYC", "date": "2026-11-30"}, "settings": {"passes": 3}, "targets": {"cuda:h200": facts}},
        rows,
        {"cuda:h200": {"copy": Timing.of(PASSES, "graph")}},
    )


def test_a_file_has_a_row_per_line_sorted_by_what_it_measures() -> None:
    lines = snapshot(row(256), row(64)).to_text().splitlines()
    rows = [json.loads(line.rstrip(",")) for line in lines if line.startswith('{"kernel"')]
    assert [one["parameters"]["M"] for one in rows] == [256, 64]  # as text, so that the order never depends on types
    assert snapshot(row(64), row(256)).to_text() == snapshot(row(256), row(64)).to_text()


def test_a_row_that_changed_is_one_line_of_a_diff() -> None:
    before = snapshot(row(64), row(256)).to_text().splitlines()
    after = snapshot(row(64, cold=Timing.of([2e-5, 2e-5], "graph")), row(256)).to_text().splitlines()
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1


def test_figures_are_rounded_to_what_they_are_worth() -> None:
    data = row().to_json()
    assert data["cold"]["passes_us"] == [12.35, 12.4, 12.3]
    assert data["cold"]["median_us"] == 12.35
    assert (data["error"], data["compile_s"], data["flops"]) == (2.3e-4, 3.1, 524288)
    assert data["tflops"] == 0.0425
    assert data["gb_per_s"] == 10
    assert "reason" not in data


def test_reading_back_and_writing_again_changes_nothing(tmp_path: Path) -> None:
    taken = snapshot(row(64), row(256, cold=None, warm=None, status="failed", reason="BuildFailed: no"))
    path = tmp_path / "baseline.json"
    taken.save(path)
    read = Snapshot.read(path)
    assert read.to_text() == path.read_text() == taken.to_text()
    assert {one.case.key: one.status for one in read.rows} == {one.case.key: one.status for one in taken.rows}
    assert read.yardsticks["cuda:h200"]["copy"] == taken.yardsticks["cuda:h200"]["copy"]
    assert read.device("cuda:h200") == "NVIDIA H200"


@given(st.lists(st.floats(1e-7, 10.0), min_size=1, max_size=6))
def test_any_times_survive_a_file(passes: list[float]) -> None:
    once = Timing.of(passes, "wall")
    again = Timing.from_json(json.loads(json.dumps(once.to_json())))
    assert again.to_json() == once.to_json()
    assert all(abs(a / b - 1) < 1e-3 for a, b in zip(again.passes_s, passes, strict=True))


def test_the_interval_of_passes_is_students() -> None:
    found = Timing((1.0, math.e**0.02, math.e**-0.02), "wall")
    low, high = found.interval_s
    half = 4.3027 * 0.02 / math.sqrt(3)  # t of 2 degrees at 95%; the logarithms' deviation is 0.02
    assert (low, high) == (pytest.approx(math.exp(-half), rel=1e-4), pytest.approx(math.exp(half), rel=1e-4))
    assert Timing((2.0,), "wall").interval_s == (2.0, 2.0)


@pytest.mark.parametrize(
    ("value", "digits", "expected"), [(1234.56, 3, 1230), (0.00123456, 3, 0.00123), (-9.996, 3, -10), (0.0, 3, 0.0)]
)
def test_significant_digits(value: float, digits: int, expected: float) -> None:
    assert rounded(value, digits) == expected


@pytest.mark.parametrize(
    ("value", "half", "expected"), [(123.456, 1.7, 123.5), (123.456, 0.0021, 123.46), (123.456, 400, 120)]
)
def test_a_figure_is_not_told_finer_than_a_tenth_of_its_uncertainty(value: float, half: float, expected: float) -> None:
    assert to_significance(value, half) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "is no snapshot"),
        ("[]", "is no snapshot"),
        ('{"format": "other", "version": 1}', "its format is 'other'"),
        ('{"format": "tilehal-baseline", "version": 99}', "version 99 of the format"),
        ('{"format": "tilehal-baseline", "version": 1, "environment": {}, "rows": [{}]}', "is no snapshot"),
    ],
)
def test_a_file_that_is_something_else_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(core.BaselineError, match=said):
        Snapshot.read(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(core.BaselineError, match="cannot be read"):
        Snapshot.read(tmp_path / "none.json")


def test_the_environment_is_recorded_and_what_changes_by_itself_is_set_apart() -> None:
    facts = {"host": describe_host(), "targets": {"cpu": describe_target("cpu")}}
    assert facts["host"]["cpus"] >= 1
    assert {"cpu", "torch", "python", "tilehal", "date"} <= facts["host"].keys()
    assert {"device", "driver", "toolchain", "tilelang", "plugins", "clocks"} <= facts["targets"]["cpu"].keys()
    assert any(plugin.startswith("tilehal-cpu ") for plugin in facts["targets"]["cpu"]["plugins"])
    left = comparable(facts)
    assert "date" not in left["host"]
    assert "clocks" not in left["targets"]["cpu"]
    assert left["host"]["torch"] == facts["host"]["torch"]
    json.dumps(facts)


def test_a_table_says_what_the_file_says(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    print_snapshot(snapshot(row(64), row(256, status="wrong", reason="the error of C is 0.1")), Console(width=140))
    printed = " ".join(capsys.readouterr().out.split())
    assert "NVIDIA H200; driver 570.1" in printed
    assert "gemm(M=64, dtype=float16) cuda:h200 12.35 ± 1.0%" in printed
    assert "wrong: the error of C is 0.1" in printed
