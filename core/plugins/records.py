"""Small records that hooks exchange with the core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from core.compiler.artifacts import CompileOptions

Stage = Literal["compile", "build", "run", "simulate"]
Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class DetectedDevice:
    """A device a backend found on this machine.

    Attributes:
        chip: name of the chip (`h200`), without the vendor.
        index: the vendor runtime's device index.
        evidence: what was asked and what it answered, one line (`nvidia-smi: NVIDIA H200`).
        torch_device: the torch device string whose tensors it takes (`cuda:0`), or None when torch has none.
        priority: when several vendors claim a machine for `auto`, the highest wins (accelerators 100, CPU 0).
        facts: raw figures asked of the device, for `describe --verify`, by dotted path of the descriptor's figure.
        driver: version of its driver, as the driver says it; empty where it has none or does not say. Times measured
            under one driver are not taken for those of another.
    """

    chip: str
    index: int
    evidence: str
    torch_device: str | None = None
    priority: int = 100
    facts: Mapping[str, Any] = field(default_factory=dict)
    driver: str = ""


@dataclass(frozen=True, slots=True)
class Detection:
    """What a detector found, for a package's own `tilehal_detect` and `tilehal_diagnose` to share.

    Attributes:
        devices: the devices that count, best first.
        reason: what was asked and what it answered, one line: shown where no device counts.
    """

    devices: tuple[DetectedDevice, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a vendor's toolchain itself says a chip is, for `describe --verify`.

    Attributes:
        evidence: who was asked, one line (`bishengir-opt 1.2.0: target specification of Ascend910B3`).
        facts: figures by the dotted path of the descriptor's figure, in the descriptor's units.
    """

    evidence: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing `doctor` has to say.

    Attributes:
        code: stable, for scripts (`cuda-nvcc-missing`).
        severity: `error` for what is installed and broken; what is merely not here is `info` or `warning`.
        message: what was found.
        hint: what to do about it; empty where there is nothing to do.
        blocks: the stages that it makes impossible.
        details: the same for machines, JSON-able.
    """

    code: str
    severity: Severity
    message: str
    hint: str = ""
    blocks: tuple[Stage, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """Where and how to build: an empty folder of the caller's that the hook fills, and the compile options."""

    directory: Path
    options: CompileOptions


@dataclass(frozen=True, slots=True)
class FusionRule:
    """A graph pattern a chip wants fused: `pattern` names the operators in order, `operator` what replaces them."""

    name: str
    pattern: tuple[str, ...]
    operator: str
    note: str = ""
