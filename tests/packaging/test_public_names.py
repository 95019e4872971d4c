"""The backends in this repository use only what a vendor outside it could use: names that core's packages export."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

from tests.packaging.layout import ROOT, VENDORS

CODEGEN = [module.name for module in pkgutil.iter_modules([str(ROOT / "core" / "codegen")])]
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
    "core.tuning",
    # Each lowering family is a package or module of its own.
    *(f"core.codegen.{name}" for name in CODEGEN if not name.startswith("_")),
    # The operations a tile dialect is written with, and the simulator that a SIMT backend calls.
    "core.codegen.mlir.ops",
    "core.codegen.simt.simulator",
    # What tile rules are written with.
    "core.tiling.constraints",
    "core.tiling.cost",
    "core.tiling.profile",
    "core.tiling.proposals",
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


def exported_names(module: str) -> list[str]:
    """`__all__` of a public module; without one, the public names that it defines itself."""
    imported = importlib.import_module(module)
    named = getattr(imported, "__all__", None)
    if named is not None:
        return list(named)
    defined = vars(imported).items()
    return [n for n, value in defined if not n.startswith("_") and getattr(value, "__module__", None) == module]


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_backend_imports_only_public_names(vendor: str) -> None:
    refused = []
    for path in sorted((ROOT / "backends" / vendor).rglob("*.py")):
        if {"build", "tests"} & set(path.parts):
            continue
        for line, module, name in imported_from_core(path):
            where = f"{path.relative_to(ROOT)}:{line}"
            if f"{module}.{name}" in PUBLIC_MODULES:
                continue
            if module not in PUBLIC_MODULES:
                refused.append(f"{where}: {module} is not public")
            elif name is not None and name not in exported_names(module):
                refused.append(f"{where}: {name} is not exported by {module}")
    assert refused == []


def public_members() -> list[tuple[str, object]]:
    """What the public modules export, and the public methods of exported classes defined in core."""
    found: list[tuple[str, object]] = []
    for module in sorted(PUBLIC_MODULES):
        if module == "core.codegen.mlir.ops":
            # One function per MLIR operation, under MLIR's own name.
            continue
        package = importlib.import_module(module)
        for name in exported_names(module):
            exported = getattr(package, name)
            found.append((f"{module}.{name}", exported))
            if inspect.isclass(exported) and exported.__module__.startswith("core"):
                methods = inspect.getmembers(exported, lambda member: inspect.isfunction(member))
                own = [(n, m) for n, m in methods if n in vars(exported) and not n.startswith("_")]
                found += [(f"{module}.{name}.{method}", value) for method, value in own]
    return found


def test_what_is_exported_is_documented() -> None:
    # Data (a table, a type alias) is documented where it is defined.
    undocumented = [
        name
        for name, member in public_members()
        if (inspect.isclass(member) or inspect.isfunction(member)) and not inspect.getdoc(member)
    ]
    assert undocumented == []


def test_the_check_sees_every_way_to_import(tmp_path: Path) -> None:
    source = tmp_path / "example.py"
    source.write_text("import core._tilelang\ndef f():\n    from core.program.nodes import Copy as C\nimport corelib\n")
    assert imported_from_core(source) == [(1, "core._tilelang", None), (3, "core.program.nodes", "Copy")]
