"""Vector clocks: what one agent of a simulated cluster knows to have happened."""

from __future__ import annotations

from collections.abc import Iterable


class Clock:
    """What an agent knows.

    Attributes:
        times: per warp of the cluster, the last of its intervals known to be over (its own: the one under way).
        seen: one bit per asynchronous operation whose end is known.
        fenced: per warp, the interval up to which its writes are ordered before the accesses of the copy engine and
            the matrix unit (the *async proxy*): a fence lies between.
    """

    __slots__ = ("fenced", "seen", "times")

    def __init__(self, times: list[int], seen: int = 0, fenced: list[int] | None = None) -> None:
        self.times = times
        self.seen = seen
        self.fenced = fenced if fenced is not None else [0] * len(times)

    @classmethod
    def zero(cls, warps: int) -> Clock:
        """Knows nothing."""
        return cls([0] * warps)

    def copy(self) -> Clock:
        """The same knowledge, on its own from here on."""
        return Clock(list(self.times), self.seen, list(self.fenced))

    def join(self, other: Clock) -> None:
        """Learns everything the other knows."""
        self.times = list(map(max, self.times, other.times))
        self.fenced = list(map(max, self.fenced, other.fenced))
        self.seen |= other.seen

    def fence(self) -> None:
        """A proxy fence: every write known to have happened is ordered before later accesses of the async proxy."""
        self.fenced = list(map(max, self.fenced, self.times))

    def fence_of(self, warps: Iterable[int]) -> None:
        """A proxy fence that counts for the writes of these warps only."""
        for warp in warps:
            self.fenced[warp] = max(self.fenced[warp], self.times[warp])
