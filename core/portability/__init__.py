"""Which chips a kernel can go to as it is, line by line, without lowering it and without a device.

:func:`report` asks the tile-level view, the chips' descriptors, the checks every compilation makes and the table of
what stock lowering would change; docs/portability.md says what each verdict means.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.portability.examine import report as report
    from core.portability.model import RULES as RULES
    from core.portability.model import ChipReport as ChipReport
    from core.portability.model import LineVerdict as LineVerdict
    from core.portability.model import MemoryVerdict as MemoryVerdict
    from core.portability.model import Remark as Remark
    from core.portability.model import Report as Report
    from core.portability.model import Status as Status
    from core.portability.sarif import to_sarif as to_sarif

_HOMES = {
    "examine": ("report",),
    "model": ("RULES", "ChipReport", "LineVerdict", "MemoryVerdict", "Remark", "Report", "Status"),
    "sarif": ("to_sarif",),
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
