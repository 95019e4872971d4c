"""Baselines: latency, rates, memory, error and compile time of a set of kernels, kept in git and compared.

Each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_HOMES = {
    "comparing": ("Comparison", "compare"),
    "judging": ("Criteria",),
    "measuring": ("Settings",),
    "picture": ("draw_comparison",),
    "process": ("Build",),
    "recording": ("record", "record_builds"),
    "snapshot": ("Row", "Snapshot", "Timing"),
    "suite": ("Case", "default_suite", "load_suite"),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
