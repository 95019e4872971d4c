"""The snippets of the pages on launching and exporting run as printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.layout import ROOT
from tests.packaging.markdown import blocks, run


@pytest.mark.parametrize("page", ["launching.md", "export.md"])
def test_the_snippets_run_in_order(page: str, tmp_path: Path) -> None:
    run("\n".join(blocks((ROOT / "docs" / page).read_text(), "python")), tmp_path / "page.py")
