"""TIR expressions to view expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from core.program import expressions as view
from core.program.nodes import (
    AtomicExpr,
    Binary,
    BinaryOp,
    Cast,
    Choose,
    Compare,
    CompareOp,
    Const,
    Expr,
    Load,
    Logical,
    LogicalOp,
    Math,
    Not,
    Reinterpret,
)
from core.program.tir import guards
from core.program.tir.context import DIALECT_SCOPES, Context
from core.program.tir.intrinsics import BINARY_CALLS, MATH_CALLS, ROUND_TO_NEAREST_CALLS, convert_call_name

Converter = Callable[[Context, Any], Expr]


def convert(context: Context, expr: Any) -> Expr:
    """The view's expression for a TIR one. What is not known becomes an OpaqueExpr."""
    converter = _table().get(type(expr))
    if converter is None:
        return context.opaque_expr(_dtype(expr), type(expr).__name__)
    return converter(context, expr)


def convert_all(context: Context, exprs: Sequence[Any]) -> tuple[Expr, ...]:
    return tuple(convert(context, expr) for expr in exprs)


def _dtype(expr: Any) -> str:
    """The scalar dtype of an expression: inside a vector access every lane is one iteration."""
    return str(expr.dtype).partition("x")[0]


# -- literals and variables ------------------------------------------------------------------------------------------


def _integer(context: Context, expr: Any) -> Expr:
    dtype = _dtype(expr)
    return Const(dtype, bool(expr.value) if dtype == "bool" else int(expr.value))


def _floating(context: Context, expr: Any) -> Expr:
    return Const(_dtype(expr), float(expr.value))


def _variable(context: Context, expr: Any) -> Expr:
    inlined = context.inlined.get(expr)
    return convert(context, inlined) if inlined is not None else context.variable(expr)


def _let(context: Context, expr: Any) -> Expr:
    context.inlined[expr.var] = expr.value
    return convert(context, expr.body)


# -- operators -------------------------------------------------------------------------------------------------------


def _multiply(context: Context, expr: Any) -> Expr:
    a, b = convert(context, expr.a), convert(context, expr.b)
    if isinstance(a, Const) and isinstance(b, Const) and math.inf in (abs(a.value), abs(b.value)):
        return Const(a.dtype, a.value * b.value)  # `-T.infinity(...)` is infinity times -1
    return Binary(_dtype(expr), BinaryOp.MUL, a, b)


def _binary(op: BinaryOp) -> Converter:
    def converter(context: Context, expr: Any) -> Expr:
        return Binary(_dtype(expr), op, convert(context, expr.a), convert(context, expr.b))

    return converter


def _compare(op: CompareOp) -> Converter:
    def converter(context: Context, expr: Any) -> Expr:
        return Compare("bool", op, convert(context, expr.a), convert(context, expr.b))

    return converter


def _and(context: Context, expr: Any) -> Expr:
    first = convert(context, expr.a)
    with context.assuming(expr.a):
        return Logical("bool", LogicalOp.AND, first, convert(context, expr.b))


def _or(context: Context, expr: Any) -> Expr:
    first = convert(context, expr.a)
    with context.assuming(expr.a, negated=True):
        return Logical("bool", LogicalOp.OR, first, convert(context, expr.b))


def _not(context: Context, expr: Any) -> Expr:
    return Not(_dtype(expr), convert(context, expr.a))


def _cast(context: Context, expr: Any) -> Expr:
    value = convert(context, expr.value)
    dtype = _dtype(expr)
    return value if value.dtype == dtype else Cast(dtype, value)


def _select(context: Context, expr: Any) -> Expr:
    return Choose(
        _dtype(expr),
        convert(context, expr.condition),
        convert(context, expr.true_value),
        convert(context, expr.false_value),
        lazy=False,
    )


def _load(context: Context, expr: Any) -> Expr:
    scope = context.buffer(expr.buffer).storage
    if scope.scope in DIALECT_SCOPES:
        return context.opaque_expr(_dtype(expr), f"load from {scope.tilelang_scope}")
    return load(context, expr)


def load(context: Context, expr: Any) -> Load:
    """A BufferLoad, guarded where its indices need it."""
    buffer = context.buffer(expr.buffer)
    access = guards.element_access(context, expr.buffer, expr.indices)
    fill = None
    if access.guard:
        fill = guards.fill_value(context, expr.buffer, buffer.dtype)
    return Load(buffer.dtype, buffer, access.indices, access.guard, fill)


def _ramp(context: Context, expr: Any) -> Expr:
    if context.lane is None:
        return context.opaque_expr(_dtype(expr), "Ramp")
    return convert(context, guards.scalar_index(context, expr))


def _broadcast(context: Context, expr: Any) -> Expr:
    return convert(context, expr.value)


# -- calls -----------------------------------------------------------------------------------------------------------


def _call(context: Context, expr: Any) -> Expr:
    name = convert_call_name(expr)
    dtype = _dtype(expr)
    args = expr.args
    function = MATH_CALLS.get(name)
    if function is not None:
        return Math(dtype, function, convert_all(context, args))
    operator = BINARY_CALLS.get(name)
    if operator is not None:
        return Binary(dtype, operator, convert(context, args[0]), convert(context, args[1]))
    special = _SPECIAL_CALLS.get(name)
    if special is not None:
        return special(context, expr, dtype)
    if name in ROUND_TO_NEAREST_CALLS and getattr(args[-1], "value", None) == "rn":
        return ROUND_TO_NEAREST_CALLS[name](dtype, convert_all(context, args[:-1]))
    return opaque_call(context, expr)


def opaque_call(context: Context, expr: Any) -> Expr:
    """A call whose meaning the view does not know. Its scalar arguments are kept for whoever does."""
    name = convert_call_name(expr)
    converted: list[Expr | str] = []
    for argument in expr.args:
        kind = type(argument).__name__
        if kind == "StringImm":
            converted.append(str(argument.value))
        elif str(argument.dtype) == "handle":
            converted.append(str(argument))
        else:
            converted.append(convert(context, argument))
    return context.opaque_expr(_dtype(expr), name, tuple(converted))


def _if_then_else(context: Context, expr: Any, dtype: str) -> Expr:
    condition, taken, other = expr.args
    converted = convert(context, condition)
    with context.assuming(condition):
        first = convert(context, taken)
    with context.assuming(condition, negated=True):
        second = convert(context, other)
    return Choose(dtype, converted, first, second, lazy=True)


def _likely(context: Context, expr: Any, dtype: str) -> Expr:
    return convert(context, expr.args[0])


def _reinterpret(context: Context, expr: Any, dtype: str) -> Expr:
    return Reinterpret(dtype, convert(context, expr.args[0]))


def _infinity(context: Context, expr: Any, dtype: str) -> Expr:
    return Const(dtype, float("inf"))


def _bitwise_not(context: Context, expr: Any, dtype: str) -> Expr:
    return Not(dtype, convert(context, expr.args[0]))


def _large_unsigned(context: Context, expr: Any, dtype: str) -> Expr:
    low, high = (int(argument.value) for argument in expr.args)
    return Const(dtype, (high << 32) | low)


def _read_only_load(context: Context, expr: Any, dtype: str) -> Expr:
    return convert(context, expr.args[0])


def _any_or_all(op: LogicalOp) -> Callable[[Context, Any, str], Expr]:
    """`T.any_of` / `T.all_of`, as a tree of loads; more than a few dozen elements stay opaque."""

    def converter(context: Context, expr: Any, dtype: str) -> Expr:
        from core.program.tir.pointers import pointed_run

        count = context.prover.constant(expr.args[1])
        elements = pointed_run(context, expr.args[0], count) if count is not None and 0 < count <= 128 else None
        if elements is None:
            return opaque_call(context, expr)
        terms: list[Expr] = [view.cast(element, "bool") for element in elements]
        while len(terms) > 1:
            pairs = [Logical("bool", op, a, b) for a, b in zip(terms[::2], terms[1::2], strict=False)]
            terms = [*pairs, *terms[len(pairs) * 2 :]]
        return view.cast(terms[0], dtype)

    return converter


def _atomic(kind: str) -> Callable[[Context, Any, str], Expr]:
    def converter(context: Context, expr: Any, dtype: str) -> Expr:
        from core.program.tir.pointers import pointed_load

        target = pointed_load(context, expr.args[0])
        if target is None:
            return opaque_call(context, expr)
        rest = list(expr.args[1:])
        value = None if kind == "load" else view.cast(convert(context, rest.pop(0)), target.dtype)
        order = context.prover.constant(rest[0]) if rest else 0
        return AtomicExpr(target.dtype, kind, target, value, order or 0)

    return converter


_SPECIAL_CALLS: dict[str, Callable[[Context, Any, str], Expr]] = {
    "tirx.if_then_else": _if_then_else,
    "tirx.likely": _likely,
    "tirx.reinterpret": _reinterpret,
    "tirx.bitwise_not": _bitwise_not,
    "tirx.large_uint_imm": _large_unsigned,
    "tl.infinity": _infinity,
    "tl.__ldg": _read_only_load,
    "tl.any_of": _any_or_all(LogicalOp.OR),
    "tl.all_of": _any_or_all(LogicalOp.AND),
    "tl.atomic_add_ret_elem_op": _atomic("add"),
    "tl.atomic_max_ret_elem_op": _atomic("max"),
    "tl.atomic_min_ret_elem_op": _atomic("min"),
    "tl.atomic_or_ret_elem_op": _atomic("or"),
    "tl.atomic_load_elem_op": _atomic("load"),
}

_TABLE: dict[type, Converter] = {}


def _table() -> dict[type, Converter]:
    """Converters by TIR class; filled at first use, when TVM may be imported."""
    if not _TABLE:
        from tilelang import tvm

        tirx = tvm.tirx
        _TABLE.update(
            {
                tirx.IntImm: _integer,
                tirx.FloatImm: _floating,
                tirx.Var: _variable,
                tirx.SizeVar: _variable,
                tirx.Let: _let,
                tirx.Cast: _cast,
                tirx.And: _and,
                tirx.Or: _or,
                tirx.Not: _not,
                tirx.Select: _select,
                tirx.BufferLoad: _load,
                tirx.Ramp: _ramp,
                tirx.Broadcast: _broadcast,
                tirx.Call: _call,
                tirx.Add: _binary(BinaryOp.ADD),
                tirx.Sub: _binary(BinaryOp.SUB),
                tirx.Mul: _multiply,
                tirx.Div: _binary(BinaryOp.DIV),
                tirx.Mod: _binary(BinaryOp.MOD),
                tirx.FloorDiv: _binary(BinaryOp.FLOOR_DIV),
                tirx.FloorMod: _binary(BinaryOp.FLOOR_MOD),
                tirx.Min: _binary(BinaryOp.MIN),
                tirx.Max: _binary(BinaryOp.MAX),
                tirx.EQ: _compare(CompareOp.EQ),
                tirx.NE: _compare(CompareOp.NE),
                tirx.LT: _compare(CompareOp.LT),
                tirx.LE: _compare(CompareOp.LE),
                tirx.GT: _compare(CompareOp.GT),
                tirx.GE: _compare(CompareOp.GE),
            }
        )
    return _TABLE
