"""Names in the generated code: the view's own, except where C++ or the preamble has taken them."""

from __future__ import annotations

from core.codegen.cpp.types import PREAMBLE_TYPES
from core.program.nodes import Buffer, Var

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await
co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do
double dynamic_cast else enum explicit export extern false final float for friend goto if inline int long mutable
namespace new noexcept not not_eq nullptr operator or or_eq override private protected public register reinterpret_cast
requires return short signed sizeof static static_assert static_cast struct switch template this thread_local throw true
try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
"""

#: What the generated code and the headers it includes use besides C++'s keywords.
_TAKEN = """
tile scratch scratch_bytes status block grid_x grid_y grid_z arguments count result failed panels panels_at read write
printf stdin stdout stderr errno NULL EOF size_t memcpy memmove memset malloc calloc free abort
"""


class Names:
    """One name per buffer and variable, unique in the file, plus loop counters of our own."""

    def __init__(self) -> None:
        self._taken = {*_KEYWORDS.split(), *_TAKEN.split(), *PREAMBLE_TYPES}
        self._taken |= {f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
        self._names: dict[int, str] = {}
        self._kept: list[Buffer | Var] = []

    def of(self, item: Buffer | Var) -> str:
        """The name of a buffer or variable, the same at every call."""
        found = self._names.get(id(item))
        if found is None:
            found = self._names[id(item)] = self.fresh(item.name)
            self._kept.append(item)  # an id is only ours while its object lives
        return found

    def fresh(self, wish: str) -> str:
        """A name nothing else has, `wish` itself when it is free."""
        name, number = wish, 1
        while name in self._taken:
            number += 1
            name = f"{wish}_{number}" if number > 2 or not wish.endswith("_") else f"{wish}{number}"
        self._taken.add(name)
        return name
