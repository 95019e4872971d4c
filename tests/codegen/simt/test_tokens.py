"""The tokenizer loses nothing and knows what a name is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.codegen.simt.tokens import Kind, tokenize

PIECES = [
    "int x = 0x1Fu;",
    "a->b",
    "1.5e-3f",
    '"a \\" b"',
    "// tail\n",
    "/* two\nlines */",
    "#define A \\\n 1\n",
    "tl::f<3>",
    "'c'",
]


@given(st.lists(st.sampled_from([*PIECES, " ", "\n", "\t", "<<=", "&&", ".", "..."]), max_size=30))
def test_the_tokens_joined_are_the_text(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert "".join(token.text for token in tokenize(text)) == text


def test_names_in_strings_comments_and_directives_are_not_names() -> None:
    text = 'foo("threadIdx"); // blockIdx\n#include <hip/x.h>\nbar(threadIdx.x);'
    assert [t.text for t in tokenize(text) if t.kind is Kind.NAME] == ["foo", "bar", "threadIdx", "x"]


def test_a_number_with_a_suffix_is_one_token() -> None:
    for text in ("1.5e-3f", "0x7fu", "1ll", ".5f", "0.000000e+00f"):
        assert [t.text for t in tokenize(text)] == [text]


def test_lines_count_through_comments_and_continued_directives() -> None:
    lines = {t.text: t.line for t in tokenize("a\n/* x\ny */ b\n#define Q \\\n 2\nc") if t.kind is Kind.NAME}
    assert lines == {"a": 1, "b": 3, "c": 6}


def test_an_unterminated_string_is_an_error_with_its_line() -> None:
    with pytest.raises(ValueError, match="line 2"):
        list(tokenize('a\n"open'))
