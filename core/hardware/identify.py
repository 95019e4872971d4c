"""Finding the described chip behind the name a driver reports."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.hardware.model import Chip


def chip_by_device_name(chips: Iterable[Chip], reported: str) -> Chip | None:
    """The chip one of whose `device_names`, name or aliases is the reported name; None when no chip says so.

    Case and punctuation do not count (`NVIDIA H100 PCIe` is `nvidia-h100-pcie`); nothing else is guessed: a longer or
    shorter product name is another product.
    """
    wanted = _plain(reported)
    for chip in chips:
        if wanted in {_plain(name) for name in (*chip.device_names, chip.name, *chip.aliases)}:
            return chip
    return None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.casefold())
