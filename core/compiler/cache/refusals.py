"""Negative entries: what failed is remembered under the same key, so that a tuner does not fail it again and again.

Only failures that the key determines are remembered: what a target cannot express, what does not fit, what a compiler
refused. A missing toolchain, a full disk, a timeout or a tool ended by a signal may be gone at the next try. A refusal
is kept for a day, and only while what it points to still holds: the user's file is unchanged, the failed build's source
is still on disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from pathlib import Path

from core.compiler.cache.session import KEEP_S
from core.errors import BuildFailed, Location, ResourceExceeded, ShapeMismatch, TileHALError, UnsupportedOp

FOLDER = "refused"

_FORMAT = 2
_KINDS: dict[str, type[TileHALError]] = {
    kind.__name__: kind for kind in (UnsupportedOp, ShapeMismatch, ResourceExceeded, BuildFailed)
}


class RememberedCause(Exception):
    """The cause of a failure that is remembered: its type's name and its text, which is all that is kept of it."""


def _path(root: Path, stage: str, key: str) -> Path:
    return root / FOLDER / key[:2] / f"{stage}-{key}.json"


def remember(
    root: Path, stage: str, key: str, error: TileHALError, scratch: Path, origin: Location | None = None
) -> bool:
    """Writes the negative entry, if `error` is of a kind to remember; returns whether it did.

    `scratch` is a folder on the same file system. `origin` is where the kernel was defined. Without it an error that
    names a line is not remembered: the same kernel may stand in another file too, and would be told the wrong line.

    Raises:
        OSError: it cannot be written.
    """
    location = error.location
    # Exact types: a vendor's subclass would come back as something else.
    if _KINDS.get(type(error).__name__) is not type(error) or error.details.get("transient"):
        return False
    if location is not None and origin is None:
        return False
    data = {
        "format": _FORMAT,
        "stage": stage,
        "key": key,
        "created": time.time(),
        "kind": type(error).__name__,
        "message": error.message,
        "hint": error.hint,
        "origin": None if origin is None else [origin.file, origin.line],
        "file": None if location is None else [location.file, location.line, _stamp(location.file)],
        "details": error.details,
        "cause": None if error.__cause__ is None else f"{type(error.__cause__).__name__}: {error.__cause__}",
    }
    try:
        text = json.dumps(data, indent=1)
    except (TypeError, ValueError):
        return False
    path = _path(root, stage, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = scratch / f"refusal-{secrets.token_hex(4)}"
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
    return True


def recall(root: Path, stage: str, key: str, origin: Location | None = None) -> TileHALError | None:
    """The remembered failure, or None. It is marked by `details["remembered"]`; its cause is a `RememberedCause`."""
    try:
        data = json.loads(_path(root, stage, key).read_bytes())
        if data["format"] != _FORMAT or (data["stage"], data["key"]) != (stage, key):
            return None
        if not 0 <= time.time() - data["created"] < KEEP_S:
            return None
        location = None
        if data["file"] is not None:
            file, line, stamp = data["file"]
            if origin is None or data["origin"] != [origin.file, origin.line] or _stamp(file) != stamp:
                return None
            location = Location(file, line)
        source = data["details"].get("source")
        if source is not None and not Path(source).exists():
            return None
        error = _KINDS[data["kind"]](
            data["message"], hint=data["hint"], location=location, details={**data["details"], "remembered": True}
        )
        error.__cause__ = None if data["cause"] is None else RememberedCause(data["cause"])
        return error
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # absent, or not readable as one: the failure will be found again


def forget(root: Path, stage: str, key: str) -> None:
    """Removes the negative entry, if there is one."""
    with contextlib.suppress(OSError):
        _path(root, stage, key).unlink()


def sweep(root: Path, *, older_than_s: float = KEEP_S) -> int:
    """Removes negative entries older than `older_than_s`; returns how many."""
    swept = 0
    oldest = time.time() - older_than_s
    for path in (root / FOLDER).glob("*/*.json"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime <= oldest:
                path.unlink()
                swept += 1
    return swept


def _stamp(file: str) -> list[int] | None:
    """Size and time of the user's file; None for a notebook cell or anything else that is no file."""
    try:
        stat = os.stat(file)
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns]


def count(root: Path) -> int:
    """How many negative entries there are."""
    return sum(1 for _ in (root / FOLDER).glob("*/*.json"))
