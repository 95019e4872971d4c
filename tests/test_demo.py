"""`make demo` does what it says: compiles, runs, compares, and fails when something is wrong."""

from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

import core
from demo.cases import cases, shape_text
from demo.measure import TOLERANCE, Row, measure
from demo.table import summary, table
from tests.packaging.layout import ROOT


def test_the_three_kernels_agree_with_torch_on_the_cpu_and_compile_for_a_gpu() -> None:
    command = [sys.executable, "-m", "demo", "--json", "--target", "cpu", "--target", "cuda:h200"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    rows = {(row["kernel"], row["target"].partition(":")[0]): row for row in json.loads(finished.stdout)["rows"]}
    assert set(rows) == {(kernel, vendor) for kernel in ("gemm", "softmax", "layernorm") for vendor in ("cpu", "cuda")}
    for (_, vendor), row in rows.items():
        assert row["passed"]
        assert row["tiles"]["block_M"] >= 1
        if vendor == "cpu":
            assert 0 < row["error"] < TOLERANCE
            assert row["run_s"] > 0
        else:
            assert row["route"] == "tilelang-native"


def test_a_kernel_that_computes_something_else_fails() -> None:
    softmax = next(case for case in cases() if case.name == "softmax")
    wrong = dataclasses.replace(softmax, reference=lambda x: x.float().softmax(dim=0))
    assert measure(softmax, "cpu", runs_here=True).passed
    assert not measure(wrong, "cpu", runs_here=True).passed


@pytest.mark.parametrize("target", ["metax:c500", "ascend:910b3"])
def test_a_chip_that_is_not_here_is_simulated_at_a_smaller_shape(target: str) -> None:
    info = next(info for info in core.targets() if info.target == target)
    if not info.simulate:
        pytest.skip(info.simulate.reason)  # its simulator's packages are an extra
    row = measure(
        next(case for case in cases() if case.name == "softmax"), target, runs_here=False, simulates_here=True
    )
    assert row.passed, row.failure
    assert (row.evidence, row.simulated) == ("simulated", "64x1024")
    assert row.error is not None


def test_an_unknown_target_is_a_failed_row_with_the_reason() -> None:
    row = measure(cases()[0], "cuda:h2oo", runs_here=False)
    assert not row.passed
    assert "h2oo" in row.failure


@pytest.mark.parametrize("width", [100, 120])
def test_the_table_shows_every_figure(width: int) -> None:
    resources = {
        "memory_bytes": {"shared": 49152},
        "threads": 128,
        "flops": 2.0e9,
        "bytes_read": 3e6,
        "bytes_written": 1e6,
    }
    rows = [
        Row("gemm", "1024x1024x1024", "cpu", "cpp", "device", {"block_M": 64}, resources, "", 2e-4, 0.5, 0.012),
        Row("gemm", "1024x1024x1024", "metax:c500", "simt-wave", "simulated", {}, resources, "256x256x256", 3e-4, 0.5),
        Row("gemm", "1024x1024x1024", "cuda:h200", "tilelang-native", "source only", {"block_M": 128}, resources),
        Row("softmax", "8x8", "cuda:h200", failure="it broke"),
    ]
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table(rows))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    for shown in (
        "gemm",
        "cuda:h200",
        "block_M=128",
        "48 KiB",
        "2.0e-04",
        "12 ms",
        "not run",
        "failed",
        "simulated at",
    ):
        assert shown in text
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Console(width=width, file=terminal).print(table(rows))  # raises UnicodeEncodeError for any other letter
    words = summary(rows, {"metax": "it only describes"})
    assert "2 of 4 compiled. 1 ran on this machine and 1 on a simulator; 2 of these agree" in words
    assert "Not compiled for metax: it only describes." in words
    assert "it broke" in words
    assert f"{words}{shape_text((64, 1024))}".isascii()
