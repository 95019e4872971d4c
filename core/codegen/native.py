"""The TileLang-native lowering family: chips the stock wheel has a backend for.

TileLang's own pass pipeline and device codegen produce the source, untouched. What is ours comes before (checks,
legalisation) and after: the native compiler is called by the vendor's backend, and the host side, which TileLang also
generates (argument unpacking, tensor-map descriptors, the launch), is read as a plan (`core.runtime.plan`) that our own
launch follows. Where it does something a plan cannot say, the generated host code itself is kept as C source beside
the device source and launches the kernel through TVM-FFI.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import _tilelang
from core.codegen.alignment import parameter_names, with_alignments
from core.codegen.launch import binding_source, capability, launch_source, required_driver, with_headers
from core.compiler.artifacts import BuiltKernel, CompileOptions, LoweredKernel, Resources
from core.errors import LaunchError, ResourceExceeded, ShapeMismatch, TileHALError, UnsupportedOp
from core.program.effects import buffer_effects
from core.program.expressions import dtype_bits, to_python
from core.program.nodes import Im2Col, Launch
from core.program.walk import statements
from core.runtime.driver_launcher import DriverLauncher
from core.runtime.extents import GridExtents
from core.runtime.interpreted import PlannedKernel
from core.runtime.plan import Argument, DeviceLaunch, DriverPlan, UnusablePlan

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.program import Program
    from core.runtime.launcher import Launcher
    from core.runtime.signature import Signature

#: Name of the attachment that holds the generated host source, where the launch has no plan.
HOST_SOURCE = "host.c"
#: Keys of `LoweredKernel.metadata`: the plan as JSON, or why there is none.
PLAN, UNPLANNED = "launch_plan", "unplanned"
#: Scalars that the plan's launches can pass by value.
_SHARED_TAG = "tirx.use_dyn_shared_memory"
_FAST_MATH = "tl.enable_fast_math"


def lower(
    program: Program,
    chip: Chip,
    options: CompileOptions,
    *,
    language: str,
    tvm_target: Mapping[str, Any],
    overlap: bool = False,
) -> LoweredKernel:
    """Lowers through TileLang's own backend for `tvm_target`.

    Args:
        language: of the generated device source (`cuda`).
        tvm_target: TVM target configuration with the architecture pinned, e.g. `{"kind": "cuda", "arch": "sm_90a"}`.
        overlap: a launch may start before the one in front of it has ended, and waits for that on the device.

    Raises:
        UnsupportedOp, ShapeMismatch, ResourceExceeded: TileLang refused the kernel; its reason is the message.
    """
    from core.codegen.tir import effective, legalise
    from core.compiler.messages import translate

    _check_gathered(program, chip)
    legal = legalise(program, chip, options)
    pass_configs = {**legal.pass_configs, **options.pass_configs}
    if options.fast_math:
        pass_configs.setdefault(_FAST_MATH, True)
    room = partial(_room, chip) if overlap else None
    usable = partial(_is_usable, program.signature)
    try:
        modules = _tilelang.lower_native(legal.prim_func, tvm_target, pass_configs, room=room, usable=usable)
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
    plan, unplanned = None, modules.unreadable
    if modules.plan is not None:
        plan, unplanned = _driver_plan(program.signature, modules.plan, modules.functions)
    if plan is None:
        _check_windows(program, chip, unplanned)
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
        signature=_aligned(program.signature, modules, plan),
        grid=tuple(f.grid for f in modules.functions),
        block=tuple(f.threads for f in modules.functions),
        resources=replace(predicted, memory_bytes=memory, dynamic_shared_bytes=dynamic, threads=threads),
        rewrites=tuple(legal.rewrites),
        attachments={HOST_SOURCE: modules.host_source.encode()} if plan is None else {},
        metadata={
            "functions": [asdict(f) for f in modules.functions],
            "tvm_target": dict(tvm_target),
            "effective": effective(
                program.view, legal.prim_func, legal.sequential, [f.threads for f in modules.functions]
            ),
            "relaxations": [*legal.relaxations, *_relaxed_maths(pass_configs, options)],
            "grids": _grids(program),
            "grid_limits": list(chip.limits.grid_dim or ()),
            PLAN: plan.to_json() if plan is not None else None,
            UNPLANNED: unplanned,
        },
    )


def _check_gathered(program: Program, chip: Chip) -> None:
    """Refuses images that a block writes itself: TileLang does not fence them before the copy engine fetches them."""
    for launch in program.view.launches if "tma" in chip.features else ():
        _, written = buffer_effects(launch.body)
        for stmt in statements(launch):
            if isinstance(stmt, Im2Col) and id(stmt.src.buffer.storage) in written:
                raise UnsupportedOp(
                    f"{program.name} for {chip.target}: T.im2col of {stmt.src.buffer.name}, which the same block"
                    " writes: the copy engine may fetch what was there before",
                    hint="write it in a T.Kernel of its own, or gather the pixels in a T.Parallel",
                    location=stmt.location,
                )


def _check_windows(program: Program, chip: Chip, unplanned: str) -> None:
    """Refuses images that TileLang's host code, which would launch the kernel, describes wrongly to the copy engine."""
    for stmt in statements(program.view) if "tma" in chip.features else ():
        if isinstance(stmt, Im2Col) and (stmt.kernel - 1) * stmt.dilation != 2 * stmt.padding:
            raise UnsupportedOp(
                f"{program.name} for {chip.target}: T.im2col of a window that makes images smaller or larger, launched"
                f" by TileLang's host code ({unplanned}), which has it fetch other pixels",
                hint="gather the pixels in a T.Parallel, as core/ops/conv2d.py does where channels leave a rest",
                location=stmt.location,
            )


def _room(chip: Chip, threads: int, shared_bytes: int) -> int | None:
    """Blocks that the chip holds at most at a time; None where a figure for that is unknown."""
    each = chip.occupancy(threads, 0, shared_dynamic=shared_bytes).at_most
    units = chip.main_unit.count
    return None if each is None or units is None else each * units


def _relaxed_maths(pass_configs: Mapping[str, Any], options: CompileOptions) -> list[str]:
    """What a pass configuration relaxes, for `kernel.config`; `fast_math` itself is said there anyway."""
    if options.fast_math or not pass_configs.get(_FAST_MATH):
        return []
    return [f"{_FAST_MATH}: exponentials, logarithms and divisions by approximate instructions, denormals are zero"]


def _is_usable(
    signature: Signature, read: _tilelang.LaunchPlan, functions: tuple[_tilelang.DeviceFunction, ...]
) -> bool:
    plan, _ = _driver_plan(signature, read, functions)
    return plan is not None


def _driver_plan(
    signature: Signature, read: _tilelang.LaunchPlan, functions: tuple[_tilelang.DeviceFunction, ...]
) -> tuple[DriverPlan | None, str]:
    """The host's launches in the driver's terms, or None and what stands in the way."""
    by_name = {function.name: function for function in functions}
    plan = DriverPlan(
        tuple(_device_launch(step, by_name[step.function]) for step in read.steps),
        read.maps,
        tuple(f"({count}*{dtype_bits(dtype)} + 7) // 8" for dtype, count in read.workspaces),
    )
    try:
        plan.check({*signature.symbols, *read.scalars})
        launch_source(signature, plan, (1, 1, 1), "sm_1")
        binding_source(signature, "cuda", refuses_empty=plan.maps_parameters)
    except UnusablePlan as error:
        return None, str(error)
    return plan, ""


def _aligned(signature: Signature, modules: _tilelang.NativeModules, plan: DriverPlan | None) -> Signature:
    """The signature with what the device code demands of addresses."""
    if plan is None:
        # Without a plan only the names say which parameter an argument is; TileLang keeps them.
        names = {argument.name: index for index, argument in enumerate(signature.arguments)}
        declared = {f.name: parameter_names(modules.device_source, f.name) for f in modules.functions}
        named = {entry: [names.get(name) for name in found] for entry, found in declared.items()}
        maps = {
            names.get(name.removesuffix("_desc")) for found in declared.values() for name in found if "_desc" in name
        }
        return with_alignments(signature, modules.device_source, named, [i for i in maps if i is not None])
    entries: dict[str, list[int | None]] = {
        launch.function: [a.index if a.kind == "tensor" else None for a in launch.arguments] for launch in plan.launches
    }
    used = {a.index for launch in plan.launches for a in launch.arguments if a.kind == "map"}
    described = {plan.maps[index].tensor for index in used if not plan.maps[index].of_workspace}
    return with_alignments(signature, modules.device_source, entries, described)


def _device_launch(step: _tilelang.LaunchStep, function: _tilelang.DeviceFunction) -> DeviceLaunch:
    extents = dict(zip(function.launch_tags, step.extents, strict=True))
    cluster = tuple(int(extents.get(f"tir.cluster_dim_{axis}", "1")) for axis in "xyz")

    def axes(kind: str) -> tuple[str, str, str]:
        return (extents.get(f"{kind}.x", "1"), extents.get(f"{kind}.y", "1"), extents.get(f"{kind}.z", "1"))

    return DeviceLaunch(
        function=step.function,
        arguments=tuple(_argument(*pair) for pair in zip(step.arguments, function.argument_types, strict=True)),
        grid=axes("blockIdx"),
        block=axes("threadIdx"),
        shared_bytes=extents.get(_SHARED_TAG, "0"),
        cluster=(cluster[0], cluster[1], cluster[2]) if max(cluster) > 1 else None,
        cooperative=function.cooperative,
        programmatic=function.programmatic,
        conditions=step.conditions,
    )


def _argument(text: str, dtype: str) -> Argument:
    kind, _, index = text.partition(":")
    if kind == "tensor" and index:
        return Argument("tensor", int(index))
    if kind == "workspace" and index:
        return Argument("workspace", int(index))
    if kind == "map" and index:
        return Argument("map", int(index))
    return Argument("scalar", value=text, dtype=dtype)


def plan_of(lowered: LoweredKernel) -> DriverPlan | None:
    """The launch plan of a kernel lowered by this family; None where TileLang's host code launches it."""
    data = lowered.metadata.get(PLAN)
    return DriverPlan.from_json(data) if data is not None else None


def launch_file(lowered: LoweredKernel, arch: str) -> str:
    """The C source of a planned kernel's argument check and launch (see :func:`core.codegen.host.build_launch`).

    Args:
        arch: what the binary is built for (`sm_90a`).
    """
    plan = plan_of(lowered)
    assert plan is not None
    limits = lowered.metadata["grid_limits"]
    return with_headers(
        launch_source(lowered.signature, plan, limits, arch)
        + binding_source(lowered.signature, "cuda", refuses_empty=plan.maps_parameters)
    )


def _grids(program: Program) -> list[list[str]] | None:
    """Block counts per launch as Python expressions; None when the host reads one from memory or may skip a launch."""
    if any(not isinstance(stmt, Launch) for stmt in program.view.body):
        return None
    try:
        return [[to_python(extent) for _, extent in launch.grid] for launch in program.view.launches]
    except ValueError:
        return None


def host_compile_command(compiler: Sequence[str], source: Path, library: Path) -> list[str]:
    """The command that compiles the host source into the library the launcher loads."""
    includes = [f"-I{path}" for path in _tilelang.host_include_paths()]
    return [*compiler, "-shared", "-fPIC", "-O2", "-w", *includes, "-o", str(library), str(source)]


def launcher(built: BuiltKernel, *, binary_format: str, loader: str) -> Launcher:
    """Loads a built kernel whose device image has the role `binary`.

    The launch is the compiled one (`launch`), else the plan is followed by the interpreter; a kernel without a plan has
    its host code as `library` and is launched by TVM-FFI.

    Args:
        binary_format: of the device image: `cubin` or `fatbin`.
        loader: TVM runtime module kind: `cuda`.
    """
    plan = plan_of(built.lowered)
    if plan is not None:
        return _planned(built, plan)
    functions = [_function(data) for data in built.lowered.metadata["functions"]]
    metadata = _tilelang.runtime_metadata(functions)
    entry = _tilelang.load_native(built.path("library"), built.path("binary"), binary_format, metadata, loader)
    return NativeLauncher(entry, built.lowered)


def _planned(built: BuiltKernel, plan: DriverPlan) -> DriverLauncher:
    from core.codegen.host import LAUNCH_ROLE

    lowered = built.lowered
    image = built.path("binary").read_bytes()
    number, exact = capability(str(built.metadata["arch"]))

    def interpreter() -> PlannedKernel:
        return PlannedKernel(
            lowered.signature,
            plan,
            image,
            limits=lowered.metadata["grid_limits"],
            required=required_driver(plan),
            capability=number,
            exact=exact,
            made_by=f"{built.toolchain.name} {built.toolchain.version}",
        )

    library = built.path(LAUNCH_ROLE) if LAUNCH_ROLE in built.files else None
    return DriverLauncher(lowered.signature, plan, image, library, interpreter, limits=lowered.metadata["grid_limits"])


class NativeLauncher:
    """Calls the generated host function; symbolic dimensions are read from the tensors by the host code itself."""

    __slots__ = ("_blocking", "_entry", "_grids", "_limits", "_name", "_uses_tensor_maps", "how")

    def __init__(self, entry: Any, lowered: LoweredKernel) -> None:
        self._entry = entry
        #: How calls are launched, for `k.provenance.launch`.
        self.how = f"TileLang's host code through TVM-FFI: {lowered.metadata.get(UNPLANNED)}"
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
