"""The statements of one block, as the body of a C++ function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace

from core.codegen.cpp import tiles
from core.codegen.cpp.expressions import Expressions, opaque
from core.codegen.cpp.guards import whole_tile_condition
from core.codegen.cpp.types import cpp_type, is_float
from core.codegen.cpp.usage import element_span
from core.codegen.cpp.writer import Writer, short, string_literal
from core.errors import Location, UnsupportedOp
from core.program import walk
from core.program.effects import statement_effects
from core.program.nodes import (
    Assert,
    AtomicElement,
    AtomicExpr,
    Break,
    Buffer,
    Const,
    Continue,
    Expr,
    For,
    If,
    Let,
    Load,
    OpaqueStmt,
    Parallel,
    Print,
    Region,
    Scope,
    Stmt,
    Store,
    Sync,
    ThreadReturn,
    Var,
    VarKind,
    While,
)


class BlockWriter:
    """Writes statements. `failure` is what a failed assertion does, given its message as a C string."""

    def __init__(self, writer: Writer, expressions: Expressions, failure: str) -> None:
        self.out = writer
        self.expressions = expressions
        self.failure = failure
        #: Storages (by `id`) that more than one buffer is a view of.
        self.shared_storages: set[int] = set()
        self._counters: list[str] = []
        self._depth = 0

    # ------------------------------------------------------------------------------------------------ for tile ops

    @contextmanager
    def counter(self, extent: Expr, name: str | None = None) -> Iterator[str]:
        """A loop over [0, extent) with a counter of our own, whose name it yields."""
        if name is None:
            while len(self._counters) <= self._depth:
                self._counters.append(self.expressions.names.fresh(f"i{len(self._counters)}"))
            name = self._counters[self._depth]
        self._depth += 1
        try:
            with self.out.block(f"for (int64_t {name} = 0; {name} < {self.expressions.index(extent)}; ++{name})"):
                yield name
        finally:
            self._depth -= 1

    @contextmanager
    def located(self, location: Location | None) -> Iterator[None]:
        """Errors raised inside carry this line, unless a nested statement has its own."""
        before = self.expressions.location
        self.expressions.location = location or before
        try:
            yield
        finally:
            self.expressions.location = before

    # ------------------------------------------------------------------------------------------------ statements

    def body(self, statements: Sequence[Stmt]) -> None:
        """Writes statements in order."""
        for stmt in statements:
            with self.located(stmt.location):
                self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        write_tiles = tiles.OPERATIONS.get(type(stmt))
        if write_tiles is not None:
            write_tiles(self, self._pinned(stmt))
            return
        match stmt:
            case Sync():
                return
            case Store():
                self.out.mark(stmt.location)
                self._store(stmt)
            case Let(var=var, value=value):
                self.out.mark(stmt.location)
                self._let(var, value)
            case Parallel():
                self.out.mark(stmt.location, "in parallel")
                self._parallel(stmt)
            case For():
                self.out.mark(stmt.location)
                self._for(stmt)
            case While(condition=condition, body=body):
                self.out.mark(stmt.location)
                with self.out.block(f"while ({self.expressions.value(condition)})"):
                    self.body(body)
            case If():
                self.out.mark(stmt.location)
                self._if(stmt)
            case Break():
                self.out.line("break;")
            case Continue():
                self.out.line("continue;")
            case ThreadReturn():
                self.out.line("return;")
            case AtomicElement():
                self.out.mark(stmt.location)
                self._atomic(stmt)
            case Assert(condition=condition, message=message):
                self.out.mark(stmt.location)
                where = f"{short(stmt.location)}: " if stmt.location else ""
                text = message or "assertion failed"
                self.out.line(f"if (!({self.expressions.value(condition)})) {{")
                self.out.line(f"    {self.failure.format(string_literal(where + text))}")
                self.out.line("}")
            case Print():
                self.out.mark(stmt.location)
                self._print(stmt)
            case OpaqueStmt(operation=operation):
                raise opaque(operation, self.expressions.location)
            case _:
                raise opaque(type(stmt).__name__, stmt.location)

    def _pinned(self, stmt: Stmt) -> Stmt:
        """The statement with every start of a region that reads memory in a constant, evaluated once before it."""
        regions = {f.name: getattr(stmt, f.name) for f in fields(stmt) if isinstance(getattr(stmt, f.name), Region)}
        changed = {
            name: replace(region, mins=tuple(map(self._pinned_index, region.mins))) for name, region in regions.items()
        }
        return replace(stmt, **changed)

    def _pinned_index(self, index: Expr) -> Expr:
        if not any(isinstance(expr, Load | AtomicExpr) for expr in walk.subexpressions(index)):
            return index
        var = Var(index.dtype, "start", VarKind.LET)
        self.out.line(
            f"const {self.expressions.index_type(index.dtype)} {self.expressions.names.of(var)} = "
            f"{self.expressions.index(index)};"
        )
        return var

    def _evaluated_once(self, index: Expr, guarded: bool) -> Expr:
        """An index that has an effect, in a constant: its guard and its use would each have the effect."""
        has_effect = guarded and any(isinstance(expr, AtomicExpr) for expr in walk.subexpressions(index))
        return self._pinned_index(index) if has_effect else index

    def _store(self, stmt: Store) -> None:
        expressions = self.expressions
        indices = tuple(self._evaluated_once(index, d in stmt.guard) for d, index in enumerate(stmt.indices))
        stmt = replace(stmt, indices=indices)
        guard = expressions.guard(stmt.buffer, stmt.indices, stmt.guard)
        target = expressions.access(stmt.buffer, stmt.indices)
        value = expressions.value(stmt.value)
        if stmt.buffer.dtype == "bool" and id(stmt.buffer) not in expressions.scalars:
            value = f"boolean({value})"
        self.out.line(f"if ({guard}) {target} = {value};" if guard else f"{target} = {value};")

    def _let(self, var: Var, value: Expr) -> None:
        expressions = self.expressions
        counts = expressions.ranges.counts(value)
        kind = expressions.index_type(var.dtype) if counts else cpp_type(var.dtype, expressions.location).value
        text = expressions.index(value) if counts else expressions.value(value)
        expressions.ranges.enter_let(var, value)
        self.out.line(f"const {kind} {expressions.names.of(var)} = {text};")

    def _atomic(self, stmt: AtomicElement) -> None:
        expressions = self.expressions
        target = stmt.target
        indices = tuple(self._evaluated_once(index, d in target.guard) for d, index in enumerate(target.indices))
        target = replace(target, indices=indices)
        element = cpp_type(target.dtype, expressions.location).element
        pointer = expressions.pointer(target.buffer, target.indices)
        guard = expressions.guard(target.buffer, target.indices, target.guard)
        call = f"tile::atomic_{stmt.kind}<{element}>({pointer}, {expressions.element(stmt.value)});"
        self.out.line(f"if ({guard}) {call}" if guard else call)

    def _print(self, stmt: Print) -> None:
        formats, values = [stmt.message.replace("%", "%%")] if stmt.message else [], []
        for arg in stmt.args:
            text = self.expressions.value(arg)
            if is_float(arg.dtype):
                formats.append("%g")
                values.append(f"double({text})")
            else:
                formats.append("%lld")
                values.append(f"(long long)({text})")
        arguments = "".join(f", {value}" for value in values)
        self.out.line(f"printf({string_literal(' '.join(formats) + chr(10))}{arguments});")

    # ------------------------------------------------------------------------------------------------ control flow

    def _for(self, stmt: For) -> None:
        expressions = self.expressions
        name, kind = expressions.names.of(stmt.var), expressions.index_type(stmt.var.dtype)
        start = expressions.index(stmt.start)
        if isinstance(stmt.extent, Const):
            end = str(int(start) + int(stmt.extent.value)) if isinstance(stmt.start, Const) else None
        else:
            end = None
        if end is None:
            total = expressions.index(stmt.extent)
            if not (isinstance(stmt.start, Const) and stmt.start.value == 0):
                total = f"{start} + ({total})"
            if expressions.ranges.is_index(stmt.extent) and expressions.ranges.is_index(stmt.start):
                end = total
            else:  # the extent is read once, before the loop can change what it depends on
                end = expressions.names.fresh(f"{name}_end")
                self.out.line(f"const {kind} {end} = {total};")
        expressions.ranges.enter_loop(stmt.var, stmt.start, stmt.extent)
        with self.out.block(f"for ({kind} {name} = {start}; {name} < {end}; ++{name})"):
            self.body(stmt.body)

    def _if(self, stmt: If) -> None:
        with self.out.block(
            f"if ({self.expressions.value(stmt.condition)})", "}" if not stmt.otherwise else "} else {"
        ):
            self.body(stmt.then)
        if stmt.otherwise:
            self._else(stmt)

    def _else(self, stmt: If) -> None:
        with self.out.indented():
            self.body(stmt.otherwise)
        self.out.line("}")

    def _parallel(self, stmt: Parallel) -> None:
        for var, extent in zip(stmt.vars, stmt.extents, strict=True):
            self.expressions.ranges.enter_loop(var, Const(var.dtype, 0), extent)
        whole = whole_tile_condition(stmt, self.expressions)
        if whole is None:
            self._parallel_loops(stmt)
            return
        # Almost every tile lies wholly inside: its loop has no tests in it and becomes vector code.
        with self.out.block(f"if ({whole})", "} else {  // a tile at the edge"):
            self.expressions.proved_guards = True
            try:
                self._parallel_loops(stmt)
            finally:
                self.expressions.proved_guards = False
        with self.out.indented():
            self._parallel_loops(stmt)
        self.out.line("}")

    def _parallel_loops(self, stmt: Parallel) -> None:
        expressions = self.expressions
        with ExitStack() as stack:
            copies = self._private_copies(stmt)
            if copies:
                stack.enter_context(self.out.block(""))
                for before, _ in copies:
                    self.out.line(before)
            for var, extent in zip(stmt.vars, stmt.extents, strict=True):
                name, kind = expressions.names.of(var), expressions.index_type(var.dtype)
                head = f"for ({kind} {name} = 0; {name} < {expressions.index(extent)}; ++{name})"
                stack.enter_context(self.out.block(head))
            for _, inside in copies:
                self.out.line(inside)
            self.body(stmt.body)

    def _private_copies(self, stmt: Parallel) -> list[tuple[str, str]]:
        """For each thread-private buffer that iterations write: a line before the loops, one that opens an iteration.

        An iteration sees what it wrote itself, or what was there before the loop, never what another iteration wrote.
        """
        written: dict[int, Buffer] = {}
        for inner in walk.statements(stmt):
            for buffer in statement_effects(inner)[1]:
                if buffer.scope in (Scope.VAR, Scope.LOCAL):
                    written[id(buffer)] = buffer
        lines = []
        names = self.expressions.names
        for buffer in written.values():
            name, before = names.of(buffer), names.fresh(f"{names.of(buffer)}_before")
            spelled = cpp_type(buffer.dtype, buffer.location)
            if id(buffer) in self.expressions.scalars:
                lines.append((f"const {spelled.value} {before} = {name};", f"{spelled.value} {name} = {before};"))
                continue
            span = element_span(buffer)
            if span is None or id(buffer.storage) in self.shared_storages:
                raise UnsupportedOp(
                    f"{buffer.name} is private to each iteration of T.Parallel, which needs a fixed size and no view",
                    hint="use a fragment, or an alloc_local of constant shape",
                    location=buffer.location or stmt.location,
                )
            lines.append(
                (
                    f"const {spelled.element}* {before} = {name};",
                    f"{spelled.element} {name}[{span}]; memcpy({name}, {before}, sizeof({name}));",
                )
            )
        return lines
