"""The sections of the preamble that a kernel needs."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_CALL = re.compile(r"\btile::(\w+)")

#: Sections in the order they are written, and the sections each one builds on.
_SECTIONS: dict[str, tuple[str, ...]] = {
    "base": (),
    "narrow": ("base",),
    "math": ("base",),
    "rows": ("base",),
    "reduce": ("base", "math"),
    "image": ("base",),
    "gemm": ("base",),
    "atomic": ("base", "math"),
    "parallel": ("base",),
    "ffi": ("base", "parallel"),
}
#: Sections every kernel has, whatever it calls.
_ALWAYS = ("base", "parallel", "ffi")


@cache
def section(name: str) -> str:
    """Text of one section."""
    return (files("core.codegen.cpp") / "runtime" / f"{name}.hpp").read_text(encoding="utf-8")


@cache
def _definitions(name: str) -> frozenset[str]:
    """Names a section defines in namespace `tile`."""
    text = section(name)
    functions = re.findall(r"\b(\w+)\((?!\*)[^;{}]*\)(?: const)? \{", text)
    types = re.findall(r"\b(?:struct|using) (\w+)", text)
    macros = re.findall(r"^TILE_MATH_\d\((\w+)", text, re.MULTILINE)
    variables = re.findall(r"\bconstexpr \w+ (\w+)", text)
    return frozenset((*functions, *types, *macros, *variables))


def preamble(body: str, *, narrow_floats: bool) -> str:
    """The sections that `body` needs: those that define what it calls, and what they build on.

    Args:
        body: the generated functions.
        narrow_floats: whether 16- or 8-bit floats occur.
    """
    called = set(_CALL.findall(body))
    wanted = {*_ALWAYS, *(["narrow"] if narrow_floats else [])}
    for name in _SECTIONS:
        if called & _definitions(name):
            wanted.add(name)
    for name in reversed(_SECTIONS):
        if name in wanted:
            wanted.update(_SECTIONS[name])
    return "\n".join(section(name) for name in _SECTIONS if name in wanted)
