"""Alignment of a thread's own arrays and of shared memory: what the widest access to each of them needs.

The stock generator declares an array with its element's alignment and accesses several elements at once through the
address cast to a vector's type. Where the array then begins is the compiler's choice, and an access at an address that
is no multiple of its size is undefined. So each declaration says the alignment that the accesses need.
"""

from __future__ import annotations

import re
from itertools import pairwise

from core.codegen.alignment import type_alignment, widest_access
from core.errors import TileHALError

_KERNEL = re.compile(r"\b__global__\b")
_ARRAY = re.compile(
    r"^(?P<indent>[ \t]*)(?P<shared>__shared__[ \t]+)?"
    r"(?P<type>(?:(?:unsigned|signed|long|volatile)[ \t]+)*[A-Za-z_][\w:]*)[ \t]+(?P<name>[A-Za-z_]\w*)\[\d+\];",
    re.MULTILINE,
)
#: A part of dynamic shared memory, which itself begins at a multiple of 1024.
SHARED_PART = re.compile(
    r"\bvoid\s*\*\s*(?P<name>\w+)\s*=\s*\(\(void\s*\*\)\(\(char\s*\*\)\s*\w+\s*\+\s*(?P<offset>\d+)\)\)\s*;"
)


def align_arrays(source: str) -> str:
    """The source in which every local and `__shared__` array is declared with the alignment its accesses need.

    Args:
        source: HIP C++ as TileLang prints it. Lines keep their numbers.

    Raises:
        TileHALError: a part of dynamic shared memory begins where it cannot be accessed as wide as it is.
    """
    # Names are unique in a kernel, not in the file.
    starts = [0, *(match.start() for match in _KERNEL.finditer(source)), len(source)]
    return "".join(_kernel(source[begin:end]) for begin, end in pairwise(starts))


def _kernel(body: str) -> str:
    for part in SHARED_PART.finditer(body):
        needed = widest_access(body, part["name"], 1)
        if int(part["offset"]) % needed:
            raise TileHALError(
                f"TileLang put {part['name']} at byte {part['offset']} of shared memory, where accesses of {needed} "
                "bytes are misaligned",
                hint="this is a fault of TileLang's; pad the shared buffers before it to multiples of 16 bytes",
            )

    def declare(array: re.Match[str]) -> str:
        element = type_alignment(array["type"])
        needed = widest_access(body, array["name"], element)
        if needed <= element:
            return array[0]
        words = array[0].removeprefix(array["indent"]).removeprefix(array["shared"] or "")
        return f"{array['indent']}{array['shared'] or ''}__align__({needed}) {words}"

    return _ARRAY.sub(declare, body)
