"""Hooks of the NVIDIA GPUs backend: TileLang's own CUDA route, with our chips, rules, checks and launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backends.cuda.chips import tilehal_chips
from backends.cuda.detect import tilehal_detect
from core.plugins import hookimpl

if TYPE_CHECKING:
    from core.compiler import BuiltKernel, CompileOptions, Export, LoweredKernel, Toolchain
    from core.hardware import Chip
    from core.plugins import BuildRequest, Finding
    from core.program import Program
    from core.runtime import Launcher
    from core.tiling import KernelShape, TileRule

__all__ = ["tilehal_chips", "tilehal_detect"]

#: What `options=` of a compilation may hold, see docs/cuda.md.
OPTIONS = ("aligned_rows", "overlap_launches", "tf32")


@hookimpl
def tilehal_tile_rules(chip: Chip, kernel: KernelShape) -> Sequence[TileRule]:
    from backends.cuda.rules import tile_rules

    return tile_rules(chip, kernel)


@hookimpl
def tilehal_lower(chip: Chip, program: Program, options: CompileOptions) -> LoweredKernel:
    from backends.cuda.rules import fragments, pipelines
    from backends.cuda.shared_memory import with_static
    from core.codegen import native

    options.check_backend("cuda", OPTIONS)
    fragments.check(program, chip)
    pipelines.check(program, chip, options)
    lowered = native.lower(
        program,
        chip,
        options,
        language="cuda",
        tvm_target={"kind": "cuda", "arch": str(chip.codegen["arch"])},
        overlap="programmatic_launch" in chip.features and bool(options.backend.get("overlap_launches", True)),
    )
    return with_static(lowered)


@hookimpl
def tilehal_toolchain(chip: Chip) -> Toolchain:
    from backends.cuda.toolchain import toolchain

    return toolchain()


@hookimpl
def tilehal_build(chip: Chip, lowered: LoweredKernel, request: BuildRequest) -> BuiltKernel:
    from backends.cuda.build import build

    return build(chip, lowered, request)


@hookimpl
def tilehal_launcher(chip: Chip, built: BuiltKernel) -> Launcher:
    from core.codegen import native

    return native.launcher(built, binary_format=built.metadata["format"], loader="cuda")


@hookimpl
def tilehal_export(chip: Chip, lowered: LoweredKernel) -> Export:
    from core.codegen import exports

    return exports.cuda_driver(lowered, str(chip.codegen["arch"]))


@hookimpl
def tilehal_diagnose(chip: Chip) -> Sequence[Finding]:
    from backends.cuda.diagnose import diagnose

    return diagnose(chip)
