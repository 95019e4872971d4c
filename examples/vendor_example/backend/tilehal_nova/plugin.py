"""Hooks of the Nova backend, in the order of a kernel's life.

This module is imported when a target of the vendor is first asked for, also by people who only want to see the chip's
figures: what compiles or builds is imported inside the hook that needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from core.hardware import Chip, load_chips
from core.plugins import DetectedDevice, Finding, hookimpl

if TYPE_CHECKING:
    from core.compiler import BuiltKernel, CompileOptions, Export, LoweredKernel, Toolchain
    from core.plugins import BuildRequest
    from core.program import Program
    from core.runtime import Artifact, Launcher, LoadedExport
    from core.tiling import KernelShape, TileRule


@hookimpl
def tilehal_chips() -> Sequence[Chip]:
    """The chips of `chips.toml`."""
    return load_chips("tilehal_nova")


@hookimpl
def tilehal_detect() -> Sequence[DetectedDevice]:
    """No machine has a Nova. A real vendor looks at its driver's files first, and never creates a context."""
    return ()


@hookimpl
def tilehal_tile_rules(chip: Chip, kernel: KernelShape) -> Sequence[TileRule]:
    """Long rows where the scratchpad holds them."""
    from core.tiling import TileRule

    capacity_bytes = chip.memory("scratchpad").capacity_bytes or 0
    row = 1024 if capacity_bytes >= 1 << 20 else 256
    return (TileRule("nova-rows", "one long row per core", prefer=({"M": 1, "N": row},)),)


@hookimpl
def tilehal_lower(chip: Chip, program: Program, options: CompileOptions) -> LoweredKernel:
    """Tiles to C++ by the core's family; a vendor with a compiler of its own would call it here."""
    from core.codegen import cpp

    return cpp.lower(program, chip, options)


@hookimpl
def tilehal_toolchain(chip: Chip) -> Toolchain:
    """The C++ compiler."""
    from tilehal_nova.build import toolchain

    return toolchain()


@hookimpl
def tilehal_build(chip: Chip, lowered: LoweredKernel, request: BuildRequest) -> BuiltKernel:
    """C++ to a shared library in the request's folder."""
    from tilehal_nova.build import build

    return build(chip, lowered, request)


@hookimpl
def tilehal_export(chip: Chip, lowered: LoweredKernel) -> Export:
    """A launch of Nova's own kind. Its loader in C is the one for functions of a library."""
    from dataclasses import replace

    from core.codegen import exports
    from tilehal_nova.loader import KIND

    export = exports.c_function(lowered)
    return replace(export, launch={**export.launch, "kind": KIND})


@hookimpl
def tilehal_load(chip: Chip, artifact: Artifact, device: int) -> LoadedExport | None:
    """Runs what `tilehal_export` wrote, where neither tilelang nor a compiler is installed."""
    from tilehal_nova.loader import KIND, Loaded

    return Loaded(artifact) if artifact.metadata["launch"]["kind"] == KIND else None


@hookimpl
def tilehal_simulator(chip: Chip, lowered: LoweredKernel, request: BuildRequest) -> Launcher:
    """Runs the generated source on this CPU."""
    from tilehal_nova.build import build
    from tilehal_nova.simulator import Simulator

    return Simulator(build(chip, lowered, request))


@hookimpl
def tilehal_diagnose(chip: Chip) -> Sequence[Finding]:
    """What this machine lacks. `blocks` says which stages a finding makes impossible."""
    from core.compiler import NotFound
    from tilehal_nova.build import HINT, find_compiler

    found = find_compiler()
    if isinstance(found, NotFound):
        message = f"no C++ compiler: {'; '.join(found.looked)}"
        return (Finding("nova-compiler-missing", "warning", message, HINT, blocks=("build", "simulate")),)
    return (Finding("nova-no-device", "info", "Nova is imaginary: no machine has one", blocks=("run",)),)
