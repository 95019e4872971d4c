"""Finds the line of a key in a TOML text, for error messages: `tomllib` keeps no positions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from typing import Any

_HEADER = re.compile(r"\s*\[\[?(?P<key>[^\]#]+)\]\]?\s*(?:#.*)?$")
_ASSIGNMENT = re.compile(r"""\s*(?P<key>(?:[A-Za-z0-9_.\s-]|"[^"]*"|'[^']*')+?)\s*=(?!=)""")


def find_line(text: str, path: Sequence[str]) -> int:
    """The line (from 1) of the key at `path`, or of the innermost table around it that can be found."""
    best, best_length = 1, -1
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _keys(header["key"]) or table
            candidates = [table]
        elif assignment := _ASSIGNMENT.match(line):
            key = [*table, *_keys(assignment["key"])]
            # An inline table holds more keys on the same line; each `name =` after the first is one of them.
            candidates = [
                key,
                *([*key, name] for name in re.findall(r"([A-Za-z0-9_-]+)\s*=(?!=)", line[assignment.end() :])),
            ]
        else:
            continue
        for candidate in candidates:
            if len(candidate) > best_length and list(path[: len(candidate)]) == candidate:
                best, best_length = number, len(candidate)
    return best


def _keys(text: str) -> list[str]:
    """The parts of a dotted TOML key, quotes removed."""
    try:
        node: Any = tomllib.loads(f"{text} = 0")
    except tomllib.TOMLDecodeError:
        return []
    parts = []
    while isinstance(node, dict):
        [(key, node)] = node.items()
        parts.append(key)
    return parts
