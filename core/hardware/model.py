"""The chip model: what a hardware descriptor says, as frozen pydantic models.

Every figure is a plain number with its unit in the field's name, or None when nobody has published it: nothing is
guessed. Where each figure comes from is in `Chip.sources`, keyed by the dotted path of the figure
(`units.sm.count`, `memories.shared.capacity_bytes`, `rates.matrix.float16.ops_per_s`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Owner = Literal["device", "unit", "block", "thread"]
Trust = Literal["vendor", "vendor-quoted", "toolchain", "measured", "derived", "third-party"]


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(Model):
    """Where figures come from: `title` as a reader can find it, `trust` how far to believe it."""

    title: str
    trust: Trust
    url: str | None = None


class RegisterFile(Model):
    """Registers of one compute unit, counted in registers of `width_bits`."""

    per_unit: int | None = None
    per_block: int | None = None
    per_thread: int | None = None
    width_bits: int = 32
    allocation_unit: int | None = Field(None, description="registers allocated at a time, per wave")


class ComputeUnit(Model):
    """One kind of compute unit and how many the chip has.

    A chip with different units (cube and vector cores) has one record for each; `Chip.main_unit` is the first.
    """

    kind: str = Field(description="the vendor's term: SM, AP, AI core, cube core, vector core, CPU core")
    count: int | None = None
    lanes_per_wave: int | None = Field(None, description="threads in a wave (warp); SIMD float32 lanes on a CPU")
    sub_units: int | None = Field(None, description="independent schedulers in a unit")
    fp32_lanes: int | None = None
    matrix_units: int | None = None
    max_threads: int | None = Field(None, description="resident threads per unit")
    max_waves: int | None = Field(None, description="resident waves per unit")
    max_blocks: int | None = Field(None, description="resident blocks per unit")
    clock_hz: float | None = None
    registers: RegisterFile | None = None


class MemorySpace(Model):
    """A level of the memory hierarchy, and which TileLang scopes it serves."""

    name: str
    scopes: tuple[str, ...] = Field((), description="TileLang scopes that live here: global, shared, fragment, ...")
    owner: Owner
    unit: str | None = Field(None, description="kind of compute unit that owns it, when owner is unit or block")
    capacity_bytes: int | None = None
    per_block_bytes: int | None = Field(None, description="most one block may use, opted in if the runtime asks for it")
    static_per_block_bytes: int | None = Field(None, description="most one block may declare statically")
    reserved_per_block_bytes: int | None = Field(None, description="taken by the runtime from each block's share")
    allocation_unit_bytes: int | None = None
    alignment_bytes: int | None = None
    banks: int | None = None
    bank_width_bytes: int | None = None
    bandwidth_bytes_per_s: float | None = None
    carveouts_bytes: tuple[int, ...] | None = None
    technology: str | None = None


class MemoryPath(Model):
    """A way data can take between two memory spaces."""

    source: str
    destination: str
    engine: str | None = None
    asynchronous: bool = False
    note: str = ""


class LaneLayout(Model):
    """Which matrix element register `i` of lane `lane` holds.

    `row` and `column` are integer expressions in `lane` and `i` (Python operators). For operand A rows run over m and
    columns over k; for B rows over k and columns over n; for C rows over m and columns over n.
    """

    elements_per_lane: int
    row: str
    column: str


class MatrixInstruction(Model):
    """One matrix instruction: C(m, n) += A(m, k) B(k, n)."""

    name: str
    m: int
    n: int
    k: int
    a_dtype: str
    b_dtype: str
    accumulator_dtype: str
    unit: str = Field(description="kind of compute unit that issues it")
    issued_by: Literal["wave", "warpgroup", "core"] = "wave"
    a_layout: LaneLayout | None = None
    b_layout: LaneLayout | None = None
    c_layout: LaneLayout | None = None
    note: str = ""


class ExecutionLimits(Model):
    """What one launch may ask for."""

    threads_per_block: int | None = None
    block_dim: tuple[int, int, int] | None = None
    grid_dim: tuple[int, int, int] | None = None
    grid_blocks: int | None = Field(None, description="largest product of the grid's axes")
    thread_multiple: int | None = Field(None, description="threads per block must be a multiple of this")


class PeakRate(Model):
    """Dense peak of one unit kind for one operand type; a multiply-add counts as two operations."""

    unit: Literal["matrix", "vector"]
    dtype: str
    accumulator_dtype: str | None = None
    ops_per_s: float | None = None


class Chip(Model):
    """A chip, as its vendor's backend describes it. Implements :class:`core.hardware.HardwareDescriptor`."""

    vendor: str
    name: str
    title: str = Field(description="product name as people write it")
    aliases: tuple[str, ...] = ()
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
    notes: tuple[str, ...] = Field((), description="conflicts between sources and other things a reader must know")
    sources: Mapping[str, str] = Field(default_factory=dict, description="dotted path of a figure -> key of references")
    references: Mapping[str, Source] = Field(default_factory=dict)
    modified: tuple[str, ...] = Field((), description="what-if modifications, as spelled in the target")

    @property
    def target(self) -> str:
        """The target string that names this chip, e.g. `cuda:h200`."""
        return "+".join((f"{self.vendor}:{self.name}", *self.modified))

    def model_dump_for_fingerprint(self) -> dict[str, Any]:
        """Everything that can change code or tile choice: all of it but prose and sources."""
        return self.model_dump(mode="json", exclude={"title", "notes", "sources", "references", "aliases"})
