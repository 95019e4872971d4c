"""Which plugins are installed, read from package metadata alone: nothing here imports a plugin.

Two entry-point groups exist. `tilehal.backends`: the name is a vendor, and the package owns it. `tilehal.extensions`:
the name is the target it extends, `cuda` or `cuda:h200`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from types import ModuleType
from typing import Literal

Role = Literal["owner", "extension"]

GROUPS: dict[Role, str] = {"owner": "tilehal.backends", "extension": "tilehal.extensions"}

#: Environment variable: comma-separated distribution or vendor names; when set, only these plugins exist.
LOAD_PLUGINS = "TILEHAL_LOAD_PLUGINS"

#: Names with a meaning of their own in a target string.
RESERVED_VENDORS = frozenset({"auto", "tilehal"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One installed plugin, not loaded.

    Attributes:
        role: `owner` of a vendor, or `extension` of somebody else's target.
        name: the vendor (owner) or the target it extends (`cuda`, `cuda:h200`), as the package spells it.
        value: what to import, `package.module` or `package.module:attribute`.
        distribution, version: the package that declares it.
        requires: the package's requirements, as in its metadata.
        plugin: the plugin object itself, for one that was handed over instead of discovered.
    """

    role: Role
    name: str
    value: str
    distribution: str
    version: str
    requires: tuple[str, ...] = ()
    plugin: object = field(default=None, compare=False, repr=False)

    @property
    def vendor(self) -> str:
        """The vendor it owns or extends, in lower case."""
        return self.name.partition(":")[0].strip().casefold()

    @property
    def chip(self) -> str | None:
        """The chip it is limited to, in lower case; None when it is for every chip of the vendor."""
        return self.name.partition(":")[2].strip().casefold() or None

    @property
    def module(self) -> str:
        """The module the entry point names."""
        return self.value.partition(":")[0].strip()

    @property
    def package(self) -> str:
        """The distribution as people write it: `tilehal-metax 0.1.0`."""
        return f"{self.distribution} {self.version}"

    @property
    def name_fault(self) -> str | None:
        """What is wrong with the entry point's name, or None."""
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", self.name.partition(":")[0].strip()):
            return f"{self.name!r} does not start with a vendor name (letters, digits, underscores)"
        if self.vendor in RESERVED_VENDORS:
            return f"{self.vendor!r} is a reserved name"
        if self.role == "owner" and ":" in self.name:
            return f"{self.name!r} names a chip, but {GROUPS['owner']} takes a vendor; use {GROUPS['extension']}"
        return None


def local_entry(
    name: str, plugin: object, *, role: Role = "owner", distribution: str = "", version: str = "0"
) -> Entry:
    """An entry for a plugin object at hand (a module, or any object with hook implementations), as tests use it."""
    value = plugin.__name__ if isinstance(plugin, ModuleType) else type(plugin).__module__
    return Entry(role, name, value, distribution or f"local-{name.replace(':', '-')}", version, plugin=plugin)


def discover(path: Sequence[str] | None = None) -> tuple[Entry, ...]:
    """Every plugin installed on `path` (default `sys.path`), sorted by role, name and distribution.

    When a distribution is on the path twice, the first copy counts, as for imports.
    """
    entries: list[Entry] = []
    seen: set[str] = set()
    for distribution in metadata.distributions(path=list(sys.path if path is None else path)):
        points = [point for point in distribution.entry_points if point.group in GROUPS.values()]
        if not points:
            continue
        name = distribution.metadata["Name"] or "unknown"
        if normalized(name) in seen:
            continue
        seen.add(normalized(name))
        roles: dict[str, Role] = {group: role for role, group in GROUPS.items()}
        entries.extend(
            Entry(
                role=roles[point.group],
                name=point.name,
                value=point.value,
                distribution=name,
                version=distribution.metadata["Version"] or "unknown",
                requires=tuple(distribution.requires or ()),
            )
            for point in points
        )
    return tuple(sorted(entries, key=lambda entry: (entry.role == "extension", entry.name, entry.distribution)))


def normalized(name: str) -> str:
    """A distribution's name in the form in which two spellings compare equal."""
    return re.sub(r"[-_.]+", "-", name).casefold()


def selection_from_environment() -> tuple[str, ...] | None:
    """The names in `TILEHAL_LOAD_PLUGINS`; None when it is unset, which selects every plugin."""
    value = os.environ.get(LOAD_PLUGINS)
    return None if value is None else tuple(name.strip() for name in value.split(",") if name.strip())


def is_selected(entry: Entry, selection: Iterable[str] | None) -> bool:
    """Whether a selection names the entry's distribution or its vendor."""
    if selection is None:
        return True
    return any(normalized(name) in (normalized(entry.distribution), normalized(entry.vendor)) for name in selection)
