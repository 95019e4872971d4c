"""Assumptions that compile everywhere and hold on some chips only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from core.portability.model import Remark, Status
from core.program import walk
from core.program.nodes import Binary, BinaryOp, Compare, Const, Expr, Let, OpaqueExpr, Var, VarKind, View

if TYPE_CHECKING:
    from core.hardware import Chip

_USUAL_WIDTH = 32
#: How a thread index is split into wave and lane, and with which literal.
_SPLITS = {
    BinaryOp.FLOOR_DIV: _USUAL_WIDTH,
    BinaryOp.FLOOR_MOD: _USUAL_WIDTH,
    BinaryOp.DIV: _USUAL_WIDTH,
    BinaryOp.MOD: _USUAL_WIDTH,
    BinaryOp.BIT_AND: _USUAL_WIDTH - 1,
    BinaryOp.SHIFT_RIGHT: 5,
}


def wave_width(view: View, chip: Chip) -> Iterator[Remark]:
    """Lines that take 32 for the number of threads in a wave, on a chip where it is another number.

    Seen are a thread index (or a variable made of one) divided by 32, taken modulo 32, masked with 31, shifted by 5 or
    compared with 32, and shuffles over 32 lanes. A 32 that has nothing to do with threads is no assumption.
    """
    width = chip.main_unit.lanes_per_wave if chip.units else None
    if width is None or width == _USUAL_WIDTH:
        return
    for launch in view.launches:
        of_threads: set[Var] = set()
        for stmt in walk.statements(launch.body):
            exprs = tuple(walk.expressions(stmt))
            if isinstance(stmt, Let) and any(_is_thread(e, of_threads) for e in exprs if e is not stmt.var):
                of_threads.add(stmt.var)
            found = next((text for e in exprs if (text := _assumption(e, of_threads))), "")
            if found:
                yield Remark(
                    "wave-width",
                    Status.NATIVE,
                    f"{found} takes 32 for the width of a wave; on {chip.target} it is {width}",
                    "take the width as a kernel argument, from core.chip(target).main_unit.lanes_per_wave",
                    stmt.location,
                    warning=True,
                )


def _is_thread(expr: Expr, of_threads: set[Var]) -> bool:
    return isinstance(expr, Var) and (expr.kind is VarKind.THREAD or expr in of_threads)


def _assumption(expr: Expr, of_threads: set[Var]) -> str:
    """The expression as text when it assumes waves of 32, else empty."""
    from core.program.printer import expression_text

    match expr:
        case Binary(op=op, a=a, b=Const(value=value)) if _SPLITS.get(op) == value and _reads(a, of_threads):
            return expression_text(expr)
        case Compare(a=a, b=Const(value=value)) if value == _USUAL_WIDTH and _reads(a, of_threads):
            return expression_text(expr)
        case OpaqueExpr(operation=operation, args=args) if "shfl" in operation and _ends_with_width(args):
            return operation
        case _:
            return ""


def _reads(expr: Expr, of_threads: set[Var]) -> bool:
    return any(_is_thread(part, of_threads) for part in walk.subexpressions(expr))


def _ends_with_width(args: tuple[Expr | str, ...]) -> bool:
    return bool(args) and isinstance(args[-1], Const) and args[-1].value == _USUAL_WIDTH
