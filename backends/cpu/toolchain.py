"""The C++ compiler: the system's, or `ziglang` from PyPI where the machine has none."""

from __future__ import annotations

import importlib.util
import sys
from functools import lru_cache
from pathlib import Path

from core.compiler import FoundProgram, NotFound, Toolchain, find_program, tool_version

NAMES = ("c++", "g++", "clang++")
HINT = "install g++ or clang++, set CXX, or `pip install ziglang` (a C++ compiler as a Python package)"

#: Value-preserving options: errno and floating-point traps are not looked at, and no multiply-add is fused outside of
#: matrix products. Tiles of different types may share memory, so types say nothing about aliasing.
FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
)


def find_compiler() -> FoundProgram | NotFound:
    """`$CXX`, then c++, g++ and clang++ on PATH, then `python -m ziglang c++`."""
    found = find_program(NAMES, env_vars=("CXX",))
    if isinstance(found, FoundProgram):
        return found
    if any("names no program" in place for place in found.looked):
        return found  # the user asked for that compiler and not for another
    if importlib.util.find_spec("ziglang") is not None:
        return FoundProgram(Path(sys.executable), ("-m", "ziglang", "c++"), "ziglang")
    return NotFound((*found.names, "ziglang"), (*found.looked, f"ziglang in {sys.prefix} (not installed)"))


def compiler() -> FoundProgram:
    """The C++ compiler.

    Raises:
        ToolchainNotFound: none, with every place that was looked at.
    """
    found = find_compiler()
    if isinstance(found, NotFound):
        raise found.error("compile a kernel for the CPU", HINT)
    return found


def toolchain() -> Toolchain:
    """Name, version and path of the compiler, and the target it makes code for (`-march=native` of this machine)."""
    found = compiler()
    version = tool_version(found).splitlines()[0]
    name = "zig" if found.found_through == "ziglang" else found.path.name
    return Toolchain(name=name, version=f"{version} ({machine()})", path=str(found.path), command=found.command)


@lru_cache(maxsize=1)
def machine() -> str:
    """What `-march=native` means here, for cache keys: a library made for one machine may not run on another."""
    from backends.cpu.machine import read_machine

    found = read_machine()
    return " ".join((found.architecture, *found.features))
