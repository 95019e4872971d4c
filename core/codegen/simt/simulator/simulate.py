"""From a lowered kernel to one that runs on the CPU: what a backend's `tilehal_simulator` calls."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core.codegen.simt.simulator.build import build_library
from core.codegen.simt.simulator.launcher import SimulatedKernel
from core.codegen.simt.simulator.rewrite import rewrite
from core.errors import TileHALError, UnsupportedOp

if TYPE_CHECKING:
    from core.compiler.artifacts import CompileOptions, LoweredKernel
    from core.hardware import Chip

#: Environment variable with the mode when the option `simulator` does not say it.
CHECKED_VARIABLE = "TILEHAL_SIMULATOR"
_MODES = ("plain", "checked")


def simulator(
    chip: Chip, lowered: LoweredKernel, options: CompileOptions, *, include_folders: Sequence[Path]
) -> SimulatedKernel:
    """Compiles the kernel's source for the CPU, against a language's shim headers, and loads it.

    Args:
        chip: wave width and matrix instructions.
        lowered: its `source` is what runs, changed only as :mod:`core.codegen.simt.simulator.rewrite` says.
        options: `options.backend["simulator"]` is `plain` or `checked`; else `TILEHAL_SIMULATOR`; else plain.
        include_folders: of the shim, and of the headers the source includes.

    Raises:
        ToolchainNotFound: no C++ compiler.
        BuildFailed: the source does not compile; the compiler's message names what the shim lacks.
        UnsupportedOp: the chip's wave width is unknown, or shared memory is declared in an unknown form.
    """
    checked = _mode(options) == "checked"
    lanes = chip.main_unit.lanes_per_wave
    if lanes is None:
        raise UnsupportedOp(
            f"{chip.target}: the width of its waves is unknown, so nothing can be simulated",
            hint="simulate a chip of the same vendor that is fully described",
        )
    rewritten = rewrite(lowered.source, lowered.entry_points)
    library = build_library(
        rewritten.source,
        chip,
        include_folders=include_folders,
        checked=checked,
        label=lowered.signature.name,
        verbose=options.verbose,
    )
    return SimulatedKernel(lowered, library, wave_lanes=lanes, checked=checked, rewrites=rewritten.rules)


def _mode(options: CompileOptions) -> str:
    mode = str(options.backend.get("simulator") or os.environ.get(CHECKED_VARIABLE) or "plain")
    if mode not in _MODES:
        raise TileHALError(
            f"no such simulator mode: {mode!r}",
            hint=f"the option `simulator` and the variable {CHECKED_VARIABLE} take {' or '.join(_MODES)}",
        )
    return mode
