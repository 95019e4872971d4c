"""Suites: which cases a file means, and what is wrong with one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import core
from core.tuning.baseline import Case, default_suite, load_suite
from core.tuning.baseline.sources import load
from core.tuning.baseline.suite import distinct, resolved

SUITE = """
[[kernel]]
source = "kernels.py:softmax"
reference = "core.tuning.baseline.references:softmax"
parameters = { dtype = "float16" }
shapes = [{ M = 64, N = 128 }, { M = 32, N = 256, dtype = "float32" }]

[[kernel]]
source = "package.kernels:copy"
target = "cuda:h200"
symbols = { rows = 128 }
tolerance = 0.5
flops = "rows * (2 if True else 1)"
"""


def test_a_suite_is_one_case_for_each_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inside").mkdir()
    path = tmp_path / "inside" / "suite.toml"
    path.write_text(SUITE)
    reference = "core.tuning.baseline.references:softmax"
    assert load_suite(path, "cpu") == [
        Case("inside/kernels.py:softmax", "cpu", {"dtype": "float16", "M": 64, "N": 128}, reference=reference),
        Case("inside/kernels.py:softmax", "cpu", {"dtype": "float32", "M": 32, "N": 256}, reference=reference),
        Case(
            "package.kernels:copy",
            "cuda:h200",
            {},
            {"rows": 128},
            tolerance=0.5,
            flop_formula="rows * (2 if True else 1)",
        ),
    ]


def test_a_suite_may_be_json(tmp_path: Path) -> None:
    path = tmp_path / "suite.json"
    path.write_text(json.dumps({"kernel": [{"source": "a.b:c", "shapes": [{"M": 1}]}]}))
    assert load_suite(path, "cpu") == [Case("a.b:c", "cpu", {"M": 1})]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no suite"),
        ("[kernel]\nsource = 'a:b'", "is no suite"),
        ("other = 1\n[[kernel]]\nsource = 'a:b'", "is no suite"),
        ("[[kernel]]\nshapes = []", "kernel 1 has no source"),
        ("[[kernel]]\nsource = 'a:b'\nshape = []", "'shape' means nothing"),
        ("[[kernel]]\nsource = 'a:b'\nshapes = [1]", "a list of tables"),
        ("[[kernel]]\nsource = 'a:b'\ntolerance = 'small'", "tolerance = 'small', and it is a share of 0 or more"),
        ("[[kernel]]\nsource = 'a:b'\ntolerance = -1", "tolerance = -1"),
        ("[[kernel]]\nsource = 'a:b'\nsymbols = {M = 'many'}", "symbols = {'M': 'many'}, and it is a table of extents"),
        ("[[kernel]]\nsource = 'a:b'\nreference = 3", "reference = 3, and it is a text"),
        ("not toml", "cannot be read as a suite"),
        ("[[kernel]]\nsource = 'a:b'\nflops = '2 * M'", r"flops = '2 \* M' cannot be evaluated"),
        ("[[kernel]]\nsource = 'a:b'\nflops = '2 *'", "cannot be evaluated"),
    ],
)
def test_a_bad_suite_says_what_is_wrong(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "suite.toml"
    path.write_text(text)
    with pytest.raises(core.BaselineError, match=said):
        load_suite(path)


@pytest.mark.parametrize("target", ["cpu:host", "cuda:h200", "metax:c500"])
def test_the_operators_come_in_sizes_for_the_target(target: str) -> None:
    cases = default_suite(target)
    assert {case.target for case in cases} == {target}
    assert {case.kernel.rpartition(":")[2] for case in cases} >= {
        "gemm",
        "softmax",
        "layernorm",
        "rmsnorm",
        "attention",
    }
    largest = max(case.parameters.get("M", 0) for case in cases)
    assert largest <= 512 if target == "cpu:host" else largest >= 4096
    for case in cases:  # what they name is there, and takes the parameters they give
        assert callable(load(case.reference))
        assert load(case.kernel).arguments((), dict(case.parameters))
        assert case.operations is not None


def test_a_case_survives_its_file_and_says_its_name() -> None:
    case = Case("k.py:gemm", "cpu", {"M": 4, "dtype": "float16"}, {"N": 7}, "r:f", "i:f", 0.1)
    assert Case.from_json(case.to_json()) == case
    assert case.name == "gemm(M=4, dtype=float16, N=7)"
    assert case.operations is None
    assert Case("k.py:gemm", "cpu", {"M": 4}, {"N": 8}, flop_formula="M * N / 2").operations == 16.0
    assert case.key == Case("k.py:gemm", "cpu", {"dtype": "float16", "M": 4}, {"N": 7}).key
    assert case.key != Case("k.py:gemm", "cpu", {"dtype": "float16", "M": 5}, {"N": 7}).key


def test_targets_mean_the_chip_that_is_here_and_each_case_counts_once() -> None:
    (one,) = resolved([Case("k:f", "cpu"), Case("k:f", "cpu:host")])
    assert one.target == core.chip("cpu").target
    assert distinct([Case("k:f", "cpu"), Case("k:f", "cpu")]) == [Case("k:f", "cpu")]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("core.nowhere:f", "does not import"),
        ("core.tuning.baseline.references:nothing", "has no 'nothing'"),
        ("nowhere.py:f", "no such file"),
        ("nothing", "is not FILE:FUNCTION"),
    ],
)
def test_what_is_not_there_is_said(spec: str, said: str) -> None:
    with pytest.raises(core.KernelError, match=said):
        load(spec)
