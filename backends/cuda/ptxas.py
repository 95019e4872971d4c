"""Reading what `ptxas -v` says about a kernel: registers, spills, stack, static shared memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_FIGURES = {
    "registers_per_thread": re.compile(r"Used (\d+) registers"),
    "static_shared_bytes": re.compile(r"(\d+) bytes smem"),
    "stack_bytes": re.compile(r"(\d+) bytes stack frame"),
    "spill_store_bytes": re.compile(r"(\d+) bytes spill stores"),
    "spill_load_bytes": re.compile(r"(\d+) bytes spill loads"),
}


@dataclass(frozen=True, slots=True)
class EntryUsage:
    """One entry function. A figure ptxas does not print for this architecture is None; no shared memory prints 0."""

    name: str
    arch: str
    registers_per_thread: int | None = None
    static_shared_bytes: int | None = None
    stack_bytes: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None


def parse(text: str) -> dict[str, EntryUsage]:
    """Usage per entry function, from ptxas's messages. Fields vary by architecture and come in any order."""
    usage: dict[str, EntryUsage] = {}
    starts = list(_ENTRY.finditer(text))
    for index, start in enumerate(starts):
        end = starts[index + 1].start() if index + 1 < len(starts) else len(text)
        section = text[start.end() : end]
        figures: dict[str, int] = {}
        for name, pattern in _FIGURES.items():
            match = pattern.search(section)
            if match:
                figures[name] = int(match[1])
        if "registers_per_thread" in figures:
            figures.setdefault("static_shared_bytes", 0)
        usage[start[1]] = EntryUsage(start[1], start[2], **figures)
    return usage
