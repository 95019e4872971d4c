"""Runs kernels scheduled by hand for Hopper without a GPU, in adverse orders, and finds what is wrong with them.

Simulated: it says nothing of speed, nor of what the compilers make of the kernel. docs/schedules.md has the model.
"""

from core.conformance.schedules.faults import (
    BarrierMisuse,
    Deadlock,
    EndsEarly,
    MissingFence,
    OutOfBounds,
    Race,
    RegistersInFlight,
    ScheduleFault,
)
from core.conformance.schedules.running import ScheduleRun, prepare, run_schedule

__all__ = [
    "BarrierMisuse",
    "Deadlock",
    "EndsEarly",
    "MissingFence",
    "OutOfBounds",
    "Race",
    "RegistersInFlight",
    "ScheduleFault",
    "ScheduleRun",
    "prepare",
    "run_schedule",
]
