"""Integer index expressions of lane layouts: checked when a descriptor is read, evaluated without `eval` of free text.

An expression uses `lane`, `i`, integers, parentheses and `+ - * // % >> << & |`. Because both C and Python give these
operators the same meaning on non-negative integers (with `//` written `/` in C), code generators may print them.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from functools import lru_cache

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.RShift: operator.rshift,
    ast.LShift: operator.lshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_VARIABLES = ("lane", "i")

IndexFunction = Callable[[int, int], int]


@lru_cache(maxsize=512)
def compile_index(expression: str) -> IndexFunction:
    """The expression as a function of (lane, i).

    Raises:
        ValueError: a syntax error, or anything but the names and operators above.
    """
    try:
        tree = ast.parse(expression, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{expression!r} is not an expression: {error.msg}") from error
    return _compile(tree, expression)


def _compile(node: ast.expr, expression: str) -> IndexFunction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        constant = node.value
        return lambda lane, i: constant
    if isinstance(node, ast.Name) and node.id in _VARIABLES:
        return (lambda lane, i: lane) if node.id == "lane" else (lambda lane, i: i)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        apply, left, right = (
            _OPERATORS[type(node.op)],
            _compile(node.left, expression),
            _compile(node.right, expression),
        )
        return lambda lane, i: apply(left(lane, i), right(lane, i))
    raise ValueError(
        f"{ast.unparse(node)!r} in {expression!r}: only lane, i, integers and + - * // % >> << & | are understood"
    )
