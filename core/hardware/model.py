"""The chip: everything a backend says about one, with its sources, and what is computed from that.

Where each figure comes from is in `Chip.sources`, keyed by the dotted path of the figure (`units.sm.count`,
`memories.shared.capacity_bytes`, `rates.matrix.float16.ops_per_s`) or of the record that holds it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from core.errors import DescriptorError
from core.hardware.records import (
    ComputeUnit,
    ExecutionLimits,
    MatrixInstruction,
    MemoryPath,
    MemorySpace,
    Model,
    PeakRate,
    Source,
    slug,
)

if TYPE_CHECKING:
    from core.hardware.occupancy import Occupancy


class Chip(Model):
    """A chip, as its vendor's backend describes it. Implements :class:`core.hardware.HardwareDescriptor`."""

    vendor: str
    name: str
    title: str = Field(description="product name as people write it")
    aliases: tuple[str, ...] = ()
    device_names: tuple[str, ...] = Field((), description="names under which the driver or its tools report this chip")
    architecture: str | None = None
    process: str | None = None
    codegen: Mapping[str, str | int | bool] = Field(
        default_factory=dict, description="what the backend's compiler needs to know: arch flag, TVM attributes"
    )
    units: tuple[ComputeUnit, ...] = ()
    memories: tuple[MemorySpace, ...] = ()
    paths: tuple[MemoryPath, ...] = ()
    matrix_instructions: tuple[MatrixInstruction, ...] = ()
    limits: ExecutionLimits = ExecutionLimits()
    rates: tuple[PeakRate, ...] = ()
    features: tuple[str, ...] = ()
    cost: Mapping[str, float] = Field(
        default_factory=dict, description="what the cost model needs beyond capacities and peaks: latencies, shares"
    )
    notes: tuple[str, ...] = Field((), description="conflicts between sources and other things a reader must know")
    sources: Mapping[str, str] = Field(default_factory=dict, description="dotted path of a figure -> key of references")
    references: Mapping[str, Source] = Field(default_factory=dict)
    figure_notes: Mapping[str, str] = Field(default_factory=dict, description="dotted path of a figure -> remark on it")
    modified: tuple[str, ...] = Field((), description="what-if modifications, as spelled in the target")

    @property
    def target(self) -> str:
        """The target string that names this chip, e.g. `cuda:h200`."""
        return "+".join((f"{self.vendor}:{self.name}", *self.modified))

    @model_validator(mode="after")
    def _is_consistent(self) -> Chip:
        for what, names in (
            ("unit", [unit.key for unit in self.units]),
            ("memory", [memory.name for memory in self.memories]),
            ("matrix instruction", [instruction.name for instruction in self.matrix_instructions]),
        ):
            if len(set(names)) != len(names):
                raise ValueError(f"two records for one {what}: {', '.join(sorted(names))}")
        kinds = {unit.kind for unit in self.units}
        memories = {memory.name for memory in self.memories}
        for memory in self.memories:
            if memory.unit is not None and memory.unit not in kinds:
                raise ValueError(f"memory {memory.name!r} belongs to unit {memory.unit!r}, which is not described")
        for path in self.paths:
            for end in (path.source, path.destination):
                if end not in memories:
                    raise ValueError(f"path {path.key!r} ends in {end!r}, which is not a described memory")
        for instruction in self.matrix_instructions:
            if instruction.unit not in kinds:
                raise ValueError(f"{instruction.name!r} is issued by {instruction.unit!r}, which is not described")
        unknown = set(self.sources.values()) - set(self.references)
        if unknown:
            raise ValueError(f"sources {', '.join(sorted(unknown))} are in no reference list")
        return self

    # -- Looking things up -------------------------------------------------------------------------------------------

    @property
    def main_unit(self) -> ComputeUnit:
        """The compute unit that blocks are scheduled on: the first described.

        Raises:
            DescriptorError: no unit is described.
        """
        if not self.units:
            raise self._unknown("units", "no compute unit is described")
        return self.units[0]

    def unit(self, kind: str) -> ComputeUnit:
        """The compute unit of this kind, in the vendor's spelling or the one of paths (`AI core`, `ai_core`).

        Raises:
            DescriptorError: the chip has no such unit.
        """
        for unit in self.units:
            if unit.key == slug(kind):
                return unit
        known = ", ".join(unit.kind for unit in self.units) or "none"
        raise self._unknown(f"units.{slug(kind)}", f"no compute unit {kind!r} (described: {known})")

    def memory(self, name: str) -> MemorySpace:
        """The memory space of this name.

        Raises:
            DescriptorError: the chip has no such memory.
        """
        for memory in self.memories:
            if memory.name == name:
                return memory
        known = ", ".join(memory.name for memory in self.memories) or "none"
        raise self._unknown(f"memories.{name}", f"no memory {name!r} (described: {known})")

    def memories_for_scope(self, scope: str) -> tuple[MemorySpace, ...]:
        """Every memory that serves a TileLang scope, the usual one first; empty when none does.

        `shared.dyn` and barriers (`shared.barrier`) are served by what serves `shared`, `local.fragment` by what serves
        `fragment`.
        """
        wanted = {scope, re.sub(r"\.(dyn|barrier|cluster_barrier)$", "", scope), scope.removeprefix("local.")}
        return tuple(memory for memory in self.memories if wanted.intersection(memory.scopes))

    def memory_for_scope(self, scope: str) -> MemorySpace:
        """The memory that serves a TileLang scope (`global`, `shared`, `shared.dyn`, `fragment`, ...), the usual one.

        Raises:
            DescriptorError: no described memory serves it.
        """
        found = self.memories_for_scope(scope)
        if not found:
            served = ", ".join(sorted({name for memory in self.memories for name in memory.scopes})) or "none"
            raise self._unknown("memories", f"no memory serves the scope {scope!r} (served: {served})")
        return found[0]

    def rate(
        self, dtype: str, unit: Literal["matrix", "vector"] | None = None, accumulator: str | None = None
    ) -> PeakRate | None:
        """The peak rate for operands of `dtype`: the matrix unit's, else the vector unit's, unless `unit` says which.

        A rate for `float8` stands for both of its encodings. None when the chip publishes no such rate; a `PeakRate`
        whose `ops_per_s` is None is one that exists but is unknown.
        """
        family = re.sub(r"^(float[0-9]+)_e[0-9]+m[0-9]+.*$", r"\1", dtype)
        for wanted in ("matrix", "vector") if unit is None else (unit,):
            for name in (dtype, family):
                for rate in self.rates:
                    if rate.unit == wanted and rate.dtype == name and accumulator in (None, rate.accumulator_dtype):
                        return rate
        return None

    def figure(self, path: str) -> Any:
        """The figure at a dotted path, None when unknown.

        Raises:
            DescriptorError: no such figure exists in a descriptor.
        """
        from core.hardware.figures import figure

        return figure(self, path)

    def require(self, path: str) -> Any:
        """The figure at a dotted path.

        Raises:
            DescriptorError: it is unknown; the message names it.
        """
        value = self.figure(path)
        if value is None:
            raise self._unknown(path, f"{path} is unknown: nobody has published it")
        return value

    def source_of(self, path: str) -> Source | None:
        """Where the figure at a path comes from: the figure's own source, else that of the record that holds it."""
        key = self.source_key_of(path)
        return self.references[key] if key is not None else None

    def source_key_of(self, path: str) -> str | None:
        """Key in `references` of the source of the figure at a path."""
        while path:
            if path in self.sources:
                return self.sources[path]
            path = path.rpartition(".")[0]
        return None

    # -- Computing from the descriptor -------------------------------------------------------------------------------

    def with_changes(self, *changes: str) -> Chip:
        """A what-if chip: the same with figures changed, e.g. `with_changes("shared=128KiB", "ap=52")`.

        Raises:
            DescriptorError: an unknown figure (the message lists what may be changed) or a value that is no quantity.
        """
        from core.hardware.changes import with_changes

        return with_changes(self, changes)

    def occupancy(self, threads: int, registers: int, shared_static: int = 0, shared_dynamic: int = 0) -> Occupancy:
        """How many blocks of a kernel one main unit holds, and what limits it.

        Args:
            threads: per block, as really launched.
            registers: per thread, as the native compiler reports.
            shared_static, shared_dynamic: bytes per block.

        Raises:
            DescriptorError: the chip does not run waves of threads.
        """
        from core.hardware.occupancy import occupancy

        return occupancy(self, threads, registers, shared_static, shared_dynamic)

    def clusters_at_once(self, blocks: int, resident: int = 1) -> int | None:
        """Clusters that run at once on any chip of this kind; None when a figure is unknown.

        It may be too high by a few: `core.hardware.occupancy.clusters_at_once` says why.

        Args:
            blocks: of a cluster, which all run in one group of units.
            resident: blocks that one unit holds at a time.
        """
        from core.hardware.occupancy import clusters_at_once

        unit = self.main_unit
        if unit.count is None or unit.per_group is None:
            return None
        return clusters_at_once(unit.count, unit.per_group, blocks, resident)

    def tvm_target(self) -> dict[str, Any]:
        """The descriptor as a TVM target config, for `tvm.target.Target(...)`. TVM is not imported.

        Raises:
            DescriptorError: the backend names no TVM kind for this chip.
        """
        from core.hardware.tvm_target import tvm_target

        return tvm_target(self)

    def fingerprint(self) -> str:
        """SHA-256, in hex, of everything about the chip that can change code or tile choice."""
        text = json.dumps(self.model_dump_for_fingerprint(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def model_dump_for_fingerprint(self) -> dict[str, Any]:
        """Everything that can change code or tile choice: all of it but prose and sources."""
        prose = {"title", "notes", "sources", "references", "aliases", "device_names", "figure_notes"}
        return self.model_dump(mode="json", exclude=prose)

    def _unknown(self, path: str, reason: str) -> DescriptorError:
        return DescriptorError(
            f"{self.target}: {reason}",
            hint=f"`python -m core.describe --target {self.target}` shows what is known",
            details={"target": self.target, "figure": path},
        )
