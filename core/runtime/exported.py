"""Running an exported kernel: neither tilelang nor a compiler nor TVM, only the driver (or, on the CPU, nothing).

Tensors are torch's; without torch, :meth:`ExportedKernel.launch` takes addresses.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from core.errors import ArtifactError, DeviceUnavailable, LaunchError, TargetNotFound, TileHALError
from core.runtime.artifact import Artifact, open_artifact, understood
from core.runtime.compiled import MakeDirect
from core.runtime.dynamo import hide_from_dynamo
from core.runtime.machine import instruction_sets
from core.runtime.plan import DriverPlan, UnusablePlan, names_of
from core.runtime.signature import ScalarArgument, Signature, TensorArgument
from core.runtime.values import as_scalar, by_address, check_stream, explain_scalar

if TYPE_CHECKING:
    from core.runtime.launcher import Launcher

#: How a kernel is launched here, and where its tensors are. Any other kind is its vendor's.
_KINDS = {"cuda-driver": "cuda", "c-function": "cpu"}


@runtime_checkable
class LoadedExport(Protocol):
    """The binary of an exported kernel, loaded: what a backend's `tilehal_load` returns."""

    def raw(self, device: int, stream: int, *values: Any) -> None:
        """Launches by address: for each parameter an address or a number, then the value of each symbolic dimension.

        Args:
            device: index of the device that the data is on.
            stream: handle of the vendor's stream, 0 for the default one.

        Raises:
            LaunchError: the runtime refuses the launch.
        """

    def launcher(self) -> Launcher:
        """What launches calls with torch tensors; asked once, at the first call. Torch need not be there before."""


class ExportedKernel:
    """A kernel loaded from the folder that `kernel.export()` wrote. Made by :func:`load_exported`.

    It is called as the kernel itself: `k(a, b)` allocates and returns the outputs, `k(a, b, c)` uses the ones given.
    """

    def __init__(self, artifact: Artifact, runs: LoadedExport) -> None:
        self._artifact = artifact
        self._runs = runs
        self._signature = artifact.signature
        self._binder: Any = None
        self._launcher: Any = None
        self._is_direct = False
        # The collector can run anywhere, also what calls this kernel from a `__del__`.
        self._lock = threading.RLock()

    @property
    def name(self) -> str:
        return self._signature.name

    @property
    def target(self) -> str:
        """The chip it was compiled for, as a target string."""
        return str(self._artifact.metadata["target"])

    @property
    def signature(self) -> Signature:
        """Parameters in order, with dtypes, shapes and strides, and the symbolic dimensions."""
        return self._signature

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Everything the export says; docs/export.md describes it."""
        return self._artifact.metadata

    @property
    def directory(self) -> Path:
        return self._artifact.directory

    @property
    def how(self) -> str | None:
        """How calls with tensors reach the device; None before the first."""
        return getattr(self._launcher, "how", None)

    def __repr__(self) -> str:
        return f"<ExportedKernel {self.name} for {self.target} from {self.directory}>"

    def __copy__(self) -> ExportedKernel:
        """Itself, as for a function: a copy of a model shares the kernels it calls."""
        return self

    def __deepcopy__(self, memo: object) -> ExportedKernel:
        return self

    def __reduce__(self) -> Any:
        """Loaded again from the same folder, which the process that unpickles must have."""
        return load_exported, (self.directory.absolute(),)

    def __call__(self, *args: Any, stream: int | None = None, **kwargs: Any) -> Any:
        """Runs the kernel on torch tensors; see :meth:`core.Kernel.__call__`, whose checks and errors these are."""
        return self._checked_call(args, kwargs, stream)

    def _failed(self, error: Exception) -> TileHALError:
        return LaunchError(
            f"{self.name} failed on {self.target}: {error}",
            hint="a fault of an earlier launch can surface here: run with TILEHAL_LAUNCH_BLOCKING=1 to find it",
        )

    def _checked_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], stream: int | None) -> Any:
        from core.runtime.arguments import Binder

        check_stream(stream, self.name, None)
        with self._lock:
            if self._launcher is None:
                self._binder = Binder(self._signature, self._artifact.metadata["device_type"])
                self._launcher = self._runs.launcher()
                _hide_calls()
        with by_address():
            arguments, symbols, outputs = self._binder(args, kwargs)
            try:
                self._launcher(*arguments, symbols=symbols, stream=stream)
            except TileHALError:
                raise
            except RuntimeError as error:
                raise self._failed(error) from error
        if not self._is_direct:
            self._become_direct()
        return outputs

    def _become_direct(self) -> None:
        """After a call has gone through, the next ones go straight to the compiled check, where there is one."""
        from core.runtime.compiled import call_directly

        with self._lock:
            if self._is_direct:
                return
            self._is_direct = True
            make_direct = getattr(self._launcher, "make_direct", None)
            if make_direct is not None:
                call_directly(self, self._signature, make_direct, _CALL)

    def launch(self, *values: Any, symbols: Mapping[str, int] | None = None, device: int = 0, stream: int = 0) -> None:
        """Runs the kernel on addresses: nothing about shapes is checked, and torch is not needed.

        Args:
            values: for each parameter in order, the address of a tensor's data or a number.
            symbols: the value of each symbolic dimension, by name.
            device: index of the device the data is on.
            stream: handle of the vendor's stream; 0 is the default stream.

        Raises:
            LaunchError: the number of values is wrong, a dimension is missing, or the driver refuses.
            DeviceUnavailable, ResourceExceeded: the device is another chip, or the grid is too large for it.
        """
        arguments = self._signature.arguments
        if len(values) != len(arguments):
            names = ", ".join(argument.name for argument in arguments)
            raise LaunchError(
                f"{self.name} takes {len(arguments)} values ({names}), got {len(values)}",
                hint="pass an address for each tensor, outputs included, and a number for each scalar",
            )
        given = symbols or {}
        missing = [symbol for symbol in self._signature.symbols if symbol not in given]
        if missing:
            raise LaunchError(f"{self.name} needs {', '.join(missing)}", hint=f"pass symbols={{{missing[0]!r}: ...}}")
        passed = [self._by_value(argument, value) for argument, value in zip(arguments, values, strict=True)]
        for symbol in self._signature.symbols:
            extent = as_scalar(given[symbol], "int64")
            if extent is None or extent < 0:
                raise LaunchError(
                    f"{self.name}: {symbol} is {given[symbol]!r}, and it is an extent",
                    hint="pass an integer of 0 or more",
                )
            passed.append(extent)
        self._runs.raw(device, stream, *passed)

    def _by_value(self, argument: TensorArgument | ScalarArgument, value: Any) -> int | float:
        if isinstance(argument, TensorArgument):
            address = as_scalar(value, "uint64")
            if address is None:
                raise LaunchError(
                    f"{self.name}: {argument.name} is the address of a tensor's data, got {type(value).__name__}",
                    hint="pass tensor.data_ptr(), or call the kernel with tensors",
                )
            return address
        number = as_scalar(value, argument.dtype)
        if number is None:
            reason, hint = explain_scalar(value, argument.dtype)
            raise LaunchError(f"{self.name}: {argument.name} is a scalar {argument.dtype}, {reason}", hint=hint)
        return number


#: The call that the compiled one replaces.
_CALL = ExportedKernel.__call__


def _hide_calls() -> None:
    """Keeps `torch.compile` out of calls, where torch is imported: by address, kernels run without it."""
    if "torch" in sys.modules:
        hide_from_dynamo(
            _CALL,
            reason="an exported kernel is no operator of torch; make it one with torch.library.custom_op, or call it"
            " outside of the compiled function",
        )


def load_exported(directory: Path | str, *, device: int = 0) -> ExportedKernel:
    """Loads an exported kernel, checked against this machine.

    Args:
        directory: what `kernel.export()` wrote, or a copy of it.
        device: index of the device whose chip is checked now; others are when they are first used.

    Raises:
        ArtifactError: a file is missing or was changed, another version of TileHAL wrote it, or it is launched in a way
            of its vendor's whose package is not here or does not load exports.
        DeviceUnavailable: no driver, too old a one, or another chip than the kernel was compiled for.
    """
    artifact = open_artifact(directory)
    with understood(artifact.directory):
        artifact.verify()
        _check_expressions(artifact)
        kind = artifact.metadata["launch"]["kind"]
        runs: LoadedExport
        if kind not in _KINDS:
            runs = _loaded_by_its_vendor(artifact, device)
        elif artifact.metadata["device_type"] != _KINDS[kind]:
            raise ValueError(f"tensors on {artifact.metadata['device_type']} for a launch by {kind}")
        else:
            runs = _CudaKernel(artifact, device) if kind == "cuda-driver" else _CpuKernel(artifact)
        _hide_calls()
        return ExportedKernel(artifact, runs)


def _loaded_by_its_vendor(artifact: Artifact, device: int) -> LoadedExport:
    """The kernel as the package of its vendor loads it. Raises ArtifactError where that cannot be."""
    from core.plugins import manager
    from core.target import resolve

    target = str(artifact.metadata["target"])
    what = f"{artifact.directory} is launched by {artifact.metadata['launch']['kind']!r}, as backends for {target} do"
    by_c = "or run it by its loader in C"
    try:
        chip = resolve(target).chip
    except TargetNotFound as error:
        hint = f"install the package that made it ({artifact.metadata['made_by']['backend']}), {by_c}"
        raise ArtifactError(f"{what}, and there is none here: {error.message}", hint=hint) from error
    backend = manager().backend(chip.vendor)
    if not backend.implements("tilehal_load", chip):
        raise ArtifactError(
            f"{what}, and {backend.package} does not load it in Python: it does not implement tilehal_load",
            hint=f"install a version of {backend.distribution} that does, {by_c}",
        )
    loaded: LoadedExport = backend.call("tilehal_load", chip, artifact=artifact, device=device)
    return loaded


def _check_expressions(artifact: Artifact) -> None:
    """Sizes are evaluated: each must be arithmetic over the kernel's own names and nothing else."""
    signature = artifact.signature
    known = {*signature.symbols, *(argument.name for argument in signature.arguments)}
    for index in signature.outputs:
        if not getattr(signature.arguments[index], "is_output", False):
            raise ValueError(f"output {index} is no parameter that is one")
    try:
        for argument in signature.arguments:
            for extent in (*getattr(argument, "shape", ()), *(getattr(argument, "strides", None) or ())):
                names_of(str(extent), known)
        if artifact.metadata["launch"]["kind"] in _KINDS and "plan" in artifact.metadata["launch"]:
            DriverPlan.from_json(artifact.metadata["launch"]["plan"]).check(known)
    except UnusablePlan as error:
        raise ArtifactError(f"{artifact.directory}: {error}", hint="export the kernel again") from error


class _CudaKernel:
    def __init__(self, artifact: Artifact, device: int) -> None:
        from core.runtime.interpreted import PlannedKernel

        launch = artifact.metadata["launch"]
        self._artifact = artifact
        self._image = artifact.read("binary")
        self._plan = DriverPlan.from_json(launch["plan"])
        self._limits = launch["grid_limits"]
        self._planned = PlannedKernel(
            artifact.signature,
            self._plan,
            self._image,
            limits=self._limits,
            required=launch["driver"],
            capability=launch["capability"],
            exact=launch["exact"],
            made_by=str(artifact.metadata["made_by"]["toolchain"]),
        )
        self._planned.load(device)

    def raw(self, device: int, stream: int, *values: Any) -> None:
        self._planned(device, stream, *values)

    def launcher(self) -> Any:
        from core.runtime.driver_launcher import DriverLauncher

        library = self._artifact.path("launch")
        return DriverLauncher(
            self._artifact.signature, self._plan, self._image, library, lambda: self._planned, limits=self._limits
        )


class _CpuKernel:
    def __init__(self, artifact: Artifact) -> None:
        launch = artifact.metadata["launch"]
        self._artifact = artifact
        self.name = artifact.signature.name
        _check_machine(artifact)
        path = artifact.path("binary")
        if path is None:
            raise ArtifactError(f"{artifact.directory} has no binary file", hint="export the kernel again")
        self._types: list[str] = _types(artifact)
        function, set_threads = str(launch["function"]), str(launch["set_threads"])
        try:
            self._library = ctypes.CDLL(str(path.absolute()))
            self._function = getattr(self._library, function)
            self._set_threads(set_threads, len(os.sched_getaffinity(0)))
        except (OSError, AttributeError) as error:
            raise ArtifactError(f"{path} cannot be loaded: {error}", hint="export the kernel on this system") from error
        self._function.restype = ctypes.c_char_p
        self._function.argtypes = [_ctype(dtype) for dtype in self._types]

    def _set_threads(self, name: str, count: int) -> None:
        """The library's own parallel loop runs on as many threads as this process may use cores."""
        arguments = (_Slot * 2)(_Slot(4, 0, 0), _Slot(1, 0, count))
        getattr(self._library, name)(None, arguments, 2, ctypes.byref(_Slot()))

    def raw(self, device: int, stream: int, *values: Any) -> None:
        for dtype, value in zip(self._types, values, strict=True):
            if dtype == "int32" and not -(2**31) <= value < 2**31:
                raise LaunchError(f"{self.name}: {value} is too large: the kernel counts in 32 bits")
        failed = self._function(*values)
        if failed is not None:
            raise LaunchError(f"{self.name}: {failed.decode()}", hint="an assertion of the kernel's own failed")

    def launcher(self) -> Any:
        return _CpuLauncher(self, self._artifact, ctypes.cast(self._function, ctypes.c_void_p).value or 0)


class _CpuLauncher:
    """Calls with tensors: compiled where the check that was exported can be loaded."""

    def __init__(self, kernel: _CpuKernel, artifact: Artifact, address: int) -> None:
        from core.runtime.compiled import CannotLoad, load

        self._kernel = kernel
        self._signature = artifact.signature
        self.make_direct: MakeDirect | None = None
        library = artifact.path("launch")
        try:
            if library is None:
                raise CannotLoad("exported without a compiled check")
            self.make_direct = load(library.absolute(), self._signature, "cpu", address).make_direct
            self.how = "a C call, compiled"
        except CannotLoad as reason:
            self.how = f"a C call through ctypes: {reason}"

    def __call__(self, *arguments: Any, symbols: dict[str, int] | None = None, stream: int | None = None) -> None:
        found = symbols or {}
        pairs = zip(self._signature.arguments, arguments, strict=True)
        values = [value.data_ptr() if isinstance(argument, TensorArgument) else value for argument, value in pairs]
        self._kernel.raw(0, 0, *values, *(found[name] for name in self._signature.symbols))


def _types(artifact: Artifact) -> list[str]:
    """Types of the C function's arguments: pointers, scalars, symbolic dimensions, as the signature has them.

    Raises:
        ValueError: they are others, so that the call would read what is not there.
    """
    signature, types = artifact.signature, list(artifact.metadata["launch"]["types"])
    arguments = ["handle" if isinstance(a, TensorArgument) else a.dtype for a in signature.arguments]
    symbols = types[len(arguments) :]
    counted = len(symbols) == len(signature.symbols) and set(symbols) <= {"int32", "int64"}
    if types[: len(arguments)] != arguments or not counted:
        raise ValueError(f"a function of ({', '.join(map(str, types))}) for {signature}")
    return types


class _Slot(ctypes.Structure):
    """One argument of the function that sets the number of threads, as apache-tvm-ffi lays it out."""

    _fields_ = (("kind", ctypes.c_int32), ("padding", ctypes.c_uint32), ("value", ctypes.c_int64))


def _ctype(dtype: str) -> Any:
    if dtype == "handle":
        return ctypes.c_void_p
    names = {"float32": "c_float", "float64": "c_double", "bool": "c_bool"}
    return getattr(ctypes, names.get(dtype, f"c_{dtype}"))


def _check_machine(artifact: Artifact) -> None:
    wanted = artifact.metadata["launch"]["machine"]
    architecture, found = instruction_sets()
    if architecture != wanted["architecture"]:
        raise DeviceUnavailable(
            f"{artifact.signature.name} was compiled for {wanted['architecture']}, this machine is {architecture}",
            hint="export the kernel on a machine of this kind",
        )
    missing = sorted(set(wanted["instruction_sets"]) - set(found))
    if missing:
        raise DeviceUnavailable(
            f"{artifact.signature.name} was compiled for a CPU with {', '.join(missing)}, which this one has not",
            hint="export the kernel on this machine, or compile it for an older CPU",
        )
