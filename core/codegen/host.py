"""The host side that lowering families share: finding a host compiler, and TileLang's device headers."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from core import _tilelang
from core.compiler.toolchain import FoundProgram, NotFound, find_program

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
