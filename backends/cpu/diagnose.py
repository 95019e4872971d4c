"""What is missing on this machine for CPU kernels."""

from __future__ import annotations

from collections.abc import Sequence

from backends.cpu.toolchain import HINT, find_compiler
from core.compiler import NotFound, tool_version
from core.errors import ToolchainNotFound
from core.plugins import Finding


def diagnose() -> Sequence[Finding]:
    """One finding: the C++ compiler, or that there is none and what to install."""
    found = find_compiler()
    if isinstance(found, NotFound):
        return (
            Finding(
                "cpu-compiler-missing",
                "error",
                "no C++ compiler: " + "; ".join(found.looked),
                hint=HINT,
                blocks=("build", "run"),
                details={"looked": list(found.looked)},
            ),
        )
    try:
        version = tool_version(found).splitlines()[0]
    except ToolchainNotFound as error:
        return (
            Finding("cpu-compiler-broken", "error", error.message, hint=error.hint or HINT, blocks=("build", "run")),
        )
    return (
        Finding(
            "cpu-compiler",
            "info",
            f"{version} ({' '.join(found.command)}, found through {found.found_through})",
            details={"command": list(found.command), "version": version},
        ),
    )
