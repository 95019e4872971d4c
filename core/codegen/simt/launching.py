"""Launching through a CUDA-like runtime library, by its plain C functions.

The functions are those of CUDA's runtime and driver in the vendor's spelling: `<prefix>ModuleLoadData`,
`ModuleGetFunction`, `ModuleLaunchKernel`, `SetDevice`, `StreamSynchronize`, `GetErrorName`, `GetErrorString`. A launch
is judged by the code it returns, never by a last error, which may be a stale one.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.codegen.simt.dialect import Dialect
from core.codegen.simt.plan import CTYPES, CompiledPlan, Launch
from core.errors import DeviceUnavailable, LaunchError, UnsupportedOp

if TYPE_CHECKING:
    from core.compiler.artifacts import BuiltKernel

_POINTER = ctypes.c_void_p
_UNSIGNED = ctypes.c_uint


class Runtime:
    """A loaded runtime library. Every call checks its return code.

    Raises:
        DeviceUnavailable: the library cannot be loaded, or lacks a function; says where it was looked for.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.prefix = dialect.runtime_prefix
        self._library = load_library(dialect)
        self._module_load = self._function("ModuleLoadData", ctypes.POINTER(_POINTER), _POINTER)
        self._get_function = self._function("ModuleGetFunction", ctypes.POINTER(_POINTER), _POINTER, ctypes.c_char_p)
        self._set_device = self._function("SetDevice", ctypes.c_int)
        self._synchronize = self._function("StreamSynchronize", _POINTER)
        self._launch = self._function(
            "ModuleLaunchKernel",
            _POINTER,
            *(_UNSIGNED,) * 7,
            _POINTER,
            ctypes.POINTER(_POINTER),
            ctypes.POINTER(_POINTER),
        )
        self._error_name = self._function("GetErrorName", ctypes.c_int, result=ctypes.c_char_p)
        self._error_string = self._function("GetErrorString", ctypes.c_int, result=ctypes.c_char_p)

    def _function(self, name: str, *arguments: Any, result: Any = ctypes.c_int) -> Any:
        spelled = f"{self.prefix}{name}"
        try:
            function = getattr(self._library, spelled)
        except AttributeError as error:
            raise DeviceUnavailable(
                f"{self._library._name} has no {spelled}", hint="it is another library, or too old"
            ) from error
        function.argtypes, function.restype = list(arguments), result
        return function

    def check(self, code: int, name: str, doing: str) -> None:
        """Raises LaunchError with the runtime's name and description of a code that is not success."""
        if code == 0:
            return
        symbol = self._error_name(code) or b"unknown error"
        text = self._error_string(code) or b""
        raise LaunchError(
            f"{doing}: {self.prefix}{name} returned {symbol.decode()} ({code}): {text.decode()}",
            hint="a fault of an earlier launch can surface here: run with TILEHAL_LAUNCH_BLOCKING=1 to find it",
            details={"code": code, "error": symbol.decode(), "call": f"{self.prefix}{name}"},
        )

    def set_device(self, index: int, doing: str) -> None:
        """Makes a device current on this thread."""
        self.check(self._set_device(index), "SetDevice", doing)

    def load(self, image: bytes, doing: str) -> ctypes.c_void_p:
        """Loads a module into the current device."""
        module = _POINTER()
        code = self._module_load(ctypes.byref(module), ctypes.cast(ctypes.c_char_p(image), _POINTER))
        self.check(code, "ModuleLoadData", doing)
        return module

    def function(self, module: ctypes.c_void_p, name: str, doing: str) -> ctypes.c_void_p:
        """An entry point of a module."""
        found = _POINTER()
        code = self._get_function(ctypes.byref(found), module, name.encode())
        self.check(code, "ModuleGetFunction", doing)
        return found

    def launch(self, function: ctypes.c_void_p, launch: Launch, parameters: Any, stream: int, doing: str) -> None:
        """Queues one launch on a stream; returns when it is queued."""
        code = self._launch(function, *launch.grid, *launch.block, launch.shared_bytes, stream, parameters, None)
        self.check(code, "ModuleLaunchKernel", doing)

    def synchronize(self, stream: int, doing: str) -> None:
        """Waits for a stream, and raises what went wrong on it."""
        self.check(self._synchronize(stream), "StreamSynchronize", doing)


def load_library(dialect: Dialect) -> ctypes.CDLL:
    """The vendor's runtime library: under each SDK root, then where the loader looks.

    Raises:
        DeviceUnavailable: it cannot be loaded; names every place that was looked at.
    """
    looked = []
    folders = [root / folder for root in sdk_roots(dialect) for folder in dialect.runtime_folders]
    for folder in (*folders, None):
        path = str(folder / dialect.runtime_library) if folder is not None else dialect.runtime_library
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            looked.append(f"{path} ({error})")
    places = "\n".join(f"    {place}" for place in looked)
    variables = " or ".join(dialect.compile.environment)
    raise DeviceUnavailable(
        f"{dialect.runtime_library} cannot be loaded. Looked at:\n{places}",
        hint=f"install the vendor's SDK and set {variables}, or compile with simulate=True "
        "(`tilehal compile`: --run --simulate)",
        details={"looked": looked},
    )


def sdk_roots(dialect: Dialect) -> list[Path]:
    """Where the SDK may be: what its variables say, else its usual places."""
    said = [Path(os.environ[name]) for name in dialect.compile.environment if os.environ.get(name)]
    return said or [Path(root) for root in dialect.compile.default_roots]


class SimtLauncher:
    """Launches a built kernel on the stream torch calls current, or the one given.

    A module is loaded once per device, at the first call on it.

    Args:
        runtime: the vendor's.
        current_stream: the handle of the current stream of a device, by its index.
    """

    def __init__(
        self, built: BuiltKernel, runtime: Runtime, current_stream: Callable[[int], int] | None = None
    ) -> None:
        self._name = built.lowered.signature.name
        self._plan = CompiledPlan(built.lowered)
        self._entry_points = built.lowered.entry_points
        self._image = built.path("binary").read_bytes()
        self._runtime = runtime
        self._current_stream = current_stream or _torch_stream
        self._blocking = os.environ.get("TILEHAL_LAUNCH_BLOCKING") == "1"
        self._functions: dict[int, dict[str, ctypes.c_void_p]] = {}
        self._lock = threading.Lock()

    def __call__(self, *arguments: Any, symbols: dict[str, int] | None = None, stream: int | None = None) -> None:
        device = next((a.device for a in arguments if hasattr(a, "data_ptr")), None)
        index = getattr(device, "index", None) or 0
        if stream is None:
            stream = self._current_stream(index)
        names = self._plan.names(arguments, symbols)
        self._runtime.set_device(index, self._name)
        functions = self._functions.get(index) or self._load(index)
        workspaces = self._workspaces(self._plan.workspace_bytes(names), device)
        for launch in self._plan.launches(names):
            parameters, _kept = self._parameters(launch, arguments, workspaces)
            self._runtime.launch(functions[launch.function], launch, parameters, stream, self._name)
        if self._blocking:
            self._runtime.synchronize(stream, self._name)

    def _load(self, index: int) -> dict[str, ctypes.c_void_p]:
        with self._lock:
            if index not in self._functions:
                module = self._runtime.load(self._image, self._name)
                self._functions[index] = {
                    name: self._runtime.function(module, name, self._name) for name in self._entry_points
                }
            return self._functions[index]

    def _workspaces(self, sizes: Sequence[int], device: Any) -> list[Any]:
        """Scratch memory from torch's allocator, which keeps it until the stream's work is done."""
        if not sizes:
            return []
        import torch

        return [torch.empty(size, dtype=torch.uint8, device=device) for size in sizes]

    def _parameters(self, launch: Launch, arguments: Sequence[Any], workspaces: Sequence[Any]) -> tuple[Any, list[Any]]:
        """The array of pointers to the arguments' values, and the values, which must live until the call returns."""
        values: list[Any] = []
        for argument in launch.arguments:
            if argument.kind == "tensor":
                values.append(_POINTER(arguments[argument.value].data_ptr()))
            elif argument.kind == "workspace":
                values.append(_POINTER(workspaces[argument.value].data_ptr()))
            else:
                values.append(by_value(argument.value, argument.dtype))
        pointers = (_POINTER * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
        return pointers, values


def by_value(value: Any, dtype: str) -> Any:
    """A number as the ctypes object that an entry point's scalar parameter is read from.

    Raises:
        UnsupportedOp: no C type carries the dtype.
    """
    if dtype in ("float16", "bfloat16"):
        import torch

        return ctypes.c_int16(int(torch.tensor(value, dtype=getattr(torch, dtype)).view(torch.int16)))
    if dtype not in CTYPES:
        raise UnsupportedOp(f"a scalar parameter of {dtype} cannot be passed to a kernel", hint="pass it in a tensor")
    return getattr(ctypes, CTYPES[dtype])(value)


def _torch_stream(index: int) -> int:
    """Handle of torch's current stream on `cuda:<index>`, which is what CUDA-like vendors' torch calls their device."""
    import torch

    return int(torch.cuda.current_stream(index).cuda_stream)
