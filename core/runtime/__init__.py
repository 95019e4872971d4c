"""Running a compiled kernel: the calling convention as data, what a backend's launcher is, the kernel object.

Each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core._lazy import lazy_names

if TYPE_CHECKING:
    from core.runtime.artifact import Artifact as Artifact
    from core.runtime.compiled import MISS as MISS
    from core.runtime.exported import ExportedKernel as ExportedKernel
    from core.runtime.exported import LoadedExport as LoadedExport
    from core.runtime.exported import load_exported as load_exported
    from core.runtime.extents import Expression as Expression
    from core.runtime.extents import Extent as Extent
    from core.runtime.extents import GridExtents as GridExtents
    from core.runtime.kernel import Kernel as Kernel
    from core.runtime.launcher import Launcher as Launcher
    from core.runtime.plan import LARGEST_INT32_SIZE as LARGEST_INT32_SIZE
    from core.runtime.signature import ScalarArgument as ScalarArgument
    from core.runtime.signature import Signature as Signature
    from core.runtime.signature import TensorArgument as TensorArgument

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "artifact": ("Artifact",),
        "compiled": ("MISS",),
        "exported": ("ExportedKernel", "LoadedExport", "load_exported"),
        "extents": ("Expression", "Extent", "GridExtents"),
        "kernel": ("Kernel",),
        "launcher": ("Launcher",),
        "plan": ("LARGEST_INT32_SIZE",),
        "signature": ("ScalarArgument", "Signature", "TensorArgument"),
    },
)
