"""Unique names that are valid identifiers in C and Python, close to what the user wrote."""

from __future__ import annotations

import keyword
import re

#: Words that cannot name a variable in the languages backends print (C++, CUDA, MACA), beyond Python's own.
_RESERVED = frozenset(
    """alignas alignof asm auto bool case catch char class const constexpr default delete do double enum explicit export
    extern false float friend goto inline int long mutable namespace new operator private protected public register
    short signed sizeof static struct switch template this throw true try typedef typename union unsigned using virtual
    void volatile wchar_t half main exp log sin cos tan min max abs floor ceil round pow sqrt printf NULL INFINITY NAN
    """.split()
)


class Names:
    """Hands out names: never the same twice, never a keyword, never empty."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, wanted: str, fallback: str = "v") -> str:
        """A valid identifier close to `wanted`; `fallback` when there is nothing usable in it."""
        base = re.sub(r"\W", "_", wanted or "", flags=re.ASCII) or fallback
        if base[0].isdigit():
            base = f"{fallback}_{base}"
        if base.startswith("_"):  # leading underscores are the implementation's in C and C++
            base = fallback + base
        if keyword.iskeyword(base) or base in _RESERVED:
            base += "_"
        name, count = base, 0
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name
