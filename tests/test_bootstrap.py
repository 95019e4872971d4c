"""`scripts/bootstrap.py`: what it decides without installing anything."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from tests.packaging.layout import ROOT


@pytest.fixture
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "scripts" / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def project(bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project files that decide what is installed, in place of the repository."""
    for name in ("pyproject.toml", *(f"backends/{vendor}/pyproject.toml" for vendor in bootstrap.BACKENDS)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    return tmp_path


def test_nothing_is_done_twice(bootstrap: ModuleType, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[str] = []
    monkeypatch.setattr(bootstrap, "install", lambda python: installed.append(python) is None)
    monkeypatch.setattr(bootstrap.venv, "create", lambda folder, with_pip: folder.mkdir(exist_ok=True))
    assert bootstrap.main() == 0
    assert bootstrap.main() == 0
    assert len(installed) == 1
    with (project / "backends" / "cpu" / "pyproject.toml").open("a") as changed:
        changed.write("# a new dependency\n")
    assert bootstrap.main() == 0
    assert len(installed) == 2


def test_a_failed_installation_is_tried_again(
    bootstrap: ModuleType, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [False, True]
    monkeypatch.setattr(bootstrap, "install", lambda python: answers.pop(0))
    monkeypatch.setattr(bootstrap.venv, "create", lambda folder, with_pip: folder.mkdir(exist_ok=True))
    assert [bootstrap.main(), bootstrap.main(), bootstrap.main()] == [1, 0, 0]


def test_zig_is_installed_exactly_where_there_is_no_compiler(
    bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(bootstrap, "run", lambda step, command: steps.append(command[-1]) is None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert bootstrap.install(shutil.which("true", path="/bin:/usr/bin"))
    assert steps[-1] == ".[cxx]"
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    steps.clear()
    assert bootstrap.install(shutil.which("true", path="/bin:/usr/bin"))
    assert ".[cxx]" not in steps


def test_a_named_compiler_that_does_not_exist_is_no_compiler(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert not bootstrap.has_cxx_compiler()
