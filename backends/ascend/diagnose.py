"""What Ascend kernels would need on this machine. For now this package describes and detects, and does nothing else."""

from __future__ import annotations

import os
import shutil

from backends.ascend.detect import detection
from core.hardware import Chip
from core.plugins import Finding


def diagnose(chip: Chip) -> list[Finding]:
    """That nothing can be compiled yet, whether the compiler and CANN are there, and what detection found."""
    findings = [
        Finding(
            "ascend-describes-only",
            "warning",
            f"tilehal-ascend describes and detects Ascend chips; it cannot compile for {chip.target} yet",
            "use `python -m core.describe`, rooflines and comparisons; compile for cpu or cuda",
            blocks=("compile", "build", "run", "simulate"),
        )
    ]
    tool = str(chip.codegen.get("tool", "bishengir-compile"))
    path = shutil.which(tool)
    findings.append(
        Finding("ascend-compiler", "info", f"{tool} at {path}")
        if path
        else Finding("ascend-compiler-missing", "info", f"no {tool} on PATH", "pip install ascendnpu-ir")
    )
    home = os.environ.get("ASCEND_HOME_PATH")
    findings.append(
        Finding("ascend-cann", "info", f"CANN at {home}")
        if home
        else Finding(
            "ascend-cann-missing", "info", "ASCEND_HOME_PATH is not set", "source set_env.sh of the CANN toolkit"
        )
    )
    found = detection()
    code = "ascend-device" if found.devices else "ascend-no-device"
    findings.append(Finding(code, "info", found.reason))
    return findings
