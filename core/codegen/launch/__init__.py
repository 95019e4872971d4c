"""Generated launches: a kernel's argument check and launch as one small C file, compiled when the kernel is built.

`library_source` is what this process calls: Python hands it the tensors, and no Python runs until the kernel is queued.
It needs neither Python's headers nor torch's nor CUDA's, so any C compiler will do; without one the same plan is
interpreted (`core.runtime.interpreted`).
"""

from __future__ import annotations

import re
from pathlib import Path

from core.codegen.launch.binding import binding_source
from core.codegen.launch.cpu import call_source
from core.codegen.launch.cuda import capability, launch_source, required_driver
from core.codegen.launch.expressions import to_c

__all__ = [
    "binding_source",
    "call_source",
    "capability",
    "compile_command",
    "launch_source",
    "required_driver",
    "to_c",
    "with_headers",
]

_INCLUDE = re.compile(r'^#include "([\w.]+)"\n', re.MULTILINE)


def with_headers(source: str) -> str:
    """The source with the headers of this package written out in their place: a file that stands alone."""
    folder = Path(__file__).parent / "include"

    def replaced(match: re.Match[str]) -> str:
        header = folder / match[1]
        # Another name is a header of the generated file's own.
        return with_headers(header.read_text(encoding="utf-8")) if header.is_file() else match[0]

    return _INCLUDE.sub(replaced, source)


def compile_command(compiler: tuple[str, ...], source: str, library: str) -> list[str]:
    """The command that compiles a launch into a shared library."""
    flags = ["-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-w"]
    return [*compiler, *flags, "-o", library, source, "-ldl"]
