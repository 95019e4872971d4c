"""The statements of one block: control flow, scalars, `Parallel`. Tile operations are in `tileops`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from core.codegen.mlir import ops, tileops
from core.codegen.mlir.builder import Value
from core.codegen.mlir.context import Context
from core.codegen.mlir.elementwise import zero_of
from core.codegen.mlir.exits import has_exit, without_exits
from core.codegen.mlir.lanes import Axis, Condition, Lanes, NeedsLoop
from core.codegen.mlir.liveness import written
from core.codegen.mlir.splitting import split_axes
from core.codegen.mlir.types import value_type
from core.program.expressions import constant_int
from core.program.intervals import Interval, bounds, loop_range
from core.program.nodes import (
    Assert,
    AtomicElement,
    Break,
    Buffer,
    Compare,
    CompareOp,
    Const,
    Continue,
    Copy,
    Expr,
    For,
    Gemm,
    If,
    Let,
    Load,
    LoopKind,
    OpaqueStmt,
    Parallel,
    Print,
    ReducerUpdate,
    Region,
    Scope,
    Stmt,
    Storage,
    Store,
    Sync,
    ThreadReturn,
    Var,
    While,
)
from core.program.sharing import accumulated_over
from core.program.walk import expressions, statements, subexpressions


class Statements:
    """Lowers statements in order."""

    def __init__(self, context: Context) -> None:
        self.c = context
        self.b = context.b

    def body(self, body: Sequence[Stmt]) -> None:
        """Lowers statements one after the other."""
        for position, stmt in enumerate(body):
            with self.c.located(stmt.location):
                if isinstance(stmt, If) and _leaves(stmt):
                    self._early_return(stmt, body[position + 1 :])
                    return
                if isinstance(stmt, ThreadReturn):
                    return
                self._placed(stmt)

    def _placed(self, stmt: Stmt) -> None:
        """Lowers a statement; `NeedsLoop` does not leave the outermost `Parallel`, nor a statement outside of all."""
        try:
            self.statement(stmt)
        except NeedsLoop:
            if self.c.axes:
                raise
            raise self.c.unsupported(
                f"{type(stmt).__name__.lower()}: this use of a tile has no form on whole tiles",
                "write it as a T.Parallel over the tile's elements, or compile it for a target with threads",
            ) from None

    def statement(self, stmt: Stmt) -> None:
        operation = tileops.OPERATIONS.get(type(stmt))
        if operation is not None:
            if self.c.axes and not self.c.points:
                raise NeedsLoop
            operation(self.c, stmt)
            return
        match stmt:
            case Sync() | Print():
                return
            case Assert():
                return  # cannot be reported from the device; what follows may rely on it either way
            case Store(buffer=buffer, indices=indices, value=value, guard=guard):
                self.c.memory.store(buffer, indices, self.c.evaluate(value), guard)
            case AtomicElement(kind=kind, target=target, value=value):
                self._atomic(kind, target, value)
            case ReducerUpdate():
                tileops.reducer_update(self.c, stmt)
            case Let(var=var, value=value):
                self._let(var, value)
            case Parallel():
                self._parallel(stmt)
            case For():
                self._for(stmt)
            case While():
                self._while(stmt)
            case If():
                self._if(stmt)
            case Break() | Continue():
                raise self.c.unsupported(f"{type(stmt).__name__.lower()} outside a loop")
            case OpaqueStmt(operation=name):
                raise self.c.opaque(name)
            case _:
                raise self.c.unsupported(f"{type(stmt).__name__} has no lowering to tile operations")

    # ------------------------------------------------------------------------------------------------ simple

    def _let(self, var: Var, value: Expr) -> None:
        c = self.c
        lanes = c.evaluate(value)
        c.variables[var] = lanes
        interval = bounds(value, c.ranges)
        if interval is not None:
            c.ranges[var] = interval
        # What the tile's window is found from: exact as long as memory is not read.
        if lanes.axes and not any(isinstance(item, Load) for item in subexpressions(value)):
            c.definitions[var] = value

    def _atomic(self, kind: str, target: Load, value: Expr) -> None:
        lanes = self.c.evaluate(value)
        lanes = self.c.specialise(lanes)
        if value.dtype != target.buffer.dtype:
            lanes = Lanes(self.c.elementwise.cast(lanes.value, value.dtype, target.buffer.dtype), lanes.axes)
        atomic = None if kind == "store" else kind
        self.c.memory.store(target.buffer, target.indices, lanes, target.guard, atomic=atomic)

    def _early_return(self, stmt: If, rest: Sequence[Stmt]) -> None:
        """`if c: return` followed by the rest of the block is `if not c: rest`."""
        if self.c.axes:
            raise NeedsLoop
        then = (*_without_return(stmt.then),) if _ends(stmt.then) else (*stmt.then, *rest)
        otherwise = (*_without_return(stmt.otherwise),) if _ends(stmt.otherwise) else (*stmt.otherwise, *rest)
        self._if(replace(stmt, then=then, otherwise=otherwise))

    # ------------------------------------------------------------------------------------------------ carried state

    def _order(self, storages: frozenset[Storage]) -> list[Storage]:
        """Storages in the order they are declared: the text must not depend on hashes."""
        return [storage for storage in self.c.canonical if storage in storages]

    def _carried(self, storage: Storage) -> Value:
        c = self.c
        if storage in c.private:
            axes = [axis for axis in range(len(c.axes)) if axis not in c.points]
            return c.align(c.private[storage], axes)
        return c.current(storage)

    def _set(self, storage: Storage, value: Value) -> None:
        c = self.c
        if storage in c.private:
            c.private[storage] = Lanes(value, tuple(axis for axis in range(len(c.axes)) if axis not in c.points))
        else:
            c.values[storage] = value

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """A region: values made inside are not known outside, but for what it yields."""
        c = self.c
        values, private, variables = dict(c.values), dict(c.private), dict(c.variables)
        c.memory.forget()
        try:
            yield
        finally:
            c.values, c.private, c.variables = values, private, variables
            c.memory.forget()

    def _forget(self, storages: frozenset[Storage]) -> None:
        """What a region wrote and did not hand on is unspecified from here on."""
        for storage in storages:
            if storage not in self.c.private:
                self.c.values.pop(storage, None)

    # ------------------------------------------------------------------------------------------------ control flow

    def _if(self, stmt: If) -> None:
        c = self.c
        condition = c.specialise(c.evaluate(stmt.condition))
        if condition.axes:
            self._masked(stmt, condition)
            return
        changed = written((*stmt.then, *stmt.otherwise))
        after = c.liveness.after(stmt)
        yielded = self._order(changed if after is None or c.axes else changed & after)
        # Contents that are unspecified are made before the branch, so that both arms see the same.
        for storage in yielded:
            self._carried(storage)

        def arm(body: Sequence[Stmt]) -> Callable[[], list[Value]]:
            def lower() -> list[Value]:
                with self._inside():
                    self.body(body)
                    return [self._carried(storage) for storage in yielded]

            return lower

        results = ops.if_else(self.b, condition.value, arm(stmt.then), arm(stmt.otherwise))
        self._forget(changed)
        for storage, value in zip(yielded, results, strict=True):
            self._set(storage, value)

    def _masked(self, stmt: If, condition: Lanes) -> None:
        """A branch that iterations take differently: both arms run, what they store is masked."""
        c = self.c
        for holds, body in ((True, stmt.then), (False, stmt.otherwise)):
            if not body:
                continue
            c.conditions.append(Condition(stmt.condition, holds, condition, c.scalars_in(stmt.condition)))
            variables, fetched = dict(c.variables), c.memory
            try:
                self.body(body)
            finally:
                c.conditions.pop()
                c.variables = variables
                fetched.forget()

    def _for(self, stmt: For) -> None:
        c = self.c
        if any(map(c.axes_of, (stmt.start, stmt.extent))):
            raise NeedsLoop
        if has_exit(stmt.body):
            self._without_exits(stmt)
            return
        body, cleared = _hoisted_clears(stmt)
        for gemm in cleared:
            tileops.clear(c, gemm)
        start = c.index(stmt.start)
        end = ops.add_index(self.b, start, c.index(stmt.extent))
        interval = loop_range(stmt.var, bounds(stmt.start, c.ranges), bounds(stmt.extent, c.ranges))
        if interval is None:
            low, size = bounds(stmt.start, c.ranges), bounds(stmt.extent, c.ranges)
            if low is not None and size is not None and size.high >= 1:
                interval = Interval(low.low, low.high + size.high - 1, False, frozenset({stmt.var}))
        if interval is not None:
            c.ranges[stmt.var] = interval
        carried = self._carried_by(stmt, body, frozenset(gemm.c.buffer.storage for gemm in cleared))
        inits = [self._carried(storage) for storage in carried]

        def iteration(counter: Value, arguments: tuple[Value, ...]) -> list[Value]:
            with self._inside():
                for storage, value in zip(carried, arguments, strict=True):
                    self._set(storage, value)
                c.variables[stmt.var] = Lanes(ops.index_cast(self.b, counter, value_type(stmt.var.dtype)))
                self.body(body)
                return [self._carried(storage) for storage in carried]

        results = ops.for_loop(self.b, start, end, inits, iteration)
        self._forget(written(body))
        for storage, value in zip(carried, results, strict=True):
            self._set(storage, value)

    def _carried_by(self, stmt: Stmt, body: Sequence[Stmt], cleared: frozenset[Storage] = frozenset()) -> list[Storage]:
        c = self.c
        changed = written(body)
        after, exposed = c.liveness.after(stmt), c.liveness.exposed(stmt)
        if after is None or exposed is None or c.axes:
            return self._order(changed)
        return self._order(changed & (after | exposed | cleared))

    def _without_exits(self, stmt: For | While) -> None:
        c = self.c
        if c.axes:
            raise NeedsLoop
        rewritten, flags = without_exits(stmt)
        for flag in flags:
            c.canonical[flag.storage] = flag
        self.body(rewritten)

    def _while(self, stmt: While) -> None:
        c = self.c
        if c.axes:
            raise NeedsLoop
        if has_exit(stmt.body):
            self._without_exits(stmt)
            return
        carried = self._carried_by(stmt, stmt.body)
        inits = [self._carried(storage) for storage in carried]

        def test(arguments: tuple[Value, ...]) -> Value:
            with self._inside():
                for storage, value in zip(carried, arguments, strict=True):
                    self._set(storage, value)
                return c.scalar(stmt.condition)

        def iteration(arguments: tuple[Value, ...]) -> list[Value]:
            with self._inside():
                for storage, value in zip(carried, arguments, strict=True):
                    self._set(storage, value)
                self.body(stmt.body)
                return [self._carried(storage) for storage in carried]

        results = ops.while_loop(self.b, inits, test, iteration)
        self._forget(written(stmt.body))
        for storage, value in zip(carried, results, strict=True):
            self._set(storage, value)

    # ------------------------------------------------------------------------------------------------ parallel

    def _parallel(self, stmt: Parallel) -> None:
        c = self.c
        extents = [constant_int(extent) for extent in stmt.extents]
        if any(extent is None for extent in extents) or not _fits_tiles(stmt):
            self._serial(stmt)
            return
        original, stmt = stmt, split_axes(stmt)
        shared = accumulated_over(stmt)
        if shared:
            self._serial(stmt, shared)
            return
        extents = [constant_int(extent) for extent in stmt.extents]
        point = self.b.checkpoint()
        state = (dict(c.values), dict(c.private), dict(c.variables), dict(c.definitions), list(c.conditions))
        added = len(stmt.vars)
        try:
            for var, extent in zip(stmt.vars, extents, strict=True):
                assert extent is not None
                c.axes.append(Axis(var, extent))
                c.ranges[var] = Interval(0, extent - 1, True, frozenset({var}))
            fresh = [s for s in self._order(written(stmt.body)) if s not in c.private and c.is_scalar(s)]
            for storage in fresh:
                c.private[storage] = Lanes(c.current(storage))
            c.memory.forget()
            self.body(stmt.body)
            for storage in fresh:
                del c.private[storage]
            del c.axes[-added:]
        except NeedsLoop:
            if len(c.axes) > added:
                del c.axes[-added:]
                raise
            c.axes.clear()
            c.points.clear()
            self.b.rollback(point)
            c.values, c.private, c.variables, c.definitions, c.conditions = state
            self._serial(original)
        c.memory.forget()

    def _serial(self, stmt: Parallel, over: frozenset[Var] | None = None) -> None:
        """The iterations one after the other, or those over some of the variables: one of the orders they may have."""
        if self.c.axes:
            raise NeedsLoop
        loops = list(zip(stmt.vars, stmt.extents, strict=True))
        ordered = [(var, extent) for var, extent in loops if over is None or var in over]
        free = [(var, extent) for var, extent in loops if (var, extent) not in ordered]
        self.c.facts.rewrites.append(
            f"line {stmt.location.line if stmt.location else '?'}: a parallel loop runs its iterations one by one"
        )
        body: tuple[Stmt, ...] = stmt.body
        # What each iteration has to itself begins as it was before the loop, not as the last iteration left it.
        needed = self.c.liveness.needed(body)
        for storage in self._order(written(body) & needed):
            if storage.scope in (Scope.VAR, Scope.LOCAL):
                buffer = self.c.canonical[storage]
                before = replace(buffer, name=f"{buffer.name}_before", storage=replace(storage))
                self.c.canonical[before.storage] = before
                self.statement(_whole_copy(buffer, before, stmt))
                body = (_whole_copy(before, buffer, stmt), *body)
        if free:
            variables, extents = zip(*free, strict=True)
            body = (replace(stmt, vars=variables, extents=extents),)
        for var, extent in reversed(ordered):
            body = (
                For(
                    kind=LoopKind.SERIAL,
                    var=var,
                    start=Const(var.dtype, 0),
                    extent=extent,
                    body=body,
                    location=stmt.location,
                ),
            )
        self.body(body)


def _whole_copy(src: Buffer, dst: Buffer, of: Stmt) -> Stmt:
    """All of a buffer to another of its shape."""
    zeros = tuple(Const("int32", 0) for _ in src.shape)
    dims = tuple(range(src.rank))
    fill = Const(dst.dtype, zero_of(dst.dtype))
    source, target = Region(src, zeros, src.shape), Region(dst, zeros, dst.shape)
    return Copy(source, target, src.shape, dims, dims, (), (), fill, location=of.location)


def _fits_tiles(stmt: Parallel) -> bool:
    """Whether the statements inside have a form on whole tiles at all."""
    return not any(
        isinstance(inner, While | Break | Continue)
        or (isinstance(inner, Store) and inner.buffer.scope is Scope.LOCAL and inner.buffer.rank > 0
            and any(constant_int(extent) != 1 for extent in inner.buffer.shape))
        for inner in statements(stmt.body)
    )  # fmt: skip


# -- exits of loops and blocks ---------------------------------------------------------------------------------------


def _ends(body: Sequence[Stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ThreadReturn)


def _without_return(body: Sequence[Stmt]) -> Sequence[Stmt]:
    return body[:-1] if _ends(body) else body


def _leaves(stmt: If) -> bool:
    return _ends(stmt.then) or _ends(stmt.otherwise)


def _hoisted_clears(stmt: For) -> tuple[tuple[Stmt, ...], list[Gemm]]:
    """The body with products that clear in the first iteration only made to accumulate, and those products."""
    cleared: list[Gemm] = []
    body: list[Stmt] = []
    for position, inner in enumerate(stmt.body):
        if (
            isinstance(inner, Gemm)
            and _is_first(inner.clear, stmt)
            and not any(_touches(other, inner) for other in stmt.body[:position])
            and not any(_touches(other, inner) for other in stmt.body[position + 1 :])
            and (constant_int(stmt.extent) or 0) >= 1
        ):
            cleared.append(inner)
            body.append(replace(inner, clear=Const("bool", False)))
        else:
            body.append(inner)
    return tuple(body), cleared


def _is_first(clear: Expr, loop: For) -> bool:
    return (
        isinstance(clear, Compare)
        and clear.op is CompareOp.EQ
        and {id(clear.a), id(clear.b)} >= {id(loop.var)}
        and (clear.b if clear.a is loop.var else clear.a) == loop.start
    )


def _touches(stmt: Stmt, gemm: Gemm) -> bool:
    from core.program.effects import statement_effects

    storage = gemm.c.buffer.storage
    for inner in statements(stmt):
        reads, writes = statement_effects(inner)
        if any(buffer.storage is storage for buffer in (*reads, *writes)):
            return True
    return any(isinstance(e, Load) and e.buffer.storage is storage for e in expressions(stmt))
