"""The SIMT wave family: CUDA-like chips that run waves of threads and that the stock wheel has no backend for.

A backend gives a :class:`Dialect` (usually :data:`STOCK` with what differs) and a platform header; the chip's descriptor
gives wave width, limits and matrix instructions. docs/simt.md is the guide.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.codegen.simt.dialect import STOCK as STOCK
    from core.codegen.simt.dialect import CompileStep as CompileStep
    from core.codegen.simt.dialect import Dialect as Dialect
    from core.codegen.simt.lowering import include_folder as include_folder
    from core.codegen.simt.lowering import lower as lower

_HOMES = {"dialect": ("STOCK", "CompileStep", "Dialect"), "lowering": ("include_folder", "lower")}
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
