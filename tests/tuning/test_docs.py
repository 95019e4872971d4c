"""What docs/tuning.md shows works as printed, and every option and variable is there."""

from __future__ import annotations

import inspect
import re
import shlex

import pytest

from core.cli.tune import tune as command
from core.tuning.results.lookup import _POLICIES
from core.tuning.tuner import tune
from tests.packaging.layout import ROOT
from tests.packaging.markdown import blocks

PAGE = (ROOT / "docs" / "tuning.md").read_text()


def option_names():
    """The words of `tilehal tune --help`."""
    import typer

    app = typer.Typer(add_completion=False)
    app.command()(command)
    return {word for parameter in typer.main.get_command(app).params for word in parameter.opts}


@pytest.mark.usefixtures("kept_children")
def test_its_example_runs():
    exec(compile(blocks(PAGE, "python")[0], "docs/tuning.md", "exec"), {})


def test_its_hook_is_python():
    compile(blocks(PAGE, "python")[1], "docs/tuning.md", "exec")


def test_every_option_of_the_command_is_there_and_no_other():
    shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PAGE.replace("--resources", "")))
    known = {word for word in option_names() if word.startswith("--")}
    assert shown <= known
    assert known - shown <= {"--store", "--help"}


@pytest.mark.parametrize("line", re.findall(r"^\$ tilehal (tune .*)$", PAGE, re.MULTILINE))
def test_every_command_line_parses(line):
    words = [word for word in shlex.split(line, comments=True) if word.startswith("--")]
    assert set(words) <= option_names()


def test_every_option_of_tune_is_named():
    names = [p.name for p in inspect.signature(tune).parameters.values() if p.kind is p.KEYWORD_ONLY]
    explained = inspect.getdoc(tune)
    assert [name for name in names if not re.search(rf"\b{name}\b", explained)] == []


def test_variables_and_policies_are_there():
    used = set()
    for path in (ROOT / "core" / "tuning").glob("*.py"):
        used |= set(re.findall(r'environ(?:\.get\(|\[)"(TILEHAL_[A-Z_]+)"', path.read_text()))
    assert {name for name in used if f"| `{name}` |" in PAGE} == used
    assert all(f"`{policy}`" in PAGE for policy in _POLICIES)
