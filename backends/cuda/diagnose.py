"""What stands in the way of CUDA on this machine."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from backends.cuda.detect import tilehal_detect
from backends.cuda.toolchain import nvcc_toolchain
from core.codegen import host
from core.errors import ToolchainNotFound
from core.hardware import Chip
from core.plugins import Finding, Severity


def diagnose(chip: Chip) -> list[Finding]:
    """nvcc, a host compiler, a device, and a torch that can address it."""
    findings: list[Finding] = []
    devices = tilehal_detect()
    # Where no kernel can run, a compiler that is missing is nothing to be warned of: sources are made without it.
    severity: Severity = "warning" if devices else "info"
    try:
        toolchain = nvcc_toolchain()
        findings.append(Finding("cuda-nvcc", "info", f"nvcc {toolchain.version} at {toolchain.path}"))
    except ToolchainNotFound as error:
        findings.append(Finding("cuda-nvcc-missing", severity, error.message, error.hint, ("build", "run")))
    try:
        compiler = host.find_c_compiler()
        findings.append(Finding("cuda-host-compiler", "info", f"host compiler {' '.join(compiler.command)}"))
    except ToolchainNotFound as error:
        findings.append(Finding("cuda-host-compiler-missing", severity, error.message, error.hint, ("build", "run")))
    if not devices:
        findings.append(
            Finding(
                "cuda-no-device",
                "info",
                "no NVIDIA device is present",
                "compile here and run the kernel on a machine with one",
                ("run",),
            )
        )
    elif (missing := _torch_fault()) is not None:
        findings.append(Finding("cuda-no-torch", "warning", missing, "install a CUDA build of torch", ("run",)))
    return findings


def _torch_fault() -> str | None:
    """Why torch cannot address a CUDA device, without importing it; None when it can."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return "torch is not installed"
    version = Path(spec.origin).parent / "version.py"
    text = version.read_text() if version.is_file() else ""
    if re.search(r"^cuda\b[^=\n]*=\s*None\s*$", text, re.MULTILINE):
        return "the torch that is installed was built without CUDA"
    return None
