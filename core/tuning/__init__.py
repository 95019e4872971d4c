"""Measuring kernels on a device: timing, inputs to time them with, baselines.

Each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.tuning.inputs import make_arguments as make_arguments
    from core.tuning.measure import Measurement as Measurement
    from core.tuning.measure import Together as Together
    from core.tuning.measure import measure as measure
    from core.tuning.measure import measure_together as measure_together

_MODULE_OF = {
    "make_arguments": "core.tuning.inputs",
    "Measurement": "core.tuning.measure",
    "Together": "core.tuning.measure",
    "measure": "core.tuning.measure",
    "measure_together": "core.tuning.measure",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
