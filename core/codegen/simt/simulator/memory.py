"""Global memory of a simulated launch: the tensors themselves, or guarded copies when every access is watched."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from core.runtime.signature import Signature, TensorArgument

#: Bytes that belong to nobody before and after each buffer in watched mode: an overrun lands there, not in a neighbour.
GUARD_BYTES = 1 << 16
#: What a device's allocator gives at least, and vector accesses rely on.
_ALIGNMENT = 256
_VECTOR_BYTES = 16

_BYTES = {"bool": 1, "handle": 8}


class Memory:
    """Addresses of a call's tensors.

    Args:
        guarded: watched mode: each tensor is copied between guards, and back by :meth:`write_back`.

    Without it tensors are used where they are, except one that begins at no multiple of 16 bytes, which a CPU's vector
    instructions could not address.
    """

    def __init__(self, signature: Signature, arguments: Sequence[Any], *, guarded: bool) -> None:
        self.regions: list[tuple[str, int, int]] = []
        self._guarded = guarded
        self._addresses: dict[int, int] = {}
        self._copies: list[tuple[int, int, int, bool]] = []
        self._kept: list[Any] = [arguments]
        spans = {}
        for position, declared in enumerate(signature.arguments):
            if isinstance(declared, TensorArgument):
                spans[position] = (arguments[position].data_ptr(), _span_bytes(arguments[position]))
        for position, (begin, size) in spans.items():
            declared = signature.arguments[position]
            assert isinstance(declared, TensorArgument)
            # Tensors that share memory must go on sharing it.
            shares = any(
                other != position and begin < last + length and last < begin + size
                for other, (last, length) in spans.items()
            )
            address = begin
            if size and not shares and (guarded or begin % _VECTOR_BYTES):
                address = self._place(size, begin % _VECTOR_BYTES if guarded else 0)
                ctypes.memmove(address, begin, size)
                self._copies.append((begin, address, size, declared.writes or declared.is_output))
            self._addresses[position] = address
            self.regions.append((declared.name, address, size))

    def address(self, position: int) -> int:
        """Of the tensor at this position of the signature."""
        return self._addresses[position]

    def scratch(self, dtype: str, count: int) -> int:
        """Address of new memory for the launch, filled with what reads as NaN."""
        size = int(count) * (_BYTES.get(dtype) or _bits(dtype) // 8 or 1)
        address = self._place(size, 0)
        ctypes.memset(address, 0xFF, size)
        self.regions.append(
            (f"workspace {sum(1 for r in self.regions if r[0].startswith('workspace'))}", address, size)
        )
        return address

    def write_back(self) -> None:
        """Puts what the kernel wrote where the caller looks for it."""
        for begin, address, size, written in self._copies:
            if written:
                ctypes.memmove(begin, address, size)

    def _place(self, size: int, misalignment: int) -> int:
        guard = GUARD_BYTES if self._guarded else 0
        block = ctypes.create_string_buffer(size + 2 * guard + _ALIGNMENT + misalignment)
        self._kept.append(block)
        first = ctypes.addressof(block) + guard
        return (first + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT + misalignment


def _span_bytes(tensor: Any) -> int:
    """Bytes from the first element to the end of the last, whatever the strides."""
    if tensor.numel() == 0:
        return 0
    reach = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int((reach + 1) * tensor.element_size())


def _bits(dtype: str) -> int:
    digits = "".join(character for character in dtype.partition("_")[0] if character.isdigit())
    return int(digits) if digits else 0
