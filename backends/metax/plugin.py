"""Hooks of the MetaX backend: wave-64 lowering to MACA C++, mxcc, and launch through the MACA runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backends.metax.chips import tilehal_chips
from backends.metax.detect import tilehal_detect
from core.plugins import hookimpl

if TYPE_CHECKING:
    from core.compiler import CompileOptions, LoweredKernel
    from core.hardware import Chip
    from core.plugins import BuildRequest, Finding
    from core.program import Program
    from core.runtime import Launcher

__all__ = ["tilehal_chips", "tilehal_detect", "tilehal_diagnose"]


@hookimpl
def tilehal_lower(chip: Chip, program: Program, options: CompileOptions) -> LoweredKernel:
    from backends.metax.dialect import MACA
    from core.codegen.simt import lower

    return lower(program, chip, options, dialect=MACA)


@hookimpl
def tilehal_simulator(chip: Chip, lowered: LoweredKernel, request: BuildRequest) -> Launcher:
    """The same MACA C++, compiled for this machine's CPU."""
    from backends.metax.simulator import simulate

    return simulate(chip, lowered, request.options)


@hookimpl
def tilehal_diagnose(chip: Chip) -> Sequence[Finding]:
    """What is missing on this machine, and in this package."""
    from backends.metax.diagnose import diagnose

    return diagnose(chip)
