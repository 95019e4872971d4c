"""The exception tree.

Every error TileHAL raises on purpose derives from :class:`TileHALError` and says three things: what went wrong (the
message), where (`location`, a line of the user's kernel, when there is one) and what to do next (`hint`). Errors raised
by a compiler, a driver or somebody's plugin are wrapped, never replaced: the original is the `__cause__`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's source: `file` as Python knows it, `line` counted from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class TileHALError(Exception):
    """Base of every TileHAL error.

    Args:
        message: what went wrong, one sentence or a short table.
        hint: what the user should do next.
        location: the line of the user's kernel (or TOML file) that is at fault, if there is one.
        details: machine-readable facts behind the message, JSON-able; shown by `--json` and kept by the tuner.
    """

    #: Stable identifier used by `--json`, SARIF and the docs.
    code = "error"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        location: Location | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.location = location
        self.details: dict[str, Any] = details or {}

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{where}{self.message}{hint}"

    def to_json(self) -> dict[str, Any]:
        """The error as JSON-able data: `code`, `message`, `hint`, `file`, `line`, `details`."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "file": self.location.file if self.location else None,
            "line": self.location.line if self.location else None,
            "details": self.details,
        }


def summary(error: BaseException) -> str:
    """An error in one line: the message of one of ours, else its class and the first line of what it says."""
    if isinstance(error, TileHALError):
        return error.message.partition("\n")[0]
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {said or 'no message'}"


class TargetNotFound(TileHALError):
    """The target string names no vendor or chip that any installed backend knows."""

    code = "target-not-found"


class BackendLoadError(TileHALError):
    """A backend package is installed but cannot be used: failed import, bad version range, two owners of one vendor."""

    code = "backend-load"


class BackendHookError(BackendLoadError):
    """A hook of a loaded backend raised something unexpected or returned the wrong type."""

    code = "backend-hook"


class UnsupportedOp(TileHALError):
    """The kernel uses a construct the target cannot express. `location` is the user's line."""

    code = "unsupported-op"


class ShapeMismatch(TileHALError):
    """Ranks, extents, dtypes or a reduction dimension do not agree, in the kernel or in a call's arguments."""

    code = "shape-mismatch"


class ResourceExceeded(TileHALError):
    """The kernel needs more of something (memory space, threads, registers, grid) than the chip has."""

    code = "resource-exceeded"


class ToolchainNotFound(TileHALError):
    """A compiler or runtime library is missing; the message lists where it was looked for."""

    code = "toolchain-not-found"


class BuildFailed(TileHALError):
    """A native compiler refused the generated source; the source and the command are kept."""

    code = "build-failed"


class DeviceUnavailable(TileHALError):
    """The target's device is not on this machine (or not usable)."""

    code = "device-unavailable"


class LaunchError(TileHALError):
    """A launch was refused or failed: wrong arguments, driver error, asynchronous fault."""

    code = "launch"


class ArtifactError(TileHALError):
    """An exported kernel cannot be written, or cannot be used: a file is missing or changed, another version's."""

    code = "artifact"


class DescriptorError(TileHALError):
    """A hardware descriptor is malformed, or a figure that code needs is unknown."""

    code = "descriptor"


class TuningError(TileHALError):
    """A tuning run cannot start or go on: nothing to measure, no device, no worker that holds the chip."""

    code = "tuning"


class TuningStoreError(TuningError):
    """The store of tuned results cannot be read or written: no space, another schema, a damaged or foreign file."""

    code = "tuning-store"


class TuningWarning(UserWarning):
    """Tuned results could not be looked up. Compilation went on with the tiles that the chip's rules choose."""


class PortabilityWarning(UserWarning):
    """The kernel compiles, and assumes what this chip does not have: a wave of 32 threads, registers for its tiles."""


class KernelError(TileHALError):
    """What was passed to `core.compile` is not a kernel, or tracing it failed."""

    code = "kernel"


class BenchError(TileHALError):
    """A benchmark cannot be run or shown: no such suite or operator, no process that measures, a bad document."""

    code = "bench"


class BaselineError(TileHALError):
    """A baseline cannot be recorded or compared: a bad suite or snapshot, different chips, a build that cannot run."""

    code = "baseline"
