"""docs/performance.md has room for a run, its commands are commands, and README quotes the run that it has."""

from __future__ import annotations

import re
import shlex

import typer

from core.bench.case import OPERATORS
from core.bench.rendering import BEGIN, END, into_page
from core.cli.main import LazyCommand
from tests.packaging.layout import ROOT

PAGE = (ROOT / "docs" / "performance.md").read_text()
README = (ROOT / "README.md").read_text()

#: What README holds an operator against, where it has a line of its own.
BESIDE = {"gemm": "cuBLAS", "attention": "cuDNN", "mla": "FlashMLA"}


def test_a_run_s_tables_go_between_the_marks_of_the_page():
    assert PAGE.count(BEGIN) == PAGE.count(END) == 1
    filled = into_page(PAGE, "tables")
    assert filled.split(BEGIN)[0] == PAGE.split(BEGIN)[0]
    assert filled.split(END)[1] == PAGE.split(END)[1]
    assert "tables" in filled


def test_its_commands_have_the_options_they_name():
    command = LazyCommand("bench", help="").load()
    options = {option for parameter in command.params for option in parameter.opts}
    lines = re.findall(r"^tilehal bench(?: +(\S.*))?$", PAGE.split(BEGIN)[0], re.MULTILINE)
    assert len(lines) >= 7
    for line in lines:
        words = shlex.split(line.partition("  ")[0])
        assert {word for word in words if word.startswith("-")} <= options
        if words and not words[0].startswith("-"):
            assert set(words) <= set(OPERATORS)
    assert isinstance(command, typer.core.TyperCommand)
    assert {f"`{operator}`" for operator in OPERATORS} <= set(re.findall(r"`\w+`", PAGE))


def measured(operator: str, other: str) -> tuple[str, str]:
    """Geometric mean and least ratio, cold, of ours beside another in the run on the page, as printed."""
    (section,) = re.findall(rf"^### {operator}\n(.*?)(?=^### )", PAGE, re.MULTILINE | re.DOTALL)
    (mean,) = re.findall(rf"^Geometric mean, cold:.*? ([\d.]+)x {other} over", section, re.MULTILINE)
    ratios = re.findall(rf"^\|  \| {other} \|.*\| ([\d.]+)x \[", section, re.MULTILINE)
    return mean, min(ratios, key=float)


def test_readme_quotes_the_run_on_the_page():
    """Whichever rows of its table it has: means first, then what is least."""
    lines = [list(measured(operator, other)) for operator, other in BESIDE.items()]
    for other in ("Triton", "Triton overlapped"):
        means, least = zip(
            *(measured(operator, other) for operator in ("softmax", "layernorm", "rmsnorm")), strict=True
        )
        lines.append([*means, *least])
    quoted = [figures for line in README.splitlines() if (figures := re.findall(r"\b\d\.\d{3}\b", line))]
    assert quoted
    assert [figures for figures in quoted if figures not in lines] == []


def test_readme_quotes_the_host_s_time():
    medians = dict(re.findall(r"^\| (tile\w+, output passed) \| ([\d.]+) \|", PAGE, re.MULTILINE))
    ours, theirs = (f"{float(medians[f'{name}, output passed']):.1f}" for name in ("tilehal", "tilelang"))
    assert f"{ours} us against {theirs} us" in README
