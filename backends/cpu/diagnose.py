"""What is missing on this machine for CPU kernels."""

from __future__ import annotations

from collections.abc import Sequence

from core.codegen.host import find_cxx_compiler
from core.compiler import tool_version
from core.errors import ToolchainNotFound
from core.plugins import Finding


def diagnose() -> Sequence[Finding]:
    """One finding: the C++ compiler, or that there is none and what to install."""
    try:
        found = find_cxx_compiler()
    except ToolchainNotFound as error:
        looked = error.details["looked"]
        return (
            Finding(
                "cpu-compiler-missing",
                "error",
                "no C++ compiler: " + "; ".join(looked),
                hint=error.hint,
                blocks=("build", "run"),
                details={"looked": looked},
            ),
        )
    try:
        version = tool_version(found).splitlines()[0]
    except ToolchainNotFound as error:
        return (Finding("cpu-compiler-broken", "error", error.message, hint=error.hint, blocks=("build", "run")),)
    return (
        Finding(
            "cpu-compiler",
            "info",
            f"{version} ({' '.join(found.command)}, found through {found.found_through})",
            details={"command": list(found.command), "version": version},
        ),
    )
