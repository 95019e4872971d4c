"""From a traced PrimFunc to the tree of a kernel's block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from core.conformance.interpreter.values import numpy_dtype
from core.conformance.schedules import tree
from core.conformance.schedules.expressions import ExpressionCompiler
from core.conformance.schedules.operators import OPERATORS
from core.errors import Location, UnsupportedOp
from core.program.tir import spans
from core.program.tir.intrinsics import convert_call_name

_PARALLEL, _THREAD_BINDING = 1, 4


def read(prim_func: Any) -> tree.Kernel:
    """The kernel of a PrimFunc before any lowering.

    Raises:
        UnsupportedOp: it has something the simulator does not model, at the user's line; or no `T.Kernel`.
    """
    return Reader(prim_func).kernel()


class Reader:
    """State of reading one PrimFunc."""

    def __init__(self, prim_func: Any) -> None:
        self.function = prim_func
        self.location: Location | None = spans.function_location(prim_func)
        self.compile: ExpressionCompiler = ExpressionCompiler(self.slot, self.tensor)
        self._slots: dict[Any, int] = {}
        self._tensors: dict[Any, tree.Tensor] = {}
        self._storages: dict[Any, int] = {}
        self._counts: dict[Any, tuple[int, ...]] = {}
        self._launches: list[tree.Launch] = []
        self._begin()

    def _begin(self) -> None:
        """Knows nothing of a launch yet."""
        self._grid: list[tuple[int, tree.Expression]] = []
        self._threads: tuple[int, ...] = ()
        self._thread_slot: int | None = None
        self._cluster: tuple[int, int, int] = (1, 1, 1)

    # -- what a kernel is made of ------------------------------------------------------------------------------------

    def kernel(self) -> tree.Kernel:
        parameters: list[tree.Tensor | int] = []
        symbols: dict[tuple[int, int], int] = {}
        for position, parameter in enumerate(self.function.params):
            if parameter not in self.function.buffer_map:
                parameters.append(self.slot(parameter))
                continue
            buffer = self.function.buffer_map[parameter]
            parameters.append(self.tensor(buffer))
            for dimension, extent in enumerate(buffer.shape):
                if type(extent).__name__ in ("Var", "SizeVar"):
                    symbols.setdefault((position, dimension), self.slot(extent))
        beside = self.body(self.function.body)
        launches = tuple(self._launches)
        if beside or not launches:
            raise self.unknown("a function that does anything but launch blocks")
        for launch in launches:
            launch.slots = len(self._slots)
        return tree.Kernel(
            name=str(self.function.attrs["global_symbol"]) if self.function.attrs else "main",
            parameters=tuple(parameters),
            symbols=symbols,
            launches=launches,
        )

    def _launch(self, loop: Any) -> None:
        """One `T.Kernel`, from its loop over blockIdx.x on."""
        self._begin()
        outer = set(self._tensors)
        body = self._axis(loop)
        x, y, z = (*self._threads, 1, 1, 1)[:3]
        if not self._threads or x % 32 or y * z != 1:
            raise self.unknown(f"blocks of {self._threads or 'no stated number of'} threads")
        own = (tensor for buffer, tensor in self._tensors.items() if buffer not in outer)
        launch = tree.Launch(
            grid=tuple(extent for _, extent in self._grid),
            grid_slots=tuple(slot for slot, _ in self._grid),
            thread_slot=self._thread_slot,
            threads=x,
            cluster=self._cluster,
            tensors=tuple(own),
            body=body,
            slots=0,
            location=self.location,
        )
        self._launches.append(launch)

    def _axis(self, loop: Any) -> tree.Body:
        tag = str(loop.thread_binding.thread_tag)
        if not tag.startswith("blockIdx"):
            raise self.unknown(f"a loop over {tag}")
        self._grid.append((self.slot(loop.loop_var), self.compile(loop.extent)))
        return self.body(loop.body)

    def slot(self, variable: Any) -> int:
        """The slot of a variable."""
        return self._slots.setdefault(variable, len(self._slots))

    def tensor(self, buffer: Any) -> tree.Tensor:
        """The tensor of a buffer."""
        known = self._tensors.get(buffer)
        if known is None:
            scope = str(buffer.scope())
            extents = tuple(int(e) if type(e).__name__ == "IntImm" else 0 for e in buffer.shape)
            if scope != "global" and not all(extents):
                raise self.unknown(f"an on-chip buffer of symbolic size ({buffer.name})")
            known = tree.Tensor(
                name=str(buffer.name),
                scope=scope,
                dtype=str(buffer.dtype),
                kind=numpy_dtype(str(buffer.dtype)),
                storage=self._storages.setdefault(buffer.data, len(self._storages)),
                extents=extents,
                location=spans.buffer_location(buffer),
                counts=self._counts.get(buffer.data, ()),
            )
            self._tensors[buffer] = known
        return known

    def constant(self, expr: Any, what: str) -> int:
        """An expression that must be a number.

        Raises:
            UnsupportedOp: it is not.
        """
        if isinstance(expr, int):
            return expr
        if type(expr).__name__ != "IntImm":
            raise self.unknown(f"{what} that is not a constant ({expr})")
        return int(expr.value)

    def place(self, call: Any) -> tree.Place:
        """Reads `tl.region(load, mask, extent...)`."""
        load, extents = call.args[0], call.args[2:]
        return tree.Place(
            self.tensor(load.buffer),
            tuple(self.compile(index) for index in load.indices),
            tuple(self.constant(extent, "an extent") for extent in extents),
        )

    def barrier(self, load: Any) -> tree.BarrierPlace:
        """Reads one barrier of an array of them."""
        return tree.BarrierPlace(self.tensor(load.buffer), self.compile(load.indices[0]))

    def unknown(self, what: str) -> UnsupportedOp:
        return UnsupportedOp(
            f"the schedule simulator does not model {what}",
            hint="docs/schedules.md lists what is modelled",
            location=self.location,
        )

    @contextmanager
    def at(self, location: Location | None) -> Iterator[None]:
        outer = self.location
        if location is not None:
            self.location = self.compile.location = location
        try:
            yield
        finally:
            self.location = self.compile.location = outer

    # -- statements --------------------------------------------------------------------------------------------------

    def body(self, stmt: Any) -> tree.Body:
        """A statement or sequence, in order."""
        sequence = list(stmt.seq) if type(stmt).__name__ == "SeqStmt" else [stmt]
        nodes: list[tree.Node] = []
        for item, location in zip(sequence, spans.sequence_locations(sequence, self.location), strict=True):
            with self.at(location):
                if type(item).__name__ == "SeqStmt":
                    nodes.extend(self.body(item))
                else:
                    nodes.extend(self._statement(item))
        return tuple(nodes)

    def _statement(self, stmt: Any) -> Sequence[tree.Node]:
        match type(stmt).__name__:
            case "SBlockRealize":
                self._enter(stmt.block)
                return self.body(stmt.block.body)
            case "AttrStmt":
                return self.body(stmt.body)
            case "For":
                return self._for(stmt)
            case "While":
                return [tree.While(self.compile(stmt.condition), self.body(stmt.body), location=self.location)]
            case "IfThenElse":
                otherwise = self.body(stmt.else_case) if stmt.else_case is not None else ()
                condition = self.compile(stmt.condition)
                return [tree.Branch(condition, self.body(stmt.then_case), otherwise, location=self.location)]
            case "Bind":
                return self._bind(stmt)
            case "BufferStore":
                return self._store(stmt)
            case "Evaluate":
                return self._evaluate(stmt.value)
        raise self.unknown(f"the statement {type(stmt).__name__}")

    def _enter(self, block: Any) -> None:
        for key, value in block.annotations.items():
            match str(key):
                case "tl.launch_threads":
                    self._threads = tuple(int(item) for item in value)
                case "cluster_dims":
                    x, y, z = (*(int(item) for item in value), 1, 1)[:3]
                    self._cluster = (x, y, z)
                case "barrier_init":
                    for data, counts in value.items():
                        self._counts[data] = tuple(int(count) for count in counts)
        for buffer in block.alloc_buffers:
            self.tensor(buffer)

    def _for(self, loop: Any) -> Sequence[tree.Node]:
        kind = int(loop.kind)
        if kind == _THREAD_BINDING:
            if str(loop.thread_binding.thread_tag) != "blockIdx.x":
                return self._axis(loop)
            self._launch(loop)
            return ()
        if kind == _PARALLEL:
            return [self._parallel(loop)]
        start, extent = self.compile(loop.min), self.compile(loop.extent)
        slot = self.slot(loop.loop_var)
        return [tree.Loop(slot, start, extent, self.body(loop.body), location=self.location)]

    def _parallel(self, loop: Any) -> tree.Parallel:
        location, slots, extents = self.location, [], []
        while True:
            if self.constant(loop.min, "the start of T.Parallel") != 0:
                raise self.unknown("a T.Parallel that does not start at 0")
            slots.append(self.slot(loop.loop_var))
            extents.append(self.constant(loop.extent, "an extent of T.Parallel"))
            if type(loop.body).__name__ != "For" or int(loop.body.kind) != _PARALLEL:
                break
            loop = loop.body
        return tree.Parallel(tuple(slots), tuple(extents), self.body(loop.body), location=location)

    def _bind(self, stmt: Any) -> Sequence[tree.Node]:
        value = stmt.value
        if type(value).__name__ == "Call" and convert_call_name(value) == "tl.launch_thread_idx":
            slot = self.slot(stmt.var)
            if int(value.args[0]) == 0:
                self._thread_slot = slot
                return ()
            return [tree.Bind(slot, tree.Expression(lambda warp: 0), location=self.location)]
        compiled = self.compile(value)
        return [tree.Bind(self.slot(stmt.var), compiled, location=self.location)]

    def _store(self, stmt: Any) -> Sequence[tree.Node]:
        if any(type(index).__name__ in ("Ramp", "Broadcast") for index in stmt.indices):
            raise self.unknown("a slice assignment")
        indices = tuple(self.compile(index) for index in stmt.indices)
        return [tree.Assign(self.tensor(stmt.buffer), indices, self.compile(stmt.value), location=self.location)]

    def _evaluate(self, value: Any) -> Sequence[tree.Node]:
        if type(value).__name__ != "Call":
            return ()
        name = convert_call_name(value)
        operator = OPERATORS.get(name)
        if operator is None:
            raise self.unknown(f"the operation {name}")
        node = operator(self, value)
        if node is None:
            return ()
        node.location = self.location
        return [node]
