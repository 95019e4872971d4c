"""The snippets of the pages on launching and exporting run as printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.layout import ROOT
from tests.packaging.markdown import blocks


@pytest.mark.parametrize("page", ["launching.md", "export.md"])
def test_the_snippets_run_in_order(page: str, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks((ROOT / "docs" / page).read_text(), "python")))
    finished = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
