"""Huawei's compiler's messages as errors of ours: what overflows, which of the user's lines is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from backends.ascend.plan import SPACES
from core.errors import BuildFailed, Location, ResourceExceeded, TileHALError, ToolchainNotFound, UnsupportedOp

_OVERFLOW = re.compile(r"(ub|cbuf|cc) overflow, requires (\d+) bits while (\d+) bits available!", re.IGNORECASE)
_UNKNOWN_CHIP = re.compile(r"for the --target option: Cannot find option named '([^']+)'")
_ILLEGAL = re.compile(r"failed to legalize operation '([\w.]+)' that was explicitly marked illegal")
_ERROR = re.compile(r'loc\("([^"]+)":(\d+):\d+\): error: (.*)')
#: Errors that only say that a pass before them failed.
_FOLLOW_UP = ("Failed to run", "run BiShengHIR pipeline")
_TITLES = {"ub": "UB (unified buffer of a vector core)", "l1": "L1 of a cube core", "l0c": "L0C (accumulators)"}


def overflow(text: str) -> tuple[str, int, int] | None:
    """The space that overflows (`ub`, `l1`, `l0c`), bytes needed and available; None when none does."""
    match = _OVERFLOW.search(text)
    if match is None:
        return None
    return SPACES[match[1].lower()], (int(match[2]) + 7) // 8, int(match[3]) // 8


def translate(error: BuildFailed, metadata: Mapping[str, Any], launch: Mapping[str, Any], target: str) -> TileHALError:
    """The error a failed compilation is for the user; the compiler's own words stay in `details` and as its cause."""
    text = str(error.details.get("output", ""))
    unknown = _UNKNOWN_CHIP.search(text)
    if unknown is not None:
        return ToolchainNotFound(
            f"this release of the Ascend compiler does not know {unknown[1]} ({target})",
            hint="use a newer CANN or ascendnpu-ir, or a chip of the same family that it knows",
            details=error.details,
        )
    found = overflow(text)
    if found is not None:
        return _exceeded(found, launch, target, error)
    files = metadata.get("files", {})
    for file, line, message in _ERROR.findall(text):
        if any(message.startswith(words) for words in _FOLLOW_UP):
            continue
        location = Location(files[file], int(line)) if file in files else None
        illegal = _ILLEGAL.search(message)
        what = f"the Ascend compiler has no lowering of {illegal[1]}" if illegal else f"the Ascend compiler: {message}"
        return UnsupportedOp(
            f"{what} ({target})",
            hint="write this line with other operations; the module is kept at " + str(error.details.get("source")),
            location=location,
            details=error.details,
        )
    return error


def _exceeded(
    found: tuple[str, int, int], launch: Mapping[str, Any], target: str, error: BuildFailed
) -> ResourceExceeded:
    space, needed, available = found
    buffers = [row for row in launch.get("buffers", []) if space in row["spaces"]]
    rows = "\n".join(
        f"  {row['name']}: {' x '.join(map(str, row['shape']))} {row['dtype']}, {row['bytes']:,} bytes"
        + (f", line {row['line']}" if row["line"] else "")
        for row in buffers
    )
    ratio = needed / max(available, 1)
    largest = max(buffers, key=lambda row: row["bytes"], default=None)
    hint = f"use tiles about {ratio:.1f} times smaller"
    location = None
    if largest is not None:
        wanted = [max(16, extent // 2) if extent > 16 else extent for extent in largest["shape"]]
        hint += f", for example {' x '.join(map(str, wanted))} for {largest['name']}"
        if largest["file"] and largest["line"]:
            location = Location(largest["file"], largest["line"])
    return ResourceExceeded(
        f"{target}: {_TITLES[space]} overflows: {needed:,} bytes needed, {available:,} available; this kernel's buffers"
        f" there, not counting the compiler's own copies:\n{rows}",
        hint=hint,
        location=location,
        details={
            "memory": space,
            "needed_bytes": needed,
            "limit_bytes": available,
            "buffers": buffers,
            "output": error.details.get("output"),
        },
    )
