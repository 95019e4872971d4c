"""Expressions of TIR, compiled to functions of a warp."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from core.conformance.interpreter.values import numpy_dtype
from core.conformance.schedules.lanes import Lanes, per_lane
from core.conformance.schedules.tree import Evaluate, Expression, LoadAccess, Tensor
from core.errors import Location, UnsupportedOp
from core.program.expressions import is_float, is_integer
from core.program.tir.intrinsics import MATH_CALLS, convert_call_name

Function = Callable[..., Any]


def _either(scalar: Function, vector: Function) -> Function:
    """`scalar` for Python numbers, which is much faster, `vector` for arrays."""

    def apply(a: Any, b: Any) -> Any:
        return vector(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else scalar(a, b)

    return apply


def _truncated(a: Any, b: Any) -> Any:
    quotient = np.abs(a) // np.abs(b) * (np.sign(a) * np.sign(b))
    return quotient if isinstance(quotient, np.ndarray) else int(quotient)


_BINARY: dict[str, Function] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Mod": lambda a, b: a - _truncated(a, b) * b,
    "Min": _either(min, np.minimum),
    "Max": _either(max, np.maximum),
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "And": _either(lambda a, b: bool(a) and bool(b), np.logical_and),
    "Or": _either(lambda a, b: bool(a) or bool(b), np.logical_or),
    "tirx.bitwise_and": operator.and_,
    "tirx.bitwise_or": operator.or_,
    "tirx.bitwise_xor": operator.xor,
    "tirx.shift_left": operator.lshift,
    "tirx.shift_right": operator.rshift,
}


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _erf(x: Any) -> Any:
    import math

    return np.vectorize(math.erf, otypes=[np.float64])(x)


_MATH: dict[str, Function] = {
    **{
        name: getattr(np, name)
        for name in "exp exp2 expm1 log log2 log10 log1p sqrt tanh sin cos tan sinh cosh".split()
    },
    **{name: getattr(np, name) for name in "floor ceil trunc abs isnan isinf isfinite fmod copysign hypot".split()},
    "round": np.rint,
    "nearbyint": np.rint,
    "exp10": lambda x: 10.0**x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcp": lambda x: 1 / x,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "pow": np.power,
    "atan2": np.arctan2,
    "fma": lambda a, b, c: a * b + c,
    "clamp": lambda x, low, high: np.minimum(np.maximum(x, low), high),
}


def convert(value: Any, dtype: str) -> Any:
    """A number or array as `dtype`: floats to nearest even, float8 saturating, floats to integers truncating."""
    if isinstance(value, Lanes):
        return Lanes(np.asarray(convert(value.values, dtype)))
    if dtype == "bool":
        return value != 0
    with np.errstate(all="ignore"):
        if is_integer(dtype):
            if not isinstance(value, np.ndarray):
                return int(value) if np.isfinite(value) else 0
            return value.astype(numpy_dtype(dtype))
        kind = numpy_dtype(dtype)
        if dtype.startswith("float8"):
            finfo: Any = ml_dtypes.finfo
            largest = float(finfo(kind).max)
            value = np.clip(np.asarray(value, np.float32), -largest, largest)
        return value.astype(kind) if isinstance(value, np.ndarray) else np.asarray(value).astype(kind)[()]


class ExpressionCompiler:
    """Compiles expressions; knows the slots of variables and the buffers of one kernel."""

    def __init__(self, slot_of: Callable[[Any], int], tensor_of: Callable[[Any], Tensor]) -> None:
        self._slot_of, self._tensor_of = slot_of, tensor_of
        self.location: Location | None = None

    def __call__(self, expr: Any) -> Expression:
        """Raises UnsupportedOp for what it does not know, at the line of the statement around it."""
        kind = type(expr).__name__
        match kind:
            case "IntImm":
                value = bool(expr.value) if str(expr.dtype) == "bool" else int(expr.value)
                return Expression(lambda warp: value)
            case "FloatImm":
                number = numpy_dtype(str(expr.dtype)).type(float(expr.value))
                return Expression(lambda warp: number)
            case "StringImm":
                text = str(expr.value)
                return Expression(lambda warp: text)
            case "Var" | "SizeVar":
                slot = self._slot_of(expr)
                return Expression(lambda warp: warp.slots[slot], variable=slot, slots=frozenset((slot,)))
            case "BufferLoad":
                return self._load(expr)
            case "Cast":
                dtype = str(expr.dtype)
                return self._apply(lambda value: convert(value, dtype), [expr.value])
            case "Not":
                return self._apply(lambda value: np.logical_not(value) if _array(value) else not value, [expr.a])
            case "Div":
                divide = operator.truediv if is_float(str(expr.dtype)) else _truncated
                return self._apply(divide, [expr.a, expr.b])
            case "Select":
                return self._choose(expr.condition, expr.true_value, expr.false_value)
            case "And":
                both = self._apply(_BINARY["And"], [expr.a, expr.b])
                both.conjuncts = (self(expr.a), self(expr.b))
                return both
            case "Call":
                return self._call(expr)
        if kind in _BINARY:
            return self._apply(_BINARY[kind], [expr.a, expr.b])
        raise self._unknown(kind)

    def _apply(self, function: Function, arguments: Sequence[Any]) -> Expression:
        parts = [self(argument) for argument in arguments]
        evaluate: Evaluate
        if len(parts) == 2:
            first, second = parts[0].evaluate, parts[1].evaluate

            def evaluate(warp: Any) -> Any:
                a, b = first(warp), second(warp)
                if type(a) is Lanes or type(b) is Lanes:
                    return per_lane(function, a, b)
                return function(a, b)
        else:
            functions = [part.evaluate for part in parts]

            def evaluate(warp: Any) -> Any:
                return per_lane(function, *(each(warp) for each in functions))

        return _joined(evaluate, parts)

    def _load(self, expr: Any) -> Expression:
        tensor = self._tensor_of(expr.buffer)
        indices = [self(index) for index in expr.indices]
        functions = [index.evaluate for index in indices]
        joined = _joined(lambda warp: warp.load(tensor, [index(warp) for index in functions]), indices)
        joined.accesses += (LoadAccess(tensor, tuple(indices)),)
        joined.opaque = True
        return joined

    def _choose(self, condition: Any, yes: Any, no: Any) -> Expression:
        parts = [self(condition), self(yes), self(no)]
        test, taken, other = (part.evaluate for part in parts)

        def evaluate(warp: Any) -> Any:
            chosen = test(warp)
            if not isinstance(chosen, (np.ndarray, Lanes)):
                return taken(warp) if chosen else other(warp)
            with warp.speculation():  # both sides are computed, and one of them may be out of bounds
                return per_lane(np.where, chosen, taken(warp), other(warp))

        return _joined(evaluate, parts)

    def _call(self, call: Any) -> Expression:
        name = convert_call_name(call)
        arguments = list(call.args)
        if name in _BINARY:
            return self._apply(_BINARY[name], arguments)
        if name in ("tirx.if_then_else",):
            return self._choose(*arguments)
        if name in MATH_CALLS and MATH_CALLS[name] in _MATH:
            return self._math(_MATH[MATH_CALLS[name]], arguments, str(call.dtype))
        match name:
            case "tl.infinity":
                infinity = numpy_dtype(str(call.dtype)).type(float("inf"))
                return Expression(lambda warp: infinity)
            case "tl.block_rank_in_cluster":
                return Expression(lambda warp: warp.block.rank, opaque=True)
            case "tirx.likely" | "tl.likely":
                return self(arguments[0])
            case "tl.__ldg" | "tirx.ldg":
                return self(arguments[0])
        raise self._unknown(name)

    def _math(self, function: Function, arguments: list[Any], dtype: str) -> Expression:
        def rounded(*values: Any) -> Any:
            with np.errstate(all="ignore"):
                result = function(*values)
            return result if dtype == "bool" or not is_float(dtype) else convert(result, dtype)

        return self._apply(rounded, arguments)

    def _unknown(self, what: str) -> UnsupportedOp:
        return UnsupportedOp(
            f"the schedule simulator does not know the expression {what}",
            hint="docs/schedules.md lists what is modelled",
            location=self.location,
        )


def _array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _joined(evaluate: Evaluate, parts: Sequence[Expression]) -> Expression:
    return Expression(
        evaluate,
        accesses=tuple(access for part in parts for access in part.accesses),
        slots=frozenset().union(*(part.slots for part in parts)),
        opaque=any(part.opaque for part in parts),
    )
