"""Where a statement comes from: the nearest line of the user's own file.

TileLang stamps a span on every statement and buffer it traces. Statements that come out of one of TileLang's own macros
(a reduction of a shared tile, a scan, `T.print`) carry the macro's line instead. For those the user's call is looked up
in the user's source: it lies between the statements before and after it and names the operation.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from core.errors import Location

#: What the user wrote to get a macro of TileLang's file expanded, by the file's stem.
_CALLS = {
    "reduce_op": re.compile(r"\breduce\w*\s*\("),
    "scan_op": re.compile(r"\bcum(sum|max)\w*\s*\("),
    "print": re.compile(r"\bprint\s*\("),
    "print_op": re.compile(r"\bprint\s*\("),
    "atomic": re.compile(r"\batomic_\w+\s*\("),
    "gemm_op": re.compile(r"\b\w*gemm\w*\s*\("),
}


@lru_cache(maxsize=1)
def _tilelang_root() -> str:
    import tilelang

    return str(Path(tilelang.__file__).parent)


def statement_location(stmt: Any) -> Location | None:
    """The raw span of a TIR statement, wherever it points."""
    from tilelang.ir import get_stmt_span

    return _location(get_stmt_span(stmt))


def buffer_location(buffer: Any) -> Location | None:
    """The line that declares a buffer."""
    from tilelang.ir import get_buffer_span

    return _location(get_buffer_span(buffer))


def function_location(prim_func: Any) -> Location | None:
    """The line of the kernel function."""
    from tilelang.ir import get_prim_func_span

    return _location(get_prim_func_span(prim_func))


def _location(span: Any) -> Location | None:
    return None if span is None else Location(span.source_name.name, span.line)


def is_user_location(location: Location | None) -> bool:
    """Whether this is a line of the user's and not one of TileLang's own macros."""
    return location is not None and not location.file.startswith(_tilelang_root())


def sequence_locations(statements: Sequence[Any], enclosing: Location | None) -> list[Location | None]:
    """The user's line of each statement of a sequence; `enclosing` is the line of the statement around them."""
    raw = [statement_location(stmt) for stmt in statements]
    if all(is_user_location(location) for location in raw):
        return list(raw)
    found: list[Location | None] = []
    cursor = enclosing  # the last line of the user's known to lie before the statement at hand
    previous: Location | None = None  # the last span inside TileLang, to tell one macro call from the next
    for index, location in enumerate(raw):
        if location is None:
            found.append(cursor)
        elif is_user_location(location):
            if cursor is None or (location.file == cursor.file and location.line >= cursor.line):
                cursor = location
            previous = None
            found.append(location)
        else:
            continues = previous is not None and previous.file == location.file and previous.line < location.line
            if not continues:
                cursor = _call_after(cursor, raw[index + 1 :], location)
            previous = location
            found.append(cursor)
    return found


def _call_after(cursor: Location | None, later: Sequence[Location | None], inside: Location) -> Location | None:
    """The first line after `cursor`, and not after the next user statement, that calls the macro at `inside`."""
    pattern = _CALLS.get(Path(inside.file).stem)
    if cursor is None or pattern is None:
        return cursor
    end = cursor.line + 200
    for location in later:
        if location is not None and location.file == cursor.file and location.line > cursor.line:
            end = location.line
            break
    for line in range(cursor.line, end + 1):
        if pattern.search(linecache.getline(cursor.file, line)) and line > cursor.line:
            return Location(cursor.file, line)
    return cursor
