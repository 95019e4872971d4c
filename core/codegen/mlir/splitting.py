"""Parallel axes that a kernel divides (`packed[i, j // 2]`, `j % 2`), as two axes each: then the accesses are boxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from core.program.expressions import add, constant, constant_int, multiply
from core.program.nodes import Binary, BinaryOp, Buffer, Cast, Expr, Parallel, Storage, Var
from core.program.walk import expressions, statements

_DIVISIONS = (BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD, BinaryOp.DIV, BinaryOp.MOD)


def split_axes(stmt: Parallel) -> Parallel:
    """The loop with every axis that is divided by one number, which divides its extent, written as two."""
    divisors: dict[Var, set[int]] = {}
    for inner in statements(stmt.body):
        for expr in expressions(inner):
            if isinstance(expr, Binary) and expr.op in _DIVISIONS:
                divided = expr.a.a if isinstance(expr.a, Cast) else expr.a
                by = constant_int(expr.b)
                if isinstance(divided, Var) and by is not None:
                    divisors.setdefault(divided, set()).add(by)
    variables: list[Var] = []
    extents: list[Expr] = []
    mapping: dict[Var, Expr] = {}
    for var, extent in zip(stmt.vars, stmt.extents, strict=True):
        size, found = constant_int(extent), divisors.get(var, set())
        by = next(iter(found)) if len(found) == 1 else 0
        if size is None or not 1 < by < size or size % by:
            variables.append(var)
            extents.append(extent)
            continue
        outer, inner_var = (Var(var.dtype, f"{var.name}_{part}", var.kind) for part in ("outer", "inner"))
        variables += [outer, inner_var]
        extents += [constant(size // by, extent.dtype), constant(by, extent.dtype)]
        mapping[var] = add(multiply(outer, constant(by, var.dtype)), inner_var)
    if not mapping:
        return stmt
    body = tuple(_substituted(inner, mapping) for inner in stmt.body)
    return replace(stmt, vars=tuple(variables), extents=tuple(extents), body=body)


def _substituted(node: Any, mapping: Mapping[Var, Expr]) -> Any:
    """A statement or expression with variables replaced."""
    if isinstance(node, Var):
        return mapping.get(node, node)
    if isinstance(node, tuple):
        return tuple(_substituted(item, mapping) for item in node)
    if isinstance(node, Buffer | Storage) or not hasattr(node, "__dataclass_fields__"):
        return node
    changes = {}
    for item in fields(node):
        before = getattr(node, item.name)
        after = _substituted(before, mapping)
        if after is not before and not (isinstance(before, tuple) and all(map(_is, before, after))):
            changes[item.name] = after
    return replace(node, **changes) if changes else node


def _is(a: Any, b: Any) -> bool:
    return a is b
