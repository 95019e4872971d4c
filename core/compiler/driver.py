"""`core.compile`: resolve the target, trace the kernel, choose its tiles, check it, lower it."""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from core._tilelang import TracedKernel, import_tilelang, known_pass_configs, tilelang_version, trace
from core.compiler.artifacts import CompileOptions, LoweredKernel
from core.errors import (
    KernelError,
    PortabilityWarning,
    ResourceExceeded,
    ShapeMismatch,
    TileHALError,
    ToolchainNotFound,
    UnsupportedOp,
)
from core.program.nodes import Gemm, Reduce, View
from core.program.walk import statements
from core.tiling.factory import KernelFactory
from core.tiling.rules import CandidateSource, KernelShape, Rejection, TileRule, Tiles

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.plugins import Backend
    from core.program import Program
    from core.runtime.kernel import Kernel
    from core.target import Target

#: What a tile chosen by rule may fail with, so that the next candidate is tried.
_TILE_FAULTS = (ResourceExceeded, UnsupportedOp, ShapeMismatch, KernelError)
#: Candidates lowered before giving up.
_MOST_CANDIDATES = 64
#: Candidates that may fail for another reason than room before the kernel itself is taken to be at fault.
_FAULTS_BEFORE_BLAME = 8


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
        options: options the backend documents.
        execution_backend, target_host: accepted for compatibility with `tilelang.compile`; TileHAL launches through
            TVM-FFI and builds for this host, so only `None`, `"auto"` and `"tvm_ffi"` (and no `target_host`) are valid.
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
        options=CompileOptions(
            pass_configs=_checked_configs(pass_configs),
            compile_flags=(compile_flags,) if isinstance(compile_flags, str) else tuple(compile_flags or ()),
            fast_math=fast_math,
            backend=dict(options or {}),
            verbose=verbose,
        ),
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
    return _finish(request, target, backend, program, traced, {}, ())


def _only_described(backend: Backend, chip: Chip) -> UnsupportedOp:
    return UnsupportedOp(
        f"{chip.target} cannot be compiled for yet: {backend.distribution} {backend.version} describes its"
        " chips and nothing else",
        hint=f"`tilehal describe --target {chip.target}` works; `tilehal targets` lists what compiles",
    )


def _compile_factory(request: _Request, target: Target, backend: Backend) -> Kernel:
    """Tries the chip's tile candidates in order of preference until one lowers."""
    factory: KernelFactory = request.func
    arguments = factory.arguments(request.args, request.kwargs)
    overrides = {name: value for name, value in request.kwargs.items() if name in factory.parameters}
    for name, value in overrides.items():
        is_number = isinstance(value, int) and not isinstance(value, bool)
        reason = factory.parameters[name].refuse(value) if is_number else "it must be an int"
        if reason is not None:
            raise KernelError(
                f"{factory.name}: {name}={value!r}: {reason}",
                hint=f"give another value, or leave {name} out: the chip's rules then choose it",
                location=factory.location,
            )
    dimensions = {name: value for name, value in arguments.items() if isinstance(value, int)}
    shape = KernelShape(factory.name, "elementwise", dimensions, (), factory.parameters)
    rules: list[TileRule] = []
    if len(overrides) < len(factory.parameters):
        shape = _classified(shape, factory, arguments, overrides)
        rules = _rules(backend, target.chip, shape)
    source = CandidateSource(shape, rules, overrides)
    failures: list[TileHALError] = []
    for candidate in source:
        try:
            traced = factory.trace(arguments, candidate.tiles)
            program = _program(traced, request.out_idx)
            return _finish(
                request,
                target,
                backend,
                program,
                traced,
                dict(candidate.chosen_by),
                tuple(source.rejected),
                tiles=candidate.tiles,
            )
        except _TILE_FAULTS as error:
            if len(overrides) == len(factory.parameters):
                raise
            source.rejected.append(Rejection(candidate.tiles, error.message.splitlines()[0]))
            failures.append(error)
            if len(failures) >= _MOST_CANDIDATES or _not_the_tiles(failures):
                break
    raise _no_tile(factory, target.chip, source, failures)


def _not_the_tiles(failures: Sequence[TileHALError]) -> bool:
    """Whether several tiles in a row failed, and none for want of room: the fault is the kernel's."""
    return len(failures) >= _FAULTS_BEFORE_BLAME and not any(isinstance(e, ResourceExceeded) for e in failures)


def _no_tile(
    factory: KernelFactory, chip: Chip, source: CandidateSource, failures: Sequence[TileHALError]
) -> TileHALError:
    """The error for a factory none of whose candidates lowered: what stands in the way, not how many were tried."""
    fixed = _listed(source.overrides)
    details = {"rejected": [{"tiles": dict(r.tiles), "reason": r.reason} for r in source.rejected]}
    # A candidate that fitted and failed otherwise says more than one that was too large.
    others = [error for error in failures if not isinstance(error, ResourceExceeded)]
    if others:
        return others[0]
    if failures:
        # The one that came nearest, with its table of buffers.
        best = min(failures, key=lambda error: error.details.get("excess_bytes", float("inf")))
        tiles = next(r.tiles for r in source.rejected if r.reason == best.message.splitlines()[0])
        return ResourceExceeded(
            f"{factory.name}: no tile fits {chip.target}{f' with {fixed}' if fixed else ''} ({len(failures)} tried)."
            f" The nearest, {_listed(tiles)}: {best.message}",
            hint=f"leave {fixed} to the chip's rules, or give less: {best.hint}" if fixed else best.hint,
            location=best.location or factory.location,
            details={**best.details, **details},
        )
    reasons = list(dict.fromkeys(r.reason for r in source.rejected))
    return ResourceExceeded(
        f"{factory.name}: {chip.target} allows no tile{f' with {fixed}' if fixed else ''}: {'; '.join(reasons[:3])}",
        hint=f"change {fixed}, or leave it to the chip's rules" if fixed else "see `tilehal describe` for its limits",
        location=factory.location,
        details=details,
    )


def _listed(tiles: Tiles) -> str:
    return ", ".join(f"{name}={value}" for name, value in tiles.items())


def _rules(backend: Backend, chip: Chip, shape: KernelShape) -> list[TileRule]:
    if not backend.implements("tilehal_tile_rules", chip):
        return []
    return list(backend.call("tilehal_tile_rules", chip, kernel=shape))


def _classified(
    shape: KernelShape, factory: KernelFactory, arguments: Mapping[str, Any], overrides: Tiles
) -> KernelShape:
    """The shape with operator class and dtypes, read off one trace with the first generic tiles that trace."""
    error: TileHALError | None = None
    for candidate in islice(CandidateSource(shape, (), overrides), _FAULTS_BEFORE_BLAME):
        try:
            view = _program(factory.trace(arguments, candidate.tiles), None).view
        except TileHALError as caught:
            error = error or caught
            continue
        dtypes = tuple(p.buffer.dtype for p in view.parameters if p.buffer is not None)
        return replace(shape, operator=_operator(view), dtypes=dtypes)
    if error is not None:
        raise error
    return shape


def _operator(view: View) -> str:
    nodes = list(statements(view))
    gemms = sum(isinstance(node, Gemm) for node in nodes)
    reduces = any(isinstance(node, Reduce) for node in nodes)
    if gemms:
        return "attention" if gemms > 1 and reduces else "gemm"
    return "reduction" if reduces else "elementwise"


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
    chosen_by: Mapping[str, str],
    rejected: tuple[Rejection, ...],
    tiles: Tiles | None = None,
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
        config=kernel_config(program, lowered, options, tiles or {}, chosen_by, _keys(request), rejected),
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
    """Says at every compile what the kernel assumes and this chip does not have; only per-thread code can."""
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
    """The call's options over the ones the author attached to `@tilelang.jit`."""
    author = {_config_name(key): value for key, value in traced.pass_configs.items()}
    return replace(
        options,
        pass_configs={**author, **options.pass_configs},
        compile_flags=traced.compile_flags + options.compile_flags,
    )


def _config_name(key: Any) -> str:
    """tilelang's `PassConfigKey` members are strings; plain strings pass."""
    return str(getattr(key, "value", key))


def _example(value: Any) -> Any:
    """A stand-in for an example tensor: the kernel needs its shape and dtype, and must not keep its memory alive."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _checked_configs(pass_configs: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Pass configurations by name. Raises KernelError for one that TileLang does not have: it would change nothing."""
    configs = {_config_name(key): value for key, value in (pass_configs or {}).items()}
    known = known_pass_configs()
    for name in configs:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise KernelError(
                f"TileLang has no pass configuration {name!r}",
                hint=f"did you mean {near[0]!r}?" if near else "tilelang.PassConfigKey lists them",
            )
    return configs


def _check_compatibility(execution_backend: str | None, target_host: str | None) -> None:
    if execution_backend not in (None, "auto", "tvm_ffi"):
        raise KernelError(
            f"execution_backend={execution_backend!r} is TileLang's own adapter; TileHAL launches through TVM-FFI",
            hint="leave it out, or call tilelang.compile for that adapter",
        )
    if target_host is not None:
        raise KernelError(
            f"target_host={target_host!r}: TileHAL builds host code for the machine it runs on",
            hint="leave it out; the device code is cross-compiled by choosing target=",
        )


#: Words people use for options of :func:`compile`, beside near misses.
_SYNONYMS = {"out": "out_idx", "outputs": "out_idx", "flags": "compile_flags"}


def _check_keywords(func: Any, kwargs: Mapping[str, Any]) -> None:
    """Catches a misspelt option of :func:`compile`, which would otherwise be taken for an argument of the kernel."""
    options = [p.name for p in inspect.signature(compile).parameters.values() if p.kind is p.KEYWORD_ONLY]
    function = getattr(func, "function", None) or getattr(func, "func", None) or func
    try:
        own = inspect.signature(function).parameters if callable(function) else {}
    except (TypeError, ValueError):
        own = {}
    for name in kwargs:
        near = [_SYNONYMS[name]] if name in _SYNONYMS else difflib.get_close_matches(name, options, 1, cutoff=0.8)
        if name not in own and near:
            raise KernelError(f"core.compile has no option {name!r}", hint=f"did you mean {near[0]!r}?")
