"""The SIMT wave family: CUDA-like chips that run waves of threads and that the stock wheel has no backend for.

A backend gives a :class:`Dialect` (usually :data:`STOCK` with what differs) and a platform header; the chip's
descriptor gives wave width, limits and matrix instructions. docs/simt.md is the guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core._lazy import lazy_names

if TYPE_CHECKING:
    from core.codegen.simt.building import build as build
    from core.codegen.simt.building import compiler_toolchain as compiler_toolchain
    from core.codegen.simt.building import find_compiler as find_compiler
    from core.codegen.simt.dialect import STOCK as STOCK
    from core.codegen.simt.dialect import CompileStep as CompileStep
    from core.codegen.simt.dialect import Dialect as Dialect
    from core.codegen.simt.launching import Runtime as Runtime
    from core.codegen.simt.launching import SimtLauncher as SimtLauncher
    from core.codegen.simt.launching import load_library as load_library
    from core.codegen.simt.lowering import include_folder as include_folder
    from core.codegen.simt.lowering import lower as lower
    from core.codegen.simt.matrix import MatrixPlan as MatrixPlan
    from core.codegen.simt.matrix import Product as Product
    from core.codegen.simt.matrix import choose as choose
    from core.codegen.simt.plan import CompiledPlan as CompiledPlan
    from core.codegen.simt.plan import Launch as Launch

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "building": ("build", "compiler_toolchain", "find_compiler"),
        "dialect": ("STOCK", "CompileStep", "Dialect"),
        "launching": ("Runtime", "SimtLauncher", "load_library"),
        "lowering": ("include_folder", "lower"),
        "matrix": ("MatrixPlan", "Product", "choose"),
        "plan": ("CompiledPlan", "Launch"),
    },
)
