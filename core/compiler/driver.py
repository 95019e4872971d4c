"""`core.compile`: resolve the target, trace the kernel, choose its tiles, check it, lower it."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from core._functions import near_name
from core._tilelang import TracedKernel, import_tilelang, tilelang_version, trace
from core.compiler.artifacts import CompileOptions, LoweredKernel
from core.compiler.options import checked_pass_configs, compile_options
from core.errors import KernelError, PortabilityWarning, ToolchainNotFound, UnsupportedOp
from core.tiling.factory import KernelFactory

if TYPE_CHECKING:
    from core.compiler.choosing import Chosen
    from core.hardware import Chip
    from core.plugins import Backend
    from core.program import Program
    from core.runtime.kernel import Kernel
    from core.target import Target


def compile(
    func: Any,
    *args: Any,
    target: str | Target | Chip = "auto",
    out_idx: Sequence[int] | int | None = None,
    simulate: bool = False,
    pass_configs: Mapping[Any, Any] | None = None,
    compile_flags: Sequence[str] | str | None = None,
    fast_math: bool = False,
    options: Mapping[str, Any] | None = None,
    execution_backend: str | None = None,
    target_host: str | None = None,
    verbose: bool = False,
    build: bool | None = None,
    **kwargs: Any,
) -> Kernel:
    """Compiles a TileLang kernel for a chip.

    Args:
        func: a `@T.prim_func`; a `@tilelang.jit` function, lazy (arguments: those of the factory) or eager (arguments:
            example tensors, or the names of its `T.const` as keywords); a `@core.kernel` factory; or a plain function
            that returns a PrimFunc.
        args, kwargs: what `func` takes. For a `@core.kernel` factory, tile parameters given here are used as they are
            and the others are chosen by the chip's rules.
        target: `"<vendor>[:<chip>][+<change>]"` or `"auto"`; a resolved target or a chip serves too.
        out_idx: positions of the outputs, negative from the end; inherited from `@tilelang.jit` when None.
        simulate: calls run the generated native code on the CPU simulator.
        pass_configs, compile_flags, verbose: as for `tilelang.compile`.
        fast_math: allow approximate maths, and TF32 for float32 matrix products where the chip has it.
        options: options the backend documents; and, whatever the backend, `timeout_s`: seconds that the native compiler
            may take.
        execution_backend, target_host: accepted for compatibility with `tilelang.compile`; TileHAL launches
            kernels itself and builds for this host, so only `None`, `"auto"` and `"tvm_ffi"` (and no `target_host`) are
            valid.
        build: compile the native code now (True), at the first call (False), or now exactly when this machine can run
            it (None).

    Returns:
        A :class:`core.Kernel`.

    Raises:
        TargetNotFound, BackendLoadError: the target cannot be resolved.
        KernelError, ShapeMismatch, UnsupportedOp, ResourceExceeded: the kernel, with the user's line.
        BuildFailed: the native compiler refused the generated source.
    """
    from core.target import resolve

    _check_compatibility(execution_backend, target_host)
    _check_keywords(func, kwargs)
    import_tilelang()
    resolved = resolve(target)
    request = _Request(
        func=func,
        args=tuple(_example(value) for value in args),
        kwargs={name: _example(value) for name, value in kwargs.items()},
        out_idx=out_idx,
        simulate=simulate,
        build=build,
        vendor=resolved.chip.vendor,
        options=compile_options(pass_configs, compile_flags, fast_math, options, verbose=verbose),
    )
    return _compile(request, resolved)


@dataclass(frozen=True, slots=True)
class _Request:
    """Everything of a call to :func:`compile` but the target: what `with_target` repeats."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out_idx: Sequence[int] | int | None
    simulate: bool
    build: bool | None
    options: CompileOptions
    vendor: str

    def retarget(self, *, target: str | Target | Chip, simulate: bool, **overrides: Any) -> Kernel:
        from core.target import resolve

        if overrides and not isinstance(self.func, KernelFactory):
            raise KernelError(
                f"with_target({target!r}) cannot change {', '.join(overrides)}: this kernel was not made by a"
                " core.kernel factory, so its numbers are fixed",
                hint="compile the factory again with the new numbers",
            )
        resolved = resolve(target)
        options = self.options if resolved.chip.vendor == self.vendor else replace(self.options, backend={})
        request = replace(
            self,
            kwargs={**self.kwargs, **overrides},
            simulate=simulate,
            options=options,
            vendor=resolved.chip.vendor,
        )
        return _compile(request, resolved)


def _compile(request: _Request, target: Target) -> Kernel:
    from core.plugins import manager
    from core.program.capacity import check

    backend = manager().backend(target.chip.vendor)
    if request.simulate and not backend.implements("tilehal_simulator", target.chip):
        here = target.find_device() is not None
        raise UnsupportedOp(
            f"{backend.distribution} {backend.version} has no simulator for {target.chip.target}",
            hint="leave simulate out: the chip itself is here"
            if here
            else "leave simulate out to compile to source; `tilehal targets` lists the targets that can be simulated",
        )
    compiles = backend.implements("tilehal_lower", target.chip)
    if isinstance(request.func, KernelFactory):
        if not compiles:
            raise _only_described(backend, target.chip)
        return _compile_factory(request, target, backend)
    traced = trace(request.func, request.args, request.kwargs)
    program = _program(traced, request.out_idx)
    _check_examples(program, request)
    if not compiles:
        # What is wrong with the kernel is the more useful answer: it stays wrong when the backend learns to compile.
        check(program, target.chip)
        raise _only_described(backend, target.chip)
    return _finish(request, target, backend, program, traced)


def _only_described(backend: Backend, chip: Chip) -> UnsupportedOp:
    return UnsupportedOp(
        f"{chip.target} cannot be compiled for yet: {backend.distribution} {backend.version} describes its"
        " chips and nothing else",
        hint=f"`tilehal describe --target {chip.target}` works; `tilehal targets` lists what compiles",
    )


def _compile_factory(request: _Request, target: Target, backend: Backend) -> Kernel:
    """Tries what was measured, then the candidates as they are ranked, until one lowers."""
    from core.compiler.choosing import first_that_compiles
    from core.tiling.problem import TileProblem

    problem = TileProblem.of(request.func, request.args, request.kwargs, target, request.options.backend)

    def attempt(chosen: Chosen) -> Kernel:
        traced, _ = problem.tracer.traced(chosen.tiles)
        return _finish(request, target, backend, _program(traced, request.out_idx), traced, chosen)

    return first_that_compiles(problem, request.options, attempt)


def _program(traced: TracedKernel, out_idx: Sequence[int] | int | None) -> Program:
    from core.program import Program

    return Program(traced.prim_func, out_idx if out_idx is not None else traced.out_idx)


def _check_examples(program: Program, request: _Request) -> None:
    """An eager kernel traced from example tensors: TileLang does not cross-check their shapes and dtypes, we do."""
    import torch

    from core.runtime.arguments import Binder

    tensors = [value for value in request.args if isinstance(value, torch.Tensor)]
    arguments = program.signature.arguments
    inputs = [argument for argument in arguments if not getattr(argument, "is_output", False)]
    # Numbers among the examples are constants of the kernel, not arguments of its calls.
    if tensors and len(tensors) in (len(inputs), len(arguments)):
        Binder(program.signature, "meta", program.parameter_locations)(tuple(tensors), {})


def _finish(
    request: _Request,
    target: Target,
    backend: Backend,
    program: Program,
    traced: TracedKernel,
    chosen: Chosen | None = None,
) -> Kernel:
    from core.compiler.build import Builder
    from core.compiler.cache import default
    from core.compiler.keys import compile_key
    from core.compiler.report import kernel_config
    from core.runtime.kernel import Kernel
    from core.runtime.report import Provenance

    options = _merged(request.options, traced)
    chip = target.chip
    extensions = [package for package in backend.packages(chip) if package.role == "extension"]
    key = compile_key(
        program.fingerprint(),
        chip,
        backend_name=backend.distribution,
        backend_version=backend.version,
        backend_code_hash=backend.code_hash,
        options=options,
        tilelang_version=tilelang_version(),
        extensions=[(e.distribution, e.version, e.code_hash) for e in extensions],
    )
    cache = default()
    lowered, cached = cache.lowered(key, partial(_lower, backend, chip, program, options), origin=program.location)
    kernel = Kernel(
        program=program,
        target=target,
        lowered=lowered,
        options=options,
        config=kernel_config(program, lowered, options, chosen, _keys(request)),
        provenance=Provenance(
            target=chip.target,
            evidence=lowered.evidence,
            backend=f"{backend.distribution} {backend.version}",
            extensions=tuple(f"{e.distribution} {e.version}" for e in extensions),
            route=lowered.route,
            language=lowered.language,
            tilelang=tilelang_version(),
            cache_key=key,
            rewrites=lowered.rewrites,
            source_cached=cached,
        ),
        builder=Builder(backend, cache, key),
        simulate=request.simulate,
        retarget=request.retarget,
    )
    _warn(program, chip)
    _build_now(kernel, request, target)
    return kernel


def _warn(program: Program, chip: Chip) -> None:
    """Says at every compile what the kernel assumes and this chip does not have."""
    from core.program.capacity import in_local_memory

    for use, message in in_local_memory(program.footprint(), chip):
        where = f"{use.location}: " if use.location else ""
        warnings.warn(f"{where}{message}", PortabilityWarning, stacklevel=5)
    if not any(launch.uses_threads for launch in program.view.launches):
        return
    from core.portability.lints import wave_width

    for remark in wave_width(program.view, chip):
        where = f"{remark.location}: " if remark.location else ""
        warnings.warn(f"{where}{remark.message}; {remark.hint}", PortabilityWarning, stacklevel=5)


def _keys(request: _Request) -> dict[str, str]:
    """The key of each tile parameter of a factory; empty for any other kernel."""
    if not isinstance(request.func, KernelFactory):
        return {}
    return {name: parameter.key for name, parameter in request.func.parameters.items()}


def _lower(backend: Backend, chip: Chip, program: Program, options: CompileOptions) -> LoweredKernel:
    from core.compiler.fit import check_lowered
    from core.program.capacity import check

    check(program, chip)
    lowered: LoweredKernel = backend.call("tilehal_lower", chip, program=program, options=options)
    check_lowered(lowered, chip, program.location)
    return lowered


def _build_now(kernel: Kernel, request: _Request, target: Target) -> None:
    """Builds at once when asked to, or when this machine can run the kernel: a build error belongs to the compile."""
    if request.build is False or request.simulate:
        return
    if request.build:
        kernel.build()
    elif target.find_device() is not None:
        try:
            kernel.build()
        except ToolchainNotFound:
            return  # compiling to source works everywhere; the first call raises this with its reasons


def _merged(options: CompileOptions, traced: TracedKernel) -> CompileOptions:
    """The call's options over the ones the author attached to `@tilelang.jit` or `@core.kernel`."""
    return replace(
        options,
        pass_configs={**checked_pass_configs(traced.pass_configs), **options.pass_configs},
        compile_flags=traced.compile_flags + options.compile_flags,
    )


def _example(value: Any) -> Any:
    """A stand-in for an example tensor: the kernel needs its shape and dtype, and must not keep its memory alive."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _check_compatibility(execution_backend: str | None, target_host: str | None) -> None:
    if execution_backend not in (None, "auto", "tvm_ffi"):
        raise KernelError(
            f"execution_backend={execution_backend!r} is TileLang's own adapter; TileHAL launches kernels itself",
            hint="leave it out, or call tilelang.compile for that adapter",
        )
    if target_host is not None:
        raise KernelError(
            f"target_host={target_host!r}: TileHAL builds host code for the machine it runs on",
            hint="leave it out; the device code is cross-compiled by choosing target=",
        )


#: Words people use for options of :func:`compile`, beside near misses.
_SYNONYMS = {"out": "out_idx", "outputs": "out_idx", "flags": "compile_flags"}


def option_names() -> tuple[str, ...]:
    """The keywords of :func:`compile` itself; all others are arguments of the kernel."""
    return tuple(p.name for p in inspect.signature(compile).parameters.values() if p.kind is p.KEYWORD_ONLY)


def _check_keywords(func: Any, kwargs: Mapping[str, Any]) -> None:
    """Catches a misspelt option of :func:`compile`, which would otherwise be taken for an argument of the kernel."""
    function = getattr(func, "function", None) or getattr(func, "func", None) or func
    try:
        own = inspect.signature(function).parameters if callable(function) else {}
    except (TypeError, ValueError):
        own = {}
    for name in kwargs:
        meant = _SYNONYMS.get(name) or near_name(name, option_names())
        if name not in own and meant is not None:
            raise KernelError(f"core.compile has no option {name!r}", hint=f"did you mean {meant!r}?")
