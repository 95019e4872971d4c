"""Hooks of the CPU backend: tiles to C++, the system's compiler, a call through TVM-FFI.

It has no simulator: the simulator of a CPU is the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backends.cpu.chips import tilehal_chips
from backends.cpu.detect import tilehal_detect
from core.plugins import hookimpl

if TYPE_CHECKING:
    from core.compiler import BuiltKernel, CompileOptions, Export, LoweredKernel, Toolchain
    from core.hardware import Chip
    from core.plugins import BuildRequest, Finding
    from core.program import Program
    from core.runtime import Launcher
    from core.tiling import KernelShape, TileRule

__all__ = ["tilehal_chips", "tilehal_detect"]


@hookimpl
def tilehal_tile_rules(chip: Chip, kernel: KernelShape) -> Sequence[TileRule]:
    """Tiles that stay in a core's own cache."""
    from backends.cpu.rules import tile_rules

    return tile_rules(chip, kernel)


@hookimpl
def tilehal_lower(chip: Chip, program: Program, options: CompileOptions) -> LoweredKernel:
    """Tile-level view to C++."""
    from core.codegen import cpp

    return cpp.lower(program, chip, options)


@hookimpl
def tilehal_toolchain(chip: Chip) -> Toolchain:
    """The C++ compiler and what `-march=native` means here."""
    from backends.cpu.toolchain import toolchain

    return toolchain()


@hookimpl
def tilehal_build(chip: Chip, lowered: LoweredKernel, request: BuildRequest) -> BuiltKernel:
    """C++ to a shared library."""
    from backends.cpu.build import build

    return build(chip, lowered, request)


@hookimpl
def tilehal_launcher(chip: Chip, built: BuiltKernel) -> Launcher:
    """Loads the library."""
    from backends.cpu.launcher import CpuLauncher

    return CpuLauncher(built)


@hookimpl
def tilehal_export(chip: Chip, lowered: LoweredKernel) -> Export:
    """The library, called as a C function."""
    from core.codegen import exports

    return exports.c_function(lowered)


@hookimpl
def tilehal_diagnose(chip: Chip) -> Sequence[Finding]:
    """The compiler, found or not."""
    from backends.cpu.diagnose import diagnose

    return diagnose()
