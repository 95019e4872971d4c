"""From the stock generator's HIP to a vendor's language, token by token, over a closed vocabulary.

A name in the generated text is a C++ keyword, a member after `.` or `->`, something the text declares itself, or it
must be in the dialect's tables. What is none of these is foreign (a `__builtin_amdgcn_*`, a `hip*`, `rocwmma`, inline
assembly, a function of the user's that the chip has not got) and refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core.codegen.simt.dialect import Dialect
from core.codegen.simt.tokens import Kind, Token, tokenize

_TYPE_WORDS = frozenset("void bool char short int long float double signed unsigned auto".split())
_KEYWORDS = _TYPE_WORDS | frozenset(
    "const constexpr static extern inline if else for while do break continue return switch case default sizeof "
    "alignof true false nullptr struct union enum class typedef using namespace template typename static_cast "
    "reinterpret_cast const_cast goto this operator new delete volatile".split()
)
#: Between a type and the name it declares.
_DECLARATORS = frozenset({"*", "&", "const", "__restrict__", "volatile"})
#: What follows a declared name.
_AFTER_NAME = frozenset({";", "=", "[", ",", ")", "{", ":"})
#: Named so in error messages, whatever the dialect.
_ASSEMBLY = frozenset({"asm", "__asm__", "__asm"})


@dataclass(frozen=True, slots=True)
class Foreign:
    """A name the dialect does not cover, the line of the generated text it is on, and the other names there."""

    name: str
    line: int
    neighbours: frozenset[str]


class UncoveredName(Exception):
    """The generated text uses names the dialect does not cover."""

    def __init__(self, found: Sequence[Foreign]) -> None:
        super().__init__(", ".join(item.name for item in found))
        self.found = tuple(found)


@dataclass(frozen=True, slots=True)
class Translated:
    """The kernel in the vendor's language, without headers.

    Attributes:
        body: the text.
        headers: optional headers whose names it uses.
        rewritten: stock name -> vendor name, for those that differ.
    """

    body: str
    headers: tuple[str, ...]
    rewritten: Mapping[str, str]


def translate(
    source: str,
    dialect: Dialect,
    *,
    entry_points: Iterable[str],
    generated: Iterable[str] = (),
    fast_math: bool = False,
) -> Translated:
    """Applies a dialect.

    Args:
        source: HIP C++ as TileLang prints it.
        entry_points: the functions it defines.
        generated: names of functions that will be defined before it (matrix products).
        fast_math: use the approximate functions.

    Raises:
        UncoveredName: names that are in no table.
    """
    tokens = [t for t in tokenize(source) if not _is_include(t)]
    names = dialect.names(fast_math=fast_math)
    known = {**names, **{name: name for name in (*entry_points, *generated)}}
    types = _TYPE_WORDS | set(dialect.types)
    words = [t for t in tokens if t.kind not in (Kind.SPACE, Kind.COMMENT)]
    declared = _declared(words, types)
    lines = _names_by_line(words)
    out: list[str] = []
    foreign: dict[str, Foreign] = {}
    used: set[str] = set()
    rewritten: dict[str, str] = {}
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.kind is not Kind.NAME:
            out.append(token.text)
            index += 1
            continue
        name, length = _qualified(tokens, index)
        index += length
        if _is_member(out):
            out.append(name)
            continue
        local = name in declared and name not in _KEYWORDS
        replacement = name if local or name in _KEYWORDS else known.get(name)
        if replacement is not None and f"make_{name}" in known and index < len(tokens) and tokens[index].text == "(":
            # HIP's vectors have constructors; elsewhere a function makes them.
            replacement = known[f"make_{name}"]
        if replacement is None or name in _ASSEMBLY:
            foreign.setdefault(name, Foreign(name, token.line, lines.get(token.line, frozenset()) - {name}))
            replacement = name
        elif not local:
            used.add(name.rpartition("::")[2])
        if replacement != name:
            rewritten[name] = replacement
        out.append(replacement)
    if foreign:
        raise UncoveredName(list(foreign.values()))
    headers = tuple(header for header, provides in dialect.optional_headers.items() if used & provides)
    return Translated("".join(out).strip("\n") + "\n", headers, rewritten)


def _is_include(token: Token) -> bool:
    return token.kind is Kind.DIRECTIVE and token.text.lstrip().removeprefix("#").lstrip().startswith("include")


def _qualified(tokens: Sequence[Token], index: int) -> tuple[str, int]:
    """A possibly qualified name (`tl::AllReduce`) that begins at `index`, and how many tokens it takes."""
    end = index + 1
    while end + 1 < len(tokens) and tokens[end].text == "::" and tokens[end + 1].kind is Kind.NAME:
        end += 2
    return "".join(t.text for t in tokens[index:end]), end - index


def _is_member(out: Sequence[str]) -> bool:
    """Whether what comes next is a member: the last text that is not space is `.`, `->` or a `::` after a template."""
    last = next((text for text in reversed(out) if text.strip()), "")
    return last in (".", "->", "::")


def _declared(words: Sequence[Token], types: frozenset[str] | set[str]) -> set[str]:
    """Names the text declares: those between a type and something that ends a declarator."""
    found: set[str] = set()
    for index, token in enumerate(words):
        if token.kind is not Kind.NAME or token.text in types or index == 0:
            continue
        if index + 1 < len(words) and words[index + 1].text not in _AFTER_NAME:
            continue
        before = index - 1
        while before > 0 and words[before].text in _DECLARATORS:
            before -= 1
        if words[before].text in types and _begins_declaration(words, before):
            found.add(token.text)
    return found


def _begins_declaration(words: Sequence[Token], index: int) -> bool:
    """Whether the type at `index` stands where a declaration may begin: not inside a cast, as in `(float)x`."""
    while index > 0 and words[index].kind is Kind.NAME:
        index -= 1
    return words[index].text in (";", "{", "}", "(", ",", ")") or words[index].kind is Kind.DIRECTIVE


def _names_by_line(words: Iterable[Token]) -> dict[int, frozenset[str]]:
    lines: dict[int, set[str]] = {}
    for token in words:
        if token.kind is Kind.NAME:
            lines.setdefault(token.line, set()).add(token.text)
    return {line: frozenset(names) for line, names in lines.items()}
