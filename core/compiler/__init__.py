"""What the stages of a compilation hand on, and finding and running external compilers: what a backend needs of it.

The driver itself is :func:`core.compile`. Each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core._lazy import lazy_names

if TYPE_CHECKING:
    from core.compiler.artifacts import BuiltKernel as BuiltKernel
    from core.compiler.artifacts import CompileOptions as CompileOptions
    from core.compiler.artifacts import Evidence as Evidence
    from core.compiler.artifacts import Export as Export
    from core.compiler.artifacts import LoweredKernel as LoweredKernel
    from core.compiler.artifacts import Resources as Resources
    from core.compiler.artifacts import Toolchain as Toolchain
    from core.compiler.files import cached_files as cached_files
    from core.compiler.toolchain import FoundProgram as FoundProgram
    from core.compiler.toolchain import NotFound as NotFound
    from core.compiler.toolchain import ToolResult as ToolResult
    from core.compiler.toolchain import find_program as find_program
    from core.compiler.toolchain import run_tool as run_tool
    from core.compiler.toolchain import tool_version as tool_version

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "artifacts": ("BuiltKernel", "CompileOptions", "Evidence", "Export", "LoweredKernel", "Resources", "Toolchain"),
        "files": ("cached_files",),
        "toolchain": ("FoundProgram", "NotFound", "ToolResult", "find_program", "run_tool", "tool_version"),
    },
)
