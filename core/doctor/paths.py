"""Whether a folder of the user's stands where `core` or the `backends` namespace is expected."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import core
from core.doctor.codes import finding
from core.plugins.fingerprint import locate
from core.plugins.records import Finding


def path_findings(current_folder: Path) -> Iterator[Finding]:
    """What shadows our packages on `sys.path`, or would if Python were started in `current_folder`."""
    ours = Path(str(core.__file__)).resolve().parent
    try:
        metadata.version("tilehal")
    except metadata.PackageNotFoundError:
        yield finding(
            "host-not-installed",
            f"TileHAL runs from {ours} without being installed",
            "pip install tilehal (in a checkout: pip install -e .)",
        )
    specs = locate("core")
    found = Path(specs[0].origin).resolve().parent if specs and specs[0].origin else None
    if found != ours:
        yield finding(
            "host-shadowed",
            f"a new process that imports core gets {found or 'nothing'}, not TileHAL ({ours})",
            "rename that folder or take its parent off PYTHONPATH",
            file=str(found),
        )
    yield from _backends_shadowed()
    yield from _nearby(current_folder, ours)


def _backends_shadowed() -> Iterator[Finding]:
    specs = locate("backends")
    # A namespace package has no origin; a regular one anywhere on the path wins over every namespace portion.
    if specs and specs[0].origin is not None:
        yield finding(
            "backends-shadowed",
            f"{specs[0].origin} takes the name `backends`, so no backend installed in that namespace can be imported",
            "rename it; vendors' packages share `backends` and none may have a backends/__init__.py",
            file=specs[0].origin,
        )


def _nearby(folder: Path, ours: Path) -> Iterator[Finding]:
    if str(folder) in sys.path or "" in sys.path:
        # Then it is on the path already, and the checks above have seen what it does.
        return
    for name in ("core", "backends"):
        for candidate in (folder / name / "__init__.py", folder / f"{name}.py"):
            if candidate.is_file() and candidate.resolve().parent != ours:
                yield finding(
                    "host-shadow-nearby",
                    f"{candidate} would be imported as `{name}` by a Python started in this folder",
                    "start `tilehal` instead of `python -m core` here, or rename it",
                    file=str(candidate),
                )
