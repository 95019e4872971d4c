"""The figures the cost model works with, read off a descriptor once per chip, with what had to be assumed.

A figure the descriptor does not know gets a generic value here and a sentence that says so; whoever uses the figure
passes the sentence on (`Prediction.assumptions`). Nothing vendor-specific is in this module: what one architecture's
compiler and pipes are like stands in the descriptor, under `cost` and `features`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from core.program.expressions import dtype_bits

if TYPE_CHECKING:
    from core.hardware import Chip, MatrixInstruction, MemorySpace

#: Generic values where a descriptor is silent, with the figure's name in prose. Orders of magnitude of present chips.
_GENERIC: dict[str, tuple[float, str]] = {
    "launch_s": (2e-6, "the time between two launches"),
    "block_start_s": (0.5e-6, "the time to start a block"),
    "memory_latency_s": (0.7e-6, "the latency of global memory"),
    "l2_latency_s": (0.3e-6, "the latency of the cache behind the units"),
    "shared_latency_s": (20e-9, "the latency of shared memory"),
    "barrier_s": (20e-9, "the time of a barrier of a block"),
    "product_latency_s": (60e-9, "the time from a matrix product's last operand to its result"),
    "memory_share": (0.85, "the share of the memory bandwidth that kernels reach"),
    "matrix_share": (0.8, "the share of the matrix peak that all units together can keep up"),
    "wave_matrix_share": (1.0, "the rate of matrix instructions of one wave, of the peak"),
    "l2_ratio": (2.5, "the bandwidth of the cache behind the units, of global memory's"),
    "l2_port_bytes_per_cycle": (64.0, "bytes a cycle that one unit can take in"),
    "l2_reuse_share": (0.5, "the share of the cache behind the units that data can stay in"),
    "vector_cost_special": (8.0, "the cost of an exponential or a root, in additions"),
    "vector_cost_divide": (8.0, "the cost of a division, in additions"),
    "vector_cost_convert": (2.0, "the cost of a conversion, in additions"),
    "vector_cost_index": (1.75, "the cost of an instruction that finds an element, in additions"),
    "vector_cost_shuffle": (4.0, "the cost of passing a value to another lane, in additions"),
    "issue_waves": (1.4, "how many waves of a sub-unit issue half as much as many do"),
    "in_flight_contexts": (3.0, "how many more products overlap with vector work when a kernel leaves them in flight"),
    "load_sharpness": (1.5, "how sharply the longer of a pipeline's transfers and its latencies counts"),
    "cluster_s": (0.3e-6, "the time that the blocks of a cluster wait for each other"),
    "memory_line_bytes": (128.0, "bytes of a piece of memory below which its bandwidth suffers"),
    "in_step_blocks": (10.0, "how many blocks of a unit copy and compute in step"),
    "in_step_passes": (1.5, "how many times in a row they do"),
    "register_overhead": (18.0, "how many registers a thread needs beside its fragments"),
    "register_temporaries": (0.25, "how many registers go with each of a fragment that is computed with"),
    "sector_bytes": (32.0, "bytes of the smallest piece of memory that moves"),
    "copy_threads": (0.0, "threads the compiler adds to copy"),
    "copy_registers": (24.0, "registers of a thread that only copies"),
}
#: The same where a unit runs one block at a time, as a loop over blocks.
_GENERIC_SINGLE = {"block_start_s": 0.1e-6}
_CLOCK_HZ = 1.5e9
_UNITS = 64
_LANES = 32
_VECTOR_LANES = 64
_MEMORY_BYTES_PER_S = 1e12
_MATRIX_PER_VECTOR = 16
_SHARED_BYTES_PER_CYCLE = 128


@dataclass(frozen=True)
class Machine:
    """Figures of one chip; rates are per second.

    Attributes:
        units: main units (blocks are scheduled on them).
        simt: whether a block runs as waves of threads that share a unit with other blocks.
        vector_per_s: additions of float32 per unit.
        shared_bytes_per_s: per unit.
        l2_bytes_per_s, memory_bytes_per_s: of the whole chip, as kernels reach them.
        cache_bytes: capacities of the caches that tiles live in where the chip has no other on-chip memory for them.
        l2_bytes: capacity of the cache behind the units that data can stay in; 0 without one.
        cost: the generic figures of this module, the descriptor's own where it has them.
        assumed: what was assumed, by the figure's name.
    """

    chip: Chip
    units: int
    simt: bool
    lanes: int
    sub_units: int
    clock_hz: float
    vector_per_s: float
    shared_bytes_per_s: float
    l2_bytes_per_s: float
    l2_port_bytes_per_s: float
    l2_bytes: float
    memory_bytes_per_s: float
    cache_bytes: tuple[int, ...]
    cost: dict[str, float]
    assumed: dict[str, str]
    _matrix: dict[tuple[str, str], tuple[float, str | None]] = field(default_factory=dict)
    _occupancy: dict[tuple[int, int, int], int | None] = field(default_factory=dict)
    _scopes: dict[str, tuple[MemorySpace, ...]] = field(default_factory=dict)

    @property
    def plans_memory(self) -> bool:
        """Whether the vendor's compiler double-buffers by itself, whatever the stages say."""
        return bool(self.chip.codegen.get("plans_memory"))

    def stages(self, asked: int) -> int:
        """The stages that a loop asked to have so many really runs ahead by.

        A compiler that plans memory buffers twice whatever is asked. Copies that threads make themselves are one stage
        ahead at most: in their registers.
        """
        if self.plans_memory:
            return max(2, asked)
        return min(asked, 2) if self.chip.codegen.get("synchronous_copies") else asked

    @property
    def split_units(self) -> bool:
        """Whether matrix and vector work run on cores of their own, which can overlap within a block."""
        return "split_cores" in self.chip.features

    @property
    def exchanges_in_memory(self) -> bool:
        """Whether those cores hand each other their results through global memory, for want of another path."""
        ways = {(path.source, path.destination) for path in self.chip.paths}
        return self.split_units and ("l0c", "ub") not in ways

    def feed_bytes_per_s(self, held: int) -> float:
        """Bytes per second that a block's tiles, `held` bytes in all, reach its unit's pipes at.

        Where tiles live in a memory of the unit that is that memory's rate. Where they live in main memory and caches
        keep them close (a CPU), each level that is too small for them halves it.
        """
        rate = self.shared_bytes_per_s
        for capacity in self.cache_bytes:
            if held <= capacity:
                break
            rate /= 2
        return rate

    def memories_for_scope(self, scope: str) -> tuple[MemorySpace, ...]:
        """As the chip's, remembered."""
        if scope not in self._scopes:
            self._scopes[scope] = self.chip.memories_for_scope(scope)
        return self._scopes[scope]

    def resident_blocks(self, threads: int, registers: int, shared: int) -> int | None:
        """Blocks that a unit holds, as far as the chip's figures say, remembered."""
        key = (threads, registers, shared)
        if key not in self._occupancy:
            self._occupancy[key] = self.chip.occupancy(threads, registers, 0, shared).at_most
        return self._occupancy[key]

    def slots(self, resident: int, cluster: int) -> int:
        """Blocks that run at once on the chip.

        Args:
            resident: blocks that one unit holds at a time.
            cluster: blocks of a cluster, which needs room for all of them within a group of units; 1 for none.
        """
        slots = self.units * resident
        clusters = self.chip.clusters_at_once(cluster, resident) if cluster > 1 else None
        return slots if clusters is None else max(1, min(slots // cluster, clusters)) * cluster

    def matrix_per_s(self, dtype: str, accumulator: str) -> tuple[float, str | None]:
        """Operations per second of one unit's matrix pipe (a multiply-add counts two), and what was assumed."""
        key = (dtype, accumulator)
        if key not in self._matrix:
            self._matrix[key] = self._matrix_per_s(dtype, accumulator)
        return self._matrix[key]

    def _matrix_per_s(self, dtype: str, accumulator: str) -> tuple[float, str | None]:
        names = [dtype]
        if dtype == "float32":  # multiplied as tfloat32 where there is a matrix instruction for it
            names.append("tfloat32")
        for name in names:
            rate = self.chip.rate(name, "matrix", accumulator) or self.chip.rate(name, "matrix")
            if rate is not None and rate.ops_per_cycle_per_unit and self.chip.main_unit.clock_hz:
                return rate.ops_per_cycle_per_unit * self.clock_hz, None
            if rate is not None and rate.ops_per_s:
                return rate.ops_per_s / self.units, None
            if rate is not None and rate.ops_per_cycle_per_unit:
                return rate.ops_per_cycle_per_unit * self.clock_hz, None
        base = self.vector_per_s * 2
        if not self.chip.matrix_instructions:
            return base, None
        factor = _MATRIX_PER_VECTOR * 16 / max(8, dtype_bits(dtype))
        return base * factor, f"the matrix rate for {dtype} is unknown: taken as {factor:g} times the vector rate"

    def matrix_instruction(self, a: str, b: str, accumulator: str, warpgroup: bool) -> MatrixInstruction | None:
        """An instruction for these types, issued by a group of waves or not; None when there is none."""
        wanted = "warpgroup" if warpgroup else None
        for instruction in self.chip.matrix_instructions:
            same = (instruction.a_dtype, instruction.b_dtype) == (a, b) and instruction.accumulator_dtype == accumulator
            if same and ((instruction.issued_by == wanted) if warpgroup else instruction.issued_by != "warpgroup"):
                return instruction
        return None


def generic_figures() -> list[tuple[str, str, str]]:
    """(name under `cost`, what it is, generic value as text) of every figure a chip may give of itself."""
    return [(name, prose, _text(name, value)) for name, (value, prose) in _GENERIC.items()]


_MACHINES: dict[int, Machine] = {}


def machine(chip: Chip) -> Machine:
    """The figures of a chip, computed once."""
    found = _MACHINES.get(id(chip))
    if found is None or found.chip is not chip:
        if len(_MACHINES) > 64:
            _MACHINES.clear()
        found = _MACHINES[id(chip)] = _read(chip)
    return found


def _read(chip: Chip) -> Machine:
    assumed: dict[str, str] = {}

    def known(name: str, value: float | None, otherwise: float, sentence: str) -> float:
        if value is None:
            assumed[name] = sentence
            return otherwise
        return value

    unit = chip.main_unit
    simt = unit.lanes_per_wave is not None and any(m.owner == "block" for m in chip.memories_for_scope("shared"))
    cost = {}
    for name, (value, prose) in _GENERIC.items():
        value = value if simt else _GENERIC_SINGLE.get(name, value)
        cost[name] = known(name, chip.cost.get(name), value, f"{prose} is unknown: taken as {_text(name, value)}")
    units = int(known("units", unit.count, _UNITS, f"how many {unit.kind}s there are is unknown: taken as {_UNITS}"))
    clock = known("clock_hz", unit.clock_hz, _CLOCK_HZ, f"the clock is unknown: taken as {_CLOCK_HZ / 1e9:g} GHz")
    memory_rate = _bandwidth(chip.memories_for_scope("global"))
    memory = known(
        "memory_bytes_per_s",
        memory_rate,
        _MEMORY_BYTES_PER_S,
        f"the bandwidth of global memory is unknown: taken as {_MEMORY_BYTES_PER_S / 1e12:g} TB/s",
    )
    l2 = next((m for m in chip.memories if m.name in ("l2", "l3")), None)
    l2_rate = l2.bandwidth_bytes_per_s if l2 else None
    l2_per_s = known("l2_bytes_per_s", l2_rate, memory * cost["l2_ratio"], assumed.get("l2_ratio", ""))
    if not assumed.get("l2_bytes_per_s", "x"):
        del assumed["l2_bytes_per_s"]
    vector, sentence = _vector_per_s(chip, units, clock)
    if sentence:
        assumed["vector_per_s"] = sentence
    return Machine(
        chip=chip,
        units=units,
        simt=simt,
        lanes=unit.lanes_per_wave or 1,
        sub_units=unit.sub_units or 1,
        clock_hz=clock,
        vector_per_s=vector,
        shared_bytes_per_s=_shared_per_cycle(chip, assumed) * clock,
        l2_bytes_per_s=l2_per_s,
        l2_port_bytes_per_s=cost["l2_port_bytes_per_cycle"] * clock,
        l2_bytes=(l2.capacity_bytes or 0) * cost["l2_reuse_share"] if l2 else 0,
        memory_bytes_per_s=memory * cost["memory_share"],
        cache_bytes=_caches(chip),
        cost=cost,
        assumed=assumed,
    )


def _text(name: str, value: float) -> str:
    if name.endswith("_s"):
        return f"{value * 1e6:g} us"
    if name.endswith("_share"):
        return f"{value:.0%}"
    return f"{value:g}"


def _bandwidth(memories: tuple[MemorySpace, ...]) -> float | None:
    return memories[0].bandwidth_bytes_per_s if memories else None


def _shared_per_cycle(chip: Chip, assumed: dict[str, str]) -> float:
    """Bytes a cycle between a unit's shared memory and its threads."""
    for memory in chip.memories_for_scope("shared"):
        if memory.banks and memory.bank_width_bytes:
            return memory.banks * memory.bank_width_bytes
    assumed["shared_bytes_per_s"] = (
        f"the bandwidth of on-chip memory is unknown: taken as {_SHARED_BYTES_PER_CYCLE} bytes a cycle"
    )
    return _SHARED_BYTES_PER_CYCLE


def _caches(chip: Chip) -> tuple[int, ...]:
    """Capacities of the caches between a unit and main memory where that is where tiles live, smallest first."""
    if any(memory.owner != "device" for memory in chip.memories_for_scope("shared")):
        return ()
    return tuple(sorted(m.capacity_bytes for m in chip.memories if not m.scopes and m.capacity_bytes))


def _vector_per_s(chip: Chip, units: int, clock: float) -> tuple[float, str]:
    """Additions of float32 per second and main unit."""
    rate = chip.rate("float32", "vector")
    if rate is not None and rate.ops_per_cycle_per_unit:
        return rate.ops_per_cycle_per_unit / 2 * clock, ""
    if rate is not None and rate.ops_per_s:
        return rate.ops_per_s / 2 / units, ""
    unit = chip.main_unit
    if unit.fp32_lanes:
        return unit.fp32_lanes * clock, ""
    vectors = next((u for u in chip.units if re.search("vector", u.kind)), None)
    lanes = _VECTOR_LANES * (vectors.per_main_unit or 1) if vectors else (unit.lanes_per_wave or _LANES)
    return lanes * clock, f"the vector rate is unknown: taken as {lanes} lanes for each {unit.kind}"
