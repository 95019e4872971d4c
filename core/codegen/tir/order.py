"""Statements of a block in their order, where one touches memory that another of them has written.

In the tile-level view the statements of a block come one after the other. In stock TileLang's code each is spread over
threads, and nothing orders threads in global memory: it puts barriers between accesses of shared memory alone. So a
block that reads back what it wrote reads what other threads have not written yet; a statement outside of `T.Parallel`
that counts (`n[0] = n[0] + 1`, an atomic) counts once a thread, in shared memory too; and a pipelined loop fetches what
an earlier round is to write. Of two writes to shared memory TileLang takes some that share elements to have none in
common (a `T.copy` by vectors, then a `T.fill` of a slice).

Here a barrier goes between such statements, such a store is done by one thread, and such a loop is not pipelined. None
is needed where the two provably touch different places, or where a fragment says that each element is the same
thread's both times (a product that is added to a tensor). What other blocks do is not ordered, as `docs/program.md`
says. A kernel that reads thread indices orders its own threads.

No barrier of threads, the author's included, orders the bulk copy engine: a block waits until its stores have been read
from shared memory, not until they can be seen, and what threads have stored is not fenced before the engine reads it.
Memory that the engine would share in that way, with threads or with another of its own copies, is left to threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import Any

from core.codegen.tir.rebuild import unpipelined, with_span
from core.codegen.tir.rounds import rewritten
from core.errors import Location, UnsupportedOp
from core.program.effects import statement_effects
from core.program.nodes import (
    AtomicElement,
    AtomicExpr,
    AtomicTile,
    Copy,
    Expr,
    Im2Col,
    OpaqueExpr,
    OpaqueStmt,
    Parallel,
    Scope,
    Stmt,
    Storage,
    View,
)
from core.program.tir.regions import is_region
from core.program.tir.spans import statement_location
from core.program.walk import children, expressions, statements

_COPIES = ("tl.tileop.copy", "tl.tileop.async_copy", "tl.tileop.tma_copy", "tl.tileop.im2col", "tl.tileop.c2d_im2col")
_ATOMIC_TILES = ("tl.tileop.atomicadd", "tl.tileop.atomicmax", "tl.tileop.atomicmin")
_ATOMIC_ELEMENTS = tuple(
    f"tl.atomic_{kind}_elem_op" for kind in ("add", "max", "min", "addx2", "addx4", "add_ret", "max_ret", "min_ret")
)
_YIELDING = tuple(f"tl.atomic_{kind}_ret_elem_op" for kind in ("add", "max", "min"))
_USE_TMA = "use_tma"
_SYNC_GRID = "tl.sync_grid"
_FRAGMENT = "local.fragment"
_NO_VALUES: Mapping[Any, Any] = MappingProxyType({})
_SCOPES = (Scope.GLOBAL, Scope.SHARED)
#: Threads of a launch that does not say how many.
_THREADS = 128

#: A statement's access of memory: by its data variable, how.
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
        return all(_is_fixed(expr) for expr in (*self.mins, *self.extents))

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


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """A round of a loop: one object for each loop.

    Attributes:
        variable: of the loop; None for a `while`, and for a loop of a single round.
        inner: of the loops inside it the variables, with the values that they take.
    """

    variable: Any
    inner: tuple[tuple[Any, Any], ...] = ()


#: How the places of a statement in two rounds of a loop lie to each other, as far as is seen.
APART, SAME, OVERLAPPING = "apart", "same", "overlapping"


@dataclass(frozen=True, slots=True)
class Moves:
    """The place that a statement writes, as a function of the loops around it.

    Attributes:
        indices: of each dimension the first element, with what `Bind`s stand for put in.
        extents: of each dimension how many elements from there on.
        spread: loops that are part of the statement: their variables and the values that they take.
        conditional: whether the statement may be skipped in some rounds.
    """

    indices: tuple[Any, ...]
    extents: tuple[Any, ...]
    spread: tuple[tuple[Any, Any], ...]
    conditional: bool

    def between(self, one: Round) -> str:
        """How the places of two rounds lie. A dimension that moves in an unknown way is taken to be apart."""
        from tvm import arith, tirx

        if one.variable is None:
            return APART
        analyzer = arith.Analyzer()
        found = APART if self.conditional else SAME
        for index, extent in zip(self.indices, self.extents, strict=True):
            if not _mentions(index, one.variable):
                continue
            box = analyzer.int_set(index, dict((*self.spread, *one.inner)))
            if not _is_bounded(box):
                return APART
            low, high = box.min_value, box.max_value + extent
            if not _mentions(low, one.variable):
                found = OVERLAPPING  # the same elements, dealt out to threads in another way
                continue
            following = tirx.stmt_functor.substitute(low, {one.variable: one.variable + 1})
            step = analyzer.simplify(following - low)
            if not isinstance(step, tirx.IntImm) or analyzer.can_prove(high - low <= abs(int(step))):
                return APART
            found = OVERLAPPING
        return found


def _is_bounded(box: Any) -> bool:
    """Whether a set of numbers has a first and a last one; infinities are handles."""
    return type(box).__name__ == "IntervalSet" and "handle" not in (str(box.min_value.dtype), str(box.max_value.dtype))


def _mentions(expr: Any, variable: Any) -> bool:
    from tvm import tirx

    found: list[Any] = []
    tirx.stmt_functor.post_order_visit(
        tirx.Evaluate(expr), lambda one: found.append(one) if one.same_as(variable) else None
    )
    return bool(found)


@dataclass(frozen=True, slots=True)
class Access:
    """What a statement does to memory that threads share.

    Attributes:
        memory: its data variable.
        how: READ, WRITTEN or COUNTED (by an atomic).
        place: which elements, or None where that is no box.
        stmt: the statement.
        moves: how the place depends on loops; None for what is read.
        by_one: by a thread that does all such statements, in their order.
        in_bulk: perhaps by the bulk copy engine.
        on_chip: in shared memory, where TileLang orders reads and writes, and only writes are looked at.
        rounds: in a round before this one, of these loops.
    """

    memory: Any
    how: str
    place: Place | None
    stmt: Any
    moves: Moves | None = None
    by_one: bool = False
    in_bulk: bool = False
    on_chip: bool = False
    rounds: tuple[Round, ...] = ()

    def same_as(self, other: Access) -> bool:
        if (self.how, self.by_one, *map(id, self.rounds)) != (other.how, other.by_one, *map(id, other.rounds)):
            return False
        if not (self.stmt.same_as(other.stmt) and self.memory.same_as(other.memory)):
            return False
        if self.place is None or other.place is None:
            return self.place is other.place
        return self.place.same_as(other.place)

    def conflicts(self, later: Access, *, in_bulk: bool = False) -> bool:
        """Whether a barrier belongs between the two; with `in_bulk`, whether the bulk copy engine may do neither.

        A statement that writes in every round is taken to write other places, or the same by the same threads, unless
        its places are seen to overlap.
        """
        if (self.by_one and later.by_one) or later.how not in _CONFLICTS[self.how]:
            return False
        if not self.memory.same_as(later.memory):
            return False
        if self.on_chip and not self.how == later.how == WRITTEN:
            return False
        if in_bulk and (self.on_chip or not (self.in_bulk or later.in_bulk)):
            return False
        written = self.how == later.how == WRITTEN
        if written and self.stmt.same_as(later.stmt):
            if self.moves is None:
                return False
            moves = [self.moves.between(one) for one in self.rounds]
            return OVERLAPPING in moves or (in_bulk and SAME in moves)
        if self.place is None or later.place is None or (self.rounds and not written):
            return True
        return not (self.place.apart(later.place) or self.place.by_the_same_threads(later.place))


def unordered(view: View) -> Iterator[tuple[Stmt, Storage]]:
    """Statements of a block that touch memory which the block also writes: what :func:`ordered` looks at.

    All that is inside a `T.Parallel` is one statement. Of a kernel that orders its own threads it is what copies touch,
    which the bulk copy engine may do.
    """
    for launch in view.launches:
        touched = [(stmt, *_effects(stmt)) for stmt in _units(launch.body)]
        writers = Counter(storage for _, _, writes in touched for storage in writes)
        again = rewritten(launch)
        copied = {
            storage
            for stmt, *effects in touched
            if isinstance(stmt, Copy | Im2Col)
            for storage in set().union(*effects)
        }
        for stmt, reads, writes in touched:
            # What an opaque statement or call does to memory is seen in TIR alone.
            known = reads | writes | (set(writers) if _hides_accesses(stmt) else set())
            for storage in sorted(known, key=lambda one: one.name):
                if launch.uses_threads and storage not in copied:
                    continue
                writes_it = storage in writes
                others = writers[storage] - writes_it if writes_it or storage.scope is Scope.GLOBAL else 0
                alone = writes_it and not isinstance(stmt, Parallel) and (storage in reads or _is_atomic(stmt))
                if others or alone or (id(stmt), storage) in again:
                    yield stmt, storage


def _is_atomic(stmt: Stmt) -> bool:
    return isinstance(stmt, AtomicElement) or any(isinstance(one, AtomicExpr) for one in expressions(stmt))


def _hides_accesses(stmt: Stmt) -> bool:
    """Whether a unit holds an opaque statement, or an opaque call that is given an address or is of a function by name.

    The view has both as text. Other calls are of values: a shuffle touches no memory.
    """
    inside = statements(stmt) if isinstance(stmt, Parallel) else (stmt,)
    return any(isinstance(one, OpaqueStmt) or any(map(_is_given_text, expressions(one))) for one in inside)


def _is_given_text(expr: Expr) -> bool:
    return isinstance(expr, OpaqueExpr) and any(isinstance(argument, str) for argument in expr.args)


def _units(body: Sequence[Stmt]) -> Iterator[Stmt]:
    for stmt in body:
        yield stmt
        if not isinstance(stmt, Parallel):
            yield from _units(children(stmt))


def _effects(stmt: Stmt) -> tuple[set[Storage], set[Storage]]:
    """Memory of all threads that a unit reads and writes; what it only counts in (atomics) is written."""
    reads: set[Storage] = set()
    writes: set[Storage] = set()
    for one in statements(stmt) if isinstance(stmt, Parallel) else (stmt,):
        read, written = ({b.storage for b in buffers if b.scope in _SCOPES} for buffers in statement_effects(one))
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

    owners = _owners(prim_func.body)
    found = _Order(threaded, owners)
    found.visit(prim_func.body, _Pending())
    bulk = _Order(threaded, owners, in_bulk=True)
    bulk.visit(prim_func.body, _Pending())
    memories = [*found.memories, *(one for one in bulk.memories if not _held(found.memories, one))]
    result = Ordered(prim_func, memories, found.loops, changed=bool(found.before or found.alone or memories))
    if not result.changed:
        return result

    def barrier() -> Any:
        return tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_storage_sync", "shared"))

    def put(stmt: Any) -> Any:
        behind = _held(found.before, stmt)
        by_one = _held(found.alone, stmt)
        plain = _without_bulk_atomics(stmt, memories)
        if not behind and not by_one:
            return plain
        stmt = stmt if plain is None else plain
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
    """Accesses of memory since the block's last barrier, each once."""

    def __init__(self, accesses: Sequence[Access] = ()) -> None:
        self.accesses = list(accesses)

    def add(self, accesses: Sequence[Access]) -> None:
        read = _read_on_chip(accesses)
        self.accesses = [one for one in self.accesses if not _held(read, one.memory)]
        self.accesses += [one for one in accesses if not any(one.same_as(known) for known in self.accesses)]

    def conflicting(self, accesses: Sequence[Access], *, in_bulk: bool = False) -> list[Any]:
        """Memory that these may not touch before a barrier; with `in_bulk`, that no bulk copy may touch."""
        read = _read_on_chip(accesses)
        return [
            one.memory
            for one in accesses
            if not _held(read, one.memory) and any(known.conflicts(one, in_bulk=in_bulk) for known in self.accesses)
        ]


def _read_on_chip(accesses: Sequence[Access]) -> list[Any]:
    """Shared memory that is read: TileLang puts a barrier behind the write before it, and in front of the next one."""
    return [one.memory for one in accesses if one.on_chip and one.how != WRITTEN]


class _Order:
    """Walks a block's statements as they run, loops twice: what a round leaves behind meets the next one.

    Args:
        threaded: of each launch, whether it reads thread indices.
        owners: fragments whose elements are one thread's each.
        in_bulk: looks for the memory that no bulk copy may touch, which barriers make no difference to, and not for
            where barriers belong.
    """

    def __init__(self, threaded: Sequence[bool], owners: list[Any], *, in_bulk: bool = False) -> None:
        self._threaded = iter(threaded)
        self._owners = owners
        self._in_bulk = in_bulk
        self._inside = False  # of a launch
        self._location: Location | None = None
        self._rounds_at = 0  # loops around the statement whose rounds come one after the other
        self._conditions = 0  # around the statement, in the launch
        self._values: dict[Any, Any] = {}  # what `Bind`s stand for
        self._loops: dict[Any, Round] = {}
        self.before: list[Any] = []  # statements, conditions and loops' variables that come behind a barrier
        self.alone: list[Any] = []  # stores that one thread does
        self.loops: list[Any] = []
        self.memories: list[Any] = []

    def visit(self, stmt: Any, pending: _Pending) -> None:
        kind = type(stmt).__name__
        self._location = statement_location(stmt) or self._location
        if kind == "SeqStmt":
            for one in stmt.seq:
                self.visit(one, pending)
        elif kind in ("SBlockRealize", "SBlock", "AttrStmt"):
            self.visit(stmt.block if kind == "SBlockRealize" else stmt.body, pending)
        elif kind == "For" and not _is_parallel(stmt):
            self._loop(stmt, pending)
        elif kind == "While":
            self._rounds(Round(None), stmt.body, pending, stmt.condition)
        elif kind == "IfThenElse":
            self._meet(stmt.condition, self._accesses(stmt.condition), pending)
            other = _Pending(pending.accesses)
            self._conditions += 1
            self.visit(stmt.then_case, pending)
            if stmt.else_case is not None:
                self.visit(stmt.else_case, other)
            self._conditions -= 1
            pending.add(other.accesses)
        elif _is_barrier(stmt):
            # The engine's copies are not waited for. Behind a barrier of the grid other blocks' are to be seen as well.
            grid = _called(stmt) == _SYNC_GRID
            kept = [replace(one, place=None) if grid else one for one in pending.accesses]
            pending.accesses = kept if self._in_bulk else []
        else:
            self._leaf(stmt, pending)

    def _accesses(self, node: Any) -> list[Access]:
        # A store is done by one thread, and all that is in a T.Parallel by a thread each.
        if type(node).__name__ not in ("BufferStore", "For", "Evaluate") and _yields(node):
            raise UnsupportedOp(
                "an atomic whose old value is used, outside of T.Parallel: every thread would do one of its own",
                hint="store the value, `slot[0] = T.atomic_add(..., return_prev=True)` with slot = "
                "T.alloc_shared((1,), dtype), and use slot[0]",
                location=self._location,
            )
        return accesses(node, self._owners, self._values, conditional=self._conditions > 0)

    def _loop(self, stmt: Any, pending: _Pending) -> None:
        if str(stmt.kind) == str(_kinds().THREAD_BINDING):
            self._launch(stmt, pending)
            return
        # One barrier in front of the loop, so that inside only what rounds do to each other counts.
        touched = self._accesses(stmt)
        inside = _statements(stmt)
        before = _Pending([one for one in pending.accesses if not _held(inside, one.stmt)])
        if not self._in_bulk and before.conflicting(touched):
            self._wait(stmt.loop_var, touched, before)
            pending.accesses = []
        barriers = len(self.before) + len(self.alone)
        if stmt.loop_var not in self._loops:
            once = getattr(stmt.extent, "value", 2) == 1
            self._loops[stmt.loop_var] = Round(None if once else stmt.loop_var, tuple(_spread(stmt.body).items()))
        serial = "num_stages" not in stmt.annotations
        self._rounds_at += serial
        self._rounds(self._loops[stmt.loop_var], stmt.body, pending)
        self._rounds_at -= serial
        if len(self.before) + len(self.alone) > barriers and "num_stages" in stmt.annotations:
            self.loops.append(stmt.loop_var)

    def _rounds(self, loop: Round, body: Any, pending: _Pending, condition: Any = None) -> None:
        """Two rounds of a loop: what the first leaves behind is what every later one meets."""
        outside = list(pending.accesses)
        for _ in range(2):
            if condition is not None:
                self._meet(condition, self._accesses(condition), pending)
            self.visit(body, pending)
            pending.accesses = [
                one
                if any(one is known for known in outside) or loop in one.rounds
                else replace(one, rounds=(*one.rounds, loop))
                for one in pending.accesses
            ]

    def _launch(self, stmt: Any, pending: _Pending) -> None:
        """One axis of a launch's grid. Nothing is left behind between launches."""
        if self._inside:
            self.visit(stmt.body, pending)
            return
        self._inside = True
        if not next(self._threaded, False) or self._in_bulk:
            self.visit(stmt.body, _Pending())
        self._inside = False

    def _leaf(self, stmt: Any, pending: _Pending) -> None:
        if type(stmt).__name__ == "Bind" and _is_fixed(stmt.value):
            from tvm import tirx

            self._values[stmt.var] = tirx.stmt_functor.substitute(stmt.value, self._values)
        touched = self._accesses(stmt)
        if not self._in_bulk and not _held(self.alone, stmt) and self._is_for_one(stmt, touched, pending):
            self.alone.append(stmt)
        if _held(self.alone, stmt):
            touched = [replace(one, by_one=True) for one in touched]
        self._meet(stmt, touched, pending)

    def _is_for_one(self, stmt: Any, touched: Sequence[Access], pending: _Pending) -> bool:
        """Whether one thread is to do a statement that every thread does."""
        if type(stmt).__name__ == "BufferStore" and _is_tracked(stmt.buffer):
            counts = _yields(stmt) or any(one.how == READ and one.memory.same_as(stmt.buffer.data) for one in touched)
            # Done by one, it may be ordered like others in global memory. What all store on the chip is the same.
            return counts or (_is_global(stmt.buffer) and bool(pending.conflicting(touched)))
        return _called(stmt) in _ATOMIC_ELEMENTS

    def _meet(self, node: Any, touched: Sequence[Access], pending: _Pending) -> None:
        if self._in_bulk:
            shared = pending.conflicting(touched, in_bulk=True)
            self.memories += [one for one in shared if not _held(self.memories, one)]
        elif _held(self.before, node) or pending.conflicting(touched) or (self._rounds_at and _crosses(node)):
            # Around a loop over one statement of fewer elements than threads TileLang puts the condition of who takes
            # part, where it finds no place for the barrier that the rounds need.
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


def accesses(
    node: Any, owners: Sequence[Any] = (), values: Mapping[Any, Any] = _NO_VALUES, *, conditional: bool = False
) -> list[Access]:
    """What a statement or an expression does to memory that threads share, each access once.

    Args:
        owners: fragments whose elements are one thread's each.
        values: what variables bound before stand for.
        conditional: whether the statement may be skipped.
    """
    from tvm import arith, tirx

    found = _Pending()
    plain: list[Any] = []
    named: list[Any] = []  # loads that only say where something is
    spread = _spread(node)
    name = _called(node)
    in_bulk = name in _COPIES or (name in _ATOMIC_TILES and bool((node.value.annotations or {}).get(_USE_TMA, 0)))
    fragment = _copied_fragment(node, owners)

    def add(buffer: Any, how: str, place: Place | None, indices: Sequence[Any], extents: Sequence[Any]) -> None:
        if not _is_tracked(buffer):
            return
        fixed = place is not None and place.is_fixed()
        moves = None
        if how == WRITTEN and fixed:
            full = tuple(tirx.stmt_functor.substitute(index, dict(values)) for index in indices)
            moves = Moves(full, tuple(extents), tuple(spread.items()), conditional)
        found.add(
            [
                Access(
                    buffer.data,
                    how,
                    place if fixed else None,
                    node,
                    moves,
                    in_bulk=in_bulk,
                    on_chip=not _is_global(buffer),
                )
            ]
        )

    def element(one: Any, how: str) -> None:
        if any(type(index).__name__ in ("Ramp", "Broadcast") for index in one.indices):
            add(one.buffer, how, None, (), ())
            return
        boxes = [arith.Analyzer().int_set(index, spread) for index in one.indices]
        place = None
        if all(map(_is_bounded, boxes)):
            place = Place(
                one.buffer,
                tuple(box.min_value for box in boxes),
                tuple(box.max_value - box.min_value + 1 for box in boxes),
            )
        add(one.buffer, how, place, one.indices, [1] * len(one.indices))

    def visit(one: Any) -> None:
        kind = type(one).__name__
        if kind == "BufferLoad":
            plain.append(one)
        elif kind == "BufferStore":
            element(one, WRITTEN)
        elif kind == "Call":
            where, ways = _pointed(one)
            if where is not None:
                named.append(where)
                place = None
                extents = one.args[2:] if is_region(one) else ()
                if is_region(one):
                    mins = tuple(tirx.stmt_functor.substitute(index, dict(values)) for index in where.indices)
                    place = Place(where.buffer, mins, tuple(extents), fragment)
                for how in ways:
                    add(where.buffer, how, place, where.indices, extents)

    tirx.stmt_functor.post_order_visit(node, visit)
    for one in plain:
        if not _held(named, one):
            element(one, READ)
    return found.accesses


def _statements(loop: Any) -> list[Any]:
    """The statements in a loop, and the conditions that it asks."""
    from tvm import tirx

    found: list[Any] = []

    def visit(one: Any) -> None:
        if type(one).__name__ in ("IfThenElse", "While"):
            found.append(one.condition)
        elif isinstance(one, tirx.Stmt):
            found.append(one)

    tirx.stmt_functor.post_order_visit(loop.body, visit)
    return found


def _spread(node: Any) -> dict[Any, Any]:
    """The variables of loops inside a statement, with the values that they take."""
    from tvm import arith, tirx

    found: dict[Any, Any] = {}

    def visit(one: Any) -> None:
        if type(one).__name__ == "For":
            found[one.loop_var] = arith.IntervalSet(one.min, one.min + one.extent - 1)

    tirx.stmt_functor.post_order_visit(node, visit)
    return found


def _is_fixed(expr: Any) -> bool:
    """Whether an expression reads no memory, so that its value is what its text says."""
    from tvm import tirx

    found: list[Any] = []
    tirx.stmt_functor.post_order_visit(
        tirx.Evaluate(expr), lambda one: found.append(one) if type(one).__name__ == "BufferLoad" else None
    )
    return not found


def _owners(body: Any) -> list[Any]:
    """Fragments, by data variable, of which each element is one thread's and no other has it too.

    That is so of a product's sums. Of others TileLang gives each thread a share where there are enough for all, unless
    a loop needs an element in several of its iterations.
    """
    from tvm import tirx

    threads = [_THREADS]
    fragments: list[Any] = []
    sums: list[Any] = []
    shared: list[Any] = []

    def visit(one: Any) -> None:
        kind = type(one).__name__
        if kind == "SBlock":
            given = one.annotations.get("tl.launch_threads")
            threads.extend([prod(int(axis) for axis in given)] if given is not None else [])
            fragments.extend(buffer for buffer in one.alloc_buffers if buffer.scope() == _FRAGMENT)
        elif kind == "Call" and "gemm" in str(getattr(one.op, "name", "")):
            sums.append(one.args[2].args[0].buffer.data)
        elif kind == "For" and _is_parallel(one):
            variables = list(_spread(one))
            tirx.stmt_functor.post_order_visit(one, lambda inner: note(inner, variables))

    def note(one: Any, variables: Sequence[Any]) -> None:
        if type(one).__name__ not in ("BufferLoad", "BufferStore") or one.buffer.scope() != _FRAGMENT:
            return
        if not all(any(_follows(index, variable) for index in one.indices) for variable in variables):
            shared.append(one.buffer.data)

    tirx.stmt_functor.post_order_visit(body, visit)

    def dealt(fragment: Any) -> bool:
        sizes = [int(size) if isinstance(size, tirx.IntImm) else 0 for size in fragment.shape]
        return len(sizes) > 1 and prod(sizes) >= max(threads) and not _held(shared, fragment.data)

    return [*sums, *(fragment.data for fragment in fragments if dealt(fragment))]


def _follows(index: Any, variable: Any) -> bool:
    """Whether an index is a variable, shifted or turned round."""
    from tvm import arith

    rests = (arith.Analyzer().simplify(rest) for rest in (index - variable, index + variable))
    return any(not _mentions(rest, variable) for rest in rests)


def _copied_fragment(stmt: Any, owners: Sequence[Any]) -> Any:
    """The fragment that a copy fills or stores, by its data variable, if its elements are one thread's each."""
    if _called(stmt) != "tl.tileop.copy":
        return None
    sides = [side.args[0].buffer for side in stmt.value.args[:2] if is_region(side)]
    return next((side.data for side in sides if side.scope() == _FRAGMENT and _held(list(owners), side.data)), None)


def _without_bulk_atomics(stmt: Any, memories: Sequence[Any]) -> Any:
    """An atomic update of a tile in these memories, by threads; None for other statements."""
    from tvm import tirx

    if _called(stmt) not in _ATOMIC_TILES or not (stmt.value.annotations or {}).get(_USE_TMA, 0):
        return None
    call = stmt.value
    if not any(is_region(side) and _held(list(memories), side.args[0].buffer.data) for side in call.args):
        return None
    annotations = {key: value for key, value in call.annotations.items() if str(key) != _USE_TMA}
    return with_span(tirx.Evaluate(tirx.Call(call.dtype, call.op, call.args, annotations)), stmt)


def _crosses(stmt: Any) -> bool:
    """Whether a `T.Parallel` reads other elements of shared memory than it writes: those of the round before."""
    from tvm import ir, tirx

    if type(stmt).__name__ != "For":
        return False
    found: dict[str, list[Any]] = {"BufferLoad": [], "BufferStore": []}

    def visit(one: Any) -> None:
        if type(one).__name__ in found and _is_tracked(one.buffer) and not _is_global(one.buffer):
            found[type(one).__name__].append(one)

    tirx.stmt_functor.post_order_visit(stmt, visit)
    return any(
        load.buffer.data.same_as(store.buffer.data)
        and not (
            load.buffer.same_as(store.buffer)
            and all(ir.structural_equal(a, b) for a, b in zip(load.indices, store.indices, strict=True))
        )
        for store in found["BufferStore"]
        for load in found["BufferLoad"]
    )


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


def _is_tracked(buffer: Any) -> bool:
    return _is_global(buffer) or buffer.scope() in ("shared", "shared.dyn")


def _is_parallel(loop: Any) -> bool:
    """Whether a loop is one statement: its rounds are spread over threads, or are one access."""
    kinds = _kinds()
    return str(loop.kind) in (str(kinds.PARALLEL), str(kinds.VECTORIZED))


def _kinds() -> Any:
    from tvm import tirx

    return tirx.ForKind


def _is_barrier(stmt: Any) -> bool:
    """A barrier of the whole block, or of the grid."""
    name = _called(stmt)
    return (name == "tirx.tvm_storage_sync" and len(stmt.value.args) == 1) or name == _SYNC_GRID


def _yields(node: Any) -> bool:
    """Whether a statement or an expression uses the old value of an atomic."""
    from tvm import tirx

    found: list[Any] = []
    tirx.stmt_functor.post_order_visit(
        node if isinstance(node, tirx.Stmt) else tirx.Evaluate(node),
        lambda one: found.append(one) if isinstance(one, tirx.Call) and _name(one) in _YIELDING else None,
    )
    return bool(found)


def _name(call: Any) -> str:
    return str(getattr(call.op, "name", ""))


def _called(stmt: Any) -> str:
    """The operation that an `Evaluate` calls; empty for anything else."""
    call: Any = getattr(stmt, "value", None) if type(stmt).__name__ == "Evaluate" else None
    return "" if call is None or not hasattr(call, "op") else _name(call)


def _marked(stmt: Any) -> Any:
    """What stands in :attr:`_Order.before` for a statement that holds others, which may have changed since."""
    kind = type(stmt).__name__
    return stmt.condition if kind in ("IfThenElse", "While") else stmt.loop_var if kind == "For" else None


def _held(nodes: list[Any], node: Any) -> bool:
    return any(node.same_as(one) for one in nodes)
