"""Whether a plugin's declared version ranges allow this TileHAL and this TileLang, decided before its code is imported.

The ranges are the ones the package already declares: its requirements (Requires-Dist) on `tilehal` and `tilelang`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

from core.plugins.entries import Entry, normalized

#: Distributions whose ranges are checked: the host, and the compiler whose IR and hooks a backend sees.
CHECKED = ("tilehal", "tilelang")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A requirement that this environment does not meet: `installed` is None for an unreadable requirement."""

    requirement: str
    distribution: str
    installed: str | None

    def __str__(self) -> str:
        if self.installed is None:
            return f"its requirement {self.requirement!r} cannot be read"
        return f"it requires {self.requirement}, and {self.distribution} {self.installed} is installed"


def installed_version(distribution: str) -> str | None:
    """The installed version from metadata alone, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def mismatches(entry: Entry, installed: Callable[[str], str | None] = installed_version) -> tuple[Mismatch, ...]:
    """The entry's requirements on `tilehal` and `tilelang` that do not hold here.

    A distribution that is not installed at all is no mismatch: a chip can be described without TileLang, and what
    needs it says so itself. Requirements of extras, and those whose marker excludes this environment, do not count.
    """
    # Costs 15 ms, and most of the time no range is checked: describing reads the backends' metadata only once loaded.
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.version import InvalidVersion

    found: list[Mismatch] = []
    for text in entry.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            if normalized(text).startswith(CHECKED):
                found.append(Mismatch(text, "", None))
            continue
        name = normalized(requirement.name)
        if name not in CHECKED or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        version = installed(name)
        if version is None:
            continue
        try:
            # Pre-releases count: whoever installed one means to use it.
            allowed = requirement.specifier.contains(version, prereleases=True)
        except InvalidVersion:
            allowed = False
        if not allowed:
            found.append(Mismatch(f"{requirement.name}{requirement.specifier}", name, version))
    return tuple(found)
