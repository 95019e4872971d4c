"""Where a plugin's code is, found without running any of it, and what it contains, as a hash for cache keys."""

from __future__ import annotations

import hashlib
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

#: Folders and files that say nothing about what the code does.
_IGNORED_FOLDERS = frozenset({"__pycache__", "tests", ".git", ".mypy_cache", ".ruff_cache", ".pytest_cache"})
_IGNORED_SUFFIXES = frozenset({".pyc", ".pyo"})


def locate(module: str) -> tuple[ModuleSpec, ...]:
    """The specs of a module's parents and of the module itself, outermost first; empty when it is not to be found.

    `importlib.util.find_spec` imports the parents; this asks the finders one level at a time and imports nothing.
    """
    specs: list[ModuleSpec] = []
    path: list[str] | None = None
    parts = module.split(".")
    for depth in range(len(parts)):
        spec = _find(".".join(parts[: depth + 1]), path)
        if spec is None:
            return ()
        specs.append(spec)
        path = list(spec.submodule_search_locations or ())
    return tuple(specs)


def _find(name: str, path: list[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        spec = find_spec(name, path) if find_spec else None
        if spec is not None:
            assert isinstance(spec, ModuleSpec)
            return spec
    return None


def code_root(module: str) -> Path | None:
    """The folder of the outermost regular package around a module, or the file of a module outside any package.

    A namespace package (`backends`) belongs to several distributions, so it is not the root: `backends.metax` is.
    """
    specs = locate(module)
    if not specs:
        return None
    for spec in specs[:-1]:
        if spec.origin is not None and spec.has_location:
            return Path(spec.origin).parent
    last = specs[-1]
    if last.origin is None or not last.has_location:
        return None
    origin = Path(last.origin)
    # A plugin module in a folder without __init__.py: its neighbours are still part of what it does.
    return origin.parent if last.submodule_search_locations is not None or len(specs) > 1 else origin


def code_hash(module: str) -> str:
    """SHA-256 over the names and contents of every file of the plugin's package, bytecode and tests left out.

    The hash of an unlocatable module (built in memory) is that of its name: nothing else about it can be read.
    """
    digest = hashlib.sha256()
    root = code_root(module)
    if root is None:
        digest.update(module.encode())
        return digest.hexdigest()
    files = [root] if root.is_file() else sorted(path for path in root.rglob("*") if _counts(path.relative_to(root)))
    for file in files:
        if not file.is_file():
            continue
        name = file.name if file == root else file.relative_to(root).as_posix()
        content = file.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _counts(relative: Path) -> bool:
    return relative.suffix not in _IGNORED_SUFFIXES and not _IGNORED_FOLDERS.intersection(relative.parts)
