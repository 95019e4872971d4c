"""`import core`, describe and what they use import neither torch nor tilelang, however indirectly, and quickly."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

import pytest

from tests.packaging.layout import ROOT

LIGHT_MODULES = (
    "core",
    "core.errors",
    "core.hardware",
    "core.plugins",
    "core.target",
    "core.tiling",
    "core.tuning",
    "core.describe",
)
HEAVY_MODULES = ("torch", "tilelang", "tvm", "tvm_ffi", "numpy")


def python(code: str) -> str:
    """Runs code in a fresh interpreter and returns what it prints."""
    finished = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return finished.stdout


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_a_light_module_loads_nothing_heavy(module: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps([m for m in {HEAVY_MODULES!r} if m in sys.modules]))"
    assert json.loads(python(code)) == []


def test_importing_core_is_quick() -> None:
    code = "import time; start = time.process_time(); import core; print(time.process_time() - start)"
    seconds = statistics.median(float(python(code)) for _ in range(3))
    # The promise is 0.15 s on an idle machine; a busy one has colder caches.
    assert seconds < 0.3
