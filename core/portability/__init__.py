"""Which chips a kernel can go to as it is, line by line, without lowering it and without a device.

:func:`report` asks the tile-level view, the chips' descriptors, the checks every compilation makes and the table of
what stock lowering would change; docs/portability.md says what each verdict means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core._lazy import lazy_names

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

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "examine": ("report",),
        "model": ("RULES", "ChipReport", "LineVerdict", "MemoryVerdict", "Remark", "Report", "Status"),
        "sarif": ("to_sarif",),
    },
)
