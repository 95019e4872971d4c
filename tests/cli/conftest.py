from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_plugin_environment(monkeypatch):
    """The user's choices do not reach a test."""
    for variable in ("TILEHAL_LOAD_PLUGINS", "TILEHAL_TRACE_PLUGINS", "TILEHAL_TRACEBACK"):
        monkeypatch.delenv(variable, raising=False)
