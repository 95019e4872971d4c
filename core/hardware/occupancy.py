"""How many blocks of a kernel one compute unit can hold at a time.

The arithmetic is that of NVIDIA's occupancy calculator (CUDA 13.0 `cuda_occupancy.h`, compute capability 8 and later),
driven by the descriptor's figures, so that any chip which allocates registers per wave and shared memory per block can
use it. Not modelled: named barriers (one per block never limits), tensor memory. Where clusters find room is a
question of its own, `clusters_at_once`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING

from core.errors import DescriptorError

if TYPE_CHECKING:
    from core.hardware.protocol import HardwareDescriptor
    from core.hardware.records import ComputeUnit, MemorySpace


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Resident blocks of one compute unit.

    Attributes:
        blocks: resident blocks per unit, 0 when the kernel cannot launch; None when a figure it depends on is unknown.
        at_most: the bound from the figures that are known (equal to `blocks` when that is known).
        limits: the bound from each resource (`threads`, `registers`, `shared`, `blocks`) as far as its figures are
            known; None where none is.
        limited_by: the resources whose bound is the smallest.
        threads: threads per block, rounded up to whole waves.
        fraction: resident threads of all that fit, at `at_most` blocks; None when the unit's thread count is unknown.
        unknown: paths of the figures that are missing.
    """

    blocks: int | None
    at_most: int | None
    limits: Mapping[str, int | None]
    limited_by: tuple[str, ...]
    threads: int
    fraction: float | None
    unknown: tuple[str, ...]


class _Figures:
    """Reads figures and remembers which were missing."""

    def __init__(self, chip: HardwareDescriptor) -> None:
        self.chip = chip
        self.missing: list[str] = []

    def __call__(self, path: str) -> int | None:
        value = self.chip.figure(path)
        if value is None and path not in self.missing:
            self.missing.append(path)
        return value if isinstance(value, int) else None


def occupancy(
    chip: HardwareDescriptor, threads: int, registers: int, shared_static: int = 0, shared_dynamic: int = 0
) -> Occupancy:
    """Occupancy of a kernel that launches `threads` per block; see :meth:`core.Chip.occupancy`.

    Raises:
        DescriptorError: the main unit has no waves (a CPU core, an AI core), so the question has no meaning.
        ValueError: a negative amount, or no thread at all.
    """
    if threads < 1 or min(registers, shared_static, shared_dynamic) < 0:
        raise ValueError("threads must be at least 1; registers and shared memory cannot be negative")
    unit = chip.main_unit
    lanes = unit.lanes_per_wave
    shared = chip.memories_for_scope("shared")
    if lanes is None or not shared or shared[0].owner == "device":
        raise DescriptorError(
            f"{chip.target}: occupancy needs a unit that runs waves of threads; what is described of {unit.kind} does "
            "not say that it does",
            hint="use the capacities of its memories instead: `chip.memory_for_scope(...)`",
        )
    waves = ceil(threads / lanes)
    figures = _Figures(chip)
    limits = {
        "threads": _by_threads(figures, unit, threads, waves, lanes),
        "registers": _by_registers(figures, unit, registers, waves, lanes),
        "shared": _by_shared(figures, shared[0], shared_static, shared_dynamic),
        "blocks": figures(f"units.{unit.key}.max_blocks"),
    }
    known = {name: limit for name, limit in limits.items() if limit is not None}
    at_most = min(known.values()) if known else None
    # A kernel that cannot launch on a known limit cannot launch, whatever the unknown ones are.
    blocks = at_most if not figures.missing or at_most == 0 else None
    fraction = None
    if at_most is not None and unit.max_threads:
        fraction = at_most * waves * lanes / unit.max_threads
    return Occupancy(
        blocks=blocks,
        at_most=at_most,
        limits=limits,
        limited_by=tuple(name for name, limit in known.items() if limit == at_most),
        threads=waves * lanes,
        fraction=fraction,
        unknown=tuple(figures.missing),
    )


@lru_cache(maxsize=256)
def clusters_at_once(units: int, per_group: int, blocks: int, resident: int = 1) -> int:
    """Clusters that run at once on any chip of the kind, whichever of its units are disabled.

    A cluster runs within one group of units. A chip as it is sold has fewer units than its groups would hold, and no
    figure says in which groups they are missing. This is the number for the worst distribution. Units are missing in
    pairs (NVIDIA's TPCs) where a group has an even number of them.

    What devices say: an H100 (132 units in 8 groups of up to 18) ran 15 clusters of 8 blocks, on 120 units
    (accel-sim/gpu-app-collection#87), more than the 13 that this promises. The driver of an H200 counts 39 clusters of
    3 and 17 of 6, where this says 42 and 18 (docs/hardware.md): units that belong to no group are not modelled.

    Args:
        units: of the chip.
        per_group: units of a group in which none is missing.
        blocks: of a cluster.
        resident: blocks that one unit holds at a time.
    """
    step = 2 if per_group % 2 == 0 and units % 2 == 0 else 1
    groups = ceil(units / per_group)
    lacking = groups * per_group - units
    fewest = {0: 0}  # clusters in the groups looked at so far, by how many units are missing in these
    for _ in range(groups):
        after: dict[int, int] = {}
        for lacked, clusters in fewest.items():
            for more in range(0, min(per_group, lacking - lacked) + 1, step):
                found = clusters + (per_group - more) * resident // blocks
                after[lacked + more] = min(found, after.get(lacked + more, found))
        fewest = after
    return fewest[lacking]


def _by_threads(figures: _Figures, unit: ComputeUnit, threads: int, waves: int, lanes: int) -> int | None:
    per_block, per_unit = figures("limits.threads_per_block"), figures(f"units.{unit.key}.max_threads")
    if per_block is not None and threads > per_block:
        return 0
    return None if per_unit is None else (per_unit // lanes) // waves


def _by_registers(figures: _Figures, unit: ComputeUnit, registers: int, waves: int, lanes: int) -> int | None:
    path = f"units.{unit.key}.registers"
    per_thread, per_block = figures(f"{path}.per_thread"), figures(f"{path}.per_block")
    per_unit, granule = figures(f"{path}.per_unit"), figures(f"{path}.allocation_unit")
    sub_units = figures(f"units.{unit.key}.sub_units")
    if per_thread is not None and registers > per_thread:
        return 0
    # Without the granules the bound is that of exact allocation, which is never too low.
    per_wave = _round_up(registers * lanes, granule or 1)
    rounds = sub_units or 1
    if per_block is not None and per_wave * _round_up(waves, rounds) > per_block:
        return 0
    if per_unit is None or per_wave == 0:
        return None if per_unit is None else figures(f"units.{unit.key}.max_blocks")
    # Waves are dealt out to the sub-units in turn, each of which has its share of the registers.
    return ((per_unit // rounds) // per_wave) * rounds // waves


def _by_shared(figures: _Figures, memory: MemorySpace, static: int, dynamic: int) -> int | None:
    path = f"memories.{memory.name}"
    capacity, per_block = figures(f"{path}.capacity_bytes"), figures(f"{path}.per_block_bytes")
    reserved, granule = figures(f"{path}.reserved_per_block_bytes"), figures(f"{path}.allocation_unit_bytes")
    static_limit = figures(f"{path}.static_per_block_bytes")
    if memory.carveouts_bytes is None:
        figures(f"{path}.carveouts_bytes")
    if (static_limit is not None and static > static_limit) or (per_block is not None and static + dynamic > per_block):
        return 0
    charged = _round_up(static + dynamic + (reserved or 0), granule or 1)
    if per_block is not None and charged > per_block + (reserved or 0):
        return 0
    if capacity is None or charged == 0:
        return None
    # The runtime prefers the largest carve-out, which always holds one block that passed the tests above.
    carveouts = [size for size in memory.carveouts_bytes or () if size <= capacity]
    return max(carveouts, default=capacity) // charged


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
