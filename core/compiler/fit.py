"""What lowering made of a kernel must fit the chip as well: it adds threads and shared memory of its own."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from core.errors import ResourceExceeded

if TYPE_CHECKING:
    from core.compiler.artifacts import LoweredKernel
    from core.errors import Location
    from core.hardware import Chip


def check_lowered(lowered: LoweredKernel, chip: Chip, location: Location | None) -> None:
    """Refuses a lowered kernel that `chip` cannot launch.

    `core.program.capacity` judges the kernel as written. Warp specialisation adds a producer's threads, and the layout
    of shared memory adds workspaces and alignment. Figures that either side does not state are not judged.

    Args:
        location: the kernel's line; lowering has lost any better one.

    Raises:
        ResourceExceeded: threads of a block, or bytes of its shared memory.
    """
    threads, most_threads = max(map(prod, lowered.block), default=0), chip.limits.threads_per_block
    if most_threads is not None and threads > most_threads:
        raise ResourceExceeded(
            f"{lowered.signature.name} launches {threads} threads per block once lowered; {chip.target} allows"
            f" {most_threads}",
            hint="use fewer threads: warp specialisation adds some to those asked for",
            location=location,
            details={"threads": threads, "limit": most_threads},
        )
    dynamic = lowered.resources.dynamic_shared_bytes
    shared = next(iter(chip.memories_for_scope("shared")), None)
    if dynamic is None or shared is None or shared.block_limit_bytes is None:
        return
    needed, limit = dynamic + (lowered.resources.static_shared_bytes or 0), shared.block_limit_bytes
    if needed > limit:
        raise ResourceExceeded(
            f"{lowered.signature.name} needs {needed:,} bytes of {shared.name} memory per block once lowered;"
            f" {chip.target} allows {limit:,}",
            hint="use smaller tiles or fewer stages: lowering adds workspaces to what the kernel declares",
            location=location,
            details={"memory": shared.name, "needed_bytes": needed, "limit_bytes": limit},
        )
