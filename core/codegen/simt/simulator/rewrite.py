"""What is changed in a kernel's text before it is compiled for the CPU: a closed list, each entry with its rule.

A language's names are resolved by headers (`threadIdx`, `__syncthreads`, the matrix builtins), which changes nothing in
the text. Only what C++ on a CPU cannot express is rewritten:

1. `extern __shared__ [__align__(n)] T name[];` becomes a pointer to the block's dynamic shared memory.
2. `__shared__ [__align__(n)] T name[extents];` becomes a reference to an array in the block's shared memory.
3. After the text, one entry function per kernel is added.

Lines keep their numbers: nothing is inserted before or between them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from core.codegen.simt.arrays import SHARED_PART
from core.errors import UnsupportedOp

#: The rules by name, as `k.provenance.rewrites` shows them.
DYNAMIC = "simulator: extern __shared__ array -> pointer to the simulated block's dynamic shared memory"
STATIC = "simulator: __shared__ array -> reference into the simulated block's shared memory"
ENTRY = "simulator: one entry function added per kernel, after the source"

_TYPE = r"(?P<type>(?:(?:unsigned|signed|long|short|volatile)\s+)*[A-Za-z_][\w:]*(?:<[^;<>]*>)?)"
_ALIGN = r"(?:__align__\((?P<align>\d+)\)\s+)?"
_EXTERN = re.compile(rf"\bextern\s+__shared__\s+{_ALIGN}{_TYPE}\s+(?P<name>[A-Za-z_]\w*)\s*\[\s*\]\s*;")
_ARRAY = re.compile(
    rf"(?<!extern )\b__shared__\s+{_ALIGN}{_TYPE}\s+(?P<name>[A-Za-z_]\w*)\s*(?P<extents>(?:\[[^\[\]]+\]\s*)*);"
)
_LITERAL = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The text to compile, and which rules were applied, by name and in order."""

    source: str
    rules: tuple[str, ...]


def rewrite(source: str, entry_points: Sequence[str]) -> Rewritten:
    """Applies the rules to a kernel's file.

    Raises:
        UnsupportedOp: a shared array is declared in a form the rules do not know.
    """
    hidden: list[str] = []

    def hide(match: re.Match[str]) -> str:
        hidden.append(match[0])
        return f"\x00{len(hidden) - 1}\x00"

    text = _LITERAL.sub(hide, source)
    text, externs = _EXTERN.subn(_dynamic, text)
    count = 0

    def static(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return _static(match, count - 1)

    text = _ARRAY.sub(static, text)
    left = re.search(r"[^\n]*\b__shared__\b[^\n]*", text)
    if left is not None:
        raise UnsupportedOp(
            f"the simulator does not know this declaration of shared memory: {left[0].strip()}",
            hint="declare it as `__shared__ T name[extents];` or `extern __shared__ T name[];`",
        )
    text = re.sub("\x00(\\d+)\x00", lambda match: hidden[int(match[1])], text)
    entries = "".join(f"TILEHAL_SIM_ENTRY({name})\n" for name in entry_points)
    rules = [*([DYNAMIC] if externs else []), *([STATIC] if count else []), ENTRY]
    return Rewritten(f"{text.rstrip()}\n\n{entries}", tuple(rules))


def _dynamic(match: re.Match[str]) -> str:
    declared = f"{match['type']} *const {match['name']} = ({match['type']} *)tilehal_sim_dynamic_shared();"
    return declared + "\n" * match[0].count("\n")


def _static(match: re.Match[str], number: int) -> str:
    kind, name, extents = match["type"], match["name"], match["extents"].strip()
    align = match["align"] or f"alignof({kind})"
    whole = f"{kind}{extents}"
    pointer = f"{kind}(*){extents}" if extents else f"{kind}*"
    call = f'tilehal_sim_static_shared({number}, "{name}", sizeof({whole}), {align})'
    return f"{kind} (&{name}){extents} = *({pointer}){call};" + "\n" * match[0].count("\n")


# -------------------------------------------------------------------------------------------- what the text tells


@dataclass(frozen=True, slots=True)
class SharedPart:
    """A named part of dynamic shared memory. `bytes` is None when the text does not tell."""

    name: str
    offset: int
    bytes: int | None


def shared_parts(source: str, total_bytes: int | None) -> tuple[SharedPart, ...]:
    """The parts that generated code cuts dynamic shared memory into (`void* As = ((void*)((char*)buffer + 0));`).

    A part ends at the latest where the next one begins, unless parts share a place (memory reused by a later buffer);
    what then bounds it is the end of the whole.
    """
    found = [(match["name"], int(match["offset"])) for match in SHARED_PART.finditer(source)]
    offsets = sorted({offset for _, offset in found})
    reused = len(offsets) < len(found)
    parts = []
    for name, offset in found:
        after = [other for other in offsets if other > offset]
        end = total_bytes if reused or not after else after[0]
        parts.append(SharedPart(name, offset, None if end is None else end - offset))
    return tuple(parts)


def lines_mentioning(source: str, names: Sequence[str]) -> list[int]:
    """For each line, counted from 1 (entry 0 is empty), a bit per name it mentions."""
    if not names:
        return []
    which = {name: 1 << i for i, name in enumerate(names)}
    pattern = re.compile(r"\b(?:" + "|".join(map(re.escape, names)) + r")\b")
    return [0, *(sum(which[name] for name in set(pattern.findall(line))) for line in source.splitlines())]


_LOCAL = re.compile(rf"^\s*{_ALIGN}{_TYPE}\s+(?P<name>[A-Za-z_]\w*)\s*(?:\[[^\[\]]+\]\s*)+;")
_ASSIGNMENT = re.compile(r"(?<![=!<>+\-*/%&|^])[+\-*/%&|^]?=(?!=)")


def local_arrays(lines: Sequence[str]) -> set[str]:
    """Names of the arrays that kernels declare for each thread."""
    return {match["name"] for line in lines if (match := _LOCAL.match(line))}


def sides(statement: str) -> tuple[str, str]:
    """What a statement writes and what it reads: left and right of its assignment; all is read where there is none."""
    assignment = _ASSIGNMENT.search(statement)
    return (statement[: assignment.start()], statement[assignment.end() :]) if assignment else ("", statement)


def accessed_names(statement: str, names: Collection[str], *, writes: bool) -> list[str]:
    """Which of `names` a statement mentions where it writes, or where it reads; in order, each once.

    Without an assignment, all that it mentions.
    """
    written, read = sides(statement)
    words = re.findall(r"[A-Za-z_]\w*", written if writes and written else read)
    return [name for name in dict.fromkeys(words) if name in names]
