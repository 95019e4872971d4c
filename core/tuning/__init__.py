"""Measuring kernels on a device: timing, the tuner and its store of results, baselines.

Each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.tuning.environment import Environment as Environment
    from core.tuning.inputs import make_arguments as make_arguments
    from core.tuning.measure import Measurement as Measurement
    from core.tuning.measure import Together as Together
    from core.tuning.measure import measure_together as measure_together
    from core.tuning.report import ShapeReport as ShapeReport
    from core.tuning.report import TuneReport as TuneReport
    from core.tuning.results.lookup import Tuned as Tuned
    from core.tuning.results.lookup import tuned_tiles as tuned_tiles
    from core.tuning.results.lookup import use_tuned as use_tuned
    from core.tuning.results.neighbours import covering as covering
    from core.tuning.results.records import Key as Key
    from core.tuning.results.records import Outcome as Outcome
    from core.tuning.results.records import Result as Result
    from core.tuning.results.store import Store as Store
    from core.tuning.results.store import default_store as default_store
    from core.tuning.tuner import TuningInterrupted as TuningInterrupted

_HOMES = {
    "environment": ("Environment",),
    "inputs": ("make_arguments",),
    "measure": ("Measurement", "Together", "measure_together"),  # `core.tuning.measure` is the module, not its function
    "report": ("ShapeReport", "TuneReport"),
    "results.lookup": ("Tuned", "tuned_tiles", "use_tuned"),
    "results.neighbours": ("covering",),
    "results.records": ("Key", "Outcome", "Result"),
    "results.store": ("Store", "default_store"),
    "tuner": ("TuningInterrupted",),
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
