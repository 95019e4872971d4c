"""TileLang's own lowering for a chip the wheel has a backend for, and loading what was built from it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core._tilelang.distinct import distinct_names
from core._tilelang.hostplan import LaunchPlan, UnreadableHost, read_plan
from core._tilelang.importing import import_tilelang
from core._tilelang.overlap import COOPERATIVE, SHARED, WAITS, Room, with_waits, with_waits_for_tvm
from core._tilelang.silence import silent
from core._tilelang.windows import Windows, image_windows


@dataclass(frozen=True)
class DeviceFunction:
    """One device entry point: what the TVM runtime must know to launch it, and its launch shape.

    Attributes:
        argument_types: dtype per argument (`handle` for pointers and tensor maps).
        tensor_maps: per argument, whether it is a TMA descriptor passed by value.
        launch_tags: TVM's launch parameters in order (`blockIdx.x`, ..., `tirx.use_dyn_shared_memory`).
        grid: block counts as expressions; threads: per block.
        dynamic_shared_bytes: as passed at launch; None when symbolic.
        cooperative: it has a barrier over the whole grid.
        programmatic: it waits for the launch in front of it by itself (`T.pdl_sync`).
    """

    name: str
    argument_types: tuple[str, ...]
    tensor_maps: tuple[bool, ...]
    launch_tags: tuple[str, ...]
    grid: tuple[str, str, str]
    threads: tuple[int, int, int]
    dynamic_shared_bytes: int | None
    cooperative: bool = False
    programmatic: bool = False


@dataclass(frozen=True)
class NativeModules:
    """Text from which a launchable kernel can be built anywhere: device source, host source, runtime metadata.

    `plan` is what the host source does, as data; where it does something a plan cannot say, `unreadable` names it.
    """

    device_source: str
    host_source: str
    functions: tuple[DeviceFunction, ...]
    plan: LaunchPlan | None = None
    unreadable: str = ""

    def runtime_metadata(self) -> str:
        """The JSON that the TVM runtime's CUDA module wants beside the binary."""
        return runtime_metadata(self.functions)


def runtime_metadata(functions: Sequence[DeviceFunction]) -> str:
    """The JSON that the TVM runtime's CUDA module wants beside the binary.

    Assumes: `runtime.LoadMetaDataFromJSON` reads `func_info` entries of this form; the tags of the two special launches
    have no argument of their own.
    """
    info = {
        function.name: {
            "name": function.name,
            "arg_types": list(function.argument_types),
            "launch_param_tags": [
                *(["tirx.use_programtic_dependent_launch"] if function.programmatic else ()),
                *(["tirx.use_cooperative_launch"] if function.cooperative else ()),
                *function.launch_tags,
            ],
            "arg_extra_tags": [int(flag) for flag in function.tensor_maps],
        }
        for function in functions
    }
    return json.dumps({"tvm_version": "0.1.0", "func_info": info})


#: Whether a plan for these functions can be followed by a launch of ours, so that TVM's runtime need not launch them.
Usable = Callable[[LaunchPlan, tuple[DeviceFunction, ...]], bool]


def lower_native(
    prim_func: Any,
    tvm_target: Mapping[str, Any],
    pass_configs: Mapping[str, Any],
    *,
    room: Room | None = None,
    usable: Usable = lambda plan, functions: True,
) -> NativeModules:
    """Runs TileLang's own pipeline and device codegen for `tvm_target` without compiling anything.

    Args:
        room: given, launches of ours overlap (`core._tilelang.overlap`); None starts each when what is in front of it
            has ended.
        usable: asked once the host's part has been read as a plan. What TVM's runtime launches instead does not overlap
            but where the runtime decides so by itself, and waits there.

    Assumes: `create_backend_context`, `lower_to_host_device_ir` and `host_codegen` of `tilelang.engine.lower`; the
    device module's functions carry `thread_extent`, `dyn_shared_memory_buf`, `tirx.kernel_launch_params`, and mark
    tensor maps with the storage scope `grid_constant`, barriers over the grid with `use_cooperative_groups` and waits
    for the launch in front with `has_cuda_pdl_sync`; the host module is C whose entry point is `__tvm_ffi_main`.

    Raises: whatever TileLang raises; callers translate it (`core.compiler.messages.translate`).
    """
    tilelang = import_tilelang()
    from tilelang.backend.module import create_backend_context
    from tilelang.transform.pass_config import normalize_pass_configs

    engine = importlib.import_module("tilelang.engine.lower")
    tvm = tilelang.tvm
    context = create_backend_context(dict(tvm_target))
    configs = normalize_pass_configs(dict(pass_configs)) or {}
    with silent(), tvm.transform.PassContext(3, instruments=[distinct_names()], config=configs), context.target:
        host_module, device_module, *_ = engine.lower_to_host_device_ir(prim_func, context)
        functions = tuple(_device_function(func) for _, func in device_module.functions.items())
        plan, unreadable = _plan(host_module, functions, image_windows(prim_func))
        if plan is not None and usable(plan, functions):
            device_module = with_waits(device_module, room)
        else:
            device_module = with_waits_for_tvm(device_module)
        functions = tuple(_device_function(func) for _, func in device_module.functions.items())
        device = engine.device_codegen_without_compile(device_module, context)
        host = engine.host_codegen(host_module, context)
    return NativeModules(_text(device.inspect_source()), _text(host.inspect_source()), functions, plan, unreadable)


def _plan(host_module: Any, functions: Sequence[DeviceFunction], windows: Windows) -> tuple[LaunchPlan | None, str]:
    try:
        return read_plan(host_module, {f.name: len(f.argument_types) for f in functions}, windows), ""
    except UnreadableHost as error:
        return None, str(error)


def _device_function(func: Any) -> DeviceFunction:
    attrs = func.attrs
    extent = attrs.get("thread_extent", {})

    def axis(tag: str) -> str:
        return _text(extent[tag]) if tag in extent else "1"

    shared = attrs.get(SHARED, 0)
    maps = tuple(
        getattr(getattr(p, "type_annotation", None), "storage_scope", "") == "grid_constant" for p in func.params
    )
    return DeviceFunction(
        name=_text(attrs["global_symbol"]),
        argument_types=tuple(_text(p.dtype) for p in func.params),
        tensor_maps=maps,
        launch_tags=tuple(_text(tag) for tag in attrs["tirx.kernel_launch_params"]),
        grid=(axis("blockIdx.x"), axis("blockIdx.y"), axis("blockIdx.z")),
        threads=(int(axis("threadIdx.x")), int(axis("threadIdx.y")), int(axis("threadIdx.z"))),
        dynamic_shared_bytes=_as_int(shared),
        cooperative=bool(attrs.get(COOPERATIVE, 0)),
        programmatic=bool(attrs.get(WAITS, 0)),
    )


def _text(value: Any) -> str:
    """A plain string: TVM's own is a subclass of `str`, which data that goes to a cache must not hold."""
    return str.__str__(str(value))


def _as_int(value: Any) -> int | None:
    try:
        return int(value)
    except TypeError:
        return None


def known_pass_configs() -> frozenset[str]:
    """Names of every pass configuration: those registered with TVM's pass context, and TileLang's own list."""
    tilelang = import_tilelang()
    registered = {str(name) for name in tilelang.tvm.transform.PassContext.list_configs()}
    return frozenset(registered | {str(key.value) for key in tilelang.PassConfigKey})


def host_include_paths() -> tuple[Path, ...]:
    """Include folders the generated host C needs. Assumes the wheel ships TVM's headers under `3rdparty/tvm`."""
    tilelang = import_tilelang()
    import tvm_ffi.libinfo

    root = Path(tilelang.__file__).parent / "3rdparty" / "tvm" / "include"
    return (root, Path(tvm_ffi.libinfo.find_include_path()))


def device_include_paths() -> tuple[Path, ...]:
    """Include folders the generated CUDA C++ needs: TileLang's templates and CUTLASS."""
    import_tilelang()
    from tilelang.env import CUTLASS_INCLUDE_DIR, TILELANG_TEMPLATE_PATH

    return (Path(TILELANG_TEMPLATE_PATH), Path(CUTLASS_INCLUDE_DIR))


def load_native(library: Path, binary: Path, binary_format: str, metadata: str, loader: str) -> Callable[..., None]:
    """Joins a compiled host library and a device binary into a callable that takes torch tensors.

    Launches on the stream TVM-FFI finds current in torch for the tensors' device.

    Args:
        library: shared object of the host C source.
        binary: device image.
        binary_format: `cubin` or `fatbin`.
        metadata: :func:`runtime_metadata` of the device functions.
        loader: TVM runtime module kind, e.g. `cuda`.

    Assumes: `ffi.Module.create.<kind>(bytes, format, function map, sources)` exists, and a host library resolves the
    device entry points through its imports.
    """
    import_tilelang()
    import tvm_ffi

    function_map = tvm_ffi.get_global_func("runtime.LoadMetaDataFromJSON")(metadata)
    create = tvm_ffi.get_global_func(f"ffi.Module.create.{loader}")
    device = create(binary.read_bytes(), binary_format, function_map, {})
    module = tvm_ffi.load_module(str(library))
    module.import_module(device)
    # A function does not keep its module alive: tie their lifetimes.
    return _Loaded(module["main"], module)


class _Loaded:
    """A host entry point together with the module that must stay loaded for it to be callable."""

    __slots__ = ("entry", "module")

    def __init__(self, entry: Callable[..., None], module: Any) -> None:
        self.entry = entry
        self.module = module

    def __call__(self, *arguments: Any) -> None:
        self.entry(*arguments)
