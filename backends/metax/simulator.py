"""MACA C++ on the core's SIMT simulator: where the shim of MACA's headers and builtins is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.compiler import CompileOptions, LoweredKernel
    from core.hardware import Chip
    from core.runtime import Launcher


def shim_folder() -> Path:
    """Folder of the headers that stand in for the MACA SDK's: `mcr/mc_runtime.h`, `maca_fp16.h` and so on."""
    return Path(__file__).with_name("simulator_include")


def simulate(chip: Chip, lowered: LoweredKernel, options: CompileOptions) -> Launcher:
    """Compiles generated MACA C++ for the CPU and loads it.

    Raises:
        ToolchainNotFound: no C++ compiler.
        BuildFailed: the source uses what neither TileHAL's headers nor the shim define.
    """
    from core.codegen.simt import include_folder
    from core.codegen.simt.simulator import simulator

    folders = (shim_folder(), Path(__file__).with_name("include"), include_folder())
    return simulator(chip, lowered, options, include_folders=folders)
