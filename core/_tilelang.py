"""Everything TileHAL needs from TileLang and its TVM beyond their public API, in one place.

Each function states what it assumes about the wheel; `tests/test_tilelang_assumptions.py` has a test per assumption, so
that a new tilelang release that breaks one says which. Nothing under `tilelang/` is written to and no private global is
patched.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import KernelError, Location, TileHALError


class TvmImportOrderError(TileHALError):
    """PyPI's `apache-tvm` was imported before tilelang, whose own TVM then cannot load."""

    code = "tvm-import-order"


def import_tilelang() -> Any:
    """Imports tilelang before anybody's `tvm` and returns the module.

    Assumes: tilelang puts its own `tvm` on `sys.path` and imports it as `tvm`; a foreign `tvm` already imported makes
    that fail with an undefined symbol.

    Raises:
        TvmImportOrderError: another `tvm` is imported already.
        TileHALError: tilelang is not installed or its import failed (the cause is chained).
    """
    loaded = sys.modules.get("tilelang")
    if loaded is not None and hasattr(loaded, "tvm"):
        return loaded
    foreign = sys.modules.get("tvm")
    if foreign is not None:
        where = getattr(foreign, "__file__", None) or "an unknown place"
        raise TvmImportOrderError(
            f"`tvm` is already imported from {where}, so tilelang cannot load the TVM build it ships",
            hint="in a fresh process, import tilelang (or call a TileHAL function that compiles) before `import tvm`",
        )
    try:
        import tilelang
    except ImportError as error:
        installed = importlib.machinery.PathFinder.find_spec("tilelang") is not None
        raise TileHALError(
            f"tilelang could not be imported: {error}" if installed else "tilelang is not installed",
            hint="run `tilehal doctor`: it says which tilelang, tvm and tvm_ffi are found and what breaks them"
            if installed
            else "pip install tilelang",
        ) from error
    return tilelang


def tilelang_version() -> str:
    """Version of the installed tilelang, without importing it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tilelang")
    except PackageNotFoundError:
        return "not installed"


# --------------------------------------------------------------------------------------------------------------------
# Tracing
# --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TracedKernel:
    """A PrimFunc and what the object it came from said about it.

    Attributes:
        prim_func: `tvm.tirx.PrimFunc`.
        out_idx: positions of the outputs, as the author gave them (None when unsaid).
        pass_configs, compile_flags: what the author attached to `@tilelang.jit`.
    """

    prim_func: Any
    out_idx: Sequence[int] | int | None
    pass_configs: Mapping[str, Any]
    compile_flags: tuple[str, ...]


def is_prim_func(obj: object) -> bool:
    """Whether this is a TVM PrimFunc. Never imports anything: without tilelang loaded there can be none."""
    tirx = sys.modules.get("tvm.tirx")
    return tirx is not None and isinstance(obj, tirx.PrimFunc)


def trace(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> TracedKernel:
    """The PrimFunc behind whatever a user calls a kernel: a PrimFunc, a `@tilelang.jit` object, a plain factory.

    Assumes: `JITImpl` has `get_tir`, `out_idx`, `pass_configs`, `compile_flags`; `AutoTuneImpl` has `jit_impl`.

    Raises:
        KernelError: it is none of these, or tracing failed (at the user's line, cause chained).
    """
    import_tilelang()
    if is_prim_func(func):
        if args or kwargs:
            raise KernelError(
                "a PrimFunc takes no arguments: its shapes are already fixed",
                hint="pass the factory (or the @tilelang.jit object) itself to give it arguments",
            )
        return TracedKernel(func, None, {}, ())
    implementation = getattr(func, "jit_impl", func)
    if hasattr(implementation, "get_tir"):
        with _trace_errors(func):
            prim_func = implementation.get_tir(*args, **kwargs)
        flags = implementation.compile_flags or ()
        return TracedKernel(
            prim_func,
            implementation.out_idx,
            dict(implementation.pass_configs or {}),
            (flags,) if isinstance(flags, str) else tuple(flags),
        )
    if not callable(func):
        raise KernelError(
            f"not a kernel: {type(func).__name__}",
            hint="pass a @T.prim_func, a @tilelang.jit function, a @core.kernel factory or a function returning one",
        )
    with _trace_errors(func):
        prim_func = func(*args, **kwargs)
    if not is_prim_func(prim_func):
        raise KernelError(
            f"{getattr(func, '__name__', func)!s} returned {type(prim_func).__name__}, not a PrimFunc",
            hint="a kernel factory ends with `return main`, where main is its @T.prim_func",
        )
    return TracedKernel(prim_func, None, {}, ())


@contextmanager
def _trace_errors(func: Any) -> Iterator[None]:
    """Runs a trace silently (TileLang logs a dump of the rewritten source) and types what it raises."""
    previous = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    except TileHALError:
        raise
    except Exception as error:
        from core.compiler.messages import translate

        raise translate(
            error, fallback=KernelError, stage=f"tracing {getattr(func, '__name__', 'the kernel')}"
        ) from error
    finally:
        logging.disable(previous)


def user_location(error: BaseException) -> Location | None:
    """The deepest frame of a traceback that is the user's: not of Python's, TileLang's, TVM's or ours."""
    found: Location | None = None
    traceback = error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if _is_user_file(file):
            found = Location(file, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def _is_user_file(file: str) -> bool:
    parts = Path(file).parts
    if file.startswith("<") or any(part in ("site-packages", "dist-packages") for part in parts):
        return False
    return not file.startswith((str(Path(__file__).parent), sys.prefix + "/lib", sys.base_prefix + "/lib"))


# --------------------------------------------------------------------------------------------------------------------
# TileLang's own lowering for a chip the wheel has a backend for
# --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceFunction:
    """One device entry point: what the TVM runtime must know to launch it, and its launch shape.

    Attributes:
        argument_types: dtype per argument (`handle` for pointers and tensor maps).
        tensor_maps: per argument, whether it is a TMA descriptor passed by value.
        launch_tags: TVM's launch parameters in order (`blockIdx.x`, ..., `tirx.use_dyn_shared_memory`).
        grid: block counts as expressions; threads: per block.
        dynamic_shared_bytes: as passed at launch; an expression when symbolic.
    """

    name: str
    argument_types: tuple[str, ...]
    tensor_maps: tuple[bool, ...]
    launch_tags: tuple[str, ...]
    grid: tuple[str, str, str]
    threads: tuple[int, int, int]
    dynamic_shared_bytes: int | None


@dataclass(frozen=True)
class NativeModules:
    """Text from which a launchable kernel can be built anywhere: device source, host source, runtime metadata."""

    device_source: str
    host_source: str
    functions: tuple[DeviceFunction, ...]

    def runtime_metadata(self) -> str:
        """The JSON that the TVM runtime's CUDA module wants beside the binary."""
        return runtime_metadata(self.functions)


def runtime_metadata(functions: Sequence[DeviceFunction]) -> str:
    """Assumes: `runtime.LoadMetaDataFromJSON` reads `func_info` entries of this form."""
    info = {
        function.name: {
            "name": function.name,
            "arg_types": list(function.argument_types),
            "launch_param_tags": list(function.launch_tags),
            "arg_extra_tags": [int(flag) for flag in function.tensor_maps],
        }
        for function in functions
    }
    return json.dumps({"tvm_version": "0.1.0", "func_info": info})


def lower_native(prim_func: Any, tvm_target: Mapping[str, Any], pass_configs: Mapping[str, Any]) -> NativeModules:
    """Runs TileLang's own pipeline and device codegen for `tvm_target` without compiling anything.

    Assumes: `create_backend_context`, `lower_to_host_device_ir` and `host_codegen` of `tilelang.engine.lower`; the
    device module's functions carry `thread_extent`, `dyn_shared_memory_buf`, `tirx.kernel_launch_params`, and mark
    tensor maps with the storage scope `grid_constant`; the host module is C whose entry point is `__tvm_ffi_main`.

    Raises: whatever TileLang raises; callers translate it (`core.compiler.messages.translate`).
    """
    tilelang = import_tilelang()
    from tilelang.backend.module import create_backend_context
    from tilelang.transform.pass_config import normalize_pass_configs

    engine = importlib.import_module("tilelang.engine.lower")
    tvm = tilelang.tvm
    context = create_backend_context(dict(tvm_target))
    configs = normalize_pass_configs(dict(pass_configs)) or {}
    with tvm.transform.PassContext(opt_level=3, config=configs), context.target:
        host_module, device_module, *_ = engine.lower_to_host_device_ir(prim_func, context)
        functions = tuple(_device_function(func) for _, func in device_module.functions.items())
        device = engine.device_codegen_without_compile(device_module, context)
        host = engine.host_codegen(host_module, context)
    return NativeModules(device.inspect_source(), host.inspect_source(), functions)


def _device_function(func: Any) -> DeviceFunction:
    attrs = func.attrs
    extent = attrs.get("thread_extent", {})

    def axis(tag: str) -> str:
        return str(extent[tag]) if tag in extent else "1"

    shared = attrs.get("dyn_shared_memory_buf", 0)
    maps = tuple(
        getattr(getattr(p, "type_annotation", None), "storage_scope", "") == "grid_constant" for p in func.params
    )
    return DeviceFunction(
        name=str(attrs["global_symbol"]),
        argument_types=tuple("handle" if str(p.dtype) == "handle" else str(p.dtype) for p in func.params),
        tensor_maps=maps,
        launch_tags=tuple(str(tag) for tag in attrs["tirx.kernel_launch_params"]),
        grid=(axis("blockIdx.x"), axis("blockIdx.y"), axis("blockIdx.z")),
        threads=(int(axis("threadIdx.x")), int(axis("threadIdx.y")), int(axis("threadIdx.z"))),
        dynamic_shared_bytes=_as_int(shared),
    )


def _as_int(value: Any) -> int | None:
    try:
        return int(value)
    except TypeError:
        return None


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
