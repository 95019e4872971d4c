"""Source text: names, line breaks, string literals."""

from __future__ import annotations

from core.codegen.cpp.names import Names
from core.codegen.cpp.writer import Writer, short, string_literal
from core.errors import Location
from core.program import Var, VarKind


def test_a_name_is_kept_where_it_is_free_and_numbered_where_not() -> None:
    names = Names()
    row, new, other = (Var("int32", name, VarKind.LET) for name in ("row", "new", "row"))
    assert [names.of(row), names.of(new), names.of(other), names.of(row)] == ["row", "new_2", "row_2", "row"]


def test_long_lines_break_outside_brackets_first() -> None:
    writer = Writer()
    writer.line("result = function(first_argument + 1, second_argument, third_argument) + " + "x" * 60 + ";")
    first, second = writer.text().splitlines()
    assert first.endswith("third_argument)")
    assert second.strip().startswith("+ x")
    assert max(map(len, (first, second))) <= 120


def test_a_line_is_never_broken_inside_a_string() -> None:
    writer = Writer()
    writer.line('status.fail("' + "a, b = c + " * 15 + '"); return;')
    assert len(writer.text().splitlines()) == 1


def test_blocks_indent_and_locations_are_said_once() -> None:
    writer = Writer()
    here = Location("/somewhere/kernel.py", 7)
    with writer.block("for (;;)"):
        writer.mark(here)
        writer.line("a();")
        writer.mark(here)
        writer.line("b();")
    assert writer.text() == "for (;;) {\n    // kernel.py:7\n    a();\n    b();\n}\n"
    assert short(here) == "kernel.py:7"


def test_string_literals_escape_what_c_would_read() -> None:
    assert string_literal('a"b\\c\nd') == '"a\\"b\\\\c\\nd"'
    assert string_literal("µ1") == '"\\302\\2651"'
