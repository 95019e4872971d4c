"""Hooks of the Ascend backend: tile-level MLIR, compiled by Huawei's own compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backends.ascend.chips import tilehal_chips
from backends.ascend.detect import tilehal_detect
from core.plugins import hookimpl

if TYPE_CHECKING:
    from core.compiler import BuiltKernel, CompileOptions, LoweredKernel, Toolchain
    from core.hardware import Chip
    from core.plugins import Answer, BuildRequest, Finding
    from core.program import Program
    from core.runtime import Launcher
    from core.tiling import KernelShape, TileRule

__all__ = ["tilehal_chips", "tilehal_detect"]


@hookimpl
def tilehal_answers(chip: Chip) -> Sequence[Answer]:
    """What Huawei's compiler says the chip is."""
    from backends.ascend.spec import answers

    return answers(chip)


@hookimpl
def tilehal_tile_rules(chip: Chip, kernel: KernelShape) -> Sequence[TileRule]:
    from backends.ascend.rules import tile_rules

    return tile_rules(chip, kernel)


@hookimpl
def tilehal_lower(chip: Chip, program: Program, options: CompileOptions) -> LoweredKernel:
    from backends.ascend.lowering import lower

    return lower(chip, program, options)


@hookimpl
def tilehal_toolchain(chip: Chip) -> Toolchain:
    from backends.ascend.toolchain import toolchain

    return toolchain(chip)


@hookimpl
def tilehal_build(chip: Chip, lowered: LoweredKernel, request: BuildRequest) -> BuiltKernel:
    from backends.ascend.build import build

    return build(chip, lowered, request)


@hookimpl
def tilehal_launcher(chip: Chip, built: BuiltKernel) -> Launcher:
    """Launches through CANN's public runtime."""
    from backends.ascend.runtime.launcher import AscendLauncher

    return AscendLauncher(chip, built)


@hookimpl
def tilehal_simulator(chip: Chip, lowered: LoweredKernel, request: BuildRequest) -> Launcher:
    """Runs the modules on this CPU."""
    from backends.ascend.simulator.simulate import simulator

    return simulator(chip, lowered, verbose=request.options.verbose)


@hookimpl
def tilehal_diagnose(chip: Chip) -> Sequence[Finding]:
    """What is missing on this machine."""
    from backends.ascend.diagnose import diagnose
    from backends.ascend.simulator.tools import findings

    return [*diagnose(chip), *findings()]
