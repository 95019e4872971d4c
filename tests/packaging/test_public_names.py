"""The backends in this repository use only what a vendor outside it could use: names that core's packages export."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from tests.packaging.layout import ROOT, VENDORS

PUBLIC_MODULES = {
    "core",
    "core.codegen",
    "core.compiler",
    "core.errors",
    "core.hardware",
    "core.plugins",
    "core.program",
    "core.runtime",
    "core.tiling",
}


def imported_from_core(path: Path) -> list[tuple[int, str, str | None]]:
    """Every import of something of core's in a file: line, module, and name (None for `import module`)."""
    found: list[tuple[int, str, str | None]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, item.name, None) for item in node.names if item.name.split(".")[0] == "core"]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "core":
            found += [(node.lineno, node.module, item.name) for item in node.names]
    return found


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_backend_imports_only_public_names(vendor: str) -> None:
    refused = []
    for path in sorted((ROOT / "backends" / vendor).rglob("*.py")):
        if "build" in path.parts:
            continue
        for line, module, name in imported_from_core(path):
            where = f"{path.relative_to(ROOT)}:{line}"
            if module not in PUBLIC_MODULES and f"{module}.{name}" not in PUBLIC_MODULES:
                refused.append(f"{where}: {module} is not public")
            elif name is not None and f"{module}.{name}" not in PUBLIC_MODULES:
                exported = getattr(importlib.import_module(module), "__all__", None)
                if module != "core.errors" and (exported is None or name not in exported):
                    refused.append(f"{where}: {name} is not in {module}.__all__")
    assert refused == []


def test_the_check_sees_every_way_to_import(tmp_path: Path) -> None:
    source = tmp_path / "example.py"
    source.write_text("import core._tilelang\ndef f():\n    from core.program.nodes import Copy as C\nimport corelib\n")
    assert imported_from_core(source) == [(1, "core._tilelang", None), (3, "core.program.nodes", "Copy")]
