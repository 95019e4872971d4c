"""Loads an exported kernel and calls it: nothing but Python and the library is needed, tensors are torch's."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from core.errors import ArtifactError, LaunchError

if TYPE_CHECKING:
    from core.runtime import Artifact

#: How the metadata of an export names Nova's launch.
KIND = "nova-function"
_TYPES = {"handle": ctypes.c_void_p, "bool": ctypes.c_bool, "float32": ctypes.c_float, "float64": ctypes.c_double}
_TYPES |= {f"int{bits}": getattr(ctypes, f"c_int{bits}") for bits in (8, 16, 32, 64)}
_TYPES |= {f"uint{bits}": getattr(ctypes, f"c_uint{bits}") for bits in (8, 16, 32, 64)}


class Loaded:
    """A `core.runtime.LoadedExport`."""

    def __init__(self, artifact: Artifact) -> None:
        launch = artifact.metadata["launch"]
        path = artifact.path("binary")
        try:
            library = ctypes.CDLL(str(path.absolute() if path else None))
            self._function = getattr(library, str(launch["function"]))
        except (OSError, AttributeError) as error:
            raise ArtifactError(f"{path} cannot be loaded: {error}", hint="export the kernel on this system") from error
        self._function.restype = ctypes.c_char_p
        self._function.argtypes = [_TYPES[name] for name in launch["types"]]
        self._name, self._symbols = artifact.signature.name, artifact.signature.symbols

    def raw(self, device: int, stream: int, *values: Any) -> None:
        """A real vendor would queue it on the stream here."""
        failed = self._function(*values)
        if failed is not None:
            raise LaunchError(f"{self._name}: {failed.decode()}", hint="an assertion of the kernel's own failed")

    def launcher(self) -> Any:
        """Calls with tensors, which have been checked against the signature."""
        return self._launch

    def _launch(self, *arguments: Any, symbols: dict[str, int] | None = None, stream: int | None = None) -> None:
        values = [value.data_ptr() if hasattr(value, "data_ptr") else value for value in arguments]
        self.raw(0, stream or 0, *values, *((symbols or {})[name] for name in self._symbols))
