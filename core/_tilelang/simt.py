"""TileLang's ROCm pipeline and HIP code generation, used for chips the wheel does not know.

The target is an ordinary `hip` target of TVM with a key of ours, and the backend context is built around an
unregistered copy of the built-in module: what TileLang itself does for `hip` is not touched. The matrix products of our
targets are lowered by the emitter of the compilation that is running, those of other targets by the built-in class.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from core._tilelang.distinct import distinct_names
from core._tilelang.hostplan import LaunchPlan, read_plan
from core._tilelang.importing import import_tilelang
from core._tilelang.native import DeviceFunction, _device_function, _text
from core._tilelang.silence import silent

#: Key of our targets among TVM's `hip` targets.
_KEY = "tilehal-simt"
#: An AMD architecture with waves of this many lanes; what else it can do is never used.
_ARCHITECTURES = {64: "gfx90a", 32: "gfx1100"}
#: The one for which TileLang emits asynchronous copies.
_ASYNC_ARCHITECTURE = "gfx950"
_lock = threading.Lock()
_registered = False


class GemmEmitter(Protocol):
    """Lowers the `T.gemm`s of one compilation. `gemm` is a `tilelang.tileop.gemm.gemm_base.GemmBase`."""

    def infer_layout(self, gemm: Any, threads: int) -> dict[Any, Any]:
        """Layouts of the operand buffers, by buffer."""

    def lower(self, gemm: Any, thread_index: Any, threads: int) -> Any:
        """A PrimFunc whose body replaces the operator."""


_emitter: ContextVar[GemmEmitter] = ContextVar("tilehal_gemm_emitter")


@dataclass(frozen=True)
class PartialBarrier:
    """A barrier that waits for some of a block's threads, which the HIP printer prints as one of them all.

    Attributes:
        barrier, count: its number, and how many threads it waits for; source text where they are no constants.
        threads: threads of the block.
    """

    barrier: str
    count: str
    threads: int


@dataclass(frozen=True)
class SimtModules:
    """What lowering gives: HIP C++, its entry points, and what the host does to launch them.

    Attributes:
        partial_barriers: those whose text in `source` is not what they mean.
    """

    source: str
    functions: tuple[DeviceFunction, ...]
    plan: LaunchPlan
    partial_barriers: tuple[PartialBarrier, ...] = ()


def supported_wave_lanes() -> tuple[int, ...]:
    """Wave widths the pipeline can lower for."""
    return tuple(_ARCHITECTURES)


def lower_simt(
    prim_func: Any,
    *,
    wave_lanes: int,
    async_copy: bool,
    emitter: GemmEmitter,
    pass_configs: Mapping[str, Any],
) -> SimtModules:
    """Runs the stock ROCm pipeline and the HIP code generator, without compiling anything.

    Args:
        wave_lanes: one of :func:`supported_wave_lanes`.
        async_copy: whether pipelined copies become asynchronous (64 lanes only).
        emitter: lowers the matrix products.

    Assumes: a `BackendContext` may hold a module nobody registered; `GemmGetGemmInstructionKey` answers `rocm.mfma` for
    gfx9 and `rocm.wmma` for gfx11; `register_gemm_impl` replaces an entry of the same name; TileLang asks the entries'
    predicates at each product.

    Raises: whatever TileLang raises; callers translate it (`core.compiler.messages.translate`).
    """
    tilelang = import_tilelang()
    _register()
    from tilelang.transform.pass_config import normalize_pass_configs

    engine = importlib.import_module("tilelang.engine.lower")
    tvm = tilelang.tvm
    architecture = _ASYNC_ARCHITECTURE if async_copy else _ARCHITECTURES[wave_lanes]
    context = _context(architecture, wave_lanes)
    configs = normalize_pass_configs(dict(pass_configs)) or {}
    token = _emitter.set(emitter)
    try:
        with silent(), tvm.transform.PassContext(3, instruments=[distinct_names()], config=configs), context.target:
            host_module, device_module, *_ = engine.lower_to_host_device_ir(prim_func, context)
            functions = tuple(_device_function(func) for _, func in device_module.functions.items())
            plan = read_plan(host_module, {f.name: len(f.argument_types) for f in functions})
            barriers = tuple(
                barrier
                for func, one in zip(device_module.functions.values(), functions, strict=True)
                for barrier in _partial_barriers(func.body, one.threads[0] * one.threads[1] * one.threads[2])
            )
            device = engine.device_codegen_without_compile(_with_constants(device_module), context)
    finally:
        _emitter.reset(token)
    return SimtModules(_text(device.inspect_source()), functions, plan, barriers)


#: Type of a constant that the HIP printer cannot print -> its C++ type.
_UNPRINTABLE = {"float8_e5m2": "fp8_e5_t"}


def _with_constants(module: Any) -> Any:
    """The device functions with constants of `_UNPRINTABLE` as the printer prints those of float8_e4m3.

    Assumes: the printer names no constructor for float8_e5m2 and ends with "Bad bit-width for float".
    """
    from tvm import tirx

    def constructed(constant: Any) -> Any:
        name = _UNPRINTABLE.get(str(constant.dtype))
        if name is None:
            return None
        return tirx.call_pure_extern(constant.dtype, name, tirx.FloatImm("float32", constant.value))

    for variable, function in list(module.functions.items()):
        body = tirx.stmt_functor.ir_transform(function.body, None, constructed, ["ir.FloatImm"])
        module.update_func(variable, function.with_body(body, function.span))
    return module


def _partial_barriers(body: Any, threads: int) -> list[PartialBarrier]:
    """Barriers whose count is not provably the block's: an author's own, and those of a branch that some threads take.

    Assumes: `tvm_storage_sync(scope, number, count)`; without a count it waits for the whole block.
    """
    from tvm import tirx

    found: list[PartialBarrier] = []

    def visit(node: Any) -> None:
        if isinstance(node, tirx.Call) and getattr(node.op, "name", "") == "tirx.tvm_storage_sync":
            counts = list(node.args)[2:]
            if counts and not (isinstance(counts[0], tirx.IntImm) and int(counts[0]) == threads):
                found.append(PartialBarrier(_text(node.args[1]), _text(counts[0]), threads))

    tirx.stmt_functor.post_order_visit(body, visit)
    return found


@lru_cache(maxsize=8)
def _context(architecture: str, wave_lanes: int) -> Any:
    """A backend context for our target, around a copy of the built-in module that is registered nowhere."""
    from dataclasses import replace

    from tilelang.backend.module import BackendContext, get_backend
    from tvm.target import Target

    builtin = get_backend("rocm")
    module = replace(builtin, name=f"tilehal-simt-{architecture}", callbacks={})
    attributes = {"kind": "hip", "mcpu": architecture, "thread_warp_size": wave_lanes, "keys": ["hip", "gpu", _KEY]}
    with _without_rocm_warning():
        host = Target("c")
        target = Target(Target(attributes), host)
    execution = next(spec for spec in module.execution_backends if spec.name == "tvm_ffi")
    return BackendContext(module=module, target=target, target_host=host, execution_backend=execution)


def _register() -> None:
    """Puts our GEMM implementation beside the built-in ones, each for its own targets only. Idempotent."""
    global _registered
    with _lock:
        if _registered:
            return
        from tilelang.rocm.op.gemm import GEMM_INST_MFMA, GEMM_INST_WMMA, GemmMFMA, GemmWMMA
        from tilelang.rocm.target import target_is_hip
        from tilelang.tileop.gemm.gemm_base import GemmBase
        from tilelang.tileop.gemm.registry import register_gemm_impl

        class SimtGemm(GemmBase):  # type: ignore[misc]  # TileLang has no types
            def infer_layout(self, target: Any, thread_nums: Any) -> Any:
                return _emitter.get().infer_layout(self, int(thread_nums))

            def lower(
                self, layout_map: Any, target: Any, thread_bounds: Any, thread_index: Any, mbar_phase_expr: Any = None
            ) -> Any:
                return _emitter.get().lower(self, thread_index, int(thread_bounds.extent))

        def ours(target: Any) -> bool:
            return _KEY in target.keys

        def theirs(target: Any) -> bool:
            return bool(target_is_hip(target)) and not ours(target)

        for name, instruction, builtin in (
            ("rocm.mfma", GEMM_INST_MFMA, GemmMFMA),
            ("rocm.wmma", GEMM_INST_WMMA, GemmWMMA),
        ):
            register_gemm_impl(name, instruction, theirs, builtin)
            register_gemm_impl(f"tilehal.{name}", instruction, ours, SimtGemm)
        _registered = True


@contextlib.contextmanager
def _without_rocm_warning() -> Iterator[None]:
    """Making a `hip` target looks for ROCm and warns on standard error, from C++, that it is not there.

    What else is written meanwhile is written on.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as kept:
        saved = os.dup(2)
        try:
            os.dup2(kept.fileno(), 2)
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            kept.seek(0)
            rest = b"".join(line for line in kept.readlines() if b"Unable to detect ROCm version" not in line)
            if rest:
                os.write(2, rest)
