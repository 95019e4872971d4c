"""The kernel as data: `Program` and the nodes of its tile-level view. docs/program.md defines what each node means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.program.nodes import (
    MATH_FUNCTIONS,
    Assert,
    AtomicElement,
    AtomicExpr,
    AtomicTile,
    Binary,
    BinaryOp,
    Break,
    Buffer,
    Cast,
    Choose,
    Compare,
    CompareOp,
    Const,
    Continue,
    Copy,
    Expr,
    Fill,
    For,
    Gemm,
    If,
    Im2Col,
    Launch,
    Let,
    Load,
    Logical,
    LogicalOp,
    LoopKind,
    Math,
    Not,
    OpaqueExpr,
    OpaqueStmt,
    Parallel,
    Parameter,
    Print,
    Reduce,
    ReducerFinalize,
    ReducerInit,
    ReducerUpdate,
    Region,
    Reinterpret,
    Scan,
    Scope,
    Stmt,
    Storage,
    Store,
    Sync,
    ThreadReturn,
    Transpose,
    Var,
    VarKind,
    View,
    While,
)

if TYPE_CHECKING:
    from core.program.effects import statement_effects
    from core.program.expressions import dtype_bits
    from core.program.footprint import Footprint, LaunchFootprint
    from core.program.lifetimes import BufferUse
    from core.program.printer import expression_text, view_text
    from core.program.program import Program
    from core.program.walk import children, regions, statements, subexpressions

#: Made available when first asked for: what is above is all that describing a chip needs.
_LAZY = {
    "BufferUse": "core.program.lifetimes",
    "Footprint": "core.program.footprint",
    "LaunchFootprint": "core.program.footprint",
    "Program": "core.program.program",
    "children": "core.program.walk",
    "dtype_bits": "core.program.expressions",
    "expression_text": "core.program.printer",
    "regions": "core.program.walk",
    "statement_effects": "core.program.effects",
    "statements": "core.program.walk",
    "subexpressions": "core.program.walk",
    "view_text": "core.program.printer",
}

__all__ = [
    "MATH_FUNCTIONS",
    "Assert",
    "AtomicElement",
    "AtomicExpr",
    "AtomicTile",
    "Binary",
    "BinaryOp",
    "Break",
    "Buffer",
    "BufferUse",
    "Cast",
    "Choose",
    "Compare",
    "CompareOp",
    "Const",
    "Continue",
    "Copy",
    "Expr",
    "Fill",
    "Footprint",
    "For",
    "Gemm",
    "If",
    "Im2Col",
    "Launch",
    "LaunchFootprint",
    "Let",
    "Load",
    "Logical",
    "LogicalOp",
    "LoopKind",
    "Math",
    "Not",
    "OpaqueExpr",
    "OpaqueStmt",
    "Parallel",
    "Parameter",
    "Print",
    "Program",
    "Reduce",
    "ReducerFinalize",
    "ReducerInit",
    "ReducerUpdate",
    "Region",
    "Reinterpret",
    "Scan",
    "Scope",
    "Stmt",
    "Storage",
    "Store",
    "Sync",
    "ThreadReturn",
    "Transpose",
    "Var",
    "VarKind",
    "View",
    "While",
    "children",
    "dtype_bits",
    "expression_text",
    "regions",
    "statement_effects",
    "statements",
    "subexpressions",
    "view_text",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
