"""From a line of generated code to the line of the user's kernel: by the buffers it reads and writes.

The code generator prints no line numbers, but it keeps the names of buffers. A generated line belongs to the statement
of the tile-level view that reads and writes the same buffers; a line with no buffer (a barrier, the head of a loop) to
the nearest operation after it, else before it. This is a guess where several statements treat the same buffers alike:
the first of them is named.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.codegen.simt.simulator.rewrite import sides
from core.errors import Location

if TYPE_CHECKING:
    from core.program import View

_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class _Operation:
    reads: frozenset[str]
    writes: frozenset[str]
    location: Location


def user_location(view: View, source: str, line: int) -> Location | None:
    """The user's line behind line `line` (from 1) of the generated `source`; None when nothing matches anywhere."""
    operations = _operations(view)
    lines = source.splitlines()
    if not operations or not 0 < line <= len(lines):
        return view.location
    for candidate in (line, *range(line + 1, len(lines) + 1), *range(line - 1, 0, -1)):
        found = _best(operations, lines[candidate - 1])
        if found is not None:
            return found
    return view.location


def _operations(view: View) -> list[_Operation]:
    from core.program.effects import statement_effects
    from core.program.walk import statements

    found = []
    for stmt in statements(view):
        if stmt.location is None:
            continue
        reads, writes = statement_effects(stmt)
        if reads or writes:
            names = (frozenset(b.name for b in reads), frozenset(b.name for b in writes))
            found.append(_Operation(*names, stmt.location))
    return found


def _best(operations: list[_Operation], text: str) -> Location | None:
    """The operation whose reads and writes the line shows most of; None when it shows none."""
    code = text.partition("//")[0]
    if "__global__" in code or code.lstrip().startswith(("#", "void*")):
        return None
    left, right = sides(code)
    written, read = set(_WORD.findall(left)), set(_WORD.findall(right))
    best: tuple[int, Location] | None = None
    for operation in operations:
        score = 3 * len(written & operation.writes) + 3 * len(read & operation.reads)
        score += len((written | read) & (operation.reads | operation.writes))
        if score and (best is None or score > best[0]):
            best = (score, operation.location)
    return best[1] if best is not None else None
