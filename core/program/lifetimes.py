"""How long each buffer of a launch is in use, and the peak of bytes that follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from core.errors import Location
from core.program import walk
from core.program.effects import statement_effects
from core.program.evaluate import Environment, evaluate
from core.program.expressions import dtype_bits
from core.program.nodes import Buffer, Copy, For, Im2Col, Launch, LoopKind, Scope, Stmt, Storage, While


@dataclass(frozen=True, slots=True)
class BufferUse:
    """One allocation of a launch.

    Attributes:
        buffer: the buffer as declared (views of it share its memory and are not listed).
        scope: TileLang's scope string, as `Chip.memory_for_scope` takes it.
        bytes: of one version; None when the shape depends on a symbolic dimension without a value.
        versions: copies of it kept at once: the stages of the pipelined loop that fills it, else 1.
        first, last: positions, in statement order, between which its contents matter; None when it is never used.
    """

    buffer: Buffer
    scope: str
    bytes: int | None
    versions: int
    first: int | None
    last: int | None

    @property
    def total_bytes(self) -> int | None:
        """Bytes of all versions."""
        return None if self.bytes is None else self.bytes * self.versions

    @property
    def location(self) -> Location | None:
        return self.buffer.location


def buffer_bytes(buffer: Buffer, environment: Environment) -> int | None:
    """Bytes a buffer covers; None when a symbolic dimension has no value."""
    shape = [evaluate(extent, environment) for extent in buffer.shape]
    if any(extent is None for extent in shape):
        return None
    return (prod(extent for extent in shape if extent is not None) * dtype_bits(buffer.dtype) + 7) // 8


def buffer_uses(launch: Launch, environment: Environment) -> tuple[BufferUse, ...]:
    """Every allocation of a launch with its size and lifetime, in declaration order."""
    intervals = _Intervals(launch)
    uses: dict[int, BufferUse] = {}
    for buffer in launch.buffers:
        size = buffer_bytes(buffer, environment)
        key = id(buffer.storage)
        known = uses.get(key)
        if known is not None:
            if known.bytes is not None and size is not None:
                uses[key] = replace(known, bytes=max(known.bytes, size))
            continue
        first, last = intervals.of(buffer.storage)
        scope = buffer.storage.tilelang_scope
        uses[key] = BufferUse(buffer, scope, size, intervals.versions.get(key, 1), first, last)
    return tuple(uses.values())


class _Intervals:
    """First and last position of each storage's use, loops taken into account."""

    def __init__(self, launch: Launch) -> None:
        self._position = 0
        self._found: dict[int, tuple[int, int]] = {}
        self._shared: set[int] = set()
        self.versions: dict[int, int] = {}
        for stmt in launch.body:
            start = self._position
            self._visit(stmt)
            self._whole(start, self._position - 1)

    def of(self, storage: Storage) -> tuple[int | None, int | None]:
        return self._found.get(id(storage), (None, None))

    def _visit(self, stmt: Stmt) -> None:
        start = self._position
        self._position += 1
        reads, writes = statement_effects(stmt)
        for buffer in (*reads, *writes):
            self._extend(id(buffer.storage), start, start)
            if buffer.scope is Scope.SHARED:
                self._shared.add(id(buffer.storage))
        before = dict(self._found)
        for child in walk.children(stmt):
            self._visit(child)
        end = self._position - 1
        if isinstance(stmt, For | While):
            carried = self._carried(stmt)
            for key, (first, last) in list(self._found.items()):
                inside = last > start
                if inside and (key in before or key in carried):
                    self._extend(key, min(first, start), end)
            if isinstance(stmt, For) and stmt.kind is LoopKind.PIPELINED:
                self._pipelined(stmt, start, end)

    def _whole(self, start: int, end: int) -> None:
        """TileLang reuses shared memory between the statements of a block, not between parts of a loop or a branch."""
        for key in self._shared:
            first, last = self._found[key]
            if first <= end and last >= start:
                self._extend(key, start, end)

    def _pipelined(self, loop: For, start: int, end: int) -> None:
        """Shared buffers that copies fill inside a pipelined loop are in use throughout, once per stage."""
        for stmt in loop.body:
            if (
                isinstance(stmt, Copy | Im2Col)
                and stmt.dst.buffer.scope is Scope.SHARED
                and stmt.src.buffer.scope is Scope.GLOBAL
            ):
                key = id(stmt.dst.buffer.storage)
                self.versions[key] = max(self.versions.get(key, 1), loop.num_stages)
                self._extend(key, start, end)

    @staticmethod
    def _carried(loop: Stmt) -> set[int]:
        """Storages that an iteration may read before it writes them: what the last iteration left matters."""
        written: set[int] = set()
        carried: set[int] = set()
        for stmt in walk.statements(walk.children(loop)):
            reads, writes = statement_effects(stmt)
            carried.update(id(buffer.storage) for buffer in reads if id(buffer.storage) not in written)
            written.update(id(buffer.storage) for buffer in writes)
        return carried

    def _extend(self, key: int, first: int, last: int) -> None:
        known = self._found.get(key, (first, last))
        self._found[key] = (min(known[0], first), max(known[1], last))


def peak_bytes(uses: Iterable[BufferUse]) -> int | None:
    """The most bytes in use at one position, when buffers whose lifetimes do not overlap share memory."""
    sized = [use for use in uses if use.first is not None]
    if any(use.total_bytes is None for use in sized):
        return None
    positions = {use.first for use in sized}
    return max((_bytes_at(sized, position) for position in positions if position is not None), default=0)


def _bytes_at(uses: Iterable[BufferUse], position: int) -> int:
    total = 0
    for use in uses:
        if use.first is not None and use.last is not None and use.first <= position <= use.last:
            total += use.total_bytes or 0
    return total


def sum_bytes(uses: Iterable[BufferUse]) -> int | None:
    """Bytes when every buffer that is used has memory of its own."""
    total = 0
    for use in uses:
        if use.first is None:
            continue
        if use.total_bytes is None:
            return None
        total += use.total_bytes
    return total


def with_stages(uses: Iterable[BufferUse], stages: int) -> tuple[BufferUse, ...]:
    """The same buffers when no pipelined loop has more than `stages` stages."""
    return tuple(replace(use, versions=max(1, min(use.versions, stages))) for use in uses)


def by_scope(uses: Iterable[BufferUse]) -> Mapping[str, tuple[BufferUse, ...]]:
    """Uses grouped by TileLang scope."""
    groups: dict[str, tuple[BufferUse, ...]] = {}
    for use in uses:
        groups[use.scope] = (*groups.get(use.scope, ()), use)
    return groups
