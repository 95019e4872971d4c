"""mcrtc, the run-time compiler inside `libmcruntime.so`: functions of NVRTC's shapes, whose result is bitcode.

A bitcode image holds code for the family only; where mxcc is installed it is used instead.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from backends.metax.dialect import MACA
from core.codegen.simt import load_library
from core.compiler import BuiltKernel, LoweredKernel, Toolchain
from core.errors import BuildFailed, DeviceUnavailable
from core.hardware import Chip
from core.plugins import BuildRequest

_BINARY = "kernel.bc"
_SOURCE = "kernel.maca"


@dataclass(frozen=True, slots=True)
class Compiler:
    """The loaded library, its version as `major.minor`, and where it was found."""

    library: Any
    version: str
    path: str


@lru_cache(maxsize=1)
def find() -> Compiler | None:
    """The compiler, when the runtime library is installed and has it."""
    try:
        library = load_library(MACA)
        version = library.mcrtcVersion
    except (DeviceUnavailable, AttributeError):
        return None
    major, minor = ctypes.c_int(), ctypes.c_int()
    if version(ctypes.byref(major), ctypes.byref(minor)) != 0:
        return None
    return Compiler(library, f"{major.value}.{minor.value}", library._name)


def build(
    chip: Chip, lowered: LoweredKernel, request: BuildRequest, architecture: str, include_folders: Sequence[Path]
) -> BuiltKernel:
    """Compiles into `request.directory`.

    Raises:
        BuildFailed: the compiler's log; the source stays in the folder.
    """
    compiler = find()
    assert compiler is not None, "toolchain() found it"
    library, folder = compiler.library, request.directory
    library.mcrtcGetErrorString.restype = ctypes.c_char_p
    (folder / _SOURCE).write_text(lowered.source)
    options = ["-std=c++17", f"-arch={architecture}", *(f"-I{path}" for path in include_folders)]
    options += request.options.compile_flags
    program = ctypes.c_void_p()
    arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))

    def check(code: int, call: str) -> None:
        if code:
            text = (library.mcrtcGetErrorString(code) or b"").decode()
            raise BuildFailed(
                f"{call} returned {code} ({text}) to compile {lowered.signature.name} for {chip.target}\n"
                f"{_log(library, program)}\n  options: {' '.join(options)}\n  source: {folder / _SOURCE}",
                hint="read the source where it is",
                details={"source": str(folder / _SOURCE), "command": options, "output": _log(library, program)},
            )

    source = ctypes.c_char_p(lowered.source.encode())
    check(
        library.mcrtcCreateProgram(ctypes.byref(program), source, _SOURCE.encode(), 0, None, None), "mcrtcCreateProgram"
    )
    try:
        check(library.mcrtcCompileProgram(program, len(options), arguments), "mcrtcCompileProgram")
        size = ctypes.c_size_t()
        check(library.mcrtcGetBitcodeSize(program, ctypes.byref(size)), "mcrtcGetBitcodeSize")
        bitcode = ctypes.create_string_buffer(size.value)
        check(library.mcrtcGetBitcode(program, bitcode), "mcrtcGetBitcode")
    finally:
        library.mcrtcDestroyProgram(ctypes.byref(program))
    (folder / _BINARY).write_bytes(bitcode.raw)
    return BuiltKernel(
        lowered=lowered,
        toolchain=Toolchain("mcrtc", compiler.version, compiler.path, tuple(options)),
        files={"binary": _BINARY, "source": _SOURCE},
        directory=folder,
        resources=lowered.resources,
        metadata={"architecture": architecture, "format": "bitcode"},
    )


def _log(library: Any, program: ctypes.c_void_p) -> str:
    """What the compiler said, or nothing when there is no program yet."""
    size = ctypes.c_size_t()
    if not program or library.mcrtcGetProgramLogSize(program, ctypes.byref(size)):
        return ""
    text = ctypes.create_string_buffer(size.value + 1)
    library.mcrtcGetProgramLog(program, text)
    return text.value.decode(errors="replace")
