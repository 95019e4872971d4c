"""Loads a built kernel: called in C once the first call has gone through TVM-FFI. Tensors go by pointer, uncopied."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from backends.cpu.machine import read_machine
from core.codegen.host import load_cpu_call
from core.errors import DeviceUnavailable, LaunchError

if TYPE_CHECKING:
    from core.compiler import BuiltKernel

#: Function of every library that gets and sets its parallel loop; the number is the version of the loop's interface.
_POOL_FUNCTION = "tilehal_pool_1"

_pool_lock = threading.Lock()
#: The parallel loop of the first library that was loaded: one pool of threads serves every kernel of the process.
_shared_pool: Any = None


class CpuLauncher:
    """A loaded kernel. A call returns when the kernel has finished: a CPU has no streams."""

    def __init__(self, built: BuiltKernel) -> None:
        # tilelang first: it brings the libtvm_ffi this process must use.
        import tilelang  # noqa: F401
        import tvm_ffi

        self.name = built.lowered.signature.name
        self._symbols = built.lowered.signature.symbols
        path = built.path("library")
        try:
            self._module = tvm_ffi.load_module(str(path))
            self._function = self._module.get_function(str(built.metadata["function"]))
            pool = self._module.get_function(_POOL_FUNCTION)
        except (RuntimeError, AttributeError, OSError) as error:
            raise DeviceUnavailable(
                f"{self.name}: the library built for the CPU cannot be loaded: {error}",
                hint="it may have been built on another machine: remove it from the cache (`tilehal cache clear`)",
            ) from error
        _share_threads(pool)
        compiled, self.how = load_cpu_call(built)
        #: The check and the call in one, and how calls are made, as `core.runtime.Launcher` has them.
        self.call = compiled.call if compiled is not None else None
        self.make_direct = compiled.make_direct if compiled is not None else None

    def explain(self, error: Exception) -> LaunchError:
        """What a failed call is reported as."""
        return LaunchError(
            f"{self.name}: {str(error).strip()}", hint="an assertion of the kernel's own failed, at the line named"
        )

    def __call__(self, *arguments: Any, symbols: dict[str, int] | None = None, stream: int | None = None) -> None:
        values = [symbols[name] for name in self._symbols] if symbols else []
        try:
            self._function(*arguments, *values)
        except RuntimeError as error:
            raise self.explain(error) from error
        except TypeError as error:
            raise LaunchError(str(error).strip(), hint="call the kernel through core.Kernel, which checks") from error


def _share_threads(pool: Any) -> None:
    """Points a library at the pool of the first one, and says how many threads to use."""
    global _shared_pool
    with _pool_lock:
        if _shared_pool is None:
            _shared_pool = pool()
        pool(_shared_pool, usable_threads())


def usable_threads() -> int:
    """Threads that can run at once here: the cores this process may use, within the control group's quota."""
    machine = read_machine()
    return max(1, machine.cores or len(machine.cpus))
