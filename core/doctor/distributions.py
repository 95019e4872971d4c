"""Installed distributions and their files, from metadata alone."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path

from core.plugins.entries import GROUPS, normalized


@dataclass(frozen=True)
class RecordedFile:
    """A file as RECORD lists it: path relative to the installation folder, SHA-256 as RECORD spells it, or None."""

    path: str
    sha256: str | None
    size: int | None


@dataclass(frozen=True)
class Installed:
    """One installed distribution."""

    name: str
    version: str
    folder: Path
    distribution: metadata.Distribution = field(compare=False, repr=False)

    @property
    def package(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}"

    @property
    def is_plugin(self) -> bool:
        """Whether it declares a TileHAL entry point."""
        return any(point.group in GROUPS.values() for point in self.distribution.entry_points)

    @cached_property
    def files(self) -> tuple[RecordedFile, ...]:
        """What RECORD lists; empty without a RECORD (Debian packages, a source tree)."""
        text = self.distribution.read_text("RECORD")
        return tuple(_parsed(text)) if text else ()

    @cached_property
    def origin(self) -> str | None:
        """The URL it was installed from, for one that came from no index; None otherwise."""
        text = self.distribution.read_text("direct_url.json")
        try:
            return str(json.loads(text)["url"]) if text else None
        except (ValueError, KeyError):
            return None

    @cached_property
    def is_editable(self) -> bool:
        """Whether it is a link to a source tree."""
        text = self.distribution.read_text("direct_url.json") or "{}"
        try:
            return bool(json.loads(text).get("dir_info", {}).get("editable"))
        except ValueError:
            return False

    def owns(self, file: Path) -> bool:
        """Whether the distribution installed this file, or is a link to the source tree the file is in."""
        if self.is_editable and self.origin and self.origin.startswith("file://"):
            return file.is_relative_to(self.origin.removeprefix("file://"))
        try:
            relative = file.relative_to(self.folder).as_posix()
        except ValueError:
            return False
        return any(recorded.path == relative for recorded in self.files)

    def fault_of(self, recorded: RecordedFile) -> str | None:
        """`missing`, `changed`, or None for a file as it was installed."""
        path = self.folder / recorded.path
        if not path.exists():
            return "missing"
        if recorded.size is not None and path.stat().st_size != recorded.size:
            return "changed"
        if recorded.sha256 is None:
            return None
        digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
        return None if digest == recorded.sha256 else "changed"


def _parsed(record: str) -> Iterator[RecordedFile]:
    for row in csv.reader(record.splitlines()):
        # Bytecode comes and goes with the interpreter, and RECORD has no hash of it.
        if len(row) != 3 or row[0].endswith(".pyc"):
            continue
        path, digest, size = row
        sha256 = digest.removeprefix("sha256=") if digest.startswith("sha256=") else None
        yield RecordedFile(path, sha256, int(size) if size.isdecimal() else None)


def installed() -> tuple[Installed, ...]:
    """Every distribution on `sys.path`, in path order, second copies included."""
    found = []
    for distribution in metadata.distributions(path=sys.path):
        name = distribution.metadata["Name"]
        if name:
            folder = Path(str(distribution.locate_file("")))
            found.append(Installed(name, distribution.metadata["Version"] or "unknown", folder, distribution))
    return tuple(found)


def in_use(everything: tuple[Installed, ...]) -> dict[str, Installed]:
    """The copy of each distribution that counts: the first on the path, by normalised name."""
    first: dict[str, Installed] = {}
    for one in everything:
        first.setdefault(normalized(one.name), one)
    return first
