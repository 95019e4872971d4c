"""What a block really takes of a compute unit, and how many blocks one unit holds.

Before lowering, registers can only be estimated: those of the fragments, spread over the threads, and an allowance for
addresses and temporaries (`cost.register_overhead`). A compiler that gives copies of a pipelined loop threads of their
own (`core.tiling.cost.split`) deals out the whole register file to the threads of one block, so that a unit holds one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import TYPE_CHECKING

from core.tiling.cost.machine import Machine, machine
from core.tiling.cost.shared import added_bytes
from core.tiling.cost.split import added_threads, filled_by_threads, versioned
from core.tiling.profile import LaunchProfile, OnChipBuffer

if TYPE_CHECKING:
    from core.hardware import Chip, MemorySpace

_THREADS = 128
_REGISTERS = 255
#: Registers of a thread that copies on their way to shared memory take, at most.
_PASSING = 64
#: Registers for each element that a thread loads by an address of its own: the address and the element.
_BY_ADDRESS = 3
#: What ptxas finds no registers for it loads a few elements at a time: one for so many of the registers that a thread
#: may have (convolutions on an H200: `tests/tiling/data`).
_REGISTERS_A_LOAD = 32
#: Positions from an element loop to the end of the next statement, which is also the number of statements after which
#: the parts of a sum are one (each thread's, then each lane's); and how much of a fragment between them is there.
_NEXT_STATEMENT = 2
_PASSED_ON = 0.25
#: Beyond so many times the registers that a thread may have, fragments are in local memory. Spills were measured up to
#: six times.
_FAR = 8
#: Groups of computing threads up to which TileLang moves registers from the copying ones to them (`setmaxnreg`).
_GROUPS_WITH_OWN_REGISTERS = 3


@dataclass(frozen=True, slots=True)
class Residency:
    """What a block takes.

    Attributes:
        threads: of the block that compute, and `launched` with those that the compiler adds.
        specialised: copies of pipelined loops have threads of their own.
        registers: per computing thread, as they would be without a limit.
        spilled: registers per thread beyond what a thread may have.
        waits: how many times more than once a thread waits for elements that it loads by addresses of their own: it
            has no registers for all of them at one time.
        local: the same where that is nearly all of them: they lie in local memory, and `spilled` is 0.
        blocks: blocks that one unit holds at once, at least one; None when that is not known.
        memory_bytes: bytes per block by the memory's name.
    """

    threads: int
    launched: int
    specialised: bool
    registers: int
    spilled: int
    blocks: int | None
    memory_bytes: Mapping[str, int]
    local: int = 0
    waits: float = 0.0


def residency(launch: LaunchProfile, m: Machine) -> Residency:
    """Threads, registers, memory and resident blocks of one launch."""
    memory = memory_bytes(launch, m.chip)
    threads = launch.threads or _THREADS
    if not m.simt:
        return Residency(threads, threads, False, 0, 0, 1, memory)
    # Warps that copy, of the kernel's own or of the compiler's making.
    specialised = launch.copy_threads > 0
    added = added_threads(launch, m.chip)
    launched = threads + added
    threads -= launch.copy_threads
    specialised = specialised or added > 0
    registers = estimated_registers(launch, threads, m)
    most = _most_registers(threads, launched, specialised and not filled_by_threads(launch, m.chip), m)
    spilled = max(0, _registers_at_most(launch, threads, m) - most)
    local = registers - most if registers > _FAR * most else 0
    # Tiles on their way to shared memory have what is left: elements with addresses of their own are wanted first.
    wanted = registers - floor(_passing_bytes(launch, threads) / (4 * threads))
    deferred = min(max(0, wanted - most) / _BY_ADDRESS, _loaded_one_by_one(launch) / threads)
    shared = sum(bytes_ for name, bytes_ in memory.items() if name in _shared_names(m.chip))
    blocks = 1 if specialised else m.resident_blocks(launched, min(registers, most), shared)
    return Residency(
        threads,
        launched,
        specialised,
        registers,
        0 if local else spilled,
        None if blocks is None else max(1, blocks),
        memory,
        local,
        waits=deferred * _REGISTERS_A_LOAD / most,
    )


def estimated_registers(launch: LaunchProfile, threads: int, m: Machine) -> int:
    """Registers per thread before lowering: those of the fragments that are wanted at one time, and some more.

    Where tiles come from shared memory, what a thread reads is on its way together and takes temporaries. Otherwise
    what is computed element by element takes the place of what it is computed from. Elements loaded by addresses of
    their own take registers beside the fragments, or in threads that are added for them and have no fragments.
    """
    share = 1.0 + m.cost["register_temporaries"] if _through_shared(launch) else 1.0
    found = _registers(launch, threads, m, _weighted(launch, share), _wanted_bytes)
    by_address = ceil(_BY_ADDRESS * _loaded_one_by_one(launch) / threads)
    if filled_by_threads(launch, m.chip):
        return max(found, by_address + ceil(m.cost["register_overhead"]))
    return found + by_address


def _loaded_one_by_one(launch: LaunchProfile) -> int:
    """Elements that a block's threads load by addresses of their own before they store the first of them.

    One of each tensor for each element of the tile that they fill.
    """
    loops = {work.loop: 0 for work in launch.vector if work.fills and work.kind == "index"}
    sizes = {buffer.name: buffer.bytes for buffer in launch.buffers}
    for access in launch.accesses:
        if access.loop in loops and access.fills:
            loops[access.loop] += max(sizes[name] for name in access.fills) * 8 // access.bits
    return max(loops.values(), default=0)


def _registers_at_most(launch: LaunchProfile, threads: int, m: Machine) -> int:
    """The same where fragments stay from their first use to their last, each with temporaries: what may be spilled.

    Spills were fitted with it. Fragments loaded from global memory can be loaded when they are wanted: they are not
    spilled.
    """
    copied = {a.buffer for a in launch.accesses if a.mode == "read" and a.onchip == "fragment"}
    fragments = _weighted(launch, 1.0 + m.cost["register_temporaries"], steps=False)
    return _registers(launch, threads, m, [one for one in fragments if one.name not in copied], peak_bytes)


def _weighted(launch: LaunchProfile, share: float, steps: bool = True) -> list[OnChipBuffer]:
    """The fragments with the bytes they count for.

    Those that products leave in place count once; others also have temporaries of what is computed from them.

    Args:
        share: of its bytes that a fragment counts for, temporaries included.
        steps: whether what several statements make of each other (parts of a sum) counts as passed on.
    """
    # An operand converted from another fragment takes its place element by element: half of both at a time.
    converted = {product.a_buffer for product in launch.products if product.a_scope == "fragment"}

    def weight(buffer: OnChipBuffer) -> float:
        if buffer.operand:
            return 0.5 if buffer.name in converted else 1.0
        # What the next statement uses up is never there as a whole.
        passed_on = buffer.last - buffer.first <= _NEXT_STATEMENT or (steps and 0 <= buffer.steps <= _NEXT_STATEMENT)
        return _PASSED_ON if passed_on else share

    return [
        replace(buffer, bytes=round(buffer.bytes * weight(buffer)))
        for buffer in launch.buffers
        if buffer.scope.rpartition(".")[2] in ("fragment", "local")
    ]


def _registers(
    launch: LaunchProfile,
    threads: int,
    m: Machine,
    fragments: Sequence[OnChipBuffer],
    peak: Callable[[Sequence[OnChipBuffer]], int],
) -> int:
    """Registers per thread of fragments, beside tiles that a loop without stages copies to shared memory by them."""
    bytes_ = peak(fragments) + _passing_bytes(launch, threads)
    return ceil(bytes_ / (4 * threads) + m.cost["register_overhead"])


def _passing_bytes(launch: LaunchProfile, threads: int) -> float:
    """Bytes of tiles that are in a block's registers on their way to shared memory, where it multiplies them next."""
    by_loop = {product.loop: 0.0 for product in launch.products if launch.loops[product.loop].stages == 0}
    for access in launch.accesses:
        if access.mode == "read" and access.onchip == "shared" and access.loop in by_loop:
            by_loop[access.loop] += access.bytes
    return min(max(by_loop.values(), default=0.0), 4.0 * threads * _PASSING)


def _through_shared(launch: LaunchProfile) -> bool:
    """Whether tiles come to fragments, or leave them, through shared memory."""
    return any(access.onchip.startswith("shared") for access in launch.accesses)


def _wanted_bytes(fragments: Sequence[OnChipBuffer]) -> int:
    """The most bytes of fragments that are wanted at one position."""
    used = [buffer for buffer in fragments if buffer.first >= 0]
    # Computed from others, it is there from the next position on.
    starts = [buffer.first + (buffer.steps >= 0 and not buffer.operand) for buffer in used]

    def bytes_at(position: int) -> int:
        return sum(
            buffer.total_bytes
            for buffer, start in zip(used, starts, strict=True)
            if start <= position <= buffer.last and not buffer.idle_first <= position <= buffer.idle_last
        )

    positions = {*starts, *(buffer.idle_last + 1 for buffer in used if buffer.idle_last >= 0)}
    return max(map(bytes_at, positions), default=0)


def _most_registers(threads: int, launched: int, dealt: bool, m: Machine) -> int:
    """Registers a computing thread can have: what is left of a block's share by threads that only copy, or its part.

    Args:
        dealt: those that copy give up registers, as they do beside bulk copies.
    """
    file = m.chip.main_unit.registers
    per_thread = (file.per_thread if file else None) or _REGISTERS
    if file is None or file.per_block is None:
        return per_thread
    if dealt and threads <= m.cost["copy_threads"] * _GROUPS_WITH_OWN_REGISTERS:
        left = file.per_block - (launched - threads) * m.cost["copy_registers"]
        return min(per_thread // 8 * 8 - 8, int(left // threads) // 8 * 8)
    return min(per_thread, file.per_block // launched // 8 * 8)


def memory_bytes(launch: LaunchProfile, chip: Chip) -> dict[str, int]:
    """Bytes per block in each on-chip memory of the chip, lifetimes and stages counted: a bound from above."""
    found = {memory.name: peak_bytes(buffers) for memory, buffers in demands(launch, chip)}
    added = added_bytes(launch, chip)
    if added:
        name = chip.memory_for_scope("shared").name
        found[name] = found.get(name, 0) + added
    return found


def demands(launch: LaunchProfile, chip: Chip) -> list[tuple[MemorySpace, tuple[OnChipBuffer, ...]]]:
    """The buffers that live in each on-chip memory, as `core.program.footprint.memory_demand` deals them out.

    Where several memories serve one scope, what matrix products take goes to the second: operands, also those that a
    kernel keeps in fragments, to that of the operands, sums to that of the sums.
    """
    operands = {name for product in launch.products for name in (product.a_buffer, product.b_buffer)}
    found: dict[str, tuple[MemorySpace, tuple[OnChipBuffer, ...]]] = {}
    m = machine(chip)
    for buffer in versioned(launch, chip):
        served = m.memories_for_scope(buffer.scope)
        if len(served) > 1 and buffer.name in operands:
            served = chip.memories_for_scope("shared") or served
        if served:
            memory = served[min(1, len(served) - 1) if buffer.operand else 0]
            _, others = found.get(memory.name, (memory, ()))
            found[memory.name] = (memory, (*others, buffer))
    return list(found.values())


def peak_bytes(buffers: Iterable[OnChipBuffer]) -> int:
    """The most bytes in use at one position, when buffers whose lifetimes do not overlap share memory."""
    used = [buffer for buffer in buffers if buffer.first >= 0]
    return max(
        (
            sum(buffer.total_bytes for buffer in used if buffer.first <= position <= buffer.last)
            for position in {buffer.first for buffer in used}
        ),
        default=0,
    )


def _shared_names(chip: Chip) -> set[str]:
    return {memory.name for memory in chip.memories_for_scope("shared")}
