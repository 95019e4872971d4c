"""Baselines: latency, rates, memory, error and compile time of a set of kernels, kept in git and compared.

Each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core._lazy import lazy_names

if TYPE_CHECKING:
    from core.tuning.baseline.comparing import Comparison as Comparison
    from core.tuning.baseline.comparing import compare as compare
    from core.tuning.baseline.judging import Criteria as Criteria
    from core.tuning.baseline.measuring import Settings as Settings
    from core.tuning.baseline.picture import draw_comparison as draw_comparison
    from core.tuning.baseline.process import Build as Build
    from core.tuning.baseline.recording import record as record
    from core.tuning.baseline.recording import record_builds as record_builds
    from core.tuning.baseline.snapshot import Row as Row
    from core.tuning.baseline.snapshot import Snapshot as Snapshot
    from core.tuning.baseline.snapshot import Timing as Timing
    from core.tuning.baseline.suite import Case as Case
    from core.tuning.baseline.suite import default_suite as default_suite
    from core.tuning.baseline.suite import load_suite as load_suite

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "comparing": ("Comparison", "compare"),
        "judging": ("Criteria",),
        "measuring": ("Settings",),
        "picture": ("draw_comparison",),
        "process": ("Build",),
        "recording": ("record", "record_builds"),
        "snapshot": ("Row", "Snapshot", "Timing"),
        "suite": ("Case", "default_suite", "load_suite"),
    },
)
