"""A tokenizer for the C++ that TileLang's code generator prints: every character of the text is in some token."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a token is."""

    SPACE = "space"
    COMMENT = "comment"
    DIRECTIVE = "directive"
    STRING = "string"
    NUMBER = "number"
    NAME = "name"
    PUNCTUATION = "punctuation"


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of source text; `line` counts from 1."""

    kind: Kind
    text: str
    line: int


#: In order of precedence. A directive takes its continuation lines with it; `#` begins nothing else in generated code.
_PATTERNS = (
    (Kind.COMMENT, r"//[^\n]*|/\*.*?\*/"),
    (Kind.DIRECTIVE, r"#(?:[^\n\\]|\\\n|\\.)*"),
    (Kind.SPACE, r"\s+"),
    (Kind.STRING, r'(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\''),
    (Kind.NUMBER, r"\.?\d(?:[eEpP][+-]|[\w.'])*"),
    (Kind.NAME, r"[A-Za-z_$][\w$]*"),
    (Kind.PUNCTUATION, r"::|->\*?|<<=|>>=|<=>|\.\.\.|[-+*/%&|^=!<>]=|<<|>>|&&|\|\||\+\+|--|[^\s\w\"']"),
)
_TOKEN = re.compile("|".join(f"(?P<{kind.name}>{pattern})" for kind, pattern in _PATTERNS), re.DOTALL)


def tokenize(source: str) -> Iterator[Token]:
    """The tokens of `source`; joined, their texts give it back.

    Raises:
        ValueError: a character that begins no token (an unterminated string).
    """
    position, line = 0, 1
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None or match.lastgroup is None:
            raise ValueError(f"line {line}: {source[position : position + 20]!r} begins no token")
        text = match.group()
        yield Token(Kind[match.lastgroup], text, line)
        line += text.count("\n")
        position = match.end()
