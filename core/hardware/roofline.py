"""Roofline arithmetic: what rate a chip's peak and its memory allow at an arithmetic intensity.

Intensity is in operations per byte of traffic, a multiply-add counting as two operations, as in `PeakRate`.
(Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from core.errors import DescriptorError

if TYPE_CHECKING:
    from core.hardware.protocol import HardwareDescriptor


@dataclass(frozen=True, slots=True)
class Bound:
    """What limits a kernel that does `operations` and moves `bytes_moved`.

    Attributes:
        limited_by: `compute` or `memory`; on the ridge itself, compute.
        seconds: the shortest time the roofline allows.
        attainable_ops_per_s: the rate at that time.
        intensity: operations per byte.
    """

    limited_by: Literal["compute", "memory"]
    seconds: float
    attainable_ops_per_s: float
    intensity: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """One roof: a peak rate over one memory's bandwidth.

    Attributes:
        target: the chip it belongs to.
        dtype, unit: which of the chip's peak rates.
        memory: the memory whose bandwidth makes the slope.
    """

    target: str
    dtype: str
    unit: str
    memory: str
    peak_ops_per_s: float
    bandwidth_bytes_per_s: float

    @classmethod
    def of(
        cls,
        chip: HardwareDescriptor,
        dtype: str = "float16",
        unit: Literal["matrix", "vector"] | None = None,
        memory: str | None = None,
    ) -> Roofline:
        """The roofline of a chip for one operand type; the memory is the one that serves `global` unless named.

        Raises:
            DescriptorError: the peak or the bandwidth is unknown.
        """
        rate = chip.rate(dtype, unit)
        if rate is None or rate.ops_per_s is None:
            known = ", ".join(sorted({r.dtype for r in chip.rates if r.ops_per_s is not None})) or "none"
            raise DescriptorError(
                f"{chip.target}: the peak rate for {dtype} is unknown (known: {known})",
                hint="a roofline needs a published or measured peak; nothing is guessed",
                details={"target": chip.target, "figure": f"rates.{unit or 'matrix'}.{dtype}.ops_per_s"},
            )
        space = chip.memory(memory) if memory else chip.memory_for_scope("global")
        bandwidth = chip.require(f"memories.{space.name}.bandwidth_bytes_per_s")
        return cls(chip.target, rate.dtype, rate.unit, space.name, rate.ops_per_s, bandwidth)

    @property
    def ridge_ops_per_byte(self) -> float:
        """The intensity at which memory stops being the limit."""
        return self.peak_ops_per_s / self.bandwidth_bytes_per_s

    def attainable(self, intensity: float) -> float:
        """Operations per second the roof allows at an intensity in operations per byte.

        Raises:
            ValueError: a negative intensity.
        """
        if intensity < 0:
            raise ValueError("an intensity cannot be negative")
        return min(self.peak_ops_per_s, intensity * self.bandwidth_bytes_per_s)

    def bound(self, operations: float, bytes_moved: float) -> Bound:
        """What limits a kernel, and the time it cannot beat.

        Raises:
            ValueError: a negative amount, or neither operations nor bytes.
        """
        if operations < 0 or bytes_moved < 0 or operations + bytes_moved == 0:
            raise ValueError("a kernel does some operations or moves some bytes, and neither is negative")
        compute = operations / self.peak_ops_per_s
        memory = bytes_moved / self.bandwidth_bytes_per_s
        seconds = max(compute, memory)
        return Bound(
            limited_by="compute" if compute >= memory else "memory",
            seconds=seconds,
            attainable_ops_per_s=operations / seconds,
            intensity=operations / bytes_moved if bytes_moved else float("inf"),
        )


def rooflines(chip: HardwareDescriptor) -> tuple[Roofline, ...]:
    """Every roofline the descriptor has figures for, matrix rates before vector rates; empty when there is none."""
    found: dict[tuple[str, str], Roofline] = {}
    for rate in sorted(chip.rates, key=lambda rate: rate.unit):
        if rate.ops_per_s is None or (rate.unit, rate.dtype) in found:
            continue
        try:
            found[rate.unit, rate.dtype] = Roofline.of(chip, rate.dtype, rate.unit)
        except DescriptorError:
            continue
    return tuple(found.values())
