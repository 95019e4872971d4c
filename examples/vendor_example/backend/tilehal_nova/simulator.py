"""Loads a built kernel and calls it on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.compiler import BuiltKernel


class Simulator:
    """Called with every parameter of the signature in order; the rest is said at `core.runtime.Launcher`."""

    def __init__(self, built: BuiltKernel) -> None:
        # tilelang first: it brings the TVM-FFI library this process must use.
        import tilelang  # noqa: F401
        import tvm_ffi

        self._symbols = built.lowered.signature.symbols
        module = tvm_ffi.load_module(str(built.path("library")))
        self._function = module.get_function(str(built.lowered.metadata["function"]))

    def __call__(self, *arguments: Any, symbols: dict[str, int] | None = None, stream: int | None = None) -> None:
        self._function(*arguments, *((symbols or {})[name] for name in self._symbols))
