"""What doctor found, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from core.plugins.records import Finding

PluginStatus = Literal["loaded", "partly loaded", "failed", "incompatible", "shadowed", "left out", "not checked"]
ImportStatus = Literal["ok", "missing", "failed", "died", "timeout"]


@dataclass(frozen=True, slots=True)
class PluginReport:
    """One installed plugin: where it comes from, and what became of it."""

    package: str
    role: str
    target: str
    entry_point: str
    location: str
    status: PluginStatus
    cause: str = ""


@dataclass(frozen=True, slots=True)
class BackendReport:
    """What a loaded backend answered.

    Attributes:
        chips: the targets it knows.
        detector: what its detector answered, one line per device, or why there is none.
        examined: the chip that was diagnosed: the detected one, else the default, or the one of `--target`.
        toolchain: the native compiler it would use, or what is missing and where it was looked for.
    """

    vendor: str
    package: str
    chips: tuple[str, ...]
    detector: tuple[str, ...]
    examined: str
    toolchain: str


@dataclass(frozen=True, slots=True)
class ImportReport:
    """A package that compiling depends on: which file would be imported, and whose it is."""

    module: str
    status: ImportStatus
    file: str = ""
    distribution: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All of it. `findings` are sorted by severity, errors first."""

    host: dict[str, str]
    plugins: tuple[PluginReport, ...]
    backends: tuple[BackendReport, ...]
    imports: tuple[ImportReport, ...]
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> int:
        """Number of findings that are errors."""
        return sum(finding.severity == "error" for finding in self.findings)

    @property
    def exit_status(self) -> int:
        """0 when nothing is wrong, 1 otherwise. Warnings are not wrong."""
        return 1 if self.problems else 0

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data, field by field."""
        return {
            "host": self.host,
            "plugins": [asdict(plugin) for plugin in self.plugins],
            "backends": [asdict(backend) for backend in self.backends],
            "imports": [asdict(module) for module in self.imports],
            "findings": [{**asdict(finding), "details": dict(finding.details)} for finding in self.findings],
            "problems": self.problems,
        }
