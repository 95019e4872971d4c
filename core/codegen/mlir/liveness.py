"""Which buffers a loop must carry and a branch must yield: liveness of storages over the view's statements."""

from __future__ import annotations

from collections.abc import Iterable

from core.program.effects import statement_effects
from core.program.expressions import constant_int
from core.program.nodes import (
    Buffer,
    Const,
    Copy,
    Expr,
    Fill,
    For,
    Gemm,
    If,
    Im2Col,
    Launch,
    Load,
    Parallel,
    Reduce,
    ReducerFinalize,
    ReducerInit,
    Region,
    Scan,
    Scope,
    Stmt,
    Storage,
    Store,
    Transpose,
    Var,
    While,
)
from core.program.walk import statements, subexpressions

Storages = frozenset[Storage]
_NONE: Storages = frozenset()


def is_on_chip(buffer: Buffer) -> bool:
    return buffer.scope is not Scope.GLOBAL


def written(body: Iterable[Stmt]) -> Storages:
    """On-chip storages that statements (and what is inside them) write."""
    found: set[Storage] = set()
    for stmt in statements(tuple(body)):
        found.update(buffer.storage for buffer in statement_effects(stmt)[1] if is_on_chip(buffer))
    return frozenset(found)


class Liveness:
    """Storages whose contents are needed after each loop and branch, and those a loop's body reads before writing."""

    def __init__(self, launch: Launch) -> None:
        self._after: dict[int, Storages] = {}
        self._exposed: dict[int, Storages] = {}
        self._sizes: dict[Storage, Buffer] = {}
        for buffer in launch.buffers:
            self._sizes.setdefault(buffer.storage, buffer)
        self._before(launch.body, _NONE)

    def after(self, stmt: Stmt) -> Storages | None:
        """What is needed after a loop or branch; None for a statement the launch does not contain."""
        return self._after.get(id(stmt))

    def exposed(self, stmt: Stmt) -> Storages | None:
        """What an iteration of a loop reads before it has written all of it."""
        return self._exposed.get(id(stmt))

    def needed(self, body: tuple[Stmt, ...]) -> Storages:
        """What statements read before they have written all of it, whatever follows them."""
        kept = dict(self._after), dict(self._exposed)
        found = self._before(body, _NONE)
        self._after, self._exposed = kept
        return found

    def _before(self, body: tuple[Stmt, ...], live: Storages) -> Storages:
        for stmt in reversed(body):
            live = self._before_one(stmt, live)
        return live

    def _before_one(self, stmt: Stmt, live: Storages) -> Storages:
        reads = frozenset(buffer.storage for buffer in statement_effects(stmt)[0] if is_on_chip(buffer))
        match stmt:
            case For(body=body) | While(body=body):
                self._after[id(stmt)] = live
                exposed = self._before(body, _NONE)
                if isinstance(stmt, While):
                    exposed |= reads
                self._exposed[id(stmt)] = exposed
                self._before(body, live | exposed)
                return live | exposed | reads
            case If(then=then, otherwise=otherwise):
                self._after[id(stmt)] = live
                return self._before(then, live) | self._before(otherwise, live) | reads
            case Parallel(body=body):
                inside = self._before(body, live)
                whole = {s.buffer.storage for s in body if isinstance(s, Store) and self._covers_all(stmt, s)}
                used = {
                    buffer.storage
                    for inner in statements(body)
                    for buffer in statement_effects(inner)[0]
                    if is_on_chip(buffer)
                }
                return (inside - (whole - used)) | used | reads
        killed = self._killed(stmt)
        return (live - ({killed} if killed is not None else set())) | reads

    def _covers_all(self, loop: Parallel, store: Store) -> bool:
        if len(store.indices) != len(loop.vars) or store.buffer is not self._sizes.get(store.buffer.storage):
            return False
        extents = {id(var): extent for var, extent in zip(loop.vars, loop.extents, strict=True)}
        seen = set()
        for index, size in zip(store.indices, store.buffer.shape, strict=True):
            if not isinstance(index, Var) or id(index) in seen or not same_extent(extents.get(id(index)), size):
                return False
            seen.add(id(index))
        return True

    def _killed(self, stmt: Stmt) -> Storage | None:
        """The storage a statement overwrites wholly, if it does."""
        region: Region | None = None
        match stmt:
            case Copy(dst=dst, dst_guard=()) | Fill(dst=dst, guard=()) | ReducerInit(dst=dst):
                region = dst
            case Reduce(dst=dst, clear=True) | Scan(dst=dst) | Transpose(dst=dst) | Im2Col(dst=dst):
                region = dst
            case ReducerFinalize(dst=dst, src=src) if src.buffer is not dst.buffer:
                region = dst
            case Gemm(c=c, clear=Const(value=value)) if value:
                region = c
            case Store(buffer=buffer, guard=()) if all(constant_int(extent) == 1 for extent in buffer.shape):
                if not any(isinstance(e, Load) and e.buffer is buffer for e in subexpressions(stmt.value)):
                    return buffer.storage if is_on_chip(buffer) else None
                return None
        if region is None or region.buffer is not self._sizes.get(region.buffer.storage):
            return None
        return region.buffer.storage if is_whole(region) else None


def is_whole(region: Region) -> bool:
    """Whether a region is provably its whole buffer."""
    return all(isinstance(low, Const) and low.value == 0 for low in region.mins) and all(
        same_extent(extent, size) for extent, size in zip(region.extents, region.buffer.shape, strict=True)
    )


def same_extent(a: Expr | None, b: Expr | None) -> bool:
    """Whether two extents are the same expression or number."""
    if a is None or b is None:
        return False
    return a == b or (constant_int(a) is not None and constant_int(a) == constant_int(b))
