"""Fragments that no block can hold: what registers do not take goes to local memory, of which a thread has so much."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.errors import ResourceExceeded
from core.hardware import Chip
from core.tiling import LaunchProfile
from core.tiling.cost import peak_bytes

if TYPE_CHECKING:
    from core.program import Program
    from core.tiling.profile import OnChipBuffer

_REGISTER_BYTES = 4
_HINT = "walk the row in parts: a loop over tiles of it with running results, as core.ops.softmax has for long rows"


def refused(chip: Chip, launch: LaunchProfile) -> str | None:
    """Why the threads of a launch cannot hold its fragments, or None: by what they hold for certain, once each."""
    limit, needed = _limit_bytes(chip, launch), peak_bytes(_fragments(launch))
    if limit is None or needed <= limit:
        return None
    largest = _largest(launch)
    return (
        f"{needed:,} bytes of fragments, {launch.threads} threads may have {limit:,} in registers and local memory:"
        f" {largest.name} {largest.bytes:,}"
    )


def check(program: Program, chip: Chip) -> None:
    """Refuses a program with such a launch.

    Raises:
        ResourceExceeded: with the line of the largest fragment.
    """
    from core.tiling.profile import profile

    for launch, node in zip(profile(program).launches, program.view.launches, strict=True):
        reason = refused(chip, launch)
        if reason is not None:
            name = _largest(launch).name
            location = next((buffer.location for buffer in node.buffers if buffer.name == name), None)
            raise ResourceExceeded(
                f"{program.name} for {chip.target}: {reason}",
                hint=_HINT,
                location=location or program.location,
                details={
                    "memory": "local",
                    "buffer": name,
                    "needed_bytes": peak_bytes(_fragments(launch)),
                    "limit_bytes": _limit_bytes(chip, launch),
                },
            )


def _limit_bytes(chip: Chip, launch: LaunchProfile) -> int | None:
    """What the block's threads have in registers and local memory; None where a figure for that is unknown."""
    local = next((memory.capacity_bytes for memory in chip.memories if memory.owner == "thread"), None)
    registers = chip.main_unit.registers
    if local is None or launch.threads is None or registers is None or registers.per_thread is None:
        return None
    return launch.threads * (local + _REGISTER_BYTES * registers.per_thread)


def _fragments(launch: LaunchProfile) -> list[OnChipBuffer]:
    return [buffer for buffer in launch.buffers if buffer.scope.rpartition(".")[2] in ("fragment", "local")]


def _largest(launch: LaunchProfile) -> OnChipBuffer:
    return max(_fragments(launch), key=lambda buffer: buffer.bytes)
