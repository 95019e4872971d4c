"""What a block really takes of a compute unit, and how many blocks one unit holds.

Before lowering, registers can only be estimated: those of the fragments, spread over the threads, and an allowance for
addresses and temporaries (`cost.register_overhead`). A compiler that gives copies of a pipelined loop threads of their
own (warp specialisation) deals out the whole register file to the threads of one block, so that a unit holds one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.tiling.cost.machine import Machine
from core.tiling.profile import LaunchProfile, OnChipBuffer

if TYPE_CHECKING:
    from core.hardware import Chip, MemorySpace

_THREADS = 128
_REGISTERS = 255
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


def residency(launch: LaunchProfile, m: Machine) -> Residency:
    """Threads, registers, memory and resident blocks of one launch."""
    memory = memory_bytes(launch, m.chip)
    threads = launch.threads or _THREADS
    if not m.simt:
        return Residency(threads, threads, False, 0, 0, 1, memory)
    # Warps that copy, of the kernel's own or of the compiler's making.
    specialised = launch.copy_threads > 0
    by_compiler = (
        not specialised
        and m.warp_specialises
        and any(
            launch.loops[access.loop].stages >= 1 and access.mode == "read" and access.onchip == "shared"
            for access in launch.accesses
        )
    )
    launched = threads + (int(m.cost["copy_threads"]) if by_compiler else 0)
    threads -= launch.copy_threads
    specialised = specialised or by_compiler
    fragments = peak_bytes(b for b in launch.buffers if b.scope.rpartition(".")[2] in ("fragment", "local"))
    registers = int(-(-fragments // (4 * threads)) + m.cost["register_overhead"])
    most = _most_registers(threads, launched, specialised, m)
    spilled = max(0, registers - most)
    shared = sum(bytes_ for name, bytes_ in memory.items() if name in _shared_names(m.chip))
    reduced = 4 * threads if launch.reductions else 0
    occupancy = m.chip.occupancy(launched, min(registers, most), 0, shared + reduced)
    blocks = occupancy.at_most
    if specialised:
        blocks = 1
    return Residency(
        threads, launched, specialised, registers, spilled, None if blocks is None else max(1, blocks), memory
    )


def _most_registers(threads: int, launched: int, specialised: bool, m: Machine) -> int:
    """Registers a computing thread can have: what is left of a block's share by threads that only copy, or its part."""
    file = m.chip.main_unit.registers
    per_thread = (file.per_thread if file else None) or _REGISTERS
    if file is None or file.per_block is None:
        return per_thread
    if specialised and threads <= m.cost["copy_threads"] * _GROUPS_WITH_OWN_REGISTERS:
        left = file.per_block - (launched - threads) * m.cost["copy_registers"]
        return min(per_thread // 8 * 8 - 8, int(left // threads) // 8 * 8)
    return min(per_thread, file.per_block // launched // 8 * 8)


def memory_bytes(launch: LaunchProfile, chip: Chip) -> dict[str, int]:
    """Bytes per block in each on-chip memory of the chip, lifetimes and stages counted: a bound from above."""
    return {memory.name: peak_bytes(buffers) for memory, buffers in demands(launch, chip)}


def demands(launch: LaunchProfile, chip: Chip) -> list[tuple[MemorySpace, tuple[OnChipBuffer, ...]]]:
    """The buffers that live in each on-chip memory, as `core.program.footprint.memory_demand` deals them out.

    Where several memories serve one scope, operands of matrix products go to the second.
    """
    found: dict[str, tuple[MemorySpace, tuple[OnChipBuffer, ...]]] = {}
    for buffer in launch.buffers:
        served = chip.memories_for_scope(buffer.scope)
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
