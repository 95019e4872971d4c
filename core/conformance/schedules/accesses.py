"""A race detector for shared memory: remembers accesses by box and compares each new one with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.conformance.schedules.clocks import Clock
from core.conformance.schedules.faults import MissingFence, Race
from core.errors import Location

if TYPE_CHECKING:
    from core.conformance.schedules.tree import Tensor

Box = tuple[tuple[int, int], ...]  # (first, one past the last) per dimension


@dataclass(slots=True, eq=False)
class Access:
    """One access to a box of a shared buffer.

    Attributes:
        warp: number in the cluster of the warp that made or issued it.
        time: the warp's interval, for an access of the warp itself.
        operation: number of the asynchronous operation it belongs to; None for the warp itself.
        what: who did what, for messages.
    """

    tensor: Tensor
    box: Box
    write: bool
    warp: int
    time: int
    operation: int | None
    location: Location | None
    what: str

    def before(self, clock: Clock) -> bool:
        """Whether somebody with this knowledge comes after it."""
        if self.operation is not None:
            return bool(clock.seen >> self.operation & 1)
        return self.time <= clock.times[self.warp]


class Shadow:
    """The accesses to the shared memory of one block that may still matter."""

    def __init__(self) -> None:
        self._by_storage: dict[int, list[Access]] = {}

    def add(self, access: Access, clock: Clock) -> None:
        """Records an access made with this knowledge.

        Raises:
            Race: an earlier access to the same place is not known to be over, and one of the two writes.
            MissingFence: the async proxy gets at what a thread wrote, and no fence orders the two.
        """
        kept: list[Access] = []
        for other in self._by_storage.get(access.tensor.storage, ()):
            same = other.tensor is access.tensor
            if (access.write or other.write) and _overlap(other, access, same):
                if not other.before(clock):
                    raise _race(other, access)
                unfenced = other.write and other.operation is None and other.time > clock.fenced[other.warp]
                if access.operation is not None and unfenced:
                    raise _unfenced(other, access)
            # A later access that covers it and is ordered after it stands for it.
            superseded = same and (access.write or not other.write) and _covers(access.box, other.box)
            if not (superseded and other.before(clock)):
                kept.append(other)
        kept.append(access)
        self._by_storage[access.tensor.storage] = kept


def _overlap(a: Access, b: Access, same: bool) -> bool:
    if not same:
        (a_first, a_last), (b_first, b_last) = _bytes(a), _bytes(b)
        return a_first < b_last and b_first < a_last
    return all(low < other_high and other_low < high for (low, high), (other_low, other_high) in zip(a.box, b.box))  # noqa: B905


def _covers(outer: Box, inner: Box) -> bool:
    return all(low <= first and last <= high for (low, high), (first, last) in zip(outer, inner))  # noqa: B905


def _bytes(access: Access) -> tuple[int, int]:
    """First byte of the box and one past its last, in its storage."""
    first, last, stride = 0, 0, access.tensor.item_bytes
    for (low, high), extent in zip(reversed(access.box), reversed(access.tensor.extents), strict=True):
        first += low * stride
        last += (high - 1) * stride
        stride *= extent
    return first, last + access.tensor.item_bytes


def box_text(tensor: Tensor, box: Sequence[tuple[int, int]]) -> str:
    """A box as one would write it: `k[1, 0:64, 0:64]`."""
    parts = [str(low) if high == low + 1 else f"{low}:{high}" for low, high in box]
    return f"{tensor.name}[{', '.join(parts)}]"


def _line(location: Location | None) -> str:
    return str(location) if location is not None else "an unknown line"


def _race(first: Access, second: Access) -> Race:
    return Race(
        f"{second.what} of {box_text(second.tensor, second.box)} is not ordered after {first.what} of "
        f"{box_text(first.tensor, first.box)} at {_line(first.location)}",
        hint="between the two there must be an arrival and a wait on one barrier (and, after a product, the wait for "
        "it before the arrival)",
        location=second.location,
        related=[first.location],
    )


def _unfenced(first: Access, second: Access) -> MissingFence:
    return MissingFence(
        f"{second.what} of {box_text(second.tensor, second.box)} may not see {first.what} of "
        f"{box_text(first.tensor, first.box)} at {_line(first.location)}: no proxy fence lies between",
        hint="call T.fence_proxy_async() after the write and before the barrier that hands it on",
        location=second.location,
        related=[first.location],
    )
