"""What MetaX kernels would need on this machine. For now this package describes and detects, and does nothing else."""

from __future__ import annotations

from backends.metax.detect import DEFAULT_MACA_PATH, detection, find_tool, maca_path
from core.hardware import Chip
from core.plugins import Finding


def diagnose(chip: Chip) -> list[Finding]:
    """That nothing can be compiled yet, whether the SDK is there, and what detection found."""
    findings = [
        Finding(
            "metax-describes-only",
            "warning",
            f"tilehal-metax describes and detects MetaX chips; it cannot compile for {chip.target} yet",
            "use `python -m core.describe`, rooflines and comparisons; compile for cpu or cuda",
            blocks=("compile", "build", "run", "simulate"),
        )
    ]
    compiler = maca_path() / "mxgpu_llvm" / "bin" / "mxcc"
    if compiler.exists():
        findings.append(Finding("metax-mxcc", "info", f"mxcc at {compiler}"))
    else:
        findings.append(
            Finding(
                "metax-mxcc-missing",
                "info",
                f"no mxcc: {compiler} does not exist",
                f"install the MACA SDK and set MACA_PATH if it is not in {DEFAULT_MACA_PATH}",
            )
        )
    found = detection()
    if found.devices:
        findings.append(Finding("metax-device", "info", found.reason))
    else:
        tools = {name: find_tool(name) for name in ("mx-smi", "macainfo")}
        findings.append(Finding("metax-no-device", "info", found.reason, details={"tools": tools}))
    return findings
