"""The TileLang-native lowering family: chips the stock wheel has a backend for.

TileLang's own pass pipeline and device codegen produce the source, untouched. What is ours comes before (checks,
legalisation) and after: the native compiler is called by the vendor's backend, and the host side, which TileLang also
generates (argument unpacking, tensor-map descriptors, the launch), is kept as C source beside the device source, so
that a kernel can be built later or elsewhere from text alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import _tilelang
from core.compiler.artifacts import BuiltKernel, CompileOptions, LoweredKernel, Resources
from core.errors import LaunchError, ResourceExceeded, ShapeMismatch, TileHALError, UnsupportedOp
from core.program.expressions import to_python
from core.program.nodes import Launch
from core.runtime.extents import GridExtents

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.program import Program
    from core.runtime.launcher import Launcher

#: Name of the attachment that holds the generated host source.
HOST_SOURCE = "host.c"
_FAST_MATH = "tl.enable_fast_math"


def lower(
    program: Program, chip: Chip, options: CompileOptions, *, language: str, tvm_target: Mapping[str, Any]
) -> LoweredKernel:
    """Lowers through TileLang's own backend for `tvm_target`.

    Args:
        language: of the generated device source (`cuda`).
        tvm_target: TVM target configuration with the architecture pinned, e.g. `{"kind": "cuda", "arch": "sm_90a"}`.

    Raises:
        UnsupportedOp, ShapeMismatch, ResourceExceeded: TileLang refused the kernel; its reason is the message.
    """
    from core.codegen.tir import legalise
    from core.compiler.messages import translate

    legal = legalise(program, chip, options)
    pass_configs = {**legal.pass_configs, **options.pass_configs}
    if options.fast_math:
        pass_configs.setdefault(_FAST_MATH, True)
    try:
        modules = _tilelang.lower_native(legal.prim_func, tvm_target, pass_configs)
    except TileHALError:
        raise
    except Exception as error:
        raise translate(
            error,
            fallback=UnsupportedOp,
            stage=f"lowering {program.name} for {chip.target}",
            location=program.location,
            view=program.view,
        ) from error
    threads = max(f.threads[0] * f.threads[1] * f.threads[2] for f in modules.functions)
    shared = [f.dynamic_shared_bytes for f in modules.functions]
    dynamic = None if any(s is None for s in shared) else max(s for s in shared if s is not None)
    predicted = program.footprint().resources(chip)
    # Registers as the kernel declares its fragments; shared memory as lowering laid it out.
    memory = {space: size for space, size in predicted.memory_bytes.items() if space != "shared"}
    if dynamic is not None:
        memory["shared"] = dynamic
    return LoweredKernel(
        target=chip.target,
        route="tilelang-native",
        language=language,
        source=modules.device_source,
        entry_points=tuple(f.name for f in modules.functions),
        signature=program.signature,
        grid=tuple(f.grid for f in modules.functions),
        block=tuple(f.threads for f in modules.functions),
        resources=replace(predicted, memory_bytes=memory, dynamic_shared_bytes=dynamic, threads=threads),
        rewrites=tuple(legal.rewrites),
        attachments={HOST_SOURCE: modules.host_source.encode()},
        metadata={
            "functions": [asdict(f) for f in modules.functions],
            "tvm_target": dict(tvm_target),
            "effective": _effective(program, threads),
            "relaxations": legal.relaxations,
            "grids": _grids(program),
            "grid_limits": list(chip.limits.grid_dim or ()),
        },
    )


def _grids(program: Program) -> list[list[str]] | None:
    """Block counts per launch as Python expressions; None when the host reads one from memory or may skip a launch."""
    if any(not isinstance(stmt, Launch) for stmt in program.view.body):
        return None
    try:
        return [[to_python(extent) for _, extent in launch.grid] for launch in program.view.launches]
    except ValueError:
        return None


def _effective(program: Program, threads: int) -> dict[str, Any]:
    launches = program.view.launches
    asked = [a[0] * a[1] * a[2] for a in (launch.threads for launch in launches) if a is not None]
    if len(asked) == 1 and threads > asked[0]:
        return {"threads": [threads, f"warp specialisation adds {threads - asked[0]} producer threads"]}
    if not asked:
        return {"threads": [threads, "the kernel gave no thread count; TileLang's default"]}
    return {}


def host_compile_command(compiler: Sequence[str], source: Path, library: Path) -> list[str]:
    """The command that compiles the host source into the library the launcher loads."""
    includes = [f"-I{path}" for path in _tilelang.host_include_paths()]
    return [*compiler, "-shared", "-fPIC", "-O2", "-w", *includes, "-o", str(library), str(source)]


def launcher(built: BuiltKernel, *, binary_format: str, loader: str) -> Launcher:
    """Loads a built kernel whose files have the roles `library` (host) and `binary` (device image).

    Args:
        binary_format: of the device image: `cubin` or `fatbin`.
        loader: TVM runtime module kind: `cuda`.

    The launcher runs on torch's current stream of the tensors' device, which TVM-FFI asks for at each call.
    """
    functions = [_function(data) for data in built.lowered.metadata["functions"]]
    metadata = _tilelang.runtime_metadata(functions)
    entry = _tilelang.load_native(built.path("library"), built.path("binary"), binary_format, metadata, loader)
    return NativeLauncher(entry, built.lowered)


class NativeLauncher:
    """Calls the generated host function; symbolic dimensions are read from the tensors by the host code itself."""

    __slots__ = ("_blocking", "_entry", "_grids", "_limits", "_name", "_uses_tensor_maps")

    def __init__(self, entry: Any, lowered: LoweredKernel) -> None:
        self._entry = entry
        self._name = lowered.signature.name
        self._blocking = os.environ.get("TILEHAL_LAUNCH_BLOCKING") == "1"
        self._uses_tensor_maps = any(any(f["tensor_maps"]) for f in lowered.metadata["functions"])
        self._limits: tuple[int, ...] = tuple(lowered.metadata["grid_limits"])
        grids = lowered.metadata.get("grids")
        extents = GridExtents(lowered.signature, grids) if grids else None
        #: Only where a call can make a grid empty.
        self._grids = extents if extents is not None and not extents.is_constant else None

    def __call__(self, *arguments: Any, symbols: dict[str, int] | None = None, stream: int | None = None) -> None:
        if self._grids is not None:
            grids = self._grids(arguments, symbols)
            if self._is_empty(grids):
                return
            self._check_limits(grids)
        if self._uses_tensor_maps:
            self._refuse_empty_tensors(arguments)
        if stream is None and not self._blocking:
            self._entry(*arguments)
            return
        import torch

        device = next((a.device for a in arguments if isinstance(a, torch.Tensor)), None)
        if stream is None:
            self._entry(*arguments)
            torch.cuda.synchronize(device)
            return
        if device is None:
            raise LaunchError(
                f"{self._name} has no tensor argument, so a stream cannot be chosen for it",
                hint="make the stream current with torch.cuda.stream(...) and leave stream= out",
            )
        external = torch.cuda.ExternalStream(stream, device=device)  # type: ignore[no-untyped-call]  # torch has no stub
        with torch.cuda.stream(external):
            self._entry(*arguments)
        if self._blocking:
            torch.cuda.synchronize(device)

    def _is_empty(self, grids: tuple[tuple[int, ...], ...]) -> bool:
        """Whether no block is launched at all: nothing to do, where the driver would refuse the launch."""
        empty = [any(extent <= 0 for extent in grid) for grid in grids]
        if any(empty) and not all(empty):
            raise LaunchError(
                f"{self._name}: launch {empty.index(True) + 1} of {len(empty)} has no blocks ({grids}), and TileLang's"
                " host code cannot skip one of several",
                hint="put the launches in kernels of their own, or do not call it for empty inputs",
            )
        return all(empty)

    def _check_limits(self, grids: tuple[tuple[int, ...], ...]) -> None:
        for grid in grids:
            for axis, (blocks, limit) in enumerate(zip(grid, self._limits, strict=False)):
                if blocks > limit:
                    raise ResourceExceeded(
                        f"{self._name}: {blocks} blocks along grid axis {'xyz'[axis]}, the chip launches {limit}",
                        hint="put the long axis first in T.Kernel, or give each block more work",
                        details={"axis": axis, "blocks": blocks, "limit": limit},
                    )

    def _refuse_empty_tensors(self, arguments: Sequence[Any]) -> None:
        for index, argument in enumerate(arguments):
            if hasattr(argument, "numel") and argument.numel() == 0:
                raise ShapeMismatch(
                    f"{self._name}: argument {index} has no elements {tuple(argument.shape)}, and a bulk tensor copy"
                    " (TMA) cannot describe that",
                    hint="do not call it for empty inputs, or copy that tensor with T.copy(..., disable_tma=True)",
                )


def _function(data: Mapping[str, Any]) -> _tilelang.DeviceFunction:
    fields = dict(data)
    for name in ("argument_types", "tensor_maps", "launch_tags", "grid", "threads"):
        fields[name] = tuple(fields[name])
    return _tilelang.DeviceFunction(**fields)


def with_build_figures(lowered: LoweredKernel, figures: Mapping[str, int | None]) -> Resources:
    """Resource figures after building: the native compiler's own over what was predicted."""
    known = {name: value for name, value in figures.items() if value is not None}
    resources = replace(lowered.resources, **known)  # type: ignore[arg-type]  # names are checked by dataclass replace
    static, dynamic = resources.static_shared_bytes, resources.dynamic_shared_bytes
    if static is not None and dynamic is not None:
        resources = replace(resources, memory_bytes={**resources.memory_bytes, "shared": static + dynamic})
    return resources
