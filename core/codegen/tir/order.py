"""Statements of a block in their order, where one touches global memory that another of them has written.

In the tile-level view the statements of a block come one after the other. In stock TileLang's code each is spread over
threads, and nothing orders threads in global memory: it puts barriers between accesses of shared memory alone. So a
block that reads back what it wrote reads what other threads have not written yet; a statement outside of `T.Parallel`
that counts (`n[0] = n[0] + 1`) counts once a thread; and a pipelined loop fetches what an earlier round is to write.

Here a barrier goes between such statements, such a store is done by one thread, and such a loop is not pipelined. None
is needed where the two provably touch different places, or where a fragment says that each element is the same
thread's both times (a product that is added to a tensor). What other blocks do is not ordered, as `docs/program.md`
says. A kernel that reads thread indices orders its own threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.codegen.tir.rebuild import unpipelined, with_span
from core.program.effects import statement_effects
from core.program.nodes import AtomicElement, AtomicTile, Parallel, Scope, Stmt, Storage, View
from core.program.tir.regions import is_region
from core.program.walk import children, statements

#: A statement's access of global memory: by its data variable, how.
READ, WRITTEN, COUNTED = "read", "written", "counted"
_MASKS = {1: (READ,), 2: (WRITTEN,), 3: (READ, WRITTEN)}
#: What order matters between. Atomic updates of one place may come in any order.
_CONFLICTS = {
    READ: (WRITTEN, COUNTED),
    WRITTEN: (READ, WRITTEN, COUNTED),
    COUNTED: (READ, WRITTEN),
}


@dataclass(frozen=True, slots=True)
class Place:
    """A box of a buffer's elements: of each dimension the first (TIR), and how many.

    Attributes:
        fragment: data variable of the fragment that the box is copied to or from: it says which thread has an element.
    """

    buffer: Any
    mins: tuple[Any, ...]
    extents: tuple[Any, ...]
    fragment: Any = None

    def same_as(self, other: Place) -> bool:
        """Whether it is the same box, in one round of every loop around them."""
        from tvm import ir

        if not self.buffer.same_as(other.buffer):
            return False
        boxes = ((*self.mins, *self.extents), (*other.mins, *other.extents))
        return all(ir.structural_equal(one, another) for one, another in zip(*boxes, strict=True))

    def is_fixed(self) -> bool:
        """Whether it is where its text says: what is read from memory (`T.alloc_var`) may change in between."""
        from tvm import tirx

        found: list[Any] = []
        for expr in (*self.mins, *self.extents):
            tirx.stmt_functor.post_order_visit(
                tirx.Evaluate(expr), lambda one: found.append(one) if type(one).__name__ == "BufferLoad" else None
            )
        return not found

    def by_the_same_threads(self, other: Place) -> bool:
        """Whether each element is touched by one and the same thread both times."""
        if self.fragment is None or other.fragment is None or not self.fragment.same_as(other.fragment):
            return False
        return self.same_as(other)

    def apart(self, other: Place) -> bool:
        """Whether the two provably have no element in common, in one round of every loop around them."""
        from tvm import arith

        if not self.buffer.same_as(other.buffer):
            return False
        analyzer = arith.Analyzer()
        boxes = zip(self.mins, self.extents, other.mins, other.extents, strict=True)
        return any(analyzer.can_prove(a + m <= b) or analyzer.can_prove(b + n <= a) for a, m, b, n in boxes)


@dataclass(frozen=True, slots=True)
class Access:
    """What a statement does to global memory.

    Attributes:
        memory: its data variable.
        how: READ, WRITTEN or COUNTED (by an atomic).
        place: which elements, or None where that is no box.
        stmt: the statement.
        by_one: by a thread that does all such statements, in their order.
        earlier: in a round before this one.
    """

    memory: Any
    how: str
    place: Place | None
    stmt: Any
    by_one: bool = False
    earlier: bool = False

    def same_as(self, other: Access) -> bool:
        if (self.how, self.by_one, self.earlier) != (other.how, other.by_one, other.earlier):
            return False
        if not (self.stmt.same_as(other.stmt) and self.memory.same_as(other.memory)):
            return False
        if self.place is None or other.place is None:
            return self.place is other.place
        return self.place.same_as(other.place)

    def conflicts(self, later: Access) -> bool:
        """Whether a barrier belongs between the two.

        A statement that writes in every round writes other places, or the same by the same threads.
        """
        if (self.by_one and later.by_one) or later.how not in _CONFLICTS[self.how]:
            return False
        if not self.memory.same_as(later.memory):
            return False
        written = self.how == later.how == WRITTEN
        if written and self.stmt.same_as(later.stmt):
            return False
        if self.place is None or later.place is None or (self.earlier and not written):
            return True
        return not (self.place.apart(later.place) or self.place.by_the_same_threads(later.place))


def unordered(view: View) -> Iterator[tuple[Stmt, Storage]]:
    """Statements of a block that touch global memory which the block also writes: what :func:`ordered` looks at.

    All that is inside a `T.Parallel` is one statement.
    """
    for launch in view.launches:
        if launch.uses_threads:
            continue
        touched = [(stmt, *_effects(stmt)) for stmt in _units(launch.body)]
        writers = Counter(storage for _, _, writes in touched for storage in writes)
        for stmt, reads, writes in touched:
            for storage in sorted(reads | writes, key=lambda one: one.name):
                others = writers[storage] - (storage in writes)
                alone = storage in reads and storage in writes and not isinstance(stmt, Parallel)
                if others or alone:
                    yield stmt, storage


def _units(body: Sequence[Stmt]) -> Iterator[Stmt]:
    for stmt in body:
        yield stmt
        if not isinstance(stmt, Parallel):
            yield from _units(children(stmt))


def _effects(stmt: Stmt) -> tuple[set[Storage], set[Storage]]:
    """Global memory that a unit reads and writes; what it only counts in (atomics) is written."""
    reads: set[Storage] = set()
    writes: set[Storage] = set()
    for one in statements(stmt) if isinstance(stmt, Parallel) else (stmt,):
        read, written = ({b.storage for b in buffers if b.scope is Scope.GLOBAL} for buffers in statement_effects(one))
        if isinstance(one, AtomicTile | AtomicElement):
            read -= written
        reads |= read
        writes |= written
    return reads, writes


@dataclass(slots=True)
class Ordered:
    """A function whose blocks' statements keep their order, and what that took.

    Attributes:
        memories: data variables of global memory that blocks read and write in turn; no bulk copy may touch them.
        loops: variables of the loops that are no longer pipelined.
        changed: whether anything had to be done.
    """

    prim_func: Any
    memories: list[Any] = field(default_factory=list)
    loops: list[Any] = field(default_factory=list)
    changed: bool = False


def ordered(prim_func: Any, threaded: Sequence[bool]) -> Ordered:
    """Puts barriers between the statements of each block that need one. Spans are carried over.

    Args:
        threaded: of each launch, whether it reads thread indices; such a launch stays as it is.
    """
    from tvm import tirx

    found = _Order(threaded)
    found.visit(prim_func.body, _Pending())
    result = Ordered(prim_func, found.memories, found.loops, changed=bool(found.before or found.alone))
    if not result.changed:
        return result

    def barrier() -> Any:
        return tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_storage_sync", "shared"))

    def put(stmt: Any) -> Any:
        behind = _held(found.before, stmt)
        by_one = _held(found.alone, stmt)
        if not behind and not by_one:
            return None
        if by_one:
            index = tirx.Var("alone", "int32")
            stmt = with_span(tirx.For(index, 0, 1, tirx.ForKind.PARALLEL, stmt), stmt)
        return tirx.SeqStmt([barrier(), stmt]) if behind else stmt

    def join(stmt: Any) -> Any:
        """Barriers around what holds statements, sequences in sequences as one, and loops without a pipeline."""
        kind = type(stmt).__name__
        if kind == "SeqStmt":
            flat = [inner for one in stmt.seq for inner in (one.seq if type(one).__name__ == "SeqStmt" else (one,))]
            return tirx.SeqStmt(flat) if len(flat) != len(stmt.seq) else None
        if kind == "For" and any(stmt.loop_var.same_as(loop) for loop in found.loops):
            stmt = unpipelined(stmt)
        mark = _marked(stmt)
        if mark is None or not _held(found.before, mark):
            return stmt
        if kind == "While":  # its condition is asked again after each round
            stmt = with_span(tirx.While(stmt.condition, tirx.SeqStmt([stmt.body, barrier()])), stmt)
        return tirx.SeqStmt([barrier(), stmt])

    kinds = ("Evaluate", "BufferStore", "For", "Bind", "SeqStmt", "IfThenElse", "While")
    body = tirx.stmt_functor.ir_transform(prim_func.body, put, join, [f"tirx.{kind}" for kind in kinds])
    result.prim_func = prim_func.with_body(body, prim_func.span)
    return result


# -- where order is needed -------------------------------------------------------------------------------------------


class _Pending:
    """Accesses of global memory since the block's last barrier, each once."""

    def __init__(self, accesses: Sequence[Access] = ()) -> None:
        self.accesses = list(accesses)

    def add(self, accesses: Sequence[Access]) -> None:
        self.accesses += [one for one in accesses if not any(one.same_as(known) for known in self.accesses)]

    def conflicting(self, accesses: Sequence[Access]) -> list[Any]:
        """Memory that these may not touch before a barrier."""
        return [one.memory for one in accesses if any(known.conflicts(one) for known in self.accesses)]


class _Order:
    """Walks a block's statements as they run, loops twice: what a round leaves behind meets the next one."""

    def __init__(self, threaded: Sequence[bool]) -> None:
        self._threaded = iter(threaded)
        self._inside = False  # of a launch
        self.before: list[Any] = []  # statements, conditions and loops' variables that come behind a barrier
        self.alone: list[Any] = []  # stores that one thread does
        self.loops: list[Any] = []
        self.memories: list[Any] = []

    def visit(self, stmt: Any, pending: _Pending) -> None:
        kind = type(stmt).__name__
        if kind == "SeqStmt":
            for one in stmt.seq:
                self.visit(one, pending)
        elif kind in ("SBlockRealize", "SBlock", "AttrStmt"):
            self.visit(stmt.block if kind == "SBlockRealize" else stmt.body, pending)
        elif kind == "For" and not _is_parallel(stmt):
            self._loop(stmt, pending)
        elif kind == "While":
            self._rounds(stmt.body, pending, stmt.condition)
        elif kind == "IfThenElse":
            self._meet(stmt.condition, accesses(stmt.condition), pending)
            other = _Pending(pending.accesses)
            self.visit(stmt.then_case, pending)
            if stmt.else_case is not None:
                self.visit(stmt.else_case, other)
            pending.add(other.accesses)
        elif _is_barrier(stmt):
            pending.accesses = []
        else:
            self._leaf(stmt, pending)

    def _loop(self, stmt: Any, pending: _Pending) -> None:
        if str(stmt.kind) == str(_kinds().THREAD_BINDING):
            self._launch(stmt, pending)
            return
        # One barrier in front of the loop, so that inside only what rounds do to each other counts.
        if pending.conflicting(accesses(stmt)):
            self._wait(stmt.loop_var, accesses(stmt), pending)
        barriers = len(self.before) + len(self.alone)
        self._rounds(stmt.body, pending)
        if len(self.before) + len(self.alone) > barriers and "num_stages" in stmt.annotations:
            self.loops.append(stmt.loop_var)

    def _rounds(self, body: Any, pending: _Pending, condition: Any = None) -> None:
        """Two rounds of a loop: what the first leaves behind is what every later one meets."""
        outside = list(pending.accesses)
        for _ in range(2):
            if condition is not None:
                self._meet(condition, accesses(condition), pending)
            self.visit(body, pending)
            pending.accesses = [
                one if any(one is known for known in outside) else replace(one, earlier=True)
                for one in pending.accesses
            ]

    def _launch(self, stmt: Any, pending: _Pending) -> None:
        """One axis of a launch's grid. Nothing is left behind between launches."""
        if self._inside:
            self.visit(stmt.body, pending)
            return
        self._inside = True
        if not next(self._threaded, False):
            self.visit(stmt.body, _Pending())
        self._inside = False

    def _leaf(self, stmt: Any, pending: _Pending) -> None:
        touched = accesses(stmt)
        if type(stmt).__name__ == "BufferStore" and _is_global(stmt.buffer):
            # Every thread does this store: done by one, it may be ordered like others.
            counts = any(one.how == READ and one.memory.same_as(stmt.buffer.data) for one in touched)
            if (counts or pending.conflicting(touched)) and not _held(self.alone, stmt):
                self.alone.append(stmt)
        if _held(self.alone, stmt):
            touched = [replace(one, by_one=True) for one in touched]
        self._meet(stmt, touched, pending)

    def _meet(self, node: Any, touched: Sequence[Access], pending: _Pending) -> None:
        if _held(self.before, node) or pending.conflicting(touched):
            self._wait(node, touched, pending)
        pending.add(touched)

    def _wait(self, node: Any, touched: Sequence[Access], pending: _Pending) -> None:
        """A barrier in front of a statement, of a loop by its variable, or of whatever asks a condition."""
        for memory in pending.conflicting(touched):
            if not _held(self.memories, memory):
                self.memories.append(memory)
        if not _held(self.before, node):
            self.before.append(node)
        pending.accesses = []


def accesses(node: Any) -> list[Access]:
    """What a statement or an expression does to global memory, each access once."""
    from tvm import arith, tirx

    found = _Pending()
    plain: list[Any] = []
    named: list[Any] = []  # loads that only say where something is
    spread: dict[Any, Any] = {}  # loops that are one statement: what their variables may be

    fragment = _copied_fragment(node)

    def add(buffer: Any, how: str, place: Place | None) -> None:
        if _is_global(buffer):
            found.add([Access(buffer.data, how, place if place and place.is_fixed() else None, node)])

    def element(one: Any) -> Place | None:
        boxes = [arith.Analyzer().int_set(index, spread) for index in one.indices]
        if not all(type(box).__name__ == "IntervalSet" for box in boxes):
            return None
        return Place(
            one.buffer,
            tuple(box.min_value for box in boxes),
            tuple(box.max_value - box.min_value + 1 for box in boxes),
        )

    def loops(one: Any) -> None:
        if type(one).__name__ == "For":
            spread[one.loop_var] = arith.IntervalSet(one.min, one.min + one.extent - 1)

    def visit(one: Any) -> None:
        kind = type(one).__name__
        if kind == "BufferLoad":
            plain.append(one)
        elif kind == "BufferStore":
            add(one.buffer, WRITTEN, element(one))
        elif kind == "Call":
            where, ways = _pointed(one)
            if where is not None:
                named.append(where)
                place = None
                if is_region(one):
                    place = Place(where.buffer, tuple(where.indices), tuple(one.args[2:]), fragment)
                for how in ways:
                    add(where.buffer, how, place)

    tirx.stmt_functor.post_order_visit(node, loops)
    tirx.stmt_functor.post_order_visit(node, visit)
    for one in plain:
        if not _held(named, one):
            add(one.buffer, READ, element(one))
    return found.accesses


def _copied_fragment(stmt: Any) -> Any:
    """The fragment that a copy fills or stores, by its data variable; None for other statements.

    One of a single dimension may be held by several threads, of which one stores it.
    """
    call: Any = getattr(stmt, "value", None)
    if getattr(getattr(call, "op", None), "name", "") != "tl.tileop.copy":
        return None
    sides = [side.args[0].buffer for side in call.args[:2] if is_region(side)]
    return next((side.data for side in sides if side.scope() == "local.fragment" and len(side.shape) > 1), None)


def _pointed(call: Any) -> tuple[Any, tuple[str, ...]]:
    """The element that a region or a pointer starts at, and what happens there; (None, ()) for other calls."""
    name = getattr(call.op, "name", "")
    if is_region(call):
        return call.args[0], _MASKS.get(int(call.args[1]), (READ, WRITTEN))
    if name in ("tl.access_ptr", "tirx.address_of") and type(call.args[0]).__name__ == "BufferLoad":
        # Atomics take these; nothing else in a tile kernel does that writes.
        return call.args[0], (COUNTED,)
    return None, ()


def _is_global(buffer: Any) -> bool:
    return bool(buffer.scope() == "global")


def _is_parallel(loop: Any) -> bool:
    """Whether a loop is one statement: its rounds are spread over threads, or are one access."""
    kinds = _kinds()
    return str(loop.kind) in (str(kinds.PARALLEL), str(kinds.VECTORIZED))


def _kinds() -> Any:
    from tvm import tirx

    return tirx.ForKind


def _is_barrier(stmt: Any) -> bool:
    """A barrier of the whole block, or of the grid."""
    call: Any = getattr(stmt, "value", None)
    name = getattr(getattr(call, "op", None), "name", "")
    return (name == "tirx.tvm_storage_sync" and len(call.args) == 1) or name == "tl.sync_grid"


def _marked(stmt: Any) -> Any:
    """What stands in :attr:`_Order.before` for a statement that holds others, which may have changed since."""
    kind = type(stmt).__name__
    return stmt.condition if kind in ("IfThenElse", "While") else stmt.loop_var if kind == "For" else None


def _held(nodes: list[Any], node: Any) -> bool:
    return any(node.same_as(one) for one in nodes)
