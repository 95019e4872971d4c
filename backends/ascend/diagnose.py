"""What Ascend kernels need on this machine, and what of it is here."""

from __future__ import annotations

import os

from backends.ascend.detect import detect
from backends.ascend.toolchain import compiler_name, find_compiler, find_hivmc, toolchain
from core.errors import ToolchainNotFound
from core.hardware import Chip
from core.plugins import Finding


def diagnose(chip: Chip) -> list[Finding]:
    """Huawei's compiler, CANN's backend compiler and runtime, a device."""
    findings: list[Finding] = []
    try:
        found = find_compiler(chip)
        findings.append(
            Finding("ascend-compiler", "info", f"{compiler_name(chip)} {toolchain(chip).version} at {found.path}")
        )
    except ToolchainNotFound as error:
        findings.append(
            Finding("ascend-compiler-missing", "warning", error.message, error.hint, ("build", "run", "simulate"))
        )
    hivmc = find_hivmc(chip)
    findings.append(
        Finding("ascend-hivmc", "info", f"hivmc at {hivmc.path}")
        if hivmc is not None
        else Finding(
            "ascend-hivmc-missing",
            "info",
            "no hivmc: kernels compile to the compiler's final module, not to a device object",
            "install CANN and source its set_env.sh",
            ("run",),
        )
    )
    home = os.environ.get("ASCEND_HOME_PATH")
    findings.append(
        Finding("ascend-cann", "info", f"CANN at {home}")
        if home
        else Finding(
            "ascend-cann-missing",
            "info",
            "ASCEND_HOME_PATH is not set",
            "source set_env.sh of the CANN toolkit",
            ("run",),
        )
    )
    detection = detect()
    findings.append(
        Finding("ascend-device", "info", detection.reason)
        if detection.devices
        else Finding(
            "ascend-no-device", "info", detection.reason, "compile here and run on a machine with one", ("run",)
        )
    )
    return findings
