"""The block of arguments a kernel reads: packed as the compiler's entry code expects it.

In the order of the module's function, without the block's place, which the device computes: on 910B and 910C first the
synchronisation address, then lock, workspace, tensors, scalars, sizes, grid. Addresses take 8 bytes at a multiple of 8,
numbers of up to 4 bytes take 4 at a multiple of 4, 64-bit numbers are placed like addresses; the block ends at a
multiple of 8. Source: triton-ascend's launcher (`third_party/ascend/backend/driver.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backends.ascend.runtime.arguments import LaunchPlan, Slot, number_bytes


class Packer:
    """Packs the arguments of one launch.

    Args:
        plan: the launch.
        sync_address: whether the kernel's first argument is the address where its cores synchronise.
    """

    def __init__(self, plan: LaunchPlan, *, sync_address: bool) -> None:
        self._slots = tuple(slot for slot in plan.slots if slot.role != "block")
        self._sync_address = sync_address
        offset = 8 if sync_address else 0
        self._offsets: list[int] = []
        for slot in self._slots:
            size = 8 if slot.is_memory or slot.element_bytes == 8 else 4
            offset = (offset + size - 1) // size * size
            self._offsets.append(offset)
            offset += size
        #: Bytes of the block.
        self.size_bytes = (offset + 7) // 8 * 8

    def pack(
        self,
        arguments: Sequence[Any],
        values: Mapping[str, Any],
        grid: tuple[int, int, int],
        addresses: Mapping[str, int],
        sync_address: int = 0,
    ) -> bytes:
        """The block.

        Args:
            arguments: the call's, in the signature's order.
            values: symbols by name.
            grid: blocks along x, y and z.
            addresses: of memory the launcher provides: `lock`, `workspace`, and each `buffer` by name.
            sync_address: for kernels that take it.
        """
        block = bytearray(self.size_bytes)
        if self._sync_address:
            block[0:8] = sync_address.to_bytes(8, "little")
        extents = iter(grid)
        for slot, offset in zip(self._slots, self._offsets, strict=True):
            data = self._data(slot, arguments, values, extents, addresses)
            block[offset : offset + len(data)] = data
        return bytes(block)

    @staticmethod
    def _data(slot: Slot, arguments: Sequence[Any], values: Mapping[str, Any], extents: Any, addresses: Any) -> bytes:
        if slot.role == "tensor":
            return int(arguments[slot.position].data_ptr()).to_bytes(8, "little")
        if slot.is_memory:
            return int(addresses[slot.name if slot.role in ("scratch", "buffer") else slot.role]).to_bytes(8, "little")
        if slot.role == "grid":
            return int(next(extents)).to_bytes(4, "little")
        value = arguments[slot.position] if slot.role == "scalar" else values[slot.name]
        return number_bytes(value, slot.type)
