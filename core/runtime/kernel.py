"""`core.Kernel`: a kernel compiled for one chip."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from core.errors import BuildFailed, DeviceUnavailable, KernelError, LaunchError, TileHALError, ToolchainNotFound
from core.runtime.arguments import Binder
from core.runtime.compiled import MISS, call_directly
from core.runtime.dynamo import hide_from_dynamo
from core.runtime.report import KernelConfig, KernelResources, Provenance
from core.runtime.values import by_address, check_stream

if TYPE_CHECKING:
    from core.compiler.artifacts import BuiltKernel, CompileOptions, LoweredKernel
    from core.compiler.build import Builder
    from core.hardware import Chip
    from core.program import Program
    from core.runtime.launcher import Launcher
    from core.target import Target
    from core.tuning.benchmark import Benchmark


class Kernel:
    """A kernel compiled for one chip. Made by :func:`core.compile`; call it with torch tensors.

    `k(a, b)` allocates and returns the outputs declared by `out_idx`/`out`; `k(a, b, c)` uses the ones given. The call
    is asynchronous on torch's current stream of the tensors' device (or on `stream=`, a vendor stream handle).

    The source exists from the start; the binary is built at the first call, or by :meth:`build`.
    """

    def __init__(
        self,
        *,
        program: Program,
        target: Target,
        lowered: LoweredKernel,
        options: CompileOptions,
        config: KernelConfig,
        provenance: Provenance,
        builder: Builder,
        simulate: bool,
        retarget: Callable[..., Kernel],
    ) -> None:
        self._program = program
        self._target = target
        self._lowered = lowered
        self._options = options
        self._config = config
        self._provenance = provenance
        self._builder = builder
        self._simulate = simulate
        self._retarget = retarget
        self._built: BuiltKernel | None = None
        self._binder: Binder | None = None
        self._launcher: Any = None
        #: The compiled check and launch in one; None until the first call has gone through, or when there is none.
        self._call: Callable[..., Any] | None = None
        self._has_run = False
        self._lock = threading.RLock()
        hide_from_dynamo(_CALL, reason=_OUTSIDE_OF_GRAPHS)

    # ------------------------------------------------------------------------------------------------ what it is

    @property
    def name(self) -> str:
        return self._lowered.signature.name

    @property
    def target(self) -> str:
        """The chip it was compiled for, as a target string: `cuda:h200`."""
        return self._target.chip.target

    @property
    def chip(self) -> Chip:
        return self._target.chip

    @property
    def simulated(self) -> bool:
        """Whether calls run on the CPU simulator of the chip."""
        return self._simulate

    @property
    def device_type(self) -> str:
        """Torch device type its tensors live on: `cuda`, `npu`, `cpu`.

        Raises:
            DeviceUnavailable: the chip's device is not on this machine.
        """
        return "cpu" if self._simulate else self._require_device()

    @property
    def program(self) -> Program:
        """The kernel before lowering: its PrimFunc, signature and tile-level view."""
        return self._program

    @property
    def lowered(self) -> LoweredKernel:
        """The kernel as native source, with everything its build and launch need to know."""
        return self._lowered

    @property
    def config(self) -> KernelConfig:
        """The tile parameters used, who chose them, and what the chip made of them."""
        return self._config

    @property
    def resources(self) -> KernelResources:
        """Bytes per memory space, threads, registers, FLOPs and traffic: predicted, and actual once built."""
        return KernelResources(self._lowered.resources, self._built.resources if self._built else None)

    @property
    def provenance(self) -> Provenance:
        """Which backend and toolchain made it, by which route, from which cache entry, with which rewrites."""
        return self._provenance

    @property
    def entry_points(self) -> tuple[str, ...]:
        """Names of the functions in the native code, in launch order."""
        return self._lowered.entry_points

    def get_kernel_source(self) -> str:
        """The native source: CUDA C++, MLIR, MACA C++ or C++."""
        return self._lowered.source

    def __repr__(self) -> str:
        how = "simulated" if self._simulate else self._provenance.evidence
        return f"<core.Kernel {self.name} for {self.target} via {self._lowered.route} ({how})>"

    def __copy__(self) -> Kernel:
        """Itself, as for a function: a copy of a model shares the kernels it calls."""
        return self

    def __deepcopy__(self, memo: object) -> Kernel:
        return self

    def __reduce__(self) -> Any:
        raise KernelError(
            f"{self.name} for {self.target} cannot be pickled: what it has loaded belongs to this process",
            hint="compile it in the other process, where the cache makes that quick; or export() it, and load the"
            " folder there with load_exported()",
            location=self._program.location,
        )

    # ------------------------------------------------------------------------------------------------ build

    def build(self) -> BuiltKernel:
        """Compiles the source with the vendor's toolchain (once; later calls return the same).

        Raises:
            ToolchainNotFound: what is missing and where it was looked for.
            BuildFailed: the compiler's message, its command, and where the source is kept.
        """
        with self._lock:
            if self._built is None:
                self._built, cached = self._builder.build(self._target.chip, self._lowered, self._options)
                toolchain = self._built.toolchain
                self._provenance = replace(
                    self._provenance,
                    toolchain=f"{toolchain.name} {toolchain.version}",
                    binary_cached=cached,
                    evidence="vendor compiler",
                )
            return self._built

    def adopt(self, built: BuiltKernel) -> None:
        """Takes a binary made elsewhere from this very source: what a machine with the chip and no compiler runs.

        Raises:
            BuildFailed: it was built from other source.
        """
        if built.lowered != self._lowered:
            raise BuildFailed(
                f"the binary given to {self.name} for {self.target} was built from other source",
                hint="build it with the same versions of tilehal, its backend and tilelang",
            )
        toolchain = f"{built.toolchain.name} {built.toolchain.version}"
        with self._lock:
            self._built = built
            self._provenance = replace(
                self._provenance, toolchain=toolchain, binary_cached=True, evidence="vendor compiler"
            )

    def binary(self, role: str | None = None) -> Path:
        """Path of a built file: the device image where the chip has one, else the library; or the file of `role`."""
        built = self.build()
        if role is None:
            role = "binary" if "binary" in built.files else "library" if "library" in built.files else "module"
        if role not in built.files:
            raise BuildFailed(
                f"{self.name} for {self.target} has no {role!r} file", hint=f"it has {', '.join(built.files)}"
            )
        return built.path(role)

    def with_target(self, target: str | Target | Chip, *, simulate: bool = False, **overrides: Any) -> Kernel:
        """The same kernel for another chip. Tile parameters chosen by rule are chosen again; the user's are kept.

        Args:
            target: as for :func:`core.compile`. Options of one vendor's backend (`options=`) do not move to another's.
            simulate: run it on the chip's CPU simulator; not inherited from this kernel.
            overrides: tile parameters to set or change (kernels made from a `core.kernel` factory).
        """
        return self._retarget(target=target, simulate=simulate, **overrides)

    # ------------------------------------------------------------------------------------------------ launch

    def __call__(self, *args: Any, stream: int | None = None, **kwargs: Any) -> Any:
        """Runs the kernel.

        Args:
            args: the inputs, or every parameter with the outputs, in the kernel's order; also by name.
            stream: the vendor's stream handle; None is torch's current stream.

        Returns:
            The outputs (one tensor, or a list in the declared order), or None when the kernel declares none.

        Raises:
            ShapeMismatch, LaunchError: the arguments do not fit.
            DeviceUnavailable, ToolchainNotFound, BuildFailed: it cannot run here, and what to do.
        """
        if stream is None and not kwargs:
            outputs = self._compiled_call(args)
            if outputs is not MISS:
                return outputs
        return self._checked_call(args, kwargs, stream)

    def _compiled_call(self, args: tuple[Any, ...]) -> Any:
        """The outputs of a call by the compiled check, or `MISS` when there is none or the arguments are not for it."""
        if self._call is None:
            return MISS
        try:
            return self._call(*args)
        except RuntimeError as error:
            raise self._failed(error) from error

    def _has_own_call(self) -> bool:
        """Whether its class puts something around a call."""
        return type(self).__call__ is not _CALL

    def _checked_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], stream: int | None) -> Any:
        """A call by way of the binder, which says what is wrong with it."""
        launcher = self._launcher or self._prepare()
        assert self._binder is not None
        check_stream(stream, self.name, self._program.location)
        with by_address():
            arguments, symbols, outputs = self._binder(args, kwargs)
            try:
                launcher(*arguments, symbols=symbols, stream=stream)
            except TileHALError as error:
                if self._simulate:
                    launcher.locate(error, self._program)
                raise
            except Exception as error:
                raise self._failed(error) from error
        if not self._has_run:
            self._note_run()
        return outputs

    def _failed(self, error: Exception) -> TileHALError:
        """What a failed launch is reported as: the launcher's own reading of it, else the runtime's message."""
        explain = getattr(self._launcher, "explain", None)
        if explain is not None:
            found: TileHALError = explain(error)
            return found
        return LaunchError(
            f"{self.name} failed on {self.target}: {error}",
            hint="a fault of an earlier launch can surface here: run with TILEHAL_LAUNCH_BLOCKING=1 to find it",
            location=self._program.location,
        )

    def benchmark(self, *tensors: Any, **options: Any) -> Benchmark:
        """How long a call takes with cold and with warm caches, with spread, TFLOP/s and bytes per second.

        Args:
            tensors: the arguments, with or without the outputs; random ones are made when there are none.
            options: `symbols={"M": 4096}`, `values={"index": ...}`, `repeat_ms=`, `confidence=`, ...; see
                :func:`core.tuning.benchmark.benchmark` and :func:`core.tuning.measure.measure`.

        Raises:
            KernelError: the kernel runs in a simulator, or something that random arguments need was not said.
            LaunchError, ShapeMismatch, DeviceUnavailable: as a call.
        """
        from core.tuning.benchmark import benchmark

        return benchmark(self, *tensors, **options)

    def as_torch_op(
        self,
        name: str,
        *,
        outputs: Literal["returned", "given"] = "returned",
        backward: Callable[..., Any] | None = None,
        setup_context: Callable[..., Any] | None = None,
    ) -> Callable[..., Any]:
        """Registers the kernel with `torch.library`, and returns the operator: `torch.compile` keeps it as one call.

        The schema declares what the kernel writes; shapes of the outputs come from the inputs' (symbolic) shapes.
        Kernels for different devices, compiled from one source, may be registered under one name.

        Args:
            name: `"<namespace>::<operator>"`, then also `torch.ops.<namespace>.<operator>`.
            outputs: `returned` allocates them; `given` makes them parameters that are written.
            backward, setup_context: as for `torch.library.register_autograd`. Without them, asking for a gradient of
                what is returned is a KernelError; none flows through arguments that are written.

        Raises:
            KernelError: the name is no name or is taken (by torch, or by other parameters or another backward), or
                torch cannot tell the device or the outputs' sizes.
            DeviceUnavailable: the chip's device is not on this machine.
        """
        from core.runtime.torch_op import register

        return register(self, name, outputs=outputs, backward=backward, setup_context=setup_context)

    def export(self, directory: str | Path) -> Path:
        """Writes what is needed to run the kernel without TileHAL's compiler: binary, metadata, C header and loader.

        `core.runtime.load_exported` reads the folder back where neither tilelang nor a compiler is installed.

        Args:
            directory: made when it is not there; files of an earlier export of the same name are replaced, together.

        Raises:
            ArtifactError: the folder cannot be made or written.
            UnsupportedOp: kernels of this backend, or this kernel's host side, cannot be exported.
            ToolchainNotFound, BuildFailed: as for :meth:`build`; no device is needed.
        """
        from core.compiler.export import export

        return export(self, Path(directory))

    def _note_run(self) -> None:
        """A kernel counts as shown on its device, or simulated, once a call has gone through."""
        with self._lock:
            if self._has_run:
                return
            self._has_run = True
            self._provenance = replace(self._provenance, evidence="simulated" if self._simulate else "device")
            self._call = getattr(self._launcher, "call", None)
            make_direct = getattr(self._launcher, "make_direct", None)
            if self._call is not None and make_direct is not None:
                call_directly(self, self._lowered.signature, make_direct, _CALL)

    def _prepare(self) -> Any:
        with self._lock:
            if self._launcher is None:
                signature = self._lowered.signature
                locations = self._program.parameter_locations
                device_type = self.device_type
                if self._simulate:
                    simulated = self._builder.simulator(self._target.chip, self._lowered, self._options)
                    rewrites = (*self._provenance.rewrites, *simulated.rewrites)
                    self._provenance = replace(self._provenance, rewrites=rewrites)
                    launcher: Launcher = simulated
                else:
                    launcher = self._builder.launcher(self._target.chip, self.build())
                self._binder = Binder(signature, device_type, locations, self._program.location)
                self._launcher = launcher
                self._provenance = replace(self._provenance, launch=getattr(launcher, "how", None))
            return self._launcher

    def _require_device(self) -> str:
        device = self._target.find_device()
        if device is not None and device.torch_device is not None:
            return device.torch_device.split(":")[0]
        missing = [f"no {self._target.chip.title} on this machine"]
        try:
            self._builder.toolchain(self._target.chip)
        except ToolchainNotFound as error:
            missing.append(error.message)
        missing += self._builder.blockers(self._target.chip, "run")
        if device is not None:
            missing = [f"{device.evidence}, but this torch cannot address it"]
        can_simulate = self._builder.can_simulate(self._target.chip)
        raise DeviceUnavailable(
            f"{self.name} cannot run on {self.target}: " + "; ".join(dict.fromkeys(missing)),
            hint="compile it with simulate=True (`tilehal compile`: --run --simulate) to run the generated code on the "
            "CPU simulator"
            if can_simulate
            else "its source is in get_kernel_source(); run it on a machine with the device, or compile it for the "
            "target cpu",
        )


#: The call that the compiled one replaces.
_CALL = Kernel.__call__
_OUTSIDE_OF_GRAPHS = (
    "a kernel object is no operator of torch; register it once, op = kernel.as_torch_op('<namespace>::<name>'),"
    " and call op in the compiled function"
)
