"""Every hook a backend can implement, in the order of a kernel's life.

describe -> detect -> tile -> lower -> build -> launch -> export -> load -> simulate -> fuse -> diagnose

The *owner* of a vendor is the package whose entry point in the group `tilehal.backends` carries the vendor's name.
An *extension* is a package with an entry point in the group `tilehal.extensions` whose name is the target it extends
(`cuda` or `cuda:h200`); its module may set `priority` (an int, default 1; higher is called earlier; the owner is 0).
Only the owner and the matching extensions of a chip are ever loaded and called for it.

A hook that cannot do its work raises a `core.TileHALError`; anything else it raises is reported as `BackendHookError`
with the package's name, and the other backends go on. Returning None from a `firstresult` hook passes to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from pathlib import Path

    from core.compiler.artifacts import BuiltKernel, CompileOptions, Export, LoweredKernel, Toolchain
    from core.hardware import Chip
    from core.plugins.records import Answer, BuildRequest, DetectedDevice, Finding, FusionRule
    from core.program import Program
    from core.runtime.artifact import Artifact
    from core.runtime.exported import LoadedExport
    from core.runtime.launcher import Launcher
    from core.tiling import KernelShape, TileRule

hookspec = pluggy.HookspecMarker("tilehal")


@hookspec
def tilehal_chips() -> Sequence[Chip]:
    """The chips this package knows, default chip first.

    Called once per process, on the owner only, when a target of the vendor is first asked for. Must not import torch,
    tilelang or a vendor runtime, nor touch a device. Raise `DescriptorError` for a malformed descriptor.
    """
    raise NotImplementedError


@hookspec
def tilehal_detect() -> Sequence[DetectedDevice]:
    """The chips present on this machine, best first, each with its index and the evidence.

    Called once per process, on the owner only, when a target without a chip or `auto` is asked for, by `describe
    --verify` and by `doctor`. May read driver files and call vendor libraries or tools; must return within 2 s and must
    not create a device context. No device is an empty sequence, not an error.
    """
    raise NotImplementedError


@hookspec
def tilehal_answers(chip: Chip) -> Sequence[Answer]:
    """What the vendor's own tools say `chip` is, where they know it without a device: figures with who said so.

    Called by `describe --verify`, on the owner and every extension. May run tools (within 10 s) but must not touch a
    device. A tool that is missing, or does not know the chip, is an empty sequence.
    """
    raise NotImplementedError


@hookspec
def tilehal_tile_rules(chip: Chip, kernel: KernelShape) -> Sequence[TileRule]:
    """Which tile parameters of `kernel` are worth considering on `chip`, which cannot work, and which go first.

    Called when a kernel is ranked, once per (factory, arguments, chip), on the owner and every extension; results are
    concatenated, the highest priority first. The ranking is remembered under the code of these packages, so that rules
    depend on their arguments alone. Must not touch a device.
    """
    raise NotImplementedError


@hookspec
def tilehal_tuned_tables(chip: Chip) -> Sequence[Path]:
    """Files of measured results for `chip` that this package ships, written by `tilehal tune --export`.

    Called once per chip and process, on the owner and every extension, when a kernel whose tiles are to be chosen is
    compiled; results are concatenated, the highest priority first. Must not touch a device. Each path is an existing
    file of the package; whether a table fits the kernel, the chip and TileLang's version is checked row by row.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def tilehal_lower(chip: Chip, program: Program, options: CompileOptions) -> LoweredKernel | None:
    """Turns a program into native source for `chip`.

    Called once per compilation that misses the cache. Works on every machine: no toolchain, no device. Raise
    `UnsupportedOp` with the user's line for what cannot be expressed.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def tilehal_toolchain(chip: Chip) -> Toolchain | None:
    """The native compiler that `tilehal_build` would use here for `chip`: name, version, path.

    Called before a build, to make the toolchain's version part of the cache key, and by `doctor` and `core.targets()`.
    At most one short tool call (`nvcc --version`), remembered by the backend for the process. Raise
    `ToolchainNotFound` saying what is missing and everywhere it was looked for.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def tilehal_build(chip: Chip, lowered: LoweredKernel, request: BuildRequest) -> BuiltKernel | None:
    """Compiles the native source with the vendor's toolchain into `request.directory`.

    Called once per kernel that is launched or whose binary is asked for, and misses the cache. No device needed. Raise
    `ToolchainNotFound` (what, where it was looked for) or `BuildFailed` (message, command; leave the source in place).
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def tilehal_launcher(chip: Chip, built: BuiltKernel) -> Launcher | None:
    """Loads a built kernel and returns a callable that launches it.

    Called once per kernel and process, at the first call. May touch the device. Raise `DeviceUnavailable` when there is
    none.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def tilehal_export(chip: Chip, lowered: LoweredKernel) -> Export | None:
    """How a kernel is launched where there is no TileHAL compiler, only the folder that `kernel.export()` writes.

    Called at each `kernel.export()`, before the kernel is built. Works on every machine: no toolchain, no device. Raise
    `UnsupportedOp` for a kernel that cannot be launched so. `core.codegen.exports` has the launches of a cubin by the
    CUDA driver and of a C function in a shared library.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def tilehal_load(chip: Chip, artifact: Artifact, device: int) -> LoadedExport | None:
    """Loads an exported kernel whose launch is of a kind that `tilehal_export` made up.

    Called once per :func:`core.runtime.load_exported` of such a folder, whose files have been checked. May touch the
    device with that index, and must not import tilelang: where exported kernels run there may be none, nor a compiler.
    Raise `DeviceUnavailable` for another device than the kernel was compiled for, `ArtifactError` for a folder of
    another form. None is for a kind that this package does not know.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def tilehal_simulator(chip: Chip, lowered: LoweredKernel, request: BuildRequest) -> Launcher | None:
    """Prepares the generated native source to run on this machine's CPU and returns a callable that runs it.

    Called once per kernel and process when `simulate=True`. Must run the source in `lowered`, with a closed list of
    rewrites; those applied are the result's `rewrites` (a sequence of str), which `k.provenance` shows. Raise
    `ToolchainNotFound` naming what to install.
    """
    raise NotImplementedError


@hookspec
def tilehal_fusion_rules(chip: Chip) -> Sequence[FusionRule]:
    """Graph patterns this chip wants fused, and how.

    Called by nothing yet: it is declared for a backend of `torch.compile`, which is to ask once per chip.
    """
    raise NotImplementedError


@hookspec
def tilehal_diagnose(chip: Chip) -> Sequence[Finding]:
    """What is missing or wrong on this machine for `chip`: toolchains, drivers, devices, versions.

    Called by `tilehal doctor`, `core.targets()` and to explain a failed build or launch, on the owner and every
    extension. May run tools (within 5 s) but must not create a device context. A finding that makes a stage impossible
    lists the stage in `blocks`.
    """
    raise NotImplementedError


#: Name of every hook, in life-cycle order.
HOOK_NAMES = tuple(name for name in globals() if name.startswith("tilehal_"))
