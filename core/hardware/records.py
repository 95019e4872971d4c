"""The records a hardware descriptor is made of, as frozen pydantic models; :class:`core.Chip` holds them.

Every figure is a plain number with its unit in the field's name, or None when nobody has published it: nothing is
guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Owner = Literal["device", "unit", "block", "thread"]
Trust = Literal["vendor", "vendor-quoted", "toolchain", "measured", "derived", "third-party", "what-if"]


class Model(BaseModel):
    """Base of every record: immutable, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def slug(kind: str) -> str:
    """The form of a unit's kind in paths and TOML keys: `AI core` -> `ai_core`."""
    return re.sub(r"[^a-z0-9]+", "_", kind.lower()).strip("_")


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
    per_main_unit: int | None = Field(None, description="how many belong to one main unit (2 vector cores per AI core)")
    per_group: int | None = Field(None, description="most units in a group (a GPC); a cluster's blocks run in one")
    lanes_per_wave: int | None = Field(None, description="threads in a wave (warp); SIMD float32 lanes on a CPU")
    sub_units: int | None = Field(None, description="independent schedulers in a unit")
    fp32_lanes: int | None = None
    matrix_units: int | None = None
    max_threads: int | None = Field(None, description="resident threads per unit")
    max_waves: int | None = Field(None, description="resident waves per unit")
    max_blocks: int | None = Field(None, description="resident blocks per unit")
    clock_hz: float | None = Field(None, description="highest clock of the unit")
    registers: RegisterFile | None = None

    @property
    def key(self) -> str:
        """Name of this unit in paths and TOML: `ai_core`."""
        return slug(self.kind)


class MemorySpace(Model):
    """A level of the memory hierarchy, and which TileLang scopes it serves.

    `owner` is whose data it holds; `capacity_bytes` is that of one instance: the device's, one unit's, or one thread's.
    Memory owned by blocks (shared memory) has the capacity of the unit it sits in, and `per_block_bytes` beside it.
    """

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
    bus_width_bits: int | None = None
    bandwidth_bytes_per_s: float | None = None
    carveouts_bytes: tuple[int, ...] | None = None
    technology: str | None = None

    @property
    def block_limit_bytes(self) -> int | None:
        """The most one block may have here: `per_block_bytes`, else the capacity."""
        return self.per_block_bytes if self.per_block_bytes is not None else self.capacity_bytes


class MemoryPath(Model):
    """A way data can take between two memory spaces."""

    source: str
    destination: str
    engine: str | None = None
    asynchronous: bool = False
    note: str = ""

    @property
    def key(self) -> str:
        """Name of this path in paths and TOML: `global -> shared via TMA`."""
        return f"{self.source} -> {self.destination}" + (f" via {self.engine}" if self.engine else "")


class LaneLayout(Model):
    """Which matrix element register `i` of lane `lane` holds.

    `row` and `column` are integer expressions in `lane` and `i` (Python operators). For operand A rows run over m and
    columns over k; for B rows over k and columns over n; for C rows over m and columns over n.
    """

    elements_per_lane: int
    row: str
    column: str

    @field_validator("row", "column")
    @classmethod
    def _is_index_expression(cls, expression: str) -> str:
        from core.hardware.layouts import compile_index

        compile_index(expression)
        return expression

    def element(self, lane: int, i: int) -> tuple[int, int]:
        """(row, column) of the matrix element that register `i` of lane `lane` holds."""
        from core.hardware.layouts import compile_index

        return compile_index(self.row)(lane, i), compile_index(self.column)(lane, i)

    def elements(self, lanes: int) -> Iterator[tuple[int, int]]:
        """(row, column) of every register of every one of `lanes` lanes, lane by lane."""
        from core.hardware.layouts import compile_index

        row, column = compile_index(self.row), compile_index(self.column)
        for lane in range(lanes):
            for i in range(self.elements_per_lane):
                yield row(lane, i), column(lane, i)


class MatrixInstruction(Model):
    """One matrix instruction: C(m, n) += A(m, k) B(k, n).

    When `n_choices` is given the instruction exists for each of these n, and `n` is the largest. `c_layout` holds for
    all of them: its `elements_per_lane` is that of the largest, and a smaller n uses the first m*n/lanes registers.
    """

    name: str
    m: int
    n: int
    k: int
    a_dtype: str
    b_dtype: str
    accumulator_dtype: str
    unit: str = Field(description="kind of compute unit that issues it")
    issued_by: Literal["wave", "warpgroup", "core", "thread"] = "wave"
    n_choices: tuple[int, ...] = ()
    a_layout: LaneLayout | None = None
    b_layout: LaneLayout | None = None
    c_layout: LaneLayout | None = None
    note: str = ""

    @property
    def types(self) -> tuple[str, str, str]:
        """(A, B, accumulator) dtypes."""
        return self.a_dtype, self.b_dtype, self.accumulator_dtype


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
    ops_per_cycle_per_unit: int | None = Field(None, description="of one main unit; the multiply-add counts as two")
    clock_hz: float | None = Field(None, description="clock at which the peak is quoted")
