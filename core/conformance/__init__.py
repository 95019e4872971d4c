"""Checks that a backend keeps the meaning of kernels, and that kernels scheduled by hand have one in every order."""

from core.conformance.schedules import ScheduleFault, ScheduleRun, run_schedule

__all__ = ["ScheduleFault", "ScheduleRun", "run_schedule"]
