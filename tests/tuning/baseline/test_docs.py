"""What docs/baselines.md tells a reader to write or type works as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.tuning.baseline import load_suite
from core.tuning.baseline.comparing import ORDER
from tests.packaging.layout import ROOT
from tests.packaging.markdown import blocks

PAGE = (ROOT / "docs" / "baselines.md").read_text()


def test_its_snippets_run(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for snippet in blocks(PAGE, "python"):
        exec(snippet, names)
    assert "cold" in capsys.readouterr().out
    assert names["together"].ratio("product", "sum").value > 0  # type: ignore[attr-defined]


def test_its_suite_is_one(tmp_path: Path) -> None:
    (suite,) = blocks(PAGE, "toml")
    path = tmp_path / "suite.toml"
    path.write_text(suite)
    first, second = load_suite(path)
    assert first.parameters == {"dtype": "float16", "M": 4096, "N": 4096}
    assert (second.target, second.tolerance, second.symbols) == ("cuda:h200", 0.01, {"rows": 4096})


def test_its_options_and_verdicts_are_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    from core.cli.main import run

    helped = ""
    for command in ("record", "compare", "show"):
        assert run(["baseline", command, "--help"]) == 0
        helped += capsys.readouterr().out
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) - {"--trials"}
    assert mentioned <= set(re.findall(r"--[a-z][a-z-]+", helped))
    assert {verdict for verdict in ORDER if f"`{verdict}`" not in PAGE} == set()
