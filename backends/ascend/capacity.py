"""What a launch needs of UB, L1 and L0C, told before the vendor's compiler runs.

The compiler decides which memory a buffer lives in and adds copies of its own. The rules here were read off its memory
plans over a sweep of tile sizes (scripts/ascend_capacity_sweep.py; docs/ascend.md explains them). They count the least
it was seen to get by with: what is refused here does not fit, what is accepted is judged by the compiler itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from math import prod
from typing import Any

from backends.ascend.toolchain import is_a5
from core.errors import Location, ResourceExceeded
from core.hardware import Chip
from core.program import (
    AtomicTile,
    Buffer,
    Const,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Launch,
    Load,
    Parallel,
    Reduce,
    Region,
    Scope,
    Stmt,
    Storage,
    Store,
    While,
)

_BYTES = {"bool": 1, "float64": 8, "int64": 8, "uint64": 8, "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2}
_TITLES = {"ub": "UB (a vector core's buffer)", "l1": "L1 (operands of products)", "l0c": "L0C (accumulators)"}
#: A cube core moves 16 x 16 fractals.
_FRACTAL = 16
#: What the compiler adds for itself even to the smallest plan, bytes.
_OVERHEAD_BYTES = 32


@dataclass(frozen=True, slots=True)
class BufferNeed:
    """One on-chip buffer: its bytes, and the spaces it takes a place in."""

    buffer: Buffer
    shape: tuple[int, ...]
    bytes: int
    spaces: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """The buffer as JSON-able data."""
        location = self.buffer.location
        return {
            "name": self.buffer.name,
            "shape": list(self.shape),
            "dtype": self.buffer.dtype,
            "bytes": self.bytes,
            "spaces": list(self.spaces),
            "file": str(location.file) if location else None,
            "line": location.line if location else None,
        }


@dataclass(frozen=True, slots=True)
class Need:
    """What one launch needs.

    Attributes:
        kernel_type: `vector`, `cube` or `mix`: which kinds of core it uses.
        buffers: the on-chip buffers, in the order they are declared.
        bytes_needed: of `ub`, `l1` and `l0c`, at least.
    """

    kernel_type: str
    buffers: tuple[BufferNeed, ...]
    bytes_needed: Mapping[str, int]


def estimate(launch: Launch, chip: Chip) -> Need:
    """What `launch` needs on `chip`; a buffer whose shape is not known counts nothing."""
    return _Estimate(launch, chip).need()


def check(need: Need, chip: Chip) -> None:
    """Refuses what cannot fit.

    Raises:
        ResourceExceeded: the space, its buffers with their lines, and tile sizes that fit.
    """
    for space in ("l0c", "l1", "ub"):
        limit = chip.memory(space).capacity_bytes
        needed = need.bytes_needed.get(space, 0)
        if limit is None or needed <= limit:
            continue
        rows = [row for row in need.buffers if space in row.spaces]
        largest = max(rows, key=lambda row: row.bytes)
        table = "\n".join(
            f"  {row.buffer.name}: {' x '.join(map(str, row.shape))} {row.buffer.dtype}, {row.bytes:,} bytes"
            + (f", line {row.buffer.location.line}" if row.buffer.location else "")
            for row in rows
        )
        raise ResourceExceeded(
            f"{chip.target} has {limit:,} bytes of {_TITLES[space]}; this kernel needs at least {needed:,}, with the"
            f" compiler's own copies\n{table}",
            hint=f"it would fit with smaller tiles, for example {_fitting(largest, needed, limit)}",
            location=largest.buffer.location,
            details={
                "memory": space,
                "limit_bytes": limit,
                "needed_bytes": needed,
                "buffers": [row.record() for row in rows],
            },
        )


def _fitting(row: BufferNeed, needed: int, limit: int) -> str:
    """The largest extent of a buffer, halved until everything in proportion fits."""
    extents = list(row.shape)
    size = needed
    while size > limit and max(extents) > _FRACTAL:
        position = extents.index(max(extents))
        size = size * ((extents[position] + 1) // 2) // extents[position]
        extents[position] = (extents[position] + 1) // 2
    return f"{' x '.join(map(str, extents))} for {row.buffer.name}"


@dataclass(slots=True)
class _Estimate:
    launch: Launch
    chip: Chip
    buffers: dict[Storage, Buffer] = field(default_factory=dict)
    operands: set[Storage] = field(default_factory=set)
    accumulators: set[Storage] = field(default_factory=set)
    vector: set[Storage] = field(default_factory=set)
    gemms: list[Gemm] = field(default_factory=list)

    def need(self) -> Need:
        for buffer in self.launch.buffers:
            if buffer.scope is not Scope.GLOBAL:
                self.buffers.setdefault(buffer.storage, buffer)
        statements = list(_statements(self.launch.body))
        for stmt in statements:
            self._classify(stmt)
        kernel_type = "vector" if not self.gemms else "mix" if self._has_vector_work(statements) else "cube"
        needed = {"l1": self._l1(), "l0c": self._l0c(), "ub": self._ub(statements, kernel_type)}
        rows = []
        for storage, buffer in self.buffers.items():
            spaces = [name for name, found in (("l1", self.operands), ("l0c", self.accumulators)) if storage in found]
            if not spaces or storage in self.vector:
                spaces.append("ub")
            rows.append(BufferNeed(buffer, self._shape(buffer), self._bytes(buffer), tuple(spaces)))
        return Need(kernel_type, tuple(rows), needed)

    # ------------------------------------------------------------------------------------------------ where

    def _classify(self, stmt: Stmt) -> None:
        if isinstance(stmt, Gemm):
            self.gemms.append(stmt)
            self.operands |= {stmt.a.buffer.storage, stmt.b.buffer.storage}
            self.accumulators.add(stmt.c.buffer.storage)
        elif isinstance(stmt, Copy):
            # What the cube cores move themselves: global memory to L1, L0C to global memory.
            for region, other in ((stmt.src, stmt.dst), (stmt.dst, stmt.src)):
                if other.buffer.scope is not Scope.GLOBAL:
                    self.vector.add(region.buffer.storage)
        elif not isinstance(stmt, Fill | For | While | If):
            self.vector |= set(_touched(stmt))

    def _has_vector_work(self, statements: list[Stmt]) -> bool:
        used = {s for stmt in statements if not isinstance(stmt, For | While | If) for s in _touched(stmt)}
        return bool(used & self.vector or used - self.operands - self.accumulators) or any(
            isinstance(stmt, Parallel | AtomicTile) for stmt in statements
        )

    def _shape(self, buffer: Buffer) -> tuple[int, ...]:
        return tuple(int(e.value) if isinstance(e, Const) else 0 for e in buffer.shape)

    def _bytes(self, buffer: Buffer, dtype: str | None = None) -> int:
        name = dtype or buffer.dtype
        width = _BYTES.get(name, 4 if name.endswith("32") else 1)
        return prod(self._shape(buffer)) * width

    def _matrix_bytes(self, buffer: Buffer) -> int:
        """Bytes with the last two extents rounded up to whole fractals."""
        *outer, rows, columns = (1, 1, *self._shape(buffer))
        whole = prod(outer) * _up(rows) * _up(columns)
        # 8-bit floats are decoded to float16 before they multiply.
        dtype = "float16" if buffer.dtype.startswith("float8") else buffer.dtype
        return whole * _BYTES.get(dtype, 4 if dtype.endswith("32") else 1)

    # ------------------------------------------------------------------------------------------------ how much

    def _l1(self) -> int:
        """Every operand at once."""
        return sum(self._matrix_bytes(self.buffers[storage]) for storage in self.operands if storage in self.buffers)

    def _l0c(self) -> int:
        """Accumulators that stay there while a loop runs, and the largest of those vector cores take each time."""
        sizes = {s: self._matrix_bytes(self.buffers[s]) for s in self.accumulators if s in self.buffers}
        staying = sum(size for storage, size in sizes.items() if storage not in self.vector)
        passing = max((size for storage, size in sizes.items() if storage in self.vector), default=0)
        return staying + passing

    def _ub(self, statements: Iterable[Stmt], kernel_type: str) -> int:
        if kernel_type == "cube":
            return 0
        found = [stmt for stmt in statements if not isinstance(stmt, For | While | If | Gemm)]
        if kernel_type == "vector":
            return max((self._vector_statement(stmt) for stmt in found), default=0)
        return self._mix_950() if is_a5(self.chip) else self._mix_910b(found)

    def _tiles(self, stmt: Stmt) -> dict[Storage, int]:
        return {s: self._bytes(self.buffers[s]) for s in _touched(stmt) if s in self.buffers}

    def _vector_statement(self, stmt: Stmt) -> int:
        """The buffers a statement touches and the least the compiler adds.

        910B: results take the place of an operand; a reduction along rows halves its tile into a copy. 950: the result
        is a new tile, and so is a row vector that is repeated along the tile.
        """
        tiles = self._tiles(stmt)
        if not tiles:
            return 0
        largest = max(tiles.values())
        total = sum(tiles.values()) + _OVERHEAD_BYTES
        if is_a5(self.chip):
            if isinstance(stmt, Parallel) and self._rewrites(stmt, largest):
                total += largest
                total += largest if min(tiles.values()) < largest else 0
            return total
        if isinstance(stmt, Reduce) and stmt.dim == len(stmt.src.extents) - 1:
            total += largest // 2
        return total

    def _rewrites(self, stmt: Parallel, largest: int) -> bool:
        """Whether a loop stores to a tile it also reads, through more than a plain operation per element."""
        stored = {s.buffer.storage for s in _statements(stmt.body) if isinstance(s, Store)}
        read = set(_loaded(stmt))
        return any(s in read and s in self.buffers and self._bytes(self.buffers[s]) == largest for s in stored)

    def _passing(self) -> list[int]:
        """Accumulators that vector cores work on, float32 or int32, the half each of the two gets."""
        return [self._bytes(self.buffers[s]) // 2 for s in self.accumulators & self.vector if s in self.buffers]

    def _mix_950(self) -> int:
        """Accumulators come straight from L0C; each takes its tile, a result, a repeated row and half for a copy."""
        halves = self._passing()
        started = self._started_by_vector()
        eighths = 20 if started else 28 if len(halves) > 1 else 24
        return sum(halves) * eighths // 8

    def _started_by_vector(self) -> bool:
        """Whether a product adds to a tile that a parallel loop has just written (a mask)."""
        written = {
            inner
            for stmt in _statements(self.launch.body)
            if isinstance(stmt, For)
            for position, candidate in enumerate(stmt.body)
            if isinstance(candidate, Parallel) and any(isinstance(later, Gemm) for later in stmt.body[position:])
            for inner in _started(candidate)
        }
        return bool(written & self.accumulators)

    def _mix_910b(self, statements: Iterable[Stmt]) -> int:
        """Accumulators come through global memory: the old tile, the product and the sum are there at once."""
        carried = [
            self._bytes(self.buffers[gemm.c.buffer.storage]) // 2
            for gemm in self.gemms
            if gemm.c.buffer.storage in self.buffers and self._rescaled(gemm)
        ]
        needed = max((3 * size + _OVERHEAD_BYTES for size in carried), default=0)
        for stmt in statements:
            if isinstance(stmt, Parallel) and not carried and self._repeats_a_row(stmt):
                tile = max((size for s, size in self._tiles(stmt).items() if s in self.accumulators), default=0)
                needed = max(needed, tile * 5 // 2 + _OVERHEAD_BYTES)
        return needed

    def _rescaled(self, gemm: Gemm) -> bool:
        """Whether an accumulator lives through a loop that both multiplies into it and rewrites it in vector code."""
        storage = gemm.c.buffer.storage
        for loop in _statements(self.launch.body):
            if not isinstance(loop, For) or gemm not in loop.body:
                continue
            if any(storage in set(_started(stmt)) for stmt in loop.body):
                continue
            for stmt in loop.body:
                stored = {s.buffer.storage for s in _statements((stmt,)) if isinstance(s, Store)}
                if isinstance(stmt, Parallel) and storage in stored & set(_loaded(stmt)):
                    return True
        return False

    def _repeats_a_row(self, stmt: Parallel) -> bool:
        """Whether a vector along the last axis is repeated down a tile."""
        last = stmt.vars[-1]
        return len(stmt.vars) > 1 and any(
            isinstance(item, Load) and len(item.indices) == 1 and item.indices[0] is last for item in _expressions(stmt)
        )


def _up(extent: int) -> int:
    return -(-extent // _FRACTAL) * _FRACTAL


def _statements(body: Iterable[Stmt]) -> Iterator[Stmt]:
    for stmt in body:
        yield stmt
        if isinstance(stmt, If):
            then, otherwise = stmt.then, stmt.otherwise
            if isinstance(stmt.condition, Const):
                then, otherwise = (then, ()) if stmt.condition.value else ((), otherwise)
            yield from _statements((*then, *otherwise))
        elif isinstance(stmt, For | While | Parallel):
            yield from _statements(stmt.body)


def _expressions(item: object) -> Iterator[Any]:
    """Every expression below a statement or expression."""
    if isinstance(item, tuple):
        for part in item:
            yield from _expressions(part)
        return
    if not hasattr(item, "__dataclass_fields__") or isinstance(item, Buffer | Storage | Location):
        return
    yield item
    for part in fields(item):  # type: ignore[arg-type]  # any node of the view is a dataclass
        yield from _expressions(getattr(item, part.name))


def _loaded(stmt: Stmt) -> Iterator[Storage]:
    for item in _expressions(stmt):
        if isinstance(item, Load):
            yield item.buffer.storage


def _started(stmt: Stmt) -> Iterator[Storage]:
    """Storages a statement gives new contents, whatever they held."""
    if isinstance(stmt, Fill | Copy):
        yield stmt.dst.buffer.storage
    elif isinstance(stmt, Parallel):
        read = set(_loaded(stmt))
        for inner in _statements(stmt.body):
            if isinstance(inner, Store) and inner.buffer.storage not in read:
                yield inner.buffer.storage


def _touched(stmt: Stmt) -> Iterator[Storage]:
    """On-chip storages a statement mentions, what is inside it included."""
    for item in _expressions(stmt):
        if isinstance(item, Load | Region | Store) and item.buffer.scope is not Scope.GLOBAL:
            yield item.buffer.storage
