from __future__ import annotations

import sys

import pytest

from core.plugins.isolation import LOAD_TIMEOUT


@pytest.fixture(autouse=True)
def no_plugin_environment(monkeypatch, tmp_path):
    """Neither the user's choices nor earlier tests' imports and trial imports reach a test."""
    for variable in ("TILEHAL_LOAD_PLUGINS", "TILEHAL_TRACE_PLUGINS"):
        monkeypatch.delenv(variable, raising=False)
    # Each trial import starts an interpreter; the tests of isolation turn them on again.
    monkeypatch.setenv(LOAD_TIMEOUT, "0")
    monkeypatch.setenv("TILEHAL_CACHE_DIR", str(tmp_path / "cache"))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("fake_", "acme")):
            del sys.modules[name]


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on `sys.path` to install packages into."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder
