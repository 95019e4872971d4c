"""C++ family: the tile-level view to portable C++17, one source file per kernel."""

from core.codegen.cpp.lowering import lower
from core.codegen.cpp.source import CppSource, generate

__all__ = ["CppSource", "generate", "lower"]
