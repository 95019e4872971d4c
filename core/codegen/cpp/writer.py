"""Writing indented source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath

from core.errors import Location

_WIDTH = 120


class Writer:
    """Lines of C++ with the current indentation."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._location: Location | None = None

    def line(self, text: str = "") -> None:
        """Adds a line; one that is too long is broken at a comma or an operator."""
        indent = "    " * self._depth
        self._lines += _wrapped(indent, text) if text else [""]

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """`head {`, what is written inside, and `tail`."""
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        self.line(tail)

    @contextmanager
    def indented(self) -> Iterator[None]:
        """One level deeper, without braces of its own."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    @contextmanager
    def call(self, function: str) -> Iterator[None]:
        """`function(`, then its arguments on lines of their own; the last one closes the call."""
        self.line(f"{function}(")
        with self.indented():
            yield

    def mark(self, location: Location | None, what: str = "") -> None:
        """A comment with the user's line, when it is another one than before or something is said about it."""
        if location is None:
            if what:
                self.line(f"// {what}")
            return
        if what or location != self._location:
            self.line(f"// {short(location)}{'  ' + what if what else ''}")
        self._location = location

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def short(location: Location) -> str:
    """`softmax.py:12`: the file without its folders, so that the source does not depend on where it was made."""
    return f"{PurePath(location.file).name}:{location.line}"


#: Where a line may be broken, and whether behind the mark (a comma) or before it (an operator).
_BREAKS = (("= ", True), (", ", True), (" ? ", False), (" : ", False), (" || ", False), (" && ", False), (" + ", False))
_SHORTEST = 40


def _wrapped(indent: str, text: str) -> list[str]:
    lines: list[str] = []
    while len(indent) + len(text) > _WIDTH and not text.startswith("//"):
        cut = _break_position(text, _WIDTH - len(indent))
        if cut is None:
            break
        lines.append(indent + text[:cut].rstrip())
        text = text[cut:].lstrip()
        if len(lines) == 1:
            indent += "        "
    lines.append(indent + text)
    return lines


def _break_position(text: str, room: int) -> int | None:
    """The last place to break in the first `room` characters, among those inside the fewest brackets."""
    depth, in_string = 0, False
    best: tuple[int, int] | None = None
    for position, char in enumerate(text[:room]):
        if char == '"' and text[position - 1] != "\\":
            in_string = not in_string
        if in_string:
            continue
        depth += (char in "([{") - (char in ")]}")
        for mark, behind in _BREAKS:
            cut = position + len(mark) - 1 if behind else position
            if text.startswith(mark, position) and _SHORTEST <= cut < room and (best is None or depth <= best[0]):
                best = (depth, cut)
    return None if best is None else best[1]


def string_literal(text: str) -> str:
    """`text` as a C string literal."""
    out = []
    for char in text:
        if char in '"\\':
            out.append("\\" + char)
        elif char == "\n":
            out.append("\\n")
        elif " " <= char <= "~":
            out.append(char)
        else:
            out.extend(f"\\{byte:03o}" for byte in char.encode())
    return '"' + "".join(out) + '"'
