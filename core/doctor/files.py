"""Files that are not what their distribution installed: overwritten, missing, or shipped by two distributions.

A vendor's wheel that carries files of TileLang or TVM replaces them for every other vendor, and deleting that wheel
deletes them; neither pip nor Python says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from core.doctor.codes import finding
from core.doctor.distributions import Installed
from core.plugins.entries import normalized
from core.plugins.records import Finding

#: Import packages whose files are compared with RECORD, and the distribution that may ship each; None: any of ours.
GUARDED = {
    "tilelang": "tilelang",
    "tvm": "apache-tvm",
    "tvm_ffi": "apache-tvm-ffi",
    "core": "tilehal",
    "backends": None,
}

#: So many files are named in a finding; the others are counted.
_NAMED = 5


def file_findings(distributions: Iterable[Installed]) -> Iterator[Finding]:
    """Compares the guarded packages' files with what every RECORD says about them."""
    shippers: dict[str, list[Installed]] = defaultdict(list)
    for one in distributions:
        yield from _foreign_files(one)
        yield from _damaged_files(one)
        for recorded in one.files:
            if _top(recorded.path) in GUARDED:
                shippers[str(one.folder / recorded.path)].append(one)
    yield from _shared_files(shippers)


def _top(path: str) -> str:
    return path.partition("/")[0]


def _foreign_files(one: Installed) -> Iterator[Finding]:
    if not one.is_plugin:
        return
    foreign = [
        recorded.path
        for recorded in one.files
        if (owner := GUARDED.get(_top(recorded.path))) is not None and normalized(one.name) != owner
    ]
    if foreign:
        packages = sorted({_top(path) for path in foreign})
        yield finding(
            "plugin-ships-host-files",
            f"{one.package} ships {_listed(foreign)} inside {' and '.join(packages)}, which is not its own",
            f"uninstall {one.name}, then reinstall {' and '.join(str(GUARDED[package]) for package in packages)}",
            distribution=one.name,
            files=foreign,
        )


def _damaged_files(one: Installed) -> Iterator[Finding]:
    by_fault: dict[str, list[str]] = defaultdict(list)
    for recorded in one.files:
        fault = one.fault_of(recorded) if _top(recorded.path) in GUARDED else None
        if fault:
            by_fault[fault].append(recorded.path)
    repair = f"pip install --force-reinstall --no-deps {one.name}=={one.version}"
    for fault, code, what in (
        ("changed", "file-overwritten", "differs from what it installed"),
        ("missing", "file-missing", "is gone"),
    ):
        if files := by_fault[fault]:
            message = f"{_listed(files)} of {one.package} {what}"
            yield finding(code, message, repair, distribution=one.name, files=files)


def _shared_files(shippers: dict[str, list[Installed]]) -> Iterator[Finding]:
    shared: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path, owners in shippers.items():
        packages = tuple(sorted({owner.package for owner in owners}))
        if len(packages) > 1:
            shared[packages].append(path)
    for packages, files in shared.items():
        yield finding(
            "file-shared",
            f"{' and '.join(packages)} both list {_listed(files)}",
            "uninstall all of them, then install the one you mean",
            packages=list(packages),
            files=files,
        )


def _listed(paths: list[str]) -> str:
    named = ", ".join(paths[:_NAMED])
    return named if len(paths) <= _NAMED else f"{named} and {len(paths) - _NAMED} more files"
