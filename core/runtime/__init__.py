"""Running a compiled kernel: the calling convention as data, what a backend's launcher is, the kernel object.

Each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.runtime.compiled import MISS as MISS
    from core.runtime.exported import ExportedKernel as ExportedKernel
    from core.runtime.exported import load_exported as load_exported
    from core.runtime.extents import Expression as Expression
    from core.runtime.extents import Extent as Extent
    from core.runtime.extents import GridExtents as GridExtents
    from core.runtime.kernel import Kernel as Kernel
    from core.runtime.launcher import Launcher as Launcher
    from core.runtime.signature import ScalarArgument as ScalarArgument
    from core.runtime.signature import Signature as Signature
    from core.runtime.signature import TensorArgument as TensorArgument

_HOMES = {
    "compiled": ("MISS",),
    "exported": ("ExportedKernel", "load_exported"),
    "extents": ("Expression", "Extent", "GridExtents"),
    "kernel": ("Kernel",),
    "launcher": ("Launcher",),
    "signature": ("ScalarArgument", "Signature", "TensorArgument"),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
