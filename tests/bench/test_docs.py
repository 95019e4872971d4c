"""docs/performance.md has room for a run, and its commands are commands."""

from __future__ import annotations

import re
import shlex

import typer

from core.bench.case import OPERATORS
from core.bench.rendering import BEGIN, END, into_page
from core.cli.main import LazyCommand
from tests.packaging.layout import ROOT

PAGE = (ROOT / "docs" / "performance.md").read_text()


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
