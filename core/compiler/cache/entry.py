"""One entry of the cache: a folder with a manifest that says which files belong to it and what is in them.

An entry is written somewhere else and appears by one rename, so it is whole or absent. It is believed only as far as
its manifest: each file's size and SHA-256 are checked when the entry is loaded. A check that passed is remembered for
the process as long as the file keeps its inode, size and time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Stage = Literal["lowered", "built", "files"]
STAGES: tuple[Stage, ...] = ("lowered", "built", "files")

MANIFEST = "manifest.json"
FORMAT = 1


class Missing(Exception):
    """There is no such entry (any more)."""


class Damaged(Exception):
    """The entry is not what its manifest says; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a person wants to know about an entry. `detail` is the source language, or the toolchain that built it."""

    kernel: str = ""
    target: str = ""
    route: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Size in bytes and SHA-256 (hexadecimal) of one file."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What belongs to an entry: `files` by name relative to its folder. `created_s` is Unix time."""

    stage: str
    key: str
    created_s: float
    summary: Summary
    files: dict[str, FileRecord]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files, without the manifest."""
        return sum(record.size_bytes for record in self.files.values())


def write_manifest(folder: Path, stage: Stage, key: str, summary: Summary) -> Manifest:
    """Seals a filled folder: records every file in it. A link becomes a copy of what it points to.

    Raises:
        OSError: a file cannot be read, or the manifest not be written.
    """
    files: dict[str, FileRecord] = {}
    for path in sorted(_walk(folder)):
        if path.is_symlink():
            content = path.read_bytes()
            path.unlink()
            path.write_bytes(content)
        files[path.relative_to(folder).as_posix()] = FileRecord(path.stat().st_size, _sha256(path))
    manifest = Manifest(stage, key, time.time(), summary, files)
    data = {
        "format": FORMAT,
        "stage": stage,
        "key": key,
        "created": manifest.created_s,
        "summary": asdict(summary),
        "files": {name: [record.size_bytes, record.sha256] for name, record in files.items()},
    }
    (folder / MANIFEST).write_text(json.dumps(data, indent=1), encoding="utf-8")
    return manifest


def read_manifest(folder: Path, stage: str, key: str) -> Manifest:
    """The manifest of the entry that should lie in `folder`.

    Raises:
        Missing: nothing is there.
        Damaged: something is, but no manifest of this entry.
        OSError: it cannot be read.
    """
    try:
        content = (folder / MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if os.path.lexists(folder):
            raise Damaged("it has no manifest") from None
        raise Missing from None
    try:
        data = json.loads(content)
        if data["format"] != FORMAT:
            raise Damaged(f"its manifest has format {data['format']!r}")
        manifest = Manifest(
            stage=data["stage"],
            key=data["key"],
            created_s=float(data["created"]),
            summary=Summary(**data["summary"]),
            files={name: FileRecord(int(size), str(digest)) for name, (size, digest) in data["files"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged("its manifest cannot be read") from None
    if (manifest.stage, manifest.key) != (stage, key):
        raise Damaged(f"it belongs to another key ({manifest.stage} {manifest.key})")
    return manifest


def read_contents(folder: Path, manifest: Manifest) -> dict[str, bytes]:
    """The contents of every file, checked.

    Raises:
        Missing, Damaged, OSError: as :func:`read_manifest`.
    """
    contents: dict[str, bytes] = {}
    for name, record in manifest.files.items():
        with _vanishing(folder, name):
            contents[name] = content = (folder / name).read_bytes()
        if len(content) != record.size_bytes:
            raise Damaged(f"{name} has {len(content)} bytes instead of {record.size_bytes}")
        if hashlib.sha256(content).hexdigest() != record.sha256:
            raise Damaged(f"the contents of {name} changed")
    return contents


_CHECKED: dict[str, tuple[int, int, int, str]] = {}


def check_files(folder: Path, manifest: Manifest, *, again: bool = False) -> None:
    """Checks every file against the manifest; `again`: also those this process has already checked.

    Raises:
        Missing, Damaged, OSError: as :func:`read_manifest`.
    """
    for name, record in manifest.files.items():
        path = folder / name
        with _vanishing(folder, name):
            stat = path.stat()
            if stat.st_size != record.size_bytes:
                raise Damaged(f"{name} has {stat.st_size} bytes instead of {record.size_bytes}")
            memo = (stat.st_ino, stat.st_size, stat.st_mtime_ns, record.sha256)
            if not again and _CHECKED.get(str(path)) == memo:
                continue
            if _sha256(path) != record.sha256:
                raise Damaged(f"the contents of {name} changed")
            _CHECKED[str(path)] = memo


@contextlib.contextmanager
def _vanishing(folder: Path, name: str) -> Iterator[None]:
    """Tells a file that was lost from an entry that another process removed while we were reading it."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        if os.path.lexists(folder / MANIFEST):
            raise Damaged(f"{name} is missing") from None
        raise Missing from None


def publish(work: Path, final: Path) -> None:
    """Moves a sealed folder to its place in one step.

    Raises:
        FileExistsError: an entry is there already; `work` stays where it is.
        OSError: it cannot be moved.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(work, final)
    except OSError:
        if final.is_dir():
            raise FileExistsError(f"{final} is there already") from None
        raise


def remove(folder: Path, trash: Path) -> None:
    """Removes an entry: out of sight in one step (into `trash`, on the same file system), then from the disk.

    Raises:
        OSError: it cannot be moved. What cannot be deleted afterwards is left in `trash`.
    """
    os.rename(folder, trash)
    shutil.rmtree(trash, ignore_errors=True)


def size_on_disk(folder: Path) -> int:
    """Bytes of all files below `folder`; what vanishes meanwhile does not count."""
    total = 0
    for path in _walk(folder):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size
    return total


def _walk(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        for name in names:
            yield Path(parent, name)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def error_text(error: OSError) -> str:
    """An `OSError` in a few words: what the system said, and of which file."""
    where = f": {error.filename}" if error.filename else ""
    return f"{error.strerror or error}{where}"


def as_json(manifest: Manifest) -> dict[str, Any]:
    """The manifest as JSON-able data, for `tilehal cache info`."""
    return asdict(manifest)
