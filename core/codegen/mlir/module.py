"""A module per launch: the function's arguments, the block's place in the grid, the body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from core.codegen.mlir import ops
from core.codegen.mlir.builder import Builder, Value
from core.codegen.mlir.context import Context
from core.codegen.mlir.dialect import Argument, FunctionFacts, TileDialect
from core.codegen.mlir.lanes import Lanes
from core.codegen.mlir.liveness import Liveness
from core.codegen.mlir.memory import Memory
from core.codegen.mlir.statements import Statements
from core.codegen.mlir.types import I32, INDEX, MemRef, memory_type, value_type
from core.errors import UnsupportedOp
from core.program.effects import statement_effects
from core.program.evaluate import evaluate
from core.program.intervals import Interval
from core.program.nodes import Buffer, Expr, Launch, Load, Scope, Storage, Var, VarKind, View
from core.program.walk import expressions, statements, subexpressions


@dataclass(frozen=True, slots=True)
class TileModule:
    """The module of one launch.

    Attributes:
        text: the MLIR.
        entry: name of its function.
        arguments: of the function, in order; each has a role and the name of what is passed.
        grid: extents of the launch, x first.
        looped: the blocks run in a loop inside the kernel: any number of at most `max_blocks` may be launched.
        facts: what the body holds.
        files: the user's files by the short names in the module's locations.
    """

    text: str
    entry: str
    arguments: tuple[Argument, ...]
    grid: tuple[Expr, ...]
    looped: bool
    facts: FunctionFacts
    files: dict[str, str]


def lower_launch(
    view: View, launch: Launch, entry: str, dialect: TileDialect, *, looped: bool | None = None
) -> TileModule:
    """Lowers one launch.

    Args:
        view: the program it belongs to.
        entry: name of the function.
        looped: run blocks in a loop inside the kernel; None does so when the grid is known to be too large.

    Raises:
        UnsupportedOp: per-thread code, opaque nodes, what has no form on tiles; with the user's line.
    """
    return _LaunchLowering(view, launch, entry, dialect, looped).lower()


class _LaunchLowering:
    def __init__(self, view: View, launch: Launch, entry: str, dialect: TileDialect, looped: bool | None) -> None:
        self.view = view
        self.launch = launch
        self.entry = entry
        self.dialect = dialect
        self.builder = Builder()
        self.context = Context(self.builder, dialect, Liveness(launch))
        self.context.memory = Memory(self.context)
        self.arguments: list[Argument] = []
        extents = [evaluate(extent, {}) for _, extent in launch.grid]
        known = [extent for extent in extents if extent is not None]
        limit = dialect.max_blocks
        too_many = limit is not None and len(known) == len(extents) and prod(known) > limit
        self.looped = too_many if looped is None else looped

    def lower(self) -> TileModule:
        if self.launch.uses_threads:
            from core.portability.hints import thread_index_hint

            raise UnsupportedOp(
                "this kernel reads its thread index; a tile compiler runs whole blocks",
                hint=thread_index_hint(self.launch),
                location=self.launch.location,
            )
        c = self.context
        for buffer in self.launch.buffers:
            if buffer.scope is not Scope.GLOBAL:
                c.canonical.setdefault(buffer.storage, buffer)
        self.arguments += self.dialect.leading_arguments()
        self._tensors()
        self._scalars()
        grid = list(self.dialect.block_arguments())
        self.arguments += grid
        body = Statements(c)
        with c.located(self.launch.location):
            self._grid(body)
        name = self.entry
        attributes = self.dialect.function_attributes(c.facts)
        arguments = [f"%{a.name}: {a.type}{f' {a.attributes}' if a.attributes else ''}" for a in self.arguments]
        function = self.builder.function(name, arguments, attributes)
        aliases = self.builder.location_lines()
        text = "\n".join([*aliases, "module {", function, "}", ""])
        return TileModule(
            text=text,
            entry=name,
            arguments=tuple(self.arguments),
            grid=tuple(extent for _, extent in self.launch.grid),
            looped=self.looped,
            facts=c.facts,
            files=dict(self.builder.files),
        )

    # ------------------------------------------------------------------------------------------------ arguments

    def _name(self, name: str) -> str:
        """An argument's name, which no value made later takes."""
        return self.builder.fresh(f"{name}_" if name.isdigit() else name).removeprefix("%")

    def _tensors(self) -> None:
        """One memref per tensor parameter, then one per workspace: views of one storage share it.

        Every launch takes every workspace that launches share, so that all of them know it by one name.
        """
        c = self.context
        reads, writes = self._global_effects()
        for parameter in self.view.parameters:
            buffer = parameter.buffer
            if buffer is None:
                continue
            c.check_dtype(buffer.dtype, buffer.location)
            self._tensor("tensor", buffer, parameter.name, reads, writes)
        for buffer in self.view.workspaces:
            c.check_dtype(buffer.dtype, buffer.location)
            self._tensor("scratch", buffer, buffer.name, reads, writes)
        for buffer in self.launch.buffers:
            if buffer.scope is Scope.GLOBAL and buffer.storage not in c.arguments:
                self._tensor("buffer", buffer, buffer.name, reads, writes)

    def _tensor(self, role: str, buffer: Buffer, name: str, reads: set[Storage], writes: set[Storage]) -> None:
        storage = buffer.storage
        type_ = MemRef((None,), memory_type(buffer.dtype, buffer.location))
        attributes = self.dialect.tensor_attributes(reads=storage in reads, writes=storage in writes)
        elements = () if role == "tensor" else buffer.shape
        argument = Argument(role, self._name(name), type_, attributes, elements)
        self.arguments.append(argument)
        if storage not in self.context.arguments:
            self.context.arguments[storage] = Value(f"%{argument.name}", type_)

    def _global_effects(self) -> tuple[set[Storage], set[Storage]]:
        reads: set[Storage] = set()
        writes: set[Storage] = set()
        for stmt in statements(self.launch.body):
            read, written = statement_effects(stmt)
            reads.update(buffer.storage for buffer in read)
            writes.update(buffer.storage for buffer in written)
        return reads, writes

    def _scalars(self) -> None:
        c = self.context
        variables = [p.scalar for p in self.view.parameters if p.scalar is not None]
        for role, found in (("scalar", variables), ("symbol", list(self.view.symbols))):
            for var in found:
                c.check_dtype(var.dtype)
                type_ = memory_type(var.dtype)
                argument = Argument(role, self._name(var.name), type_)
                self.arguments.append(argument)
                value = Value(f"%{argument.name}", type_)
                if var.dtype == "bool":
                    value = c.elementwise.cast(value, "int8", "bool")
                c.variables[var] = Lanes(value)
        # Host-level definitions are computed again by every block.
        for stmt in self._host_lets():
            c.variables[stmt[0]] = c.evaluate(stmt[1])

    def _host_lets(self) -> list[tuple[Var, Expr]]:
        from core.program.nodes import Let

        used = {
            item
            for stmt in statements((self.launch,))
            for expr in expressions(stmt)
            for item in subexpressions(expr)
            if isinstance(item, Var) and item.kind is VarKind.LET
        }
        lets = [stmt for stmt in self.view.body if isinstance(stmt, Let)]
        if any(isinstance(item, Load) for stmt in lets for item in subexpressions(stmt.value)):
            raise UnsupportedOp("the host reads a tensor before the launch", location=self.launch.location)
        return [(stmt.var, stmt.value) for stmt in lets if stmt.var in used]

    # ------------------------------------------------------------------------------------------------ grid

    def _grid(self, body: Statements) -> None:
        """The body once per block, or in a loop over every so manieth block."""
        for var, extent in self.launch.grid:
            size = evaluate(extent, {})
            if size is not None and size > 0:
                self.context.ranges[var] = Interval(0, size - 1, True, frozenset({var}))
        places = [Value(f"%{a.name}", a.type) for a in self.arguments if a.role == "block"]
        if not self.looped:
            for (var, _), place in zip(self.launch.grid, places, strict=False):
                self._bind(var, place)
            body.body(self.launch.body)
            return
        b, c = self.builder, self.context
        extents = [c.index(extent) for _, extent in self.launch.grid]
        total: ops.Extent = 1
        for blocks in extents:
            total = ops.mul_index(b, total, blocks)
        launched = [Value(f"%{a.name}", a.type) for a in self.arguments if a.role == "grid"]
        count = b.index(1)
        first = b.index(0)
        for blocks_along, place in zip(launched, places, strict=True):
            width = ops.index_cast(b, blocks_along, INDEX)
            first = ops.arith(b, "addi", ops.arith(b, "muli", first, width), ops.index_cast(b, place, INDEX))
            count = ops.arith(b, "muli", count, width)
        remaining = ops.sub_index(b, total, first)
        rounds = ops.arith(b, "ceildivsi", ops.index_value(b, remaining), count)

        def one(counter: Value, carried: tuple[Value, ...]) -> Sequence[Value]:
            linear: Value = ops.arith(b, "addi", first, ops.arith(b, "muli", counter, count))
            for (var, _), blocks in zip(self.launch.grid, extents, strict=True):
                divisor = ops.index_value(b, blocks)
                self._bind(var, ops.index_cast(b, ops.arith(b, "remsi", linear, divisor), I32))
                linear = ops.arith(b, "divsi", linear, divisor)
            body.body(self.launch.body)
            return []

        ops.for_loop(b, 0, rounds, [], one)

    def _bind(self, var: Var, place: Value) -> None:
        element = value_type(var.dtype)
        value = place if place.type == element else ops.convert(self.builder, "extsi", place, element)
        self.context.variables[var] = Lanes(value)
