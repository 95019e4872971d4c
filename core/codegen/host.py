"""The host side that lowering families share: finding a host compiler, and TileLang's device headers."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from core import _tilelang
from core.codegen.launch import binding_source, call_source, compile_command, with_headers
from core.compiler.toolchain import FoundProgram, NotFound, find_program, run_tool
from core.errors import ToolchainNotFound
from core.runtime.compiled import CannotLoad, CompiledCall, load
from core.runtime.plan import UnusablePlan

if TYPE_CHECKING:
    from core.compiler.artifacts import BuiltKernel, LoweredKernel

#: File names of a kernel's compiled launch, and the role its library has among a kernel's files.
LAUNCH_SOURCE, LAUNCH_LIBRARY, LAUNCH_ROLE = "launch.c", "launch.so", "launch"

_HINT = "install gcc or clang with C++, name yours in CC and CXX, or `pip install ziglang`, which serves as well"


def find_c_compiler() -> FoundProgram:
    """A compiler for C: `CC`, cc, gcc, clang, else zig from PyPI. Raises ToolchainNotFound."""
    return _find(("cc", "gcc", "clang"), "CC", "cc", "build the host side of kernels")


def find_cxx_compiler() -> FoundProgram:
    """A compiler for C++: `CXX`, c++, g++, clang++, else zig from PyPI. Raises ToolchainNotFound."""
    return _find(("c++", "g++", "clang++"), "CXX", "c++", "build kernels for the CPU")


def _find(names: tuple[str, ...], variable: str, zig_tool: str, purpose: str) -> FoundProgram:
    found = find_program(names, env_vars=(variable,))
    if isinstance(found, FoundProgram):
        return found
    asked_for = any(place.startswith(f"${variable}=") for place in found.looked)
    if not asked_for and importlib.util.find_spec("ziglang") is not None:
        return FoundProgram(Path(sys.executable), ("-m", "ziglang", zig_tool), "the PyPI package ziglang")
    looked = found.looked if asked_for else (*found.looked, "the PyPI package ziglang (not installed)")
    raise NotFound(found.names, looked).error(purpose, _HINT)


def device_include_paths() -> tuple[Path, ...]:
    """Folders of the headers that TileLang's generated device code includes (templates and CUTLASS)."""
    return _tilelang.device_include_paths()


def build_launch(folder: Path, source: str, purpose: str, *, verbose: bool = False) -> dict[str, str]:
    """Compiles a kernel's launch (`core.codegen.launch`) into `folder`; returns its entry for the kernel's files.

    Empty where there is no C compiler: the launch is then done by the interpreter, and the kernel's provenance says so.

    Raises:
        BuildFailed: the compiler refused; the source stays in the folder.
    """
    try:
        compiler = find_c_compiler()
    except ToolchainNotFound:
        return {}
    (folder / LAUNCH_SOURCE).write_text(source, encoding="utf-8")
    run_tool(
        compile_command(tuple(compiler.command), LAUNCH_SOURCE, LAUNCH_LIBRARY),
        cwd=folder,
        source=folder / LAUNCH_SOURCE,
        purpose=f"{purpose} (its launch)",
        verbose=verbose,
    )
    return {LAUNCH_ROLE: LAUNCH_LIBRARY}


def cpu_launch_file(lowered: LoweredKernel) -> str | None:
    """The C source of the argument check and call of a kernel lowered to C++ (`core.codegen.cpp`).

    None when an argument has no C type; the kernel is then called through TVM-FFI.
    """
    try:
        return with_headers(
            call_source(lowered.signature, lowered.metadata["call"]["types"])
            + binding_source(lowered.signature, "cpu", refuses_empty=False)
        )
    except UnusablePlan:
        return None


def load_cpu_call(built: BuiltKernel) -> tuple[CompiledCall | None, str]:
    """The compiled call of a kernel on the CPU, or None; and how calls reach it, for `k.provenance.launch`."""
    try:
        if LAUNCH_ROLE not in built.files:
            raise CannotLoad("no compiled check")
        kernel = ctypes.CDLL(str(built.path("library")))
        address = ctypes.cast(getattr(kernel, built.lowered.metadata["call"]["name"]), ctypes.c_void_p).value
        assert address is not None
        return load(built.path(LAUNCH_ROLE), built.lowered.signature, "cpu", address), "a C call, compiled"
    except CannotLoad as reason:
        return None, f"TVM-FFI: {reason}"
