"""View expressions as C++ text."""

from __future__ import annotations

from collections.abc import Sequence

from core.codegen.cpp.literals import literal, zero
from core.codegen.cpp.names import Names
from core.codegen.cpp.ranges import Ranges
from core.codegen.cpp.types import cpp_type, integer_range, is_float, is_integer
from core.codegen.cpp.usage import element_span
from core.errors import Location, UnsupportedOp
from core.program import walk
from core.program.nodes import (
    AtomicExpr,
    Binary,
    BinaryOp,
    Buffer,
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
    OpaqueExpr,
    Reinterpret,
    Var,
)

# C++ precedences, the higher the tighter.
_TERNARY, _OR, _AND, _EQUAL, _LESS, _ADD, _MUL, _UNARY, _PRIMARY = range(1, 10)

_ARITHMETIC = {
    BinaryOp.ADD: ("+", _ADD),
    BinaryOp.SUB: ("-", _ADD),
    BinaryOp.MUL: ("*", _MUL),
    BinaryOp.DIV: ("/", _MUL),
    BinaryOp.MOD: ("%", _MUL),
    BinaryOp.FLOOR_DIV: ("/", _MUL),
    BinaryOp.FLOOR_MOD: ("%", _MUL),
}
_WRAPPING = {BinaryOp.ADD: "add", BinaryOp.SUB: "sub", BinaryOp.MUL: "mul"}
_DIVISIONS = {
    BinaryOp.DIV: "div",
    BinaryOp.MOD: "mod",
    BinaryOp.FLOOR_DIV: "floor_div",
    BinaryOp.FLOOR_MOD: "floor_mod",
}
_BITWISE = {BinaryOp.BIT_AND: "&", BinaryOp.BIT_OR: "|", BinaryOp.BIT_XOR: "^"}
_COMPARE = {
    CompareOp.EQ: ("==", _EQUAL),
    CompareOp.NE: ("!=", _EQUAL),
    CompareOp.LT: ("<", _LESS),
    CompareOp.LE: ("<=", _LESS),
    CompareOp.GT: (">", _LESS),
    CompareOp.GE: (">=", _LESS),
}
_ROUNDINGS = frozenset({"floor", "ceil", "trunc", "round", "nearbyint"})
_CLASSIFICATIONS = frozenset({"isnan", "isinf", "isfinite"})


def opaque(operation: str, location: Location | None) -> UnsupportedOp:
    """The refusal of what the view, or this family, does not know."""
    from core.portability.hints import opaque_hint

    return UnsupportedOp(
        f"{operation} has no meaning outside its own dialect, so there is no C++ for it",
        hint=opaque_hint(),
        location=location,
    )


class Expressions:
    """Prints expressions. `location` is the statement they belong to, for errors.

    Integers come in two sorts. *Index arithmetic* (indices, extents, guards) is printed with plain operators: it does
    not overflow in a kernel that stays inside its buffers, and compilers vectorise it. Integers that are *data* wrap,
    through `tile::add` and its kin, unless their bounds prove that they cannot overflow.
    """

    def __init__(self, names: Names, ranges: Ranges, *, wide_indices: bool) -> None:
        self.names = names
        self.ranges = ranges
        self.wide_indices = wide_indices
        self.location: Location | None = None
        #: Buffers that are one C++ variable instead of an array.
        self.scalars: set[int] = set()
        #: Loads and stores whose guards are known to hold where code is being written.
        self.proved_guards = False

    # ------------------------------------------------------------------------------------------------ entry points

    def value(self, expr: Expr) -> str:
        """The expression as data of its dtype."""
        return self._render(expr, _TERNARY, index=False)

    def operand(self, expr: Expr) -> str:
        """The same, parenthesised unless it is a name, a literal or a call."""
        return self._render(expr, _PRIMARY, index=False)

    def index(self, expr: Expr) -> str:
        """The expression as index arithmetic."""
        return self._render(expr, _TERNARY, index=True)

    def element(self, expr: Expr) -> str:
        """The expression with exactly the type of an element in memory."""
        spelled = cpp_type(expr.dtype, self.location)
        text = self.value(expr)
        if is_float(expr.dtype) or (expr.dtype == "int32" and not self.wide_indices):
            return text
        return text if text.startswith(f"{spelled.element}(") and text.endswith(")") else f"{spelled.element}({text})"

    def index_type(self, dtype: str) -> str:
        """The C++ type of a variable that counts."""
        return "int64_t" if self.wide_indices and dtype == "int32" else cpp_type(dtype, self.location).value

    def condition_in_range(self, index: Expr, extent: Expr, *, lower: bool = True) -> list[str]:
        """The tests that `index` lies in [0, extent); what is known to hold is left out."""
        tests = []
        if lower and not self.ranges.is_nonnegative(index):
            tests.append(f"{self._render(index, _ADD, index=True)} >= 0")
        bounds = self.ranges.bounds(index)
        if not (isinstance(extent, Const) and bounds is not None and bounds[1] < int(extent.value)):
            tests.append(f"{self._render(index, _ADD, index=True)} < {self._render(extent, _ADD, index=True)}")
        return tests

    def guard(self, buffer: Buffer, indices: Sequence[Expr], dims: Sequence[int]) -> str:
        """The condition under which the guarded dimensions exist; empty when there is nothing to test."""
        if self.proved_guards:
            return ""
        return " && ".join(test for dim in dims for test in self.condition_in_range(indices[dim], buffer.shape[dim]))

    # ------------------------------------------------------------------------------------------------ memory

    def offset(self, buffer: Buffer, indices: Sequence[Expr], extra: Sequence[tuple[str, Expr]] = ()) -> str:
        """Offset of an element in elements. `extra`: (loop counter, stride) terms to add."""
        wide = self.is_wide(buffer)
        constant = 0
        terms: list[str] = []
        for index, stride in zip(indices, buffer.strides, strict=True):
            if isinstance(index, Const) and isinstance(stride, Const):
                constant += int(index.value) * int(stride.value)
            elif not (isinstance(index, Const) and index.value == 0):
                terms.append(self._term(index, stride, wide))
        for counter, stride in extra:
            step = self._render(stride, _MUL, index=True)
            head = f"int64_t({counter})" if wide and step != "1" else counter
            terms.append(head if step == "1" else f"{head} * {step}")
        if constant or not terms:
            terms.append(str(constant))
        return " + ".join(terms).replace("+ -", "- ")

    def _term(self, index: Expr, stride: Expr, wide: bool) -> str:
        if isinstance(index, Binary) and index.op is BinaryOp.MUL:
            factor = index.b
            if isinstance(factor, Const) and isinstance(stride, Const):  # a tile's start times a stride: one literal
                index, stride = index.a, Const(stride.dtype, int(factor.value) * int(stride.value))
        if isinstance(stride, Const) and stride.value == 1:
            return self._render(index, _ADD, index=True)
        step = self._render(stride, _MUL + 1, index=True)
        if wide:
            return f"int64_t({self._render(index, _TERNARY, index=True)}) * {step}"
        return f"{self._render(index, _MUL, index=True)} * {step}"

    def is_wide(self, buffer: Buffer) -> bool:
        """Whether offsets into the buffer may need 64 bits."""
        if self.wide_indices:
            return False  # every counter has 64 bits already
        span = element_span(buffer)
        return span is None or span > 2**31 - 1

    def access(self, buffer: Buffer, indices: Sequence[Expr], extra: Sequence[tuple[str, Expr]] = ()) -> str:
        """The element as an lvalue."""
        name = self.names.of(buffer)
        return name if id(buffer) in self.scalars else f"{name}[{self.offset(buffer, indices, extra)}]"

    def pointer(self, buffer: Buffer, indices: Sequence[Expr], extra: Sequence[tuple[str, Expr]] = ()) -> str:
        """Pointer to an element."""
        name = self.names.of(buffer)
        if id(buffer) in self.scalars:
            return f"&{name}"
        offset = self.offset(buffer, indices, extra)
        return name if offset == "0" else f"{name} + {offset}"

    # ------------------------------------------------------------------------------------------------ rendering

    def _render(self, expr: Expr, precedence: int, *, index: bool) -> str:
        text, own = self._node(expr, index)
        return f"({text})" if own < precedence else text

    def _node(self, expr: Expr, index: bool) -> tuple[str, int]:
        match expr:
            case Const():
                text = literal(expr, self._type(expr), plain=index)
                return text, _UNARY if text.startswith("-") else _PRIMARY
            case Var():
                return self.names.of(expr), _PRIMARY
            case Load():
                return self._load(expr)
            case Binary():
                return self._binary(expr, index)
            case Compare(op=op, a=a, b=b):
                symbol, own = _COMPARE[op]
                counts = self.ranges.counts(a) and self.ranges.counts(b)
                left, right = (self._render(side, own + 1, index=counts) for side in (a, b))
                return f"{left} {symbol} {right}", own
            case Logical(op=op, a=a, b=b):
                symbol, own = ("&&", _AND) if op is LogicalOp.AND else ("||", _OR)
                inner = _AND + 1 if op is LogicalOp.OR else own
                left, right = (self._render(side, inner, index=index) for side in (a, b))
                return f"{left} {symbol} {right}", own
            case Not(a=a) if expr.dtype == "bool":
                return f"!{self._render(a, _UNARY, index=index)}", _UNARY
            case Not(a=a):
                return f"{self._type(expr)}(~{self._render(a, _UNARY, index=index)})", _PRIMARY
            case Cast():
                return self._cast(expr, index)
            case Reinterpret(a=a):
                return f"tile::bits_as<{self._type(expr)}>({self.element(a)})", _PRIMARY
            case Choose(condition=condition, a=a, b=b):
                test = self._render(condition, _OR, index=False)
                return f"{test} ? {self._branch(a, index)} : {self._branch(b, index)}", _TERNARY
            case Math():
                return self._math(expr)
            case AtomicExpr():
                return self._atomic(expr)
            case OpaqueExpr(operation=operation):
                raise opaque(operation, self.location)
        raise UnsupportedOp(f"C++ lowering does not know {type(expr).__name__}", location=self.location)

    def _branch(self, expr: Expr, index: bool) -> str:
        """One side of `?:`, with the exact type so that both sides agree."""
        text = self._render(expr, _OR, index=index)
        if isinstance(expr, Load) and expr.dtype == "bool":
            return f"bool({text})"
        return text

    def _type(self, expr: Expr) -> str:
        return cpp_type(expr.dtype, self.location).value

    def _load(self, expr: Load) -> tuple[str, int]:
        cpp_type(expr.dtype, self.location)
        guard = self.guard(expr.buffer, expr.indices, expr.guard)
        access = self.access(expr.buffer, expr.indices)
        if not guard:
            return access, _PRIMARY
        if any(isinstance(e, AtomicExpr) for d in expr.guard for e in walk.subexpressions(expr.indices[d])):
            raise UnsupportedOp(
                "the result of an atomic operation is used as an index that must be tested, inside an expression",
                hint="bind it to a name first: `slot = T.atomic_add(..., return_prev=True)`",
                location=self.location,
            )
        fill = expr.fill if expr.fill is not None else zero(expr.dtype)
        read = f"bool({access})" if expr.dtype == "bool" else access
        return f"{guard} ? {read} : {self._render(fill, _OR, index=False)}", _TERNARY

    def _binary(self, expr: Binary, index: bool) -> tuple[str, int]:
        op, dtype = expr.op, expr.dtype
        if is_float(dtype):
            return self._float_binary(expr)
        if dtype == "bool":
            return self._bool_binary(expr)
        kind = self._type(expr)
        if op in (BinaryOp.MIN, BinaryOp.MAX):
            kind = self.index_type(dtype) if index else kind
            a, b = (self._render(side, _TERNARY, index=index) for side in (expr.a, expr.b))
            return f"tile::{op.value}<{kind}>({a}, {b})", _PRIMARY
        if op in _WRAPPING:
            if index or dtype in ("uint32", "uint64") or self.ranges.fits(expr):
                plain = index or self.ranges.is_index(expr)
                symbol, own = _ARITHMETIC[op]
                left = self._render(expr.a, own, index=plain)
                right = self._render(expr.b, own + (op is BinaryOp.SUB or own == _MUL), index=plain)
                return f"{left} {symbol} {right}", own
            a, b = self.value(expr.a), self.value(expr.b)
            return f"tile::{_WRAPPING[op]}<{kind}>({a}, {b})", _PRIMARY
        # What follows looks at bits or signs, which an overflow would change: data among the operands wraps.
        counts = index and self.ranges.counts(expr)
        if op in _DIVISIONS:
            if self._divides_plainly(expr, counts):
                symbol, own = _ARITHMETIC[op]
                left, right = (self._render(expr.a, own, index=counts), self._render(expr.b, own + 1, index=True))
                return f"{left} {symbol} {right}", own
            kind = self.index_type(dtype) if counts else kind
            a, b = (self._render(side, _TERNARY, index=counts) for side in (expr.a, expr.b))
            return f"tile::{_DIVISIONS[op]}<{kind}>({a}, {b})", _PRIMARY
        a, b = (self._render(side, _UNARY, index=counts) for side in (expr.a, expr.b))
        if op in _BITWISE:
            return f"{kind}({a} {_BITWISE[op]} {b})", _PRIMARY
        a, b = (self._render(side, _TERNARY, index=counts) for side in (expr.a, expr.b))
        return f"tile::{op.value}<{kind}>({a}, {b})", _PRIMARY

    def _divides_plainly(self, expr: Binary, index: bool) -> bool:
        """Whether C++'s `/` or `%` will do: a positive literal divisor and, for floor, no negative dividend."""
        if not isinstance(expr.b, Const) or expr.b.value <= 0:
            return False
        if expr.op in (BinaryOp.DIV, BinaryOp.MOD):
            return True
        if index or self.ranges.fits(expr.a) or isinstance(expr.a, Load | Var):
            return self.ranges.is_nonnegative(expr.a)
        return False

    def _float_binary(self, expr: Binary) -> tuple[str, int]:
        op = expr.op
        if op in (BinaryOp.MIN, BinaryOp.MAX):
            return f"tile::{op.value}<{self._type(expr)}>({self.value(expr.a)}, {self.value(expr.b)})", _PRIMARY
        if op is BinaryOp.FLOOR_DIV:
            return f"tile::floor({self.operand(expr.a)} / {self.operand(expr.b)})", _PRIMARY
        if op is BinaryOp.MOD:
            return f"tile::fmod({self.value(expr.a)}, {self.value(expr.b)})", _PRIMARY
        if op not in (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV):
            raise UnsupportedOp(f"{op.value} of {expr.dtype} has no meaning", location=self.location)
        symbol, own = _ARITHMETIC[op]
        # Floating-point arithmetic is not associative: the order of the tree is kept by parentheses.
        left, right = self._render(expr.a, own, index=False), self._render(expr.b, own + 1, index=False)
        return f"{left} {symbol} {right}", own

    def _bool_binary(self, expr: Binary) -> tuple[str, int]:
        symbols = {
            **_BITWISE, BinaryOp.ADD: "|", BinaryOp.MUL: "&", BinaryOp.MAX: "|", BinaryOp.MIN: "&", BinaryOp.SUB: "^",
        }  # fmt: skip
        if expr.op not in symbols:
            raise UnsupportedOp(f"{expr.op.value} of bool has no meaning", location=self.location)
        a, b = (self._render(side, _UNARY, index=False) for side in (expr.a, expr.b))
        return f"bool({a} {symbols[expr.op]} {b})", _PRIMARY

    def _cast(self, expr: Cast, index: bool) -> tuple[str, int]:
        source, target = expr.a.dtype, expr.dtype
        kind = self._type(expr)
        if source == target:
            return self._node(expr.a, index)
        if target == "bool":
            return f"tile::convert<bool>({self.element(expr.a)})", _PRIMARY
        if is_integer(target) and is_float(source):
            return f"tile::to_integer<{kind}>({self.value(expr.a)})", _PRIMARY
        counts = index and is_integer(source) and is_integer(target) and integer_range(target)[1] >= 2**31 - 1
        if counts:
            kind = self.index_type(target)
        text = self._render(expr.a, _TERNARY, index=counts)
        return f"{kind}({text})", _PRIMARY

    def _math(self, expr: Math) -> tuple[str, int]:
        name, dtype, args = expr.function, expr.dtype, expr.args
        source = args[0].dtype
        kind = self._type(expr)
        if name in _CLASSIFICATIONS:
            return f"tile::{name}({self.value(args[0])})", _PRIMARY
        if name in ("popcount", "clz"):
            return f"{kind}(tile::{name}<{cpp_type(source).value}>({self.value(args[0])}))", _PRIMARY
        if name == "ldexp":
            return f"tile::ldexp({self.value(args[0])}, int32_t({self.value(args[1])}))", _PRIMARY
        if name == "clamp":
            return f"tile::clamp<{kind}>({', '.join(map(self.value, args))})", _PRIMARY
        if name == "abs" and is_integer(dtype):
            return f"tile::magnitude<{kind}>({self.value(args[0])})", _PRIMARY
        if name in _ROUNDINGS and is_integer(dtype) and source == dtype:
            return self._node(args[0], False)
        if is_integer(dtype) and name == "pow":
            return f"tile::integer_pow<{kind}>({self.value(args[0])}, {self.value(args[1])})", _PRIMARY
        if not is_float(dtype):
            raise UnsupportedOp(f"{name} of {dtype} has no meaning", location=self.location)
        texts = [self.value(arg) if arg.dtype == dtype else f"{kind}({self.value(arg)})" for arg in args]
        return f"tile::{name}({', '.join(texts)})", _PRIMARY

    def _atomic(self, expr: AtomicExpr) -> tuple[str, int]:
        target = expr.target
        element = cpp_type(target.dtype, self.location).element
        arguments = [self.pointer(target.buffer, target.indices)]
        if expr.value is not None:
            arguments.append(self.value(expr.value))
        call = f"tile::atomic_{expr.kind}<{element}>({', '.join(arguments)})"
        guard = self.guard(target.buffer, target.indices, target.guard)
        if not guard:
            return call, _PRIMARY
        return f"{guard} ? {call} : {element}({self.value(zero(expr.dtype))})", _TERNARY
