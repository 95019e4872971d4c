"""Importing tilelang: before anybody's `tvm`, or not at all."""

from __future__ import annotations

import importlib.machinery
import sys
from typing import Any

from core.errors import TileHALError


class TvmImportOrderError(TileHALError):
    """PyPI's `apache-tvm` was imported before tilelang, whose own TVM then cannot load."""

    code = "tvm-import-order"


def import_tilelang() -> Any:
    """Imports tilelang before anybody's `tvm` and returns the module.

    Assumes: tilelang puts its own `tvm` on `sys.path` and imports it as `tvm`; a foreign `tvm` already imported makes
    that fail with an undefined symbol.

    Raises:
        TvmImportOrderError: another `tvm` is imported already.
        TileHALError: tilelang is not installed or its import failed (the cause is chained).
    """
    loaded = sys.modules.get("tilelang")
    if loaded is not None and hasattr(loaded, "tvm"):
        return loaded
    foreign = sys.modules.get("tvm")
    if foreign is not None:
        where = getattr(foreign, "__file__", None) or "an unknown place"
        raise TvmImportOrderError(
            f"`tvm` is already imported from {where}, so tilelang cannot load the TVM build it ships",
            hint="in a fresh process, import tilelang (or call a TileHAL function that compiles) before `import tvm`",
        )
    try:
        import tilelang
    except ImportError as error:
        installed = importlib.machinery.PathFinder.find_spec("tilelang") is not None
        raise TileHALError(
            f"tilelang could not be imported: {error}" if installed else "tilelang is not installed",
            hint="run `tilehal doctor`: it says which tilelang, tvm and tvm_ffi are found and what breaks them"
            if installed
            else "pip install tilelang",
        ) from error
    return tilelang


def tilelang_version() -> str:
    """Version of the installed tilelang, without importing it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tilelang")
    except PackageNotFoundError:
        return "not installed"
