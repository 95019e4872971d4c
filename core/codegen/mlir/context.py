"""The state of a block being lowered, and the values of expressions in it.

Every on-chip buffer is, at each point, one SSA value: the tensor it holds now (a scalar for a `T.alloc_var`). Inside a
`Parallel` an expression is evaluated for all iterations at once, as :class:`Lanes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING

from core.codegen.mlir import ops
from core.codegen.mlir.affine import Indices
from core.codegen.mlir.builder import Builder, Value
from core.codegen.mlir.dialect import FunctionFacts, TileDialect
from core.codegen.mlir.elementwise import Elementwise
from core.codegen.mlir.lanes import Axis, Condition, Lanes, NeedsLoop
from core.codegen.mlir.liveness import Liveness
from core.codegen.mlir.ops import Extent
from core.codegen.mlir.types import INDEX, Scalar, Tensor, element_of, memory_type, value_type
from core.errors import Location, UnsupportedOp
from core.program.expressions import constant_int, dtype_bits, is_float, is_integer
from core.program.intervals import Interval, bounds
from core.program.nodes import (
    AtomicExpr,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Choose,
    Compare,
    Const,
    Expr,
    Load,
    Logical,
    LogicalOp,
    Math,
    Not,
    OpaqueExpr,
    Reinterpret,
    Scope,
    Storage,
    Var,
)
from core.program.walk import subexpressions

if TYPE_CHECKING:
    from core.codegen.mlir.memory import Memory


class Context:
    """State and expression evaluation; `memory` does the loads and stores."""

    memory: Memory

    def __init__(self, builder: Builder, dialect: TileDialect, liveness: Liveness) -> None:
        self.b = builder
        self.dialect = dialect
        self.liveness = liveness
        self.facts = FunctionFacts()
        self.elementwise = Elementwise(builder)
        #: Scalars and lanes by variable; definitions of `Let`s that vary and are index arithmetic.
        self.variables: dict[Var, Lanes] = {}
        self.definitions: dict[Var, Expr] = {}
        self.ranges: dict[Var, Interval] = {}
        #: What each on-chip storage holds now, in the type of `canonical[storage]`.
        self.values: dict[Storage, Value] = {}
        self.canonical: dict[Storage, Buffer] = {}
        #: Variables private to each iteration of the `Parallel` being lowered.
        self.private: dict[Storage, Lanes] = {}
        #: Global memory: one argument per storage.
        self.arguments: dict[Storage, Value] = {}
        self.axes: list[Axis] = []
        #: Axes bound to one iteration, by a loop around an element-wise access.
        self.points: dict[int, Value] = {}
        self.conditions: list[Condition] = []
        #: Above 0 where an expression is evaluated although some iteration may not reach it.
        self.speculative = 0
        self.indices = Indices(
            self.axis_of,
            lambda var: self.definitions.get(var),
            lambda expr: bool(self.axes_of(expr)),
            lambda axis: self.axes[axis].extent,
            self.ranges,
        )

    # ------------------------------------------------------------------------------------------------ helpers

    @contextmanager
    def located(self, location: Location | None) -> Iterator[None]:
        """Operations and errors inside belong to this line, unless something inside has its own."""
        before = self.b.location
        self.b.location = location or before
        try:
            yield
        finally:
            self.b.location = before

    def unsupported(self, message: str, hint: str = "") -> UnsupportedOp:
        return UnsupportedOp(message, hint=hint or _HINT, location=self.b.location)

    def opaque(self, operation: str) -> UnsupportedOp:
        from core.portability.hints import opaque_hint

        return self.unsupported(f"{operation} has no meaning outside its own dialect", opaque_hint())

    def axis_of(self, var: Var) -> int | None:
        """The axis a variable is and that is not bound to one iteration."""
        for position, axis in enumerate(self.axes):
            if axis.var is var:
                return None if position in self.points else position
        return None

    def axes_of(self, expr: Expr) -> frozenset[int]:
        """The axes an expression varies along."""
        found: set[int] = set()
        for item in subexpressions(expr):
            if isinstance(item, Var):
                axis = self.axis_of(item)
                if axis is not None:
                    found.add(axis)
                elif item in self.variables:
                    found.update(a for a in self.variables[item].axes if a not in self.points)
            elif isinstance(item, Load) and item.buffer.storage in self.private:
                found.update(a for a in self.private[item.buffer.storage].axes if a not in self.points)
        return frozenset(found)

    def extents(self, axes: Sequence[int]) -> list[int]:
        return [self.axes[axis].extent for axis in axes]

    def align(self, lanes: Lanes, axes: Sequence[int]) -> Value:
        """The value over exactly these axes."""
        lanes = self.specialise(lanes)
        wanted = tuple(axes)
        if lanes.axes == wanted:
            return lanes.value
        if not set(lanes.axes) <= set(wanted):
            raise NeedsLoop
        if not lanes.axes:
            return ops.fill(self.b, lanes.value, self.extents(wanted))
        missing = [position for position, axis in enumerate(wanted) if axis not in lanes.axes]
        return ops.broadcast(self.b, lanes.value, self.extents(wanted), missing)

    def specialise(self, lanes: Lanes) -> Lanes:
        """The lanes at the iterations some axes are bound to."""
        bound = [axis for axis in lanes.axes if axis in self.points]
        if not bound:
            return lanes
        free = tuple(axis for axis in lanes.axes if axis not in self.points)
        if not free:
            return Lanes(ops.extract(self.b, lanes.value, [self.points[axis] for axis in lanes.axes]))
        offsets: list[Extent] = [self.points.get(axis, 0) for axis in lanes.axes]
        sizes: list[Extent] = [1 if axis in self.points else self.axes[axis].extent for axis in lanes.axes]
        box = ops.extract_slice(self.b, lanes.value, offsets, sizes, [1] * len(sizes))
        return Lanes(ops.reshape(self.b, box, self.extents(free)), free)

    def together(self, *lanes: Lanes) -> tuple[tuple[Value, ...], tuple[int, ...]]:
        """The values over all the axes any of them has."""
        special = [self.specialise(item) for item in lanes]
        axes = tuple(sorted({axis for item in special for axis in item.axes}))
        return tuple(self.align(item, axes) for item in special), axes

    # ------------------------------------------------------------------------------------------------ buffers

    def shape(self, buffer: Buffer) -> tuple[int, ...]:
        """The static shape of an on-chip buffer."""
        extents = [constant_int(extent) for extent in buffer.shape]
        if any(extent is None for extent in extents):
            raise self.unsupported(
                f"the shape of {buffer.name} is not known at compile time", "tile compilers need static tiles"
            )
        return tuple(extent for extent in extents if extent is not None)

    def is_scalar(self, storage: Storage) -> bool:
        """Whether a storage is one mutable scalar, kept as an SSA scalar."""
        buffer = self.canonical[storage]
        return storage.scope in (Scope.VAR, Scope.LOCAL) and prod(self.shape(buffer)) == 1

    def tensor(self, buffer: Buffer) -> Value:
        """What an on-chip buffer holds now, in its own shape and dtype."""
        storage = buffer.storage
        value = self.current(storage)
        if isinstance(value.type, Tensor):
            return self._viewed(value, self.canonical[storage], buffer)
        return ops.fill(self.b, value, self.shape(buffer))

    def scalars_in(self, expr: Expr) -> dict[Storage, Value]:
        """What the single elements on the chip that an expression reads hold now."""
        read = (item.buffer.storage for item in subexpressions(expr) if isinstance(item, Load))
        return {storage: self.values[storage] for storage in read if storage in self.values and self.is_scalar(storage)}

    def current(self, storage: Storage) -> Value:
        """What a storage holds now, in its canonical form; unspecified contents when nothing was written."""
        if storage not in self.values:
            buffer = self.canonical[storage]
            self.check_dtype(buffer.dtype)
            element = memory_type(buffer.dtype, buffer.location)
            if self.is_scalar(storage):
                self.values[storage] = self.b.constant(0, value_type(buffer.dtype))
            else:
                self.values[storage] = ops.empty(self.b, self.shape(buffer), element)
        return self.values[storage]

    def set_tensor(self, buffer: Buffer, value: Value) -> None:
        """Replaces all that an on-chip buffer holds."""
        canonical = self.canonical[buffer.storage]
        if self.is_scalar(buffer.storage):
            self.values[buffer.storage] = ops.extract(self.b, value, [0] * len(self.shape(buffer)))
        else:
            self.values[buffer.storage] = self._viewed(value, buffer, canonical)

    def _viewed(self, value: Value, held: Buffer, wanted: Buffer) -> Value:
        if held is wanted:
            return value
        have, want = dtype_bits(held.dtype), dtype_bits(wanted.dtype)
        if prod(self.shape(held)) * have != prod(self.shape(wanted)) * want or (
            have != want and (is_float(held.dtype) or is_float(wanted.dtype)) and "bool" in (held.dtype, wanted.dtype)
        ):
            raise self.unsupported(
                f"{wanted.name} and {held.name} share memory but differ in size", "give each its own buffer and copy"
            )
        if have != want:
            return self._repacked(value, held, wanted)
        if held.dtype != wanted.dtype:
            element = memory_type(wanted.dtype)
            if element_of(value.type) != element:
                value = ops.convert(self.b, "bitcast", value, element)
        return ops.reshape(self.b, value, self.shape(wanted))

    def _repacked(self, value: Value, held: Buffer, wanted: Buffer) -> Value:
        """The same bytes as elements of another width, the first byte lowest."""
        have, want = dtype_bits(held.dtype), dtype_bits(wanted.dtype)
        small, large = Scalar(f"i{min(have, want)}"), Scalar(f"i{max(have, want)}")
        count, parts = prod(self.shape(wanted if have < want else held)), max(have, want) // min(have, want)
        bits = Scalar(f"i{have}")
        if element_of(value.type) != bits:
            value = ops.convert(self.b, "bitcast", value, bits)
        narrow = ops.reshape(self.b, value, [count, parts]) if have < want else None
        wide = None if have < want else ops.reshape(self.b, value, [count])
        result: Value | None = None
        for part in range(parts):
            distance = self.b.constant(part * small.bits, large)
            if narrow is not None:
                column = ops.reshape(self.b, ops.extract_slice(self.b, narrow, [0, part], [count, 1], [1, 1]), [count])
                shifted = ops.convert(self.b, "extui", column, large)
                shifted = ops.arith(self.b, "shli", shifted, ops.fill(self.b, distance, [count]))
                result = shifted if result is None else ops.arith(self.b, "ori", result, shifted)
            elif wide is not None:
                shifted = ops.arith(self.b, "shrui", wide, ops.fill(self.b, distance, [count]))
                column = ops.reshape(self.b, ops.convert(self.b, "trunci", shifted, small), [count, 1])
                result = result or ops.empty(self.b, [count, parts], small)
                result = ops.insert_slice(self.b, column, result, [0, part], [1, 1])
        assert result is not None
        element = memory_type(wanted.dtype)
        if element_of(result.type) != element:
            result = ops.convert(self.b, "bitcast", result, element)
        return ops.reshape(self.b, result, self.shape(wanted))

    def check_dtype(self, dtype: str, location: Location | None = None) -> None:
        """Raises UnsupportedOp, at `location` or the statement's line, for a dtype without a type here."""
        location = location or self.b.location
        value_type(dtype, location)
        self.dialect.check_dtype(dtype, location)

    # ------------------------------------------------------------------------------------------------ values

    def scalar(self, expr: Expr) -> Value:
        """The value of an expression that no axis changes."""
        lanes = self.specialise(self.evaluate(expr))
        if lanes.axes:
            raise NeedsLoop
        return lanes.value

    def index(self, expr: Expr) -> Extent:
        """The value of an integer expression that no axis changes, as an index."""
        number = constant_int(expr)
        if number is not None:
            return number
        interval = bounds(expr, self.ranges)
        if interval is not None and interval.low == interval.high:
            return interval.low
        return ops.index_cast(self.b, self.scalar(expr), INDEX)

    def evaluate(self, expr: Expr) -> Lanes:
        """The value of an expression, for every iteration."""
        match expr:
            case Const(value=value, dtype=dtype):
                self.check_dtype(dtype)
                if dtype.startswith("float8"):
                    return self._map(lambda x: self.elementwise.cast(x, "float32", dtype),
                                     Lanes(self.b.constant(value, value_type("float32"))))  # fmt: skip
                return Lanes(self.b.constant(value, value_type(dtype, self.b.location)))
            case Var():
                return self._variable(expr)
            case Load():
                return self.memory.load(expr)
            case Cast(a=a, dtype=dtype):
                self.check_dtype(dtype)
                self.check_dtype(a.dtype)
                return self._map(lambda x: self.elementwise.cast(x, a.dtype, dtype), self.evaluate(a))
            case Reinterpret(a=a, dtype=dtype):
                return self._map(lambda x: self.elementwise.reinterpret(x, a.dtype, dtype), self.evaluate(a))
            case Binary(op=op, a=a, b=b, dtype=dtype):
                self.check_dtype(dtype)
                (x, y), axes = self.together(self.evaluate(a), self.evaluate(b))
                return Lanes(self.elementwise.binary(op, dtype, x, y), axes)
            case Compare(op=op_, a=a, b=b):
                (x, y), axes = self.together(self.evaluate(a), self.evaluate(b))
                return Lanes(self.elementwise.compare(op_, a.dtype, x, y), axes)
            case Logical():
                return self._logical(expr)
            case Not(a=a, dtype=dtype):
                return self._map(lambda x: self.elementwise.invert(x, dtype), self.evaluate(a))
            case Choose():
                return self._choose(expr)
            case Math(function=function, args=args, dtype=dtype):
                if function in ("isnan", "isinf", "isfinite"):
                    return self._map(
                        lambda x: self.elementwise.classify(function, args[0].dtype, x), self.evaluate(args[0])
                    )
                return self._function(function, dtype, args)
            case AtomicExpr(kind=kind):
                raise self.unsupported(f"atomic {kind} that yields the old value", "use an atomic that returns nothing")
            case OpaqueExpr(operation=operation):
                raise self.opaque(operation)
        raise self.unsupported(f"{type(expr).__name__} has no lowering to tile operations")

    def _map(self, function: object, lanes: Lanes) -> Lanes:
        lanes = self.specialise(lanes)
        return Lanes(function(lanes.value), lanes.axes)  # type: ignore[operator]  # a callable of one value

    def _variable(self, var: Var) -> Lanes:
        for position, axis in enumerate(self.axes):
            if axis.var is var:
                element = value_type(var.dtype)
                if position in self.points:
                    return Lanes(ops.index_cast(self.b, self.points[position], element))
                return Lanes(ops.iota(self.b, axis.extent, element), (position,))
        if var not in self.variables:
            raise self.unsupported(f"{var.name} ({var.kind.value}) has no value here")
        return self.specialise(self.variables[var])

    def _function(self, function: str, dtype: str, args: Sequence[Expr]) -> Lanes:
        if function == "pow" and is_integer(dtype):
            return self._integer_power(dtype, args)
        if function == "ldexp":
            scale = Math(dtype, "exp2", (Cast(dtype, args[1]),))
            return self.evaluate(Binary(dtype, _MUL, args[0], scale))
        values, axes = self.together(*(self.evaluate(arg) for arg in args))
        return Lanes(self.elementwise.function(function, dtype, list(values)), axes)

    def _integer_power(self, dtype: str, args: Sequence[Expr]) -> Lanes:
        exponent = constant_int(args[1])
        if exponent is None or not 0 <= exponent <= 64:
            raise self.unsupported("an integer power whose exponent is not a small literal")
        result, base = Const(dtype, 1), args[0]
        total: Expr = result
        for _ in range(exponent):
            total = Binary(dtype, _MUL, total, base)
        return self.evaluate(total)

    def _logical(self, expr: Logical) -> Lanes:
        a = self.specialise(self.evaluate(expr.a))
        if not a.axes and not self.axes_of(expr.b) and _reads(expr.b):
            # A scalar that decides whether memory is read at all.
            is_and = expr.op is LogicalOp.AND
            result = ops.if_else(
                self.b,
                a.value,
                lambda: [self.scalar(expr.b) if is_and else a.value],
                lambda: [a.value if is_and else self.scalar(expr.b)],
            )
            return Lanes(result[0])
        with self.speculation():
            b = self.evaluate(expr.b)
        (x, y), axes = self.together(a, b)
        return Lanes(ops.arith(self.b, "andi" if expr.op is LogicalOp.AND else "ori", x, y), axes)

    def _choose(self, expr: Choose) -> Lanes:
        condition = self.specialise(self.evaluate(expr.condition))
        branches = (expr.a, expr.b)
        if not condition.axes and not any(map(self.axes_of, branches)) and any(map(_reads, branches)):
            result = ops.if_else(self.b, condition.value, lambda: [self.scalar(expr.a)], lambda: [self.scalar(expr.b)])
            return Lanes(result[0])
        with self.speculation():
            a, b = self.evaluate(expr.a), self.evaluate(expr.b)
        (c, x, y), axes = self.together(condition, a, b)
        return Lanes(ops.select(self.b, c, x, y), axes)

    @contextmanager
    def speculation(self) -> Iterator[None]:
        """What is evaluated inside may not be reached by every iteration: its loads must be safe for all."""
        self.speculative += 1
        try:
            yield
        finally:
            self.speculative -= 1

    def condition_lanes(self) -> Lanes | None:
        """All the conditions in force, for every iteration."""
        total: Lanes | None = None
        for condition in self.conditions:
            lanes = condition.lanes
            if not condition.holds:
                lanes = self._map(lambda x: self.elementwise.invert(x, "bool"), lanes)
            if total is None:
                total = lanes
            else:
                (x, y), axes = self.together(total, lanes)
                total = Lanes(ops.arith(self.b, "andi", x, y), axes)
        return total


def _reads(expr: Expr) -> bool:
    return any(isinstance(item, Load) for item in subexpressions(expr))


_HINT = "compile it for a target whose lowering knows it (cpu, cuda), or write it with portable tile operations"
_MUL = BinaryOp.MUL
