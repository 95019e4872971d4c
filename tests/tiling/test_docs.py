"""docs/tiling.md says what the code does."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path
from typing import get_args

import pytest

import core
from core.cli import main as cli
from core.cli.main import LazyCommand
from core.tiling import TileParameter, TileRule
from core.tiling.parameters import Role
from tests.packaging.layout import ROOT
from tests.packaging.markdown import blocks, run

TEXT = (ROOT / "docs" / "tiling.md").read_text()


def test_the_snippets_run_in_order(tmp_path: Path) -> None:
    """They assert what they claim, and the rules they define are used on the kernel they define."""
    ours = """
chip = core.chip("cuda:h200")
ranking = core.tiling.rank(matmul, matmul.arguments((1024, 1024, 1024), {}), chip, tile_rules(chip, ranking.shape), {})
assert {v.chosen_by["block_M"] for v in ranking.candidates} == {"rule:nova.matrix-tile"}
(table,) = tilehal_tile_rules(chip, matmul.rank(64, 11008, 64, target="cuda:h200").shape)
assert table.prefer and priority == 10
"""
    run("\n".join([*blocks(TEXT, "python"), "import core.tiling", ours]), tmp_path / "tiling.py")


def test_the_output_shown_is_that_of_the_command_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its first lines and headings; the figures move with the rules and the model."""
    monkeypatch.setenv("TILEHAL_TUNING_STORE", str(tmp_path / "none.sqlite"))
    monkeypatch.chdir(tmp_path)
    command, *shown = next(block for block in blocks(TEXT, "text") if block.startswith("$ tilehal tile")).splitlines()
    words = shlex.split(command)[2:]
    Path(words[1].partition(":")[0]).write_text(blocks(TEXT, "python")[0])
    assert cli.run(words) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert printed[0] == shown[0].split()
    assert printed[2:6] == [line.split() for line in shown[2:6]]
    assert ["refused", "for", "example", "why"] in printed


def test_every_marker_is_listed_with_its_key() -> None:
    rows = re.findall(r"^\| `(core\.\w+)\(.*?\)` \| .+ \| `(\w+)` \|$", TEXT, re.MULTILINE)
    made = {
        "core.tile": core.tile("M"),
        "core.split": core.split("K"),
        "core.stages": core.stages(),
        "core.threads": core.threads(),
        "core.unroll": core.unroll(),
        "core.swizzle": core.swizzle(),
        "core.warp_policy": core.warp_policy(),
        "core.buffers": core.buffers(),
        "core.workers": core.workers(),
        "core.choice": core.choice("store", "direct", "staged"),
    }
    assert {parameter.role for parameter in made.values()} == set(get_args(Role))
    assert all(isinstance(parameter, TileParameter) for parameter in made.values())
    assert dict(rows) == {name: parameter.key for name, parameter in made.items()}


def test_every_field_of_a_rule_is_explained() -> None:
    table = TEXT.partition("## Rules")[2].partition("```")[0]
    listed = re.findall(r"`(\w+)(?:\([^)]*\))?`", "".join(re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)))
    assert set(listed) == {field.name for field in dataclasses.fields(TileRule)}


def test_every_option_of_the_command_is_listed() -> None:
    command = LazyCommand("tile").load()
    declared = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    listed = set(re.findall(r"^\| `(--\w+)", TEXT, re.MULTILINE))
    assert listed == declared - {"--help"}
