"""What is known about integer expressions: least and greatest values, signs, and how they vary over loops."""

from __future__ import annotations

from core.codegen.cpp.types import integer_range, is_integer
from core.program.nodes import Binary, BinaryOp, Cast, Choose, Const, Expr, Load, Var, VarKind

Bounds = tuple[int, int]

#: Variables that only count: grid axes, loops, symbolic sizes. Arithmetic on nothing else is index arithmetic.
_COUNTERS = frozenset({VarKind.BLOCK, VarKind.LOOP, VarKind.PARALLEL, VarKind.SYMBOL, VarKind.THREAD, VarKind.SCALAR})
_NONNEGATIVE = frozenset({VarKind.BLOCK, VarKind.PARALLEL, VarKind.SYMBOL, VarKind.THREAD})


class Ranges:
    """Bounds of variables, learnt as their loops and bindings are entered."""

    def __init__(self) -> None:
        self._bounds: dict[int, Bounds] = {}
        self._nonnegative: set[int] = set()
        self._index_lets: set[int] = set()
        self._kept: list[Var] = []

    def enter_loop(self, var: Var, start: Expr, extent: Expr) -> None:
        """`var` runs over [start, start + extent)."""
        self._kept.append(var)
        first, length = self.bounds(start), self.bounds(extent)
        if first is not None and length is not None and length[1] > 0:
            self._bounds[id(var)] = (first[0], first[1] + length[1] - 1)
        if self.is_nonnegative(start):
            self._nonnegative.add(id(var))

    def enter_let(self, var: Var, value: Expr) -> None:
        """`var` has the value of an expression, if that is arithmetic on counters."""
        if not is_integer(var.dtype) or not self.counts(value):
            return
        self._kept.append(var)
        self._index_lets.add(id(var))
        bounds = self.bounds(value)
        if bounds is not None:
            self._bounds[id(var)] = bounds
        if self.is_nonnegative(value):
            self._nonnegative.add(id(var))

    def is_index(self, expr: Expr) -> bool:
        """Whether the expression is integer arithmetic on counters and literals alone."""
        if isinstance(expr, Const):
            return is_integer(expr.dtype)
        if isinstance(expr, Var):
            return is_integer(expr.dtype) and (expr.kind in _COUNTERS or id(expr) in self._index_lets)
        if isinstance(expr, Binary):
            return self.is_index(expr.a) and self.is_index(expr.b)
        return isinstance(expr, Cast) and is_integer(expr.dtype) and self.is_index(expr.a)

    def counts(self, expr: Expr) -> bool:
        """Whether the expression may be printed as index arithmetic, with plain operators."""
        return self.is_index(expr) and not self.may_overflow(expr)

    def fits(self, expr: Expr) -> bool:
        """Whether the exact value of the expression provably fits its dtype, at every step of computing it."""
        if isinstance(expr, Binary):
            if not (self.fits(expr.a) and self.fits(expr.b)):
                return False
        elif isinstance(expr, Cast):
            if not self.fits(expr.a):
                return False
        elif not isinstance(expr, Const | Var):
            return False
        bounds = self.bounds(expr)
        if bounds is None:
            return False
        low, high = integer_range(expr.dtype)
        return low <= bounds[0] and bounds[1] <= high

    def may_overflow(self, expr: Expr) -> bool:
        """Whether arithmetic on counters looks like a hash rather than an index: it leaves its dtype on the way.

        Unbounded counters (symbolic grids) are taken to index something that exists, unless they are multiplied by a
        literal no tile has as a size.
        """
        if isinstance(expr, Cast):
            return self.may_overflow(expr.a)
        if not isinstance(expr, Binary):
            return False
        if self.may_overflow(expr.a) or self.may_overflow(expr.b):
            return True
        bounds = self.bounds(expr)
        if bounds is not None:
            low, high = integer_range(expr.dtype)
            return not (low <= bounds[0] and bounds[1] <= high)
        factors = (expr.a, expr.b) if expr.op is BinaryOp.MUL else ()
        return any(isinstance(factor, Const) and abs(factor.value) >= 2**16 for factor in factors)

    def is_nonnegative(self, expr: Expr) -> bool:
        """Whether the value is known to be >= 0, as long as nothing overflows."""
        lower = self.lower_bound(expr)
        return lower is not None and lower >= 0

    def lower_bound(self, expr: Expr) -> int | None:
        """A value that `expr` is at least, as long as nothing overflows; None when none is known."""
        bounds = self.bounds(expr)
        if bounds is not None:
            return bounds[0]
        if isinstance(expr, Var):
            known = expr.kind in _NONNEGATIVE or id(expr) in self._nonnegative or expr.dtype.startswith("uint")
            return 0 if known else None
        if isinstance(expr, Cast):
            return self.lower_bound(expr.a) if is_integer(expr.a.dtype) and is_integer(expr.dtype) else None
        if isinstance(expr, Choose):
            a, b = self.lower_bound(expr.a), self.lower_bound(expr.b)
            return None if a is None or b is None else min(a, b)
        if isinstance(expr, Binary):
            return self._lower_bound_of_binary(expr)
        return 0 if isinstance(expr, Load) and expr.dtype.startswith("uint") else None

    def _lower_bound_of_binary(self, expr: Binary) -> int | None:
        a, b = self.lower_bound(expr.a), self.lower_bound(expr.b)
        match expr.op:
            case BinaryOp.ADD:
                return None if a is None or b is None else a + b
            case BinaryOp.SUB:
                subtracted = self.bounds(expr.b)
                return None if a is None or subtracted is None else a - subtracted[1]
            case BinaryOp.MIN:
                return None if a is None or b is None else min(a, b)
            case BinaryOp.MAX:
                return max((bound for bound in (a, b) if bound is not None), default=None)
            case BinaryOp.MUL if a is not None and b is not None and min(a, b) >= 0:
                return a * b
            case BinaryOp.FLOOR_DIV | BinaryOp.DIV | BinaryOp.SHIFT_RIGHT if a is not None and b is not None:
                return 0 if min(a, b) >= 0 else None
            case BinaryOp.MOD if a is not None and a >= 0:
                return 0
            case BinaryOp.FLOOR_MOD if b is not None and b > 0:
                return 0
            case BinaryOp.BIT_AND if max((x for x in (a, b) if x is not None), default=-1) >= 0:
                return 0
        return None

    def bounds(self, expr: Expr) -> Bounds | None:
        """Least and greatest exact value, or None when unknown."""
        if isinstance(expr, Const):
            return (int(expr.value), int(expr.value)) if is_integer(expr.dtype) else None
        if isinstance(expr, Var):
            return self._bounds.get(id(expr))
        if isinstance(expr, Cast):
            return self.bounds(expr.a) if is_integer(expr.dtype) else None
        if not isinstance(expr, Binary):
            return None
        a, b = self.bounds(expr.a), self.bounds(expr.b)
        if a is None or b is None:
            if expr.op is BinaryOp.FLOOR_MOD and b is not None and b[0] > 0:
                return (0, b[1] - 1)
            return None
        return _combined(expr.op, a, b)


def _combined(op: BinaryOp, a: Bounds, b: Bounds) -> Bounds | None:
    match op:
        case BinaryOp.ADD:
            return (a[0] + b[0], a[1] + b[1])
        case BinaryOp.SUB:
            return (a[0] - b[1], a[1] - b[0])
        case BinaryOp.MUL:
            corners = [x * y for x in a for y in b]
            return (min(corners), max(corners))
        case BinaryOp.MIN:
            return (min(a[0], b[0]), min(a[1], b[1]))
        case BinaryOp.MAX:
            return (max(a[0], b[0]), max(a[1], b[1]))
        case BinaryOp.FLOOR_DIV if b[0] > 0:
            corners = [x // y for x in a for y in b]
            return (min(corners), max(corners))
        case BinaryOp.DIV if b[0] > 0 and a[0] >= 0:
            return (a[0] // b[1], a[1] // b[0])
        case BinaryOp.FLOOR_MOD if b[0] > 0:
            return a if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)
        case BinaryOp.MOD if b[0] > 0 and a[0] >= 0:
            return a if a[1] < b[0] else (0, min(a[1], b[1] - 1))
    return None


def affine_coefficient(expr: Expr, variables: frozenset[int]) -> dict[int, int] | None:
    """Coefficients of `variables` (by `id`) in an expression that is linear in them; None when it is not.

    A coefficient must be a literal. Terms without any of the variables are not looked into.
    """
    if isinstance(expr, Var):
        return {id(expr): 1} if id(expr) in variables else {}
    if isinstance(expr, Const):
        return {}
    if isinstance(expr, Binary):
        a, b = affine_coefficient(expr.a, variables), affine_coefficient(expr.b, variables)
        if a is None or b is None:
            return None
        if not a and not b:
            return {}
        if expr.op in (BinaryOp.ADD, BinaryOp.SUB):
            sign = 1 if expr.op is BinaryOp.ADD else -1
            return {key: a.get(key, 0) + sign * b.get(key, 0) for key in {*a, *b}}
        if expr.op is BinaryOp.MUL:
            if isinstance(expr.b, Const):
                return {key: value * int(expr.b.value) for key, value in a.items()}
            if isinstance(expr.a, Const):
                return {key: value * int(expr.a.value) for key, value in b.items()}
        return None
    if isinstance(expr, Cast):
        return affine_coefficient(expr.a, variables) if is_integer(expr.dtype) and is_integer(expr.a.dtype) else None
    return {} if not _mentions(expr, variables) else None


def _mentions(expr: Expr, variables: frozenset[int]) -> bool:
    from core.program.walk import subexpressions

    return any(isinstance(item, Var) and id(item) in variables for item in subexpressions(expr))
