"""The folder of an exported kernel: its metadata, and that every file is the one that was exported."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ArtifactError
from core.runtime.signature import Signature

#: The file that says what the others are.
METADATA = "kernel.json"
FORMAT = "tilehal-kernel"
#: Version of the metadata's form: another first number cannot be read, another second one can.
SCHEMA = (1, 0)


@dataclass(frozen=True, slots=True)
class Artifact:
    """An exported kernel on disk. docs/export.md says what the metadata holds."""

    directory: Path
    metadata: Mapping[str, Any]

    @property
    def signature(self) -> Signature:
        return Signature.from_json(self.metadata["signature"])

    def path(self, role: str) -> Path | None:
        """Path of the file with a role (`binary`, `header`, ...); None when there is none."""
        entry = self.metadata["files"].get(role)
        if entry is None:
            return None
        name = str(entry["name"])
        if name != Path(name).name or name in ("", ".", ".."):
            raise ArtifactError(
                f"{self.directory / METADATA} names a file outside of its folder: {name}",
                hint="export the kernel again",
            )
        return self.directory / name

    def read(self, role: str) -> bytes:
        """A file's content. Raises ArtifactError when it is missing or was changed."""
        path, entry = self.path(role), self.metadata["files"].get(role)
        if path is None:
            raise ArtifactError(f"{self.directory} has no {role} file", hint="export the kernel again")
        try:
            content: bytes = path.read_bytes()
        except OSError as error:
            raise ArtifactError(f"{path} cannot be read: {error}", hint="copy the whole folder") from error
        if len(content) != entry["bytes"] or hashlib.sha256(content).hexdigest() != entry["sha256"]:
            raise ArtifactError(
                f"{path} is not the file that was exported: {len(content)} bytes, SHA-256"
                f" {hashlib.sha256(content).hexdigest()[:12]}..., expected {entry['bytes']} bytes and"
                f" {entry['sha256'][:12]}...",
                hint="copy the folder again, or export the kernel again",
            )
        return content

    def verify(self) -> None:
        """Raises ArtifactError when any file is missing or was changed."""
        for role in self.metadata["files"]:
            self.read(role)


def digest(metadata: Mapping[str, Any]) -> str:
    """SHA-256 of the metadata without its own `digest`, as canonical JSON."""
    rest = {key: value for key, value in metadata.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def describe_file(path: Path) -> dict[str, Any]:
    """A file's entry in the metadata."""
    content = path.read_bytes()
    return {"name": path.name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@contextmanager
def staging(directory: Path) -> Iterator[Path]:
    """A folder to write an export's files to, which go to `directory` together when all are there.

    A file that is there already is replaced by another, never written to: a process may be running it. Whoever reads
    the folder meanwhile finds no metadata, or files that are not those of the metadata, and says so. Of several who
    write one folder at a time, one comes after the other.

    Raises:
        ArtifactError: the folder cannot be made or written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=directory) as made:
            yield Path(made)
            with _alone(directory):
                (directory / METADATA).unlink(missing_ok=True)
                # The metadata last, so that a folder that has it is complete.
                for path in sorted(Path(made).iterdir(), key=lambda path: path.name == METADATA):
                    path.replace(directory / path.name)
    except OSError as error:
        raise ArtifactError(
            f"nothing can be exported to {directory}: {error}", hint="name a folder that can be made and written"
        ) from error


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Holds a lock on the folder itself, which leaves no file in it; without one where its file system has none."""
    import fcntl

    handle = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write(directory: Path, metadata: Mapping[str, Any]) -> Path:
    """Writes the metadata, with its digest."""
    complete = {**metadata, "digest": digest(metadata)}
    path = directory / METADATA
    path.write_text(json.dumps(complete, indent=2) + "\n", encoding="utf-8")
    return path


@contextmanager
def understood(folder: Path) -> Iterator[None]:
    """Turns what metadata of another form does to its reader into an ArtifactError."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ArtifactError(
            f"{folder / METADATA} does not have the form of an exported kernel's: {what}",
            hint="export the kernel again; core/runtime/artifact.schema.json is the form",
        ) from error


def open_artifact(directory: Path | str) -> Artifact:
    """Reads a folder's metadata.

    Raises:
        ArtifactError: there is none, it was changed, or another version of TileHAL wrote it.
    """
    folder = Path(directory)
    path = folder / METADATA
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArtifactError(
            f"{folder} holds no exported kernel: {error}", hint="name the folder that kernel.export() wrote"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is damaged: {error}", hint="copy the folder again") from error
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise ArtifactError(f"{path} does not describe an exported kernel", hint="name another folder")
    version = metadata.get("schema")
    if not isinstance(version, list) or not version or version[0] != SCHEMA[0]:
        raise ArtifactError(
            f"{path} has schema {version}, this TileHAL reads {SCHEMA[0]}.x",
            hint="export the kernel with the version of TileHAL that loads it",
        )
    if metadata.get("digest") != digest(metadata):
        raise ArtifactError(f"{path} was changed after it was exported", hint="export the kernel again")
    return Artifact(folder, metadata)
