"""Hooks of the MetaX backend: wave-64 lowering to MACA C++, mxcc, and launch through the MACA runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backends.metax.chips import tilehal_chips
from backends.metax.detect import tilehal_detect
from core.plugins import hookimpl

if TYPE_CHECKING:
    from core.compiler import BuiltKernel, CompileOptions, LoweredKernel, Toolchain
    from core.hardware import Chip
    from core.plugins import BuildRequest, Finding
    from core.program import Program
    from core.runtime import Launcher
    from core.tiling import KernelShape, TileRule

__all__ = ["tilehal_chips", "tilehal_detect"]


@hookimpl
def tilehal_tile_rules(chip: Chip, kernel: KernelShape) -> Sequence[TileRule]:
    from backends.metax.rules import tile_rules

    return tile_rules(chip, kernel)


@hookimpl
def tilehal_lower(chip: Chip, program: Program, options: CompileOptions) -> LoweredKernel:
    from backends.metax.dialect import MACA
    from core.codegen.simt import lower

    return lower(program, chip, options, dialect=MACA)


@hookimpl
def tilehal_toolchain(chip: Chip) -> Toolchain:
    from backends.metax.build import toolchain

    return toolchain(chip)


@hookimpl
def tilehal_build(chip: Chip, lowered: LoweredKernel, request: BuildRequest) -> BuiltKernel:
    from backends.metax.build import build

    return build(chip, lowered, request)


@hookimpl
def tilehal_launcher(chip: Chip, built: BuiltKernel) -> Launcher:
    from backends.metax.launcher import launcher

    return launcher(built)


@hookimpl
def tilehal_simulator(chip: Chip, lowered: LoweredKernel, request: BuildRequest) -> Launcher:
    """The same MACA C++, compiled for this machine's CPU."""
    from backends.metax.simulator import simulate

    return simulate(chip, lowered, request.options)


@hookimpl
def tilehal_diagnose(chip: Chip) -> Sequence[Finding]:
    from backends.metax.diagnose import diagnose

    return diagnose(chip)
