"""The page that says where to begin reading names modules that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_module_that_the_page_names_is_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page[page.index("## Where to begin reading") : page.index("## Who may import whom")]
    there = {path.stem for path in (ROOT / "core").rglob("*") if path.suffix == ".py" or path.is_dir()}
    named = re.findall(r"`([a-z_]+)`", section)
    assert len(named) > 50
    assert sorted(set(named) - there) == []


def test_every_module_of_tiling_is_named_or_shared_with_backends() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    public = {"constraints", "proposals"}  # docs/plugins.md has those
    for path in (ROOT / "core" / "tiling").glob("*.py"):
        if path.stem != "__init__" and path.stem not in public:
            assert f"`{path.stem}`" in page, path.stem
