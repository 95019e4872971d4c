"""The host CPU is always there. What the C library says about it is handed on for `describe --verify`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from backends.cpu.chips import host_chip
from core.plugins import DetectedDevice, hookimpl

#: glibc's sysconf numbers on Linux; Python has no names for them. It reads them with CPUID, not from the files. Its L3
#: is not asked: on some AMD processors it is the sum of all instances, and the descriptor has one of them.
_SC_CACHE_SIZES = {"l1": 188, "l2": 191}


@hookimpl
def tilehal_detect() -> Sequence[DetectedDevice]:
    """The CPU of this machine, at the lowest priority: `auto` takes it when nothing else is there."""
    chip = host_chip()
    return (
        DetectedDevice(
            chip=chip.name,
            index=0,
            evidence=f"/proc/cpuinfo: {chip.title}",
            torch_device="cpu",
            priority=0,
            facts=c_library_facts(),
        ),
    )


def c_library_facts() -> dict[str, Any]:
    """Figures from the C library, by the descriptor's paths; what it does not know (0 or an error) is left out."""
    facts: dict[str, Any] = {}
    for name, number in _SC_CACHE_SIZES.items():
        try:
            size = os.sysconf(number)
        except (OSError, ValueError):
            continue
        if size > 0:
            facts[f"memories.{name}.capacity_bytes"] = size
    facts["memories.global.capacity_bytes"] = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return facts
