"""What the other pages tell a reader to write or type works as printed."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import core
from core.cli.main import run
from tests.packaging.layout import ROOT
from tests.packaging.markdown import blocks

DOCS = ROOT / "docs"
NOVA = ROOT / "examples" / "vendor_example" / "backend"


def compile_commands() -> list[tuple[str, str]]:
    """Page and command of each `tilehal compile` in the documentation."""
    found = []
    for page in sorted(DOCS.glob("*.md")):
        for command in re.findall(r"^\$ (tilehal compile .*)$", page.read_text(), re.MULTILINE):
            found.append((page.name, command))
    return found


@pytest.mark.parametrize(("page", "command"), compile_commands(), ids=[page for page, _ in compile_commands()])
def test_a_documented_compile_command_gives_source(
    page: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert run(shlex.split(command)[1:]) == 0, f"{page}: {capsys.readouterr().err}"
    assert re.search(r"\.py:(\w+)", command)
    printed = capsys.readouterr().out
    assert "kernels.py" in printed or "__global__" in printed


def test_there_are_such_commands_for_several_targets() -> None:
    assert {"cpu.md", "cuda.md", "ascend.md"} <= {page for page, _ in compile_commands()}


def test_the_printed_project_of_a_backend_makes_a_wheel_with_its_chips(tmp_path: Path) -> None:
    page = (DOCS / "plugins.md").read_text()
    package = tmp_path / "tilehal_nova"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "plugin.py").write_text(blocks(page, "python")[0])
    shutil.copy(NOVA / "tilehal_nova" / "chips.toml", package)
    (tmp_path / "pyproject.toml").write_text(blocks(page, "toml")[0])
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist")]
    built = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stdout + built.stderr
    installed = tmp_path / "installed"
    with zipfile.ZipFile(next((tmp_path / "dist").glob("*.whl"))) as wheel:
        wheel.extractall(installed)
    described = subprocess.run(
        [sys.executable, "-m", "core.describe", "--target", "nova:n1"],
        env={**os.environ, "PYTHONPATH": str(installed)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert described.returncode == 0, described.stdout + described.stderr
    assert "Nova N1" in described.stdout


def test_it_agrees_with_the_example_package() -> None:
    printed = tomllib.loads(blocks((DOCS / "plugins.md").read_text(), "toml")[0])
    example = tomllib.loads((NOVA / "pyproject.toml").read_text())
    del example["project"]["description"]
    assert printed == example


def test_the_targets_page_resolves(capsys: pytest.CaptureFixture[str]) -> None:
    (snippet,) = blocks((DOCS / "targets.md").read_text(), "python")
    with contextlib.suppress(core.DeviceUnavailable):  # what its last line raises where there is no H200
        exec(snippet, {})
    assert " because auto: " in capsys.readouterr().out
