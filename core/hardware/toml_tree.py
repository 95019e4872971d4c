"""A `chips.toml` as a tree of values that know their source and their place, families already inherited.

What the keys mean is `core.hardware.loading`'s business; this module knows tables, `source`, `value`, `note` and
`inherits`, and how to complain.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from core.errors import DescriptorError, Location
from core.hardware.toml_lines import find_line

Where = tuple[str, ...]

#: Key, in a tree only, of the claim that a record exists: a path may have nothing else to say.
CLAIM = "@"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value in the file, with the source that covers it, a remark, and the key it stands at."""

    value: Any
    source: str | None
    note: str
    where: Where


#: Key -> `Leaf` or another tree.
Tree = dict[str, Any]


class TomlFile:
    """A parsed TOML text that reports faults by file, line and key.

    Raises:
        DescriptorError: the text is not TOML.
    """

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        try:
            self.document: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"line (\d+)", str(error))
            location = Location(file, int(line[1]) if line else 1)
            raise DescriptorError(f"not a TOML file: {error}", location=location) from error

    def fail(self, where: Where, reason: str, hint: str = "") -> NoReturn:
        """Raises the error for a fault at a key."""
        key = ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"' for part in where)
        raise DescriptorError(
            f"{key or 'file'}: {reason}",
            hint=hint,
            location=Location(self.file, find_line(self.text, where)),
            details={"file": self.file, "key": key, "reason": reason},
        )

    def unknown_key(self, where: Where, known: Iterable[str]) -> NoReturn:
        """Raises the error for a key that nothing reads, with the nearest one that would be."""
        known = list(known)
        self.fail(where, f"unknown key{_did_you_mean(where[-1], known)}", hint=f"known here: {', '.join(known)}")

    def require_known(self, what: str, word: str, known: Iterable[str], where: Where, more: str = "") -> None:
        """Raises the error for a word that is none of those known, with the nearest; `more` ends the hint."""
        known = list(known)
        if word not in known:
            reason = f"unknown {what} {word!r}{_did_you_mean(word, known)}"
            self.fail(where, reason, hint=f"known here: {', '.join(known)}{more}")

    def table(self, where: Where, value: Any) -> dict[str, Any]:
        """`value`, which must be a table."""
        if not isinstance(value, dict):
            self.fail(where, "a table is expected here")
        return value

    def section(self, name: str) -> dict[str, Any]:
        """A top-level table, empty when the file has none."""
        return self.table((name,), self.document.get(name, {}))

    def source(self, key: Any, where: Where) -> str | None:
        """`key`, which must be one of the file's references or None."""
        if key is None:
            return None
        if not isinstance(key, str) or key not in self.section("references"):
            known = ", ".join(self.section("references")) or "none"
            self.fail((*where, "source"), f"no reference {key!r} (there are: {known})")
        return key

    def inherited(self, where: Where, known_keys: Iterable[str], chain: tuple[str, ...] = ()) -> Tree:
        """The table at `where` as leaves, on top of the families it inherits from, each in turn.

        `notes` of the table and of its families are gathered in one tuple.
        """
        known_keys = list(known_keys)
        raw: Any = self.document
        for part in where:
            raw = raw[part]
        table = self.table(where, raw)
        families = self.section("families")
        names = table.get("inherits", ())
        result: Tree = {}
        notes: list[str] = []
        for name in (names,) if isinstance(names, str) else names:
            if name in chain:
                self.fail((*where, "inherits"), f"goes round in a circle: {' -> '.join((*chain, name))}")
            if name not in families:
                self.fail((*where, "inherits"), f"no family {name!r} (there are: {', '.join(families) or 'none'})")
            family = self.inherited(("families", name), known_keys, (*chain, name))
            notes += family.pop("notes")
            _merge(result, family)
        for key, value in table.items():
            if key not in known_keys:
                self.unknown_key((*where, key), known_keys)
            if key in ("aliases", "device_names") and where[0] == "families":
                self.fail((*where, key), "belongs to a chip, not to a family")
            if key not in ("inherits", "notes"):
                _merge(result, {key: self.leaves(value, (*where, key), None)})
        result["notes"] = tuple(dict.fromkeys([*notes, *table.get("notes", ())]))
        return result

    def leaves(self, node: Any, where: Where, source: str | None) -> Leaf | Tree:
        """A TOML value as leaves; `source` covers what names none itself."""
        if not isinstance(node, dict):
            return Leaf(node, source, "", where)
        own = self.source(node.get("source"), where) or source
        if "value" in node:
            known = ("value", "source", "note")
            for key in node:
                if key not in known:
                    self.unknown_key((*where, key), known)
            return Leaf(node["value"], own, node.get("note", ""), where)
        tree: Tree = {key: self.leaves(value, (*where, key), own) for key, value in node.items() if key != "source"}
        if where[-2:-1] == ("paths",):
            tree[CLAIM] = Leaf(True, own, "", where)
        return tree


def _did_you_mean(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=3)
    return f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""


def place(node: Leaf | Tree, default: Where) -> Where:
    """Where in the file a node stands: its own key, or the table around its first leaf."""
    if isinstance(node, Leaf):
        return node.where
    for child in node.values():
        found = place(child, ())
        if found:
            return found[:-1]
    return default


def _merge(base: Tree, over: Tree) -> None:
    for key, node in over.items():
        if isinstance(node, dict) and isinstance(base.get(key), dict):
            _merge(base[key], node)
        else:
            base[key] = node
