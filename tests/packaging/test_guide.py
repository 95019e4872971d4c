"""The guide's snippets are one script that runs, and its table has every environment variable that the code reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.packaging.layout import ROOT
from tests.packaging.markdown import blocks, run

GUIDE = (ROOT / "docs" / "guide.md").read_text()


def test_the_snippets_run_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The snippets assert what they claim, so running them is the test."""
    run("\n".join(blocks(GUIDE, "python")), tmp_path / "guide.py")
    assert "<core.Kernel matmul for cpu:host via cpp (device)>" in capsys.readouterr().out


def test_every_environment_variable_is_listed() -> None:
    sources = [path for top in ("core", "backends") for path in (ROOT / top).rglob("*.py") if "tests" not in path.parts]
    read = {name for path in sources for name in re.findall(r'"(TILEHAL_[A-Z_]+)"', path.read_text())}
    listed = set(re.findall(r"^\| `(TILEHAL_[A-Z_]+)` \|", GUIDE, re.MULTILINE))
    assert "TILEHAL_CACHE_DIR" in read
    assert listed == read


def test_every_error_is_explained() -> None:
    import core

    listed = set(re.findall(r"`([A-Z]\w+)`", GUIDE.partition("## Errors")[2].partition("```")[0]))
    errors = {
        name
        for name in core.__all__
        if isinstance(getattr(core, name), type) and issubclass(getattr(core, name), core.TileHALError)
    }
    assert errors - {"TileHALError"} <= listed
