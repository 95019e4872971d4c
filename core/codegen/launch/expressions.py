"""Expressions of a launch plan (Python's syntax) as C over 64-bit integers."""

from __future__ import annotations

import ast
from collections.abc import Mapping

_BINARY = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
_COMPARE = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


def to_c(text: str | int, names: Mapping[str, str]) -> str:
    """An expression as C.

    Args:
        text: in Python's syntax, as :func:`core.runtime.plan.names_of` allows it.
        names: the C expression that each name stands for.

    Division and remainder round down as in Python, through the functions of `launch.h`.
    """
    return _Printer(names).visit(ast.parse(str(text), mode="eval").body)


class _Printer:
    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant):
            return self.constant(node.value)
        if isinstance(node, ast.Name):
            return self.names[node.id]
        if isinstance(node, ast.BinOp):
            left, right = self.visit(node.left), self.visit(node.right)
            if isinstance(node.op, ast.FloorDiv):
                return f"tilehal_divide({left}, {right})"
            if isinstance(node.op, ast.Mod):
                return f"tilehal_remainder({left}, {right})"
            return f"({left} {_BINARY[type(node.op)]} {right})"
        if isinstance(node, ast.UnaryOp):
            return f"({'!' if isinstance(node.op, ast.Not) else '-'}{self.visit(node.operand)})"
        if isinstance(node, ast.BoolOp):
            sign = " && " if isinstance(node.op, ast.And) else " || "
            return f"({sign.join(self.visit(value) for value in node.values)})"
        if isinstance(node, ast.Compare):
            values = [self.visit(value) for value in (node.left, *node.comparators)]
            pairs = zip(values, node.ops, values[1:], strict=False)
            return f"({' && '.join(f'{a} {_COMPARE[type(op)]} {b}' for a, op, b in pairs)})"
        if isinstance(node, ast.IfExp):
            return f"({self.visit(node.test)} ? {self.visit(node.body)} : {self.visit(node.orelse)})"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            left, right = (self.visit(argument) for argument in node.args)
            return f"({left} {'<' if node.func.id == 'min' else '>'} {right} ? {left} : {right})"
        raise ValueError(f"{ast.unparse(node)} has no form in C")

    def constant(self, value: object) -> str:
        if isinstance(value, bool):
            return str(int(value))
        if isinstance(value, int):
            if value == -(2**63):
                return "INT64_MIN"
            return f"INT64_C({value})" if abs(value) >= 2**31 else str(value)
        if isinstance(value, float):
            return repr(value)
        raise ValueError(f"{value!r} has no form in C")
