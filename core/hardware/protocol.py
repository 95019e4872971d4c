"""What may be asked of a hardware descriptor, whatever it is read from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from core.hardware.occupancy import Occupancy
    from core.hardware.records import (
        ComputeUnit,
        ExecutionLimits,
        MatrixInstruction,
        MemoryPath,
        MemorySpace,
        PeakRate,
        Source,
    )


@runtime_checkable
class HardwareDescriptor(Protocol):
    """What a chip is, as occupancy and rooflines take it.

    :class:`core.Chip` implements it; hooks hand on that class, whether its figures were read from a TOML file or asked
    of the machine. A figure that is not known is None, never a guess; `require` turns that into an error that names the
    figure.
    """

    @property
    def vendor(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def architecture(self) -> str | None: ...
    @property
    def codegen(self) -> Mapping[str, str | int | bool]: ...
    @property
    def units(self) -> tuple[ComputeUnit, ...]: ...
    @property
    def memories(self) -> tuple[MemorySpace, ...]: ...
    @property
    def paths(self) -> tuple[MemoryPath, ...]: ...
    @property
    def matrix_instructions(self) -> tuple[MatrixInstruction, ...]: ...
    @property
    def limits(self) -> ExecutionLimits: ...
    @property
    def rates(self) -> tuple[PeakRate, ...]: ...
    @property
    def features(self) -> tuple[str, ...]: ...
    @property
    def cost(self) -> Mapping[str, float]: ...
    @property
    def target(self) -> str:
        """The target string that names it, e.g. `cuda:h200`."""
        ...

    @property
    def main_unit(self) -> ComputeUnit:
        """The compute unit that blocks are scheduled on."""
        ...

    def unit(self, kind: str) -> ComputeUnit:
        """The compute unit of a kind; `DescriptorError` when there is none."""
        ...

    def memory(self, name: str) -> MemorySpace:
        """The memory space of a name; `DescriptorError` when there is none."""
        ...

    def memories_for_scope(self, scope: str) -> tuple[MemorySpace, ...]:
        """Every memory that serves a TileLang scope, the usual one first; empty when none does."""
        ...

    def memory_for_scope(self, scope: str) -> MemorySpace:
        """The memory that serves a TileLang scope; `DescriptorError` when none does."""
        ...

    def rate(
        self, dtype: str, unit: Literal["matrix", "vector"] | None = None, accumulator: str | None = None
    ) -> PeakRate | None:
        """The peak rate for operands of a type, None when there is none."""
        ...

    def figure(self, path: str) -> Any:
        """The figure at a dotted path, None when unknown."""
        ...

    def require(self, path: str) -> Any:
        """The figure at a dotted path; `DescriptorError` when unknown."""
        ...

    def source_of(self, path: str) -> Source | None:
        """Where the figure at a dotted path comes from."""
        ...

    def occupancy(self, threads: int, registers: int, shared_static: int = 0, shared_dynamic: int = 0) -> Occupancy:
        """How many blocks of a kernel one main unit holds."""
        ...

    def fingerprint(self) -> str:
        """Changes exactly when something that can change code or tile choice does."""
        ...
