"""Measuring kernels on a device: timing, the tuner and its store of results, baselines.

Each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core._lazy import lazy_names

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

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "environment": ("Environment",),
        "inputs": ("make_arguments",),
        # Not its function `measure`: `core.tuning.measure` is the package.
        "measure": ("Measurement", "Together", "measure_together"),
        "report": ("ShapeReport", "TuneReport"),
        "results.lookup": ("Tuned", "tuned_tiles", "use_tuned"),
        "results.neighbours": ("covering",),
        "results.records": ("Key", "Outcome", "Result"),
        "results.store": ("Store", "default_store"),
        "tuner": ("TuningInterrupted",),
    },
)
