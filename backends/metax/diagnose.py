"""What stands in the way of MetaX kernels on this machine."""

from __future__ import annotations

from importlib.util import find_spec

from backends.metax.build import toolchain
from backends.metax.detect import detection, find_tool
from backends.metax.dialect import MACA
from core.codegen import host
from core.codegen.simt import load_library
from core.errors import DeviceUnavailable, ToolchainNotFound
from core.hardware import Chip
from core.plugins import Finding, Severity


def diagnose(chip: Chip) -> list[Finding]:
    """The compilers, the runtime library, a device, a torch that addresses it, and whether the chip is known enough."""
    findings: list[Finding] = []
    if chip.main_unit.lanes_per_wave is None:
        findings.append(
            Finding(
                "metax-wave-unknown",
                "warning",
                f"the width of {chip.title}'s waves is unknown, so nothing can be compiled for it",
                "compile for metax:c500, metax:c550 or metax:c600",
                blocks=("compile", "build", "run", "simulate"),
            )
        )
    detected = detection()
    # Where no kernel can run, a compiler that is missing is nothing to be warned of: sources are made without it.
    severity: Severity = "warning" if detected.devices else "info"
    try:
        found = toolchain(chip)
        findings.append(Finding("metax-compiler", "info", f"{found.name} {found.version} at {found.path}"))
    except ToolchainNotFound as error:
        findings.append(Finding("metax-mxcc-missing", severity, error.message, error.hint, ("build", "run")))
    findings += _simulator()
    if detected.devices:
        findings.append(Finding("metax-device", "info", detected.reason))
        findings += _runtime()
        if find_spec("torch") is None:
            findings.append(Finding("metax-no-torch", "warning", "torch is not installed", "", ("run",)))
    else:
        tools = {name: find_tool(name) for name in ("mx-smi", "macainfo")}
        findings.append(
            Finding(
                "metax-no-device",
                "info",
                detected.reason,
                "compile here and run the kernel on a machine with one",
                ("run",),
                details={"tools": tools},
            )
        )
    return findings


def _simulator() -> list[Finding]:
    """The simulator compiles the generated source for the CPU."""
    try:
        host.find_cxx_compiler()
    except ToolchainNotFound as error:
        return [Finding("metax-simulator-compiler-missing", "info", error.message, error.hint, ("simulate",))]
    return []


def _runtime() -> list[Finding]:
    try:
        load_library(MACA)
    except DeviceUnavailable as error:
        hint = "set MACA_PATH, and LD_LIBRARY_PATH to its lib folder"
        return [Finding("metax-runtime-missing", "warning", error.message, hint, ("run",))]
    return []
