"""Static shared memory of a kernel, read off its CUDA source: what ptxas will report and the launch will add.

TileLang declares barriers (and buffers of scope `shared`) as static arrays. ptxas lays them out one after the other,
and fills up to the alignment of the kernel's dynamic shared memory if it has any: that begins where static ends.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.compiler import LoweredKernel

_ARRAY = re.compile(r"(extern\s+)?__shared__\s+__align__\((\d+)\)\s+([\w:][\w: ]*?)\s+\w+\[(\d*)\];")
_KERNEL = re.compile(r"__global__[^;{]*\{")
#: Bytes of the element types that TileLang's CUDA codegen prints.
_SIZES = {
    **dict.fromkeys(("bool", "char", "signed char", "unsigned char", "uchar", "int8_t", "uint8_t"), 1),
    **dict.fromkeys(("fp8_e4_t", "fp8_e5_t", "fp8_e8_t"), 1),
    **dict.fromkeys(("half_t", "bfloat16_t", "short", "ushort", "int16_t", "uint16_t"), 2),
    **dict.fromkeys(("int", "uint", "unsigned int", "float", "int32_t", "uint32_t"), 4),
    **dict.fromkeys(("double", "int64_t", "uint64_t", "Barrier"), 8),
}


def with_static(lowered: LoweredKernel) -> LoweredKernel:
    """The kernel with its static shared memory among its resources, on its own and in the sum."""
    resources, static = lowered.resources, static_shared_bytes(lowered.source)
    if static is None:
        return lowered
    memory = dict(resources.memory_bytes)
    if resources.dynamic_shared_bytes is not None:
        memory["shared"] = static + resources.dynamic_shared_bytes
    return replace(lowered, resources=replace(resources, static_shared_bytes=static, memory_bytes=memory))


def static_shared_bytes(source: str) -> int | None:
    """The most static shared memory that any kernel of a source has, bytes; None when a type is not known."""
    starts = [match.start() for match in _KERNEL.finditer(source)]
    sizes = [_of_kernel(source[start:end]) for start, end in zip(starts, [*starts[1:], len(source)], strict=True)]
    known = [size for size in sizes if size is not None]
    return max(known, default=0) if len(known) == len(sizes) else None


def _of_kernel(source: str) -> int | None:
    total, alignment_of_dynamic = 0, 1
    for extern, alignment, kind, count in _ARRAY.findall(source):
        if extern:
            alignment_of_dynamic = int(alignment)
            continue
        if kind not in _SIZES:
            return None
        total = _rounded(total, int(alignment)) + _SIZES[kind] * int(count)
    return _rounded(total, alignment_of_dynamic)


def _rounded(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
