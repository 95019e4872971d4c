"""What stands in the way of CUDA on this machine."""

from __future__ import annotations

from importlib.util import find_spec

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
    elif find_spec("torch") is None:
        findings.append(Finding("cuda-no-torch", "warning", "torch is not installed", "pip install torch", ("run",)))
    return findings
