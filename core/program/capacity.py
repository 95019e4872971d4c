"""Whether a chip can hold and launch a program, before any compiler is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from core.errors import ResourceExceeded, TileHALError, UnsupportedOp
from core.program import walk
from core.program.footprint import Footprint, LaunchFootprint, memory_demand
from core.program.lifetimes import BufferUse, peak_bytes, with_stages
from core.program.nodes import Gemm

if TYPE_CHECKING:
    from core.hardware import Chip, MemorySpace
    from core.program.program import Program

_KIB = 1024
#: What to do with rows that no block can hold.
IN_PARTS = "walk the row in parts: a loop over tiles of it with running results, as core.ops.softmax has for long rows"


def check(program: Program, chip: Chip) -> None:
    """Refuses a program that `chip` cannot hold or launch, whatever its compiler does.

    Memory counts what the program itself declares: every stage of a pipeline, buffers with disjoint lifetimes sharing.
    Sizes that depend on symbolic dimensions are not judged, nor are limits the chip's descriptor does not state.

    Raises:
        ResourceExceeded: a memory space, the threads of a block or the grid.
        UnsupportedOp: a matrix product of types the chip has no instruction for.
    """
    for error in violations(program.footprint(), chip):
        raise error


def violations(footprint: Footprint, chip: Chip) -> Iterator[TileHALError]:
    """Everything that :func:`check` refuses, most general first: the errors it would raise, not raised."""
    for launch in footprint.launches:
        yield from _thread_violations(launch, chip)
        yield from _grid_violations(launch, chip)
        for demand in memory_demands(launch, chip):
            if not demand.fits:
                yield _too_much(launch, demand, chip)
        yield from _matrix_product_violations(launch, chip)


def in_local_memory(footprint: Footprint, chip: Chip) -> Iterator[tuple[BufferUse, str]]:
    """Fragments larger than all registers that a block may have, each with a sentence.

    It is possible and slow: what registers do not hold is in the threads' local memory, and moved at every use.
    """
    for launch in footprint.launches:
        for demand in memory_demands(launch, chip):
            limit = demand.memory.block_limit_bytes
            if not demand.spills or limit is None:
                continue
            for use in demand.uses:
                if use.first is not None and use.bytes is not None and use.bytes > limit:
                    yield (
                        use,
                        f"{use.buffer.name} has {_kib(use.bytes)}, and a block of {chip.target} {_kib(limit)} of"
                        f" registers: the rest goes to local memory and back at every pass; {IN_PARTS}",
                    )


# -- memory ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """What one launch asks of one memory.

    Attributes:
        needed_bytes: at the peak, every stage counted, buffers with disjoint lifetimes sharing; None when a size
            depends on a symbolic dimension.
        limit_bytes: the most one block may have; None when the descriptor does not say, or when the rest spills.
        spills: too much is slow, not wrong: registers.
        room_bytes: of a memory that spills, the most that the block's threads can have there; None when the descriptor
            does not say, and of any other memory.
    """

    memory: MemorySpace
    uses: tuple[BufferUse, ...]
    needed_bytes: int | None
    limit_bytes: int | None
    spills: bool
    room_bytes: int | None = None

    @property
    def fits(self) -> bool:
        """False when it certainly does not fit."""
        return self.needed_bytes is None or self.limit_bytes is None or self.needed_bytes <= self.limit_bytes

    @property
    def advice(self) -> str:
        """How it would fit, or empty when it does."""
        return "" if self.fits or self.limit_bytes is None else _advice(self.uses, self.limit_bytes)


def memory_demands(launch: LaunchFootprint, chip: Chip) -> tuple[MemoryDemand, ...]:
    """What a launch asks of each on-chip memory of `chip`."""
    found = []
    for name, uses in memory_demand(launch, chip).items():
        memory = chip.memory(name)
        limit = judged_limit_bytes(memory, chip)
        room = _room_bytes(memory, chip, launch) if _spills(memory) else None
        found.append(MemoryDemand(memory, uses, peak_bytes(uses), limit, _spills(memory), room))
    return tuple(found)


def judged_limit_bytes(memory: MemorySpace, chip: Chip) -> int | None:
    """The most of a memory that one block may declare; None when too much is slow and not wrong, or cannot be told.

    Where the vendor's compiler decides what a buffer becomes and adds copies of its own, its backend judges.
    """
    return None if _spills(memory) or chip.codegen.get("plans_memory") else memory.block_limit_bytes


def _spills(memory: MemorySpace) -> bool:
    return memory.owner == "thread" or memory.technology == "registers" or memory.name == "registers"


def _room_bytes(memory: MemorySpace, chip: Chip, launch: LaunchFootprint) -> int | None:
    """The most that a block's threads can have in registers: the block's share, and each thread's limit."""
    threads = prod(launch.launch.threads) if launch.launch.threads else None
    bounds = []
    if memory.owner != "thread":
        bounds.append(memory.block_limit_bytes)
    elif threads is not None and memory.capacity_bytes is not None:
        bounds.append(threads * memory.capacity_bytes)
    registers = next((unit.registers for unit in chip.units if unit.kind == memory.unit), None)
    if threads is not None and registers is not None and registers.per_thread is not None:
        bounds.append(threads * registers.per_thread * registers.width_bits // 8)
    return min((bound for bound in bounds if bound is not None), default=None)


def _too_much(launch: LaunchFootprint, demand: MemoryDemand, chip: Chip) -> ResourceExceeded:
    uses, memory, limit, peak = demand.uses, demand.memory, demand.limit_bytes, demand.needed_bytes
    assert limit is not None
    assert peak is not None
    largest = max((use for use in uses if use.first is not None), key=lambda use: use.total_bytes or 0)
    return ResourceExceeded(
        f"{chip.target} has {_kib(limit)} of {memory.name} memory per block; this kernel needs {_kib(peak)}, "
        f"{_kib(peak - limit)} too much\n{_table(uses)}",
        hint=demand.advice,
        location=largest.location or launch.launch.location,
        details={
            "memory": memory.name,
            "limit_bytes": limit,
            "needed_bytes": peak,
            "excess_bytes": peak - limit,
            "fitting_stages": _fitting_stages(uses, limit),
            "buffers": [_row(use) for use in uses],
        },
    )


def _row(use: BufferUse) -> dict[str, Any]:
    return {
        "name": use.buffer.name,
        "shape": _shape(use),
        "dtype": use.buffer.dtype,
        "scope": use.scope,
        "bytes": use.bytes,
        "versions": use.versions,
        "total_bytes": use.total_bytes,
        "file": use.location.file if use.location else None,
        "line": use.location.line if use.location else None,
    }


def _shape(use: BufferUse) -> str:
    from core.program.printer import expression_text

    return " x ".join(expression_text(extent) for extent in use.buffer.shape)


def _table(uses: Iterable[BufferUse]) -> str:
    rows = [("buffer", "shape", "dtype", "bytes", "stages", "total", "line")]
    for use in uses:
        line = str(use.location.line) if use.location else ""
        total = f"{use.total_bytes:,}" if use.total_bytes is not None else "unknown"
        size = f"{use.bytes:,}" if use.bytes is not None else "unknown"
        rows.append((use.buffer.name, _shape(use), use.buffer.dtype, size, str(use.versions), total, line))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    right = (3, 4, 5, 6)
    return "\n".join(
        "  "
        + "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _fitting_stages(uses: tuple[BufferUse, ...], limit: int) -> int | None:
    """The largest stage count, below the present one, with which everything fits; None when none does."""
    present = max(use.versions for use in uses)
    for stages in range(present - 1, 0, -1):
        peak = peak_bytes(with_stages(uses, stages))
        if peak is not None and peak <= limit:
            return stages
    return None


def _advice(uses: tuple[BufferUse, ...], limit: int) -> str:
    present = max(use.versions for use in uses)
    stages = _fitting_stages(uses, limit)
    if stages is not None:
        return f"it fits with num_stages={stages} instead of {present}"
    single = with_stages(uses, 1)
    prefix = "even with num_stages=1 it does not fit; " if present > 1 else ""
    smaller = _nearest_tiles(single, limit)
    if smaller:
        return f"{prefix}it would fit with smaller tiles, for example {smaller}"
    return f"{prefix}use smaller tiles or split the work over several kernels"


def _nearest_tiles(uses: tuple[BufferUse, ...], limit: int) -> str:
    """The ways to fit by halving one extent value (a tile size shows as the same number in many shapes).

    An extent that is only ever the length of rows is often the whole row of a tensor, which a tile has to hold: another
    one is halved first, as far down as 1, and the row is named where nothing else helps, or as a way no harder.
    """
    from core.program.expressions import constant_int, dtype_bits

    shapes = {id(use): [constant_int(extent) for extent in use.buffer.shape] for use in uses if use.first is not None}
    if any(extent is None for shape in shapes.values() for extent in shape):
        return ""

    def peak(changes: dict[int, int]) -> int:
        from dataclasses import replace

        changed = []
        for use in uses:
            if id(use) not in shapes:
                continue
            extents = [changes.get(extent, extent) for extent in shapes[id(use)] if extent is not None]
            size = (prod(extents) * dtype_bits(use.buffer.dtype) + 7) // 8
            changed.append(replace(use, bytes=size))
        return peak_bytes(changed) or 0

    extents = {extent for shape in shapes.values() for extent in shape if extent}
    leading = {extent for shape in shapes.values() for extent in shape[:-1] if extent and extent >= 2}
    sizes = sorted((extent for extent in extents if extent >= 16), reverse=True)

    def ways(of: Iterable[int], smallest: int) -> list[tuple[int, int, int]]:
        """(how many times smaller, instead of what, what), the mildest change first, of the largest extent."""
        found = []
        for size in of:
            candidate = size // 2
            while candidate >= smallest:
                if peak({size: candidate}) <= limit:
                    found.append((size // candidate, size, candidate))
                    break
                candidate //= 2
        return sorted(found, key=lambda way: (way[0], -way[1]))

    rows = [size for size in sizes if size not in leading]
    mild = ways((size for size in sizes if size in leading), 8) or ways(leading, 1)
    shorter = ways(rows, 8)
    if mild or shorter:
        texts = [f"{new} in place of {old}" for _, old, new in mild[:1]]
        if not mild or (shorter and shorter[0][0] <= mild[0][0]):
            texts += [f"{new} in place of {old}" for _, old, new in shorter[:1]]
        return ", or ".join(texts)
    changes = {size: max(8, size // 2) for size in sizes}
    while any(new > 8 for new in changes.values()):
        if peak(changes) <= limit:
            return ", ".join(f"{new} in place of {old}" for old, new in changes.items())
        changes = {old: max(8, new // 2) for old, new in changes.items()}
    return ""


def _kib(size: int) -> str:
    if size >= _KIB and size % _KIB == 0:
        return f"{size // _KIB} KiB"
    return f"{size / _KIB:.1f} KiB" if size >= _KIB else f"{size} bytes"


# -- launch ----------------------------------------------------------------------------------------------------------


def _thread_violations(launch: LaunchFootprint, chip: Chip) -> Iterator[TileHALError]:
    threads, limits = launch.launch.threads, chip.limits
    if threads is None:
        return
    count = prod(threads)
    location = launch.launch.location
    if limits.threads_per_block is not None and count > limits.threads_per_block:
        yield ResourceExceeded(
            f"{count} threads per block; {chip.target} allows {limits.threads_per_block}",
            hint=f"use threads={limits.threads_per_block} or fewer",
            location=location,
            details={"threads": count, "limit": limits.threads_per_block},
        )
    for axis, asked, limit in zip("xyz", threads, limits.block_dim or (), strict=False):
        if asked > limit:
            yield ResourceExceeded(
                f"{asked} threads along {axis}; {chip.target} allows {limit}",
                hint="spread the threads over the other axes",
                location=location,
                details={"axis": axis, "threads": asked, "limit": limit},
            )
    multiple = limits.thread_multiple
    if multiple is not None and count % multiple:
        lower, upper = count // multiple * multiple, -(-count // multiple) * multiple
        allowed = [str(value) for value in (lower, upper) if value > 0]
        yield ResourceExceeded(
            f"{count} threads per block; {chip.target} wants a multiple of its wave width, {multiple}",
            hint=f"use threads={' or '.join(allowed)}",
            location=location,
            details={"threads": count, "multiple": multiple},
        )


def _grid_violations(launch: LaunchFootprint, chip: Chip) -> Iterator[TileHALError]:
    limits = chip.limits
    location = launch.launch.location
    for axis, blocks, limit in zip("xyz", launch.grid, limits.grid_dim or (), strict=False):
        if blocks is not None and blocks > limit:
            yield ResourceExceeded(
                f"{blocks} blocks along {axis}; {chip.target} allows {limit}",
                hint="use larger tiles, another axis, or T.Persistent",
                location=location,
                details={"axis": axis, "blocks": blocks, "limit": limit},
            )
    known = [blocks for blocks in launch.grid if blocks is not None]
    if limits.grid_blocks is not None and len(known) == len(launch.grid) and prod(known) > limits.grid_blocks:
        yield ResourceExceeded(
            f"{prod(known)} blocks; {chip.target} allows {limits.grid_blocks}",
            hint="use larger tiles or T.Persistent",
            location=location,
            details={"blocks": prod(known), "limit": limits.grid_blocks},
        )


# -- matrix products -------------------------------------------------------------------------------------------------


def _matrix_product_violations(launch: LaunchFootprint, chip: Chip) -> Iterator[TileHALError]:
    """A product of operand types the chip has matrix instructions for must accumulate in a type they offer.

    Other operand types are left to the backend, which may have another way (plain multiply-adds). Not so 8-bit floats:
    a chip that multiplies them has an instruction for it, and TileLang's code for one that has none does not compile.
    """
    for stmt in walk.statements(launch.launch.body):
        if not isinstance(stmt, Gemm):
            continue
        a, b, c = stmt.a.buffer.dtype, stmt.b.buffer.dtype, stmt.c.buffer.dtype
        operands = {i.a_dtype for i in chip.matrix_instructions}
        emulated = chip.codegen.get("emulates_float8")
        if operands and a.startswith("float8") and a not in operands and not emulated:
            yield UnsupportedOp(
                f"T.gemm of {a}: {chip.target} has no matrix instruction for it",
                hint="convert the tiles to float16 before multiplying, or choose a chip with 8-bit floats",
                location=stmt.location,
                details={"a": a, "b": b, "accumulator": c, "offered": []},
            )
        offered = {i.accumulator_dtype for i in chip.matrix_instructions if (i.a_dtype, i.b_dtype) == (a, b)}
        if offered and c not in offered:
            yield UnsupportedOp(
                f"T.gemm of {a} and {b} into {c}: the matrix instructions of {chip.target} accumulate these in "
                f"{', '.join(sorted(offered))}",
                hint=f"give {stmt.c.buffer.name} the dtype {sorted(offered)[0]} and convert when copying it out",
                location=stmt.location,
                details={"a": a, "b": b, "accumulator": c, "offered": sorted(offered)},
            )
