"""Compiles the generated C++ with the system's compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.compiler import BuiltKernel, FoundProgram, NotFound, Toolchain, find_program, run_tool, tool_version

if TYPE_CHECKING:
    from core.compiler import LoweredKernel
    from core.hardware import Chip
    from core.plugins import BuildRequest

HINT = "install g++ or clang++, or set CXX"
SOURCE, LIBRARY = "kernel.cpp", "kernel.so"


def find_compiler() -> FoundProgram | NotFound:
    """`$CXX`, else the first C++ compiler on PATH."""
    return find_program(("c++", "g++", "clang++"), env_vars=("CXX",))


def compiler() -> FoundProgram:
    """The compiler. Raises ToolchainNotFound, which lists every place that was looked at."""
    found = find_compiler()
    if isinstance(found, NotFound):
        raise found.error("build a kernel for Nova", HINT)
    return found


def toolchain() -> Toolchain:
    """Name, version and path: the version becomes part of every build's cache key."""
    found = compiler()
    return Toolchain(found.path.name, tool_version(found).splitlines()[0], str(found.path))


def build(chip: Chip, lowered: LoweredKernel, request: BuildRequest) -> BuiltKernel:
    """Writes the source into the request's folder and compiles it there. Raises ToolchainNotFound or BuildFailed."""
    from tvm_ffi import libinfo

    (request.directory / SOURCE).write_text(lowered.source, encoding="utf-8")
    folders = dict.fromkeys((libinfo.find_include_path(), libinfo.find_dlpack_include_path()))
    flags = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fno-strict-aliasing", *(f"-I{folder}" for folder in folders))
    command = (*compiler().command, *flags, *request.options.compile_flags, SOURCE, "-o", LIBRARY, "-lpthread")
    run_tool(
        command,
        cwd=request.directory,
        source=request.directory / SOURCE,
        purpose=f"compile {lowered.signature.name} for {chip.target}",
        verbose=request.options.verbose,
    )
    return BuiltKernel(
        lowered=lowered,
        toolchain=toolchain(),
        files={"library": LIBRARY, "source": SOURCE},
        directory=request.directory,
        resources=lowered.resources,
    )
