"""The SIMT wave family: CUDA-like chips that run waves of threads and that the stock wheel has no backend for.

A backend gives a :class:`Dialect` (usually :data:`STOCK` with what differs) and a platform header; the chip's
descriptor gives wave width, limits and matrix instructions. docs/simt.md is the guide.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.codegen.simt.building import build as build
    from core.codegen.simt.building import compiler_toolchain as compiler_toolchain
    from core.codegen.simt.building import find_compiler as find_compiler
    from core.codegen.simt.dialect import STOCK as STOCK
    from core.codegen.simt.dialect import CompileStep as CompileStep
    from core.codegen.simt.dialect import Dialect as Dialect
    from core.codegen.simt.launching import Runtime as Runtime
    from core.codegen.simt.launching import SimtLauncher as SimtLauncher
    from core.codegen.simt.launching import library_folders as library_folders
    from core.codegen.simt.lowering import include_folder as include_folder
    from core.codegen.simt.lowering import lower as lower
    from core.codegen.simt.matrix import MatrixPlan as MatrixPlan
    from core.codegen.simt.matrix import Product as Product
    from core.codegen.simt.matrix import choose as choose
    from core.codegen.simt.plan import CompiledPlan as CompiledPlan
    from core.codegen.simt.plan import Launch as Launch

_HOMES = {
    "building": ("build", "compiler_toolchain", "find_compiler"),
    "dialect": ("STOCK", "CompileStep", "Dialect"),
    "launching": ("Runtime", "SimtLauncher", "library_folders"),
    "lowering": ("include_folder", "lower"),
    "matrix": ("MatrixPlan", "Product", "choose"),
    "plan": ("CompiledPlan", "Launch"),
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
