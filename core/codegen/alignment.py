"""How a kernel's tensors must be aligned, read off its generated source.

A kernel that moves several elements by one instruction faults on an address that is no multiple of that many bytes, and
on CUDA such a fault ends the process's context. The generated source says how wide each parameter is accessed: by the
type its address is cast to, or by the helper that it is given to. Only what is found is demanded: a parameter that is
read element by element may start at any element.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from core.runtime.signature import Signature, TensorArgument

#: Bulk copies and tensor maps: the CUDA C++ Programming Guide on the Tensor Memory Accelerator.
BULK_BYTES = 16
#: The widest access that CUDA's own vector types are aligned to.
_WIDEST = 16

_BYTES = {"char": 1, "short": 2, "half": 2, "bfloat": 2, "bfloat16": 2, "int": 4, "float": 4, "long": 8, "longlong": 8}
_BYTES["double"] = 8
_VECTOR = re.compile(
    r"_{0,2}(?:nv_)?u?(char|short|longlong|long|int|float|double|half|bfloat16|bfloat)(1|2|3|4|8|16)?(?:_(?:16|32)a)?"
)
_SMALL = re.compile(r"fp(8|4)_e\d+_(?:(\d+)_)?t")
_CAST = re.compile(r"\(\s*(?:(?:const|volatile|signed|unsigned|long)\s+)*(?:\w+::)*(\w+)\s*\*\s*\)$")
_CALLED = re.compile(r"(?:\w+::)*(\w+)(?:<([^<>()]*)>)?$")


def with_alignments(
    signature: Signature, source: str, entries: Mapping[str, Sequence[int | None]], described: Iterable[int] = ()
) -> Signature:
    """The signature with the alignment that each tensor parameter needs.

    Args:
        source: the generated code, CUDA C++ or a dialect of it.
        entries: for each entry point, which parameter each of its arguments is the data of; None for anything else.
        described: parameters that tensor maps describe.
    """
    needed = dict.fromkeys(described, BULK_BYTES)
    for entry, positions in entries.items():
        found = _definition(source, entry)
        if found is None:
            continue
        parameters, body = found
        for text, position in zip(parameters, positions, strict=False):
            name = re.search(r"(\w+)\s*$", text)
            if position is None or name is None:
                continue
            element = type_alignment(re.sub(r"\bconst\b|\*.*", "", text).strip())
            width = widest_access(body, name[1], element)
            if width > element:
                needed[position] = max(width, needed.get(position, 1))
    arguments = tuple(
        replace(argument, alignment=needed.get(index, 1)) if isinstance(argument, TensorArgument) else argument
        for index, argument in enumerate(signature.arguments)
    )
    return replace(signature, arguments=arguments)


def parameter_names(source: str, entry: str) -> list[str]:
    """Names of an entry point's parameters in the generated source."""
    found = _definition(source, entry)
    names = [re.search(r"(\w+)\s*$", text) for text in found[0]] if found is not None else []
    return [name[1] if name is not None else "" for name in names]


def widest_access(body: str, name: str, element: int) -> int:
    """Bytes that the widest access to a parameter or array of a kernel moves at once; 1 where none says how many.

    Args:
        body: the kernel's text.
        element: bytes of what the name points to.
    """
    occurrences = re.finditer(rf"(?<![\w.]){re.escape(name)}\b", body)
    return max((_width(body, at, element) for at in occurrences), default=1)


def type_alignment(type_name: str) -> int:
    """Bytes that a scalar or vector type of the generated source is aligned to; 1 for one that is not known."""
    name = type_name.replace("unsigned ", "u").replace("signed ", "").strip()
    small = _SMALL.fullmatch(name)
    if small is not None:
        return max(1, int(small[1]) * int(small[2] or 1) // 8)
    sized = re.fullmatch(r"u?(?:int|float|bfloat)(8|16|32|64)_t", name)
    if sized is not None:
        return int(sized[1]) // 8
    vector = _VECTOR.fullmatch(name.removesuffix("_t"))
    if vector is None:
        return 1
    lanes = int(vector[2] or 1)
    return min(_WIDEST, _BYTES[vector[1]] * (lanes if lanes & (lanes - 1) == 0 else 1))


def _definition(source: str, entry: str) -> tuple[list[str], str] | None:
    """Parameters and body of a kernel; None when the source does not define it."""
    head = re.search(rf"__global__[^;{{}}]*?\b{re.escape(entry)}\s*\(([^(){{}};]*)\)\s*\{{", source)
    if head is None:
        return None
    depth, at = 1, head.end()
    for brace in re.finditer(r"[{}]", source[at:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return head[1].split(","), source[at : at + brace.start()]
    return head[1].split(","), source[at:]


def _width(body: str, at: re.Match[str], element: int) -> int:
    """Bytes that the access at an occurrence of a parameter's name moves at once; 1 where it says nothing."""
    before = body[max(0, at.start() - 400) : at.start()]
    casts, is_address = [], not body[at.end() :].lstrip().startswith("[")
    while before := before.rstrip():
        cast = _CAST.search(before)
        if cast is not None:
            casts.append(type_alignment(cast[1]))
            before = before[: cast.start()]
        elif before[-1] in "(&*":
            is_address = is_address or before[-1] == "&"
            before = before[:-1]
        else:
            break
    if casts:
        return max(casts)
    return _helper_width(body[max(0, at.start() - 2000) : at.start()], element) if is_address else 1


def _helper_width(before: str, element: int) -> int:
    """What the helper that an address is given to moves at once."""
    depth = 0
    for index in range(len(before) - 1, -1, -1):
        if before[index] in ";{}":
            break
        if before[index] == ")":
            depth += 1
        elif before[index] == "(" and depth:
            depth -= 1
        elif before[index] == "(":
            called = _CALLED.search(before[:index])
            if called is not None:
                return _of_helper(called[1], called[2] or "", element)
    return 1


def _of_helper(name: str, template: str, element: int) -> int:
    if name.startswith(("cp_async", "copy_start")):
        size = re.match(r"\s*(\d+)", template)
        return int(size[1]) if size else 1
    if name.startswith("tma_"):
        return BULK_BYTES
    moved = re.fullmatch(r"(?:load|store)_global_(\d+)(?:_conditional)?", name)
    if moved is not None:
        return int(moved[1]) // 8
    several = re.match(r"AtomicAddx([24])", name)
    if several is not None:
        # Four halves are added as two pairs: there is no wider instruction for them.
        return element * (int(several[1]) if element >= 4 else 2)
    return 1
