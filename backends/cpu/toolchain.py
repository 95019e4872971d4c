"""The C++ compiler: the system's, or `ziglang` from PyPI where the machine has none."""

from __future__ import annotations

from functools import lru_cache

from core.codegen.host import find_cxx_compiler
from core.compiler import FoundProgram, Toolchain, tool_version

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


def is_zig(compiler: FoundProgram) -> bool:
    """Whether a compiler is the one of the PyPI package `ziglang`."""
    return "ziglang" in compiler.arguments


def toolchain() -> Toolchain:
    """Name, version and path of the compiler, and the target it makes code for (`-march=native` of this machine)."""
    found = find_cxx_compiler()
    version = tool_version(found).splitlines()[0]
    name = "zig" if is_zig(found) else found.path.name
    return Toolchain(name=name, version=f"{version} ({machine()})", path=str(found.path), command=found.command)


@lru_cache(maxsize=1)
def machine() -> str:
    """What `-march=native` means here, for cache keys: a library made for one machine may not run on another."""
    from backends.cpu.machine import read_machine

    found = read_machine()
    return " ".join((found.architecture, *found.features))
