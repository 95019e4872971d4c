"""Hardware descriptors: what a chip is, with a source for every figure, and arithmetic on top of it.

Importing this package is cheap; each name below is loaded when it is first used (pydantic takes tens of milliseconds,
and a compile that hits the cache needs none of it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core._lazy import lazy_names

if TYPE_CHECKING:
    from core.hardware.identify import chip_by_device_name as chip_by_device_name
    from core.hardware.loading import load_chips as load_chips
    from core.hardware.loading import parse_chips as parse_chips
    from core.hardware.model import Chip as Chip
    from core.hardware.occupancy import Occupancy as Occupancy
    from core.hardware.protocol import HardwareDescriptor as HardwareDescriptor
    from core.hardware.records import ComputeUnit as ComputeUnit
    from core.hardware.records import ExecutionLimits as ExecutionLimits
    from core.hardware.records import LaneLayout as LaneLayout
    from core.hardware.records import MatrixInstruction as MatrixInstruction
    from core.hardware.records import MemoryPath as MemoryPath
    from core.hardware.records import MemorySpace as MemorySpace
    from core.hardware.records import PeakRate as PeakRate
    from core.hardware.records import RegisterFile as RegisterFile
    from core.hardware.records import Source as Source
    from core.hardware.roofline import Bound as Bound
    from core.hardware.roofline import Roofline as Roofline
    from core.hardware.roofline import rooflines as rooflines
    from core.hardware.verification import Check as Check
    from core.hardware.verification import verify as verify

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "identify": ("chip_by_device_name",),
        "loading": ("load_chips", "parse_chips"),
        "model": ("Chip",),
        "occupancy": ("Occupancy",),
        "protocol": ("HardwareDescriptor",),
        "records": (
            "ComputeUnit",
            "ExecutionLimits",
            "LaneLayout",
            "MatrixInstruction",
            "MemoryPath",
            "MemorySpace",
            "PeakRate",
            "RegisterFile",
            "Source",
        ),
        "roofline": ("Bound", "Roofline", "rooflines"),
        "verification": ("Check", "verify"),
    },
)
