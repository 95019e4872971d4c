"""Versions of what takes part, also of what has no distribution."""

from __future__ import annotations

import sys

import pytest

from core.bench.facts import installed, present


@pytest.fixture
def lone(tmp_path, monkeypatch):
    """Writes a module onto the path that no distribution brings."""

    def write(text: str) -> str:
        (tmp_path / "lone_module.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "lone_module", raising=False)
        return "lone_module"

    return write


def test_a_distribution_says_its_version_and_is_not_imported(lone):
    assert present("torch", lone("raise RuntimeError")) == installed("torch")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('__version__ = "abc1234"', "abc1234"),
        ("", "of an unknown version"),
        ("import a_module_that_is_missing", "cannot be imported (No module named 'a_module_that_is_missing')"),
        ('raise OSError("libdecode.so: no such file")', "cannot be imported (OSError: libdecode.so: no such file)"),
    ],
)
def test_a_module_without_a_distribution_says_its_own(lone, text, said):
    assert present("a-distribution-that-is-missing", lone(text)) == said


def test_what_is_not_there_is_not_installed():
    assert present("a-distribution-that-is-missing", "a_module_that_is_missing") == "not installed"
