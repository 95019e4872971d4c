"""Proofs about index expressions, with TVM's arithmetic analyser and what is known of the variables in scope."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any


class Prover:
    """A thin, memoising face of `arith.Analyzer`.

    Every variable is bound once (a TIR variable has one definition), so bindings are never taken back; conditions are,
    when their scope ends. A condition or a binding that reads memory is not used: the memory may change while the
    analyser still believes it.
    """

    def __init__(self) -> None:
        import tilelang  # noqa: F401  # before tvm: the build it ships must be the one that loads
        from tilelang import tvm

        self._tvm = tvm
        self._tirx = tvm.tirx
        self._arith = tvm.arith
        self._analyzer = tvm.arith.Analyzer()
        self._symbolic = tvm.arith.ProofStrength.SYMBOLIC_BOUND
        self._infinity = tvm.arith.ConstIntBound.POS_INF
        self._scope = 0  # identifies the set of conditions in force
        self._next_scope = 1
        self._known: dict[tuple[Any, ...], bool] = {}
        self._conditions: dict[Any, Any] = {}  # boolean variables and what they stand for

    # -- what is known -----------------------------------------------------------------------------------------------

    def bind_range(self, variable: Any, start: Any, extent: Any) -> None:
        """The variable of a loop: `start <= variable < start + extent`."""
        self._analyzer.bind(variable, self._tvm.ir.Range.from_min_extent(start, extent), True)

    def bind_value(self, variable: Any, value: Any) -> None:
        """A variable equal to `value`, if that is an integer computed without reading memory."""
        dtype = str(variable.dtype)
        if dtype == "bool" and self.is_pure(value):
            self._conditions[variable] = value
        elif dtype.startswith(("int", "uint")) and self.is_pure(value):
            self._analyzer.bind(variable, value)

    def nonnegative(self, variable: Any) -> None:
        """A symbolic dimension: its value is an extent."""
        self._analyzer.update(variable, self._arith.ConstIntBound(0, self._infinity))

    def assume(self, stack: ExitStack, condition: Any, negated: bool = False) -> None:
        """Adds a condition until `stack` closes. Of a conjunction, the parts that read no memory."""
        for part in self._conjuncts(condition, negated):
            stack.enter_context(self._analyzer.constraint_scope(part))
            outer, self._scope = self._scope, self._next_scope
            self._next_scope += 1
            stack.callback(self._restore, outer)

    def _restore(self, scope: int) -> None:
        self._scope = scope

    def _conjuncts(self, condition: Any, negated: bool) -> list[Any]:
        if isinstance(condition, self._tirx.Call) and getattr(condition.op, "name", "") == "tirx.likely":
            condition = condition.args[0]
        if isinstance(condition, self._tirx.Var) and condition in self._conditions:
            return self._conjuncts(self._conditions[condition], negated)
        if isinstance(condition, self._tirx.Not):
            return self._conjuncts(condition.a, not negated)
        if not negated and isinstance(condition, self._tirx.And):
            return [*self._conjuncts(condition.a, False), *self._conjuncts(condition.b, False)]
        if negated and isinstance(condition, self._tirx.Or):
            return [*self._conjuncts(condition.a, True), *self._conjuncts(condition.b, True)]
        if not self.is_pure(condition):
            return []
        return [self._tirx.Not(condition) if negated else condition]

    def is_pure(self, expr: Any) -> bool:
        """Whether an expression reads no memory and calls nothing: its value cannot change while its variables live."""
        pure = True

        def visit(node: Any) -> None:
            nonlocal pure
            if isinstance(node, (self._tirx.BufferLoad, self._tirx.Call)) and not _is_arithmetic_call(node):
                pure = False

        self._tirx.stmt_functor.post_order_visit(expr, visit)
        return pure

    # -- questions ---------------------------------------------------------------------------------------------------

    def constant(self, expr: Any) -> int | None:
        """The value of an expression that can have only one."""
        if isinstance(expr, self._tirx.IntImm):
            return int(expr.value)
        bound = self._analyzer.const_int_bound(expr)
        return int(bound.min_value) if bound.min_value == bound.max_value else None

    def simplify(self, expr: Any) -> Any:
        """The expression in the analyser's canonical form."""
        return self._analyzer.simplify(expr)

    def is_nonnegative(self, expr: Any) -> bool:
        if isinstance(expr, self._tirx.IntImm):
            return bool(expr.value >= 0)
        if self._analyzer.const_int_bound(expr).min_value >= 0:
            return True
        return self.proves(expr >= 0, ("nonnegative", expr))

    def is_negative(self, expr: Any) -> bool:
        if isinstance(expr, self._tirx.IntImm):
            return bool(expr.value < 0)
        bound = self._analyzer.const_int_bound(expr)
        if bound.max_value < 0:
            return True
        return bool(bound.min_value < 0) and self.proves(expr < 0, ("negative", expr))

    def is_below(self, expr: Any, limit: Any) -> bool:
        """Whether `expr < limit` always holds."""
        if isinstance(limit, self._tirx.IntImm):
            if isinstance(expr, self._tirx.IntImm):
                return bool(expr.value < limit.value)
            if self._analyzer.const_int_bound(expr).max_value < limit.value:
                return True
        return self.proves(expr < limit, ("below", expr, limit))

    def is_at_most(self, expr: Any, limit: Any) -> bool:
        """Whether `expr <= limit` always holds."""
        if isinstance(limit, self._tirx.IntImm):
            if isinstance(expr, self._tirx.IntImm):
                return bool(expr.value <= limit.value)
            if self._analyzer.const_int_bound(expr).max_value <= limit.value:
                return True
        return self.proves(expr <= limit, ("at most", expr, limit))

    def are_equal(self, a: Any, b: Any) -> bool:
        if isinstance(a, self._tirx.IntImm) and isinstance(b, self._tirx.IntImm):
            return bool(a.value == b.value)
        if a.same_as(b):
            return True
        return bool(self._analyzer.can_prove_equal(a, b)) or self.proves(self._tirx.EQ(a, b), ("equal", a, b))

    def proves(self, condition: Any, key: tuple[Any, ...]) -> bool:
        """Whether a condition always holds; remembered while the same conditions are in force."""
        full_key = (self._scope, *key)
        answer = self._known.get(full_key)
        if answer is None:
            try:
                answer = bool(self._analyzer.can_prove(condition, self._symbolic))
            except self._tvm.error.InternalError:
                answer = False  # a form the analyser trips over is not proved; the guard stays
            self._known[full_key] = answer
        return answer

    def is_row_major(self, buffer: Any) -> bool:
        """Whether a buffer's strides are those of a packed one, whatever its symbolic dimensions turn out to be."""
        expected: Any = self._tirx.IntImm("int32", 1)
        for extent, stride in zip(reversed(list(buffer.shape)), reversed(list(buffer.strides)), strict=True):
            if not self.are_equal(stride, expected):
                return False
            expected = extent * expected
        return True


def _is_arithmetic_call(node: Any) -> bool:
    name = getattr(getattr(node, "op", None), "name", "")
    return name in {
        "tirx.shift_left",
        "tirx.shift_right",
        "tirx.bitwise_and",
        "tirx.bitwise_or",
        "tirx.bitwise_xor",
        "tirx.bitwise_not",
        "tirx.if_then_else",
        "tirx.likely",
    }
