"""Slice assignments whose elements do not lie at a multiple of their number.

The stock code generators turn `x[i : i + 4] = y[j : j + 4]` into one access of four elements on each side, wherever the
slices begin. At an address that is no multiple of its size such an access faults on CUDA and is undefined elsewhere.
Where nothing says that a slice begins at a multiple of its length, its elements are moved one by one: what
docs/program.md says of a slice assignment.
"""

from __future__ import annotations

from typing import Any

from core.codegen.tir.rebuild import with_span
from core.errors import Location, UnsupportedOp

#: Bytes of the widest access there is.
_WIDEST = 16


def one_by_one(prim_func: Any) -> tuple[Any, list[int]]:
    """Spells out the slice assignments that cannot be one access.

    Returns:
        The function, and the lines of what was changed.

    Raises:
        UnsupportedOp: the elements of what is assigned cannot be told apart; with the line.
    """
    from tvm import arith, tirx

    analyzer = arith.Analyzer()

    def know(node: Any) -> None:
        if type(node).__name__ == "Bind" and str(node.var.dtype).startswith("int"):
            analyzer.bind(node.var, node.value)

    tirx.stmt_functor.post_order_visit(prim_func.body, know)
    lines: list[int] = []
    refused: list[UnsupportedOp] = []

    def spell_out(store: Any) -> Any:
        lanes = _lanes(store.indices)
        if lanes == 1 or str(store.buffer.scope()).startswith("local.fragment") or store.predicate is not None:
            return None
        if all(_aligned(buffer, indices, analyzer) for buffer, indices in _accesses(store)):
            return None
        location = _location(store)
        lane = tirx.Var("lane", "int32")
        try:
            indices = [_element(index, lane) for index in store.indices]
            element = tirx.BufferStore(store.buffer, _element(store.value, lane), indices)
        except _Inseparable as error:
            # Kept for later: what is raised in here comes back from TVM as a RuntimeError.
            refused.append(
                UnsupportedOp(
                    f"{store.buffer.name}: {lanes} elements are assigned at once, which do not lie at a multiple of "
                    f"{lanes}, and {error} cannot be taken apart",
                    hint=f"assign them one by one: for j in T.vectorized({lanes})",
                    location=location,
                )
            )
            return None
        if location is not None:
            lines.append(location.line)
        body = with_span(element, store)
        return with_span(tirx.For(lane, 0, lanes, tirx.ForKind.UNROLLED, body), store)

    body = tirx.stmt_functor.ir_transform(prim_func.body, None, spell_out, ["tirx.BufferStore"])
    if refused:
        raise refused[0]
    if body.same_as(prim_func.body):
        return prim_func, []
    return prim_func.with_body(body, prim_func.span), lines


class _Inseparable(Exception):
    """An expression whose elements cannot be computed one by one."""


def _lanes(indices: Any) -> int:
    return max(int(getattr(index, "lanes", 1)) for index in indices)


def _accesses(store: Any) -> list[tuple[Any, Any]]:
    """Buffer and indices of the store, and of every load of as many elements that it stores."""
    from tvm import tirx

    found = [(store.buffer, store.indices)]

    def note(node: Any) -> None:
        if type(node).__name__ == "BufferLoad" and _lanes(node.indices) > 1:
            found.append((node.buffer, node.indices))

    tirx.stmt_functor.post_order_visit(store.value, note)
    return found


def _aligned(buffer: Any, indices: Any, analyzer: Any) -> bool:
    """Whether an access of neighbours begins at a multiple of its size. What is not of neighbours is not one access."""
    from tvm import runtime

    lanes, bits = _lanes(indices), runtime.DataType(str(buffer.dtype)).bits
    if lanes & (lanes - 1) or bits < 8:
        return True
    strides = list(buffer.strides)
    if not strides:
        strides = [1]
        for extent in reversed(list(buffer.shape)[1:]):
            strides.insert(0, strides[0] * extent)
    place = buffer.elem_offset
    for index, stride in zip(indices, strides, strict=True):
        if type(index).__name__ == "Ramp":
            if not analyzer.can_prove_equal(index.stride * stride, 1):
                return True
            place = place + index.base * stride
        else:
            place = place + index * stride
    needed = min(lanes, max(1, _WIDEST * 8 // bits))
    known = analyzer.modular_set(analyzer.simplify(place))
    return bool(known.coeff % needed == 0 and known.base % needed == 0)


def _element(expr: Any, lane: Any) -> Any:
    """The element of a vector expression that belongs to a lane."""
    from tvm import tirx

    kind = type(expr).__name__
    if kind == "Ramp":
        return expr.base + lane * expr.stride
    if kind == "Broadcast":
        return expr.value
    dtype, _, lanes = str(expr.dtype).partition("x")
    if not lanes:
        return expr
    if kind == "BufferLoad" and expr.predicate is None:
        return tirx.BufferLoad(expr.buffer, [_element(index, lane) for index in expr.indices])
    if kind == "Cast":
        return tirx.Cast(dtype, _element(expr.value, lane))
    if kind == "Select":
        parts = (expr.condition, expr.true_value, expr.false_value)
        return tirx.Select(*(_element(part, lane) for part in parts))
    if kind == "Not":
        return tirx.Not(_element(expr.a, lane))
    if kind == "Call" and str(getattr(expr.op, "name", "")).startswith("tirx."):
        return tirx.Call(dtype, expr.op, [_element(argument, lane) for argument in expr.args])
    if hasattr(expr, "a") and hasattr(expr, "b"):
        return type(expr)(_element(expr.a, lane), _element(expr.b, lane))
    raise _Inseparable(str(expr))


def _location(stmt: Any) -> Location | None:
    from tilelang.ir import get_stmt_span, span_to_location

    span = get_stmt_span(stmt)
    if span is None:
        return None
    file, line = span_to_location(span)[:2]
    return Location(str(file), int(line))
