"""Barriers of the hardware: in shared memory (mbarrier), named, and of a cluster."""

from __future__ import annotations

from core.conformance.schedules.clocks import Clock
from core.conformance.schedules.faults import BarrierMisuse
from core.conformance.schedules.lanes import WARP
from core.errors import Location


class SharedBarrier:
    """An mbarrier: a phase is over when all arrivals have come and all expected bytes are there.

    Attributes:
        phase: how many phases are over. A wait for a parity returns when the phase of that parity is over: on a fresh
            barrier, where none is, one for parity 1 returns at once.
        missing: arrivals still to come in this phase.
        bytes: announced and not here yet; below 0 where they came before they were announced.
        done: what was known to all that took part in the phases that are over.
    """

    def __init__(self, name: str, count: int, warps: int) -> None:
        self.name, self.count = name, count
        self.phase, self.missing, self.bytes = 0, count, 0
        self._warps = warps
        self._pending, self.done = Clock.zero(warps), Clock.zero(warps)

    def arrive(self, arrivals: int, clock: Clock, location: Location | None) -> None:
        """Raises BarrierMisuse when the phase has no arrival left."""
        if arrivals > self.missing:
            raise BarrierMisuse(
                f"{arrivals} more arrivals at {self.name}, whose phase {self.phase} takes {self.missing} more of "
                f"{self.count}",
                hint="a thread arrives twice, or the barrier was allocated with too small a count",
                location=location,
            )
        self.missing -= arrivals
        self._pending.join(clock)
        self._turn()

    def expect(self, size: int) -> None:
        """Announces bytes. Not an arrival, and it orders nothing."""
        self.bytes += size

    def complete(self, size: int, operation: int) -> None:
        """Bytes have come: whoever waits knows that this part of the operation is over, and nothing else."""
        self.bytes -= size
        self._pending.seen |= 1 << operation
        self._turn()

    def passed(self, parity: int) -> bool:
        """Whether a wait for this parity returns."""
        return self.phase & 1 != parity

    def _turn(self) -> None:
        if self.missing == 0 and self.bytes == 0:
            self.done.join(self._pending)
            self._pending = Clock.zero(self._warps)
            self.phase += 1
            self.missing = self.count

    def __str__(self) -> str:
        state = f"phase {self.phase}, {self.missing} of {self.count} arrivals missing"
        return f"{self.name} ({state}{f', {self.bytes} bytes missing' if self.bytes else ''})"


class CountedBarrier:
    """A named barrier, or one of the compiler's: all its threads come, then all that wait go on."""

    def __init__(self, name: str, warps: int) -> None:
        self.name = name
        self.generation = 0
        self.threads = 0
        self.arrived = 0
        self._warps = warps
        self._pending, self.done = Clock.zero(warps), Clock.zero(warps)

    def arrive(self, threads: int, clock: Clock, location: Location | None) -> int:
        """A whole warp arrives at a barrier of `threads` threads; gives the generation that it is part of.

        Raises:
            BarrierMisuse: the barrier is in use with another count.
        """
        if self.arrived and threads != self.threads:
            raise BarrierMisuse(
                f"{self.name} is used for {threads} threads while {self.arrived} of {self.threads} have arrived",
                hint="all who meet at a named barrier give the same count",
                location=location,
            )
        self.threads = threads
        self.arrived += WARP
        self._pending.join(clock)
        generation = self.generation
        if self.arrived >= threads:
            self.done.join(self._pending)
            self._pending = Clock.zero(self._warps)
            self.generation += 1
            self.arrived = 0
        return generation

    def __str__(self) -> str:
        return f"{self.name} ({self.arrived} of {self.threads} threads have arrived)"


class ClusterMeeting:
    """The cluster's own barrier: every warp of the cluster that has not ended arrives."""

    def __init__(self, warps: int) -> None:
        self.generation = 0
        self._warps = warps
        self._here: set[int] = set()
        self._gone: set[int] = set()
        self._pending, self.done = Clock.zero(warps), Clock.zero(warps)

    def arrive(self, warp: int, clock: Clock, location: Location | None) -> int:
        """Gives the generation the warp is part of.

        Raises:
            BarrierMisuse: it arrives again before the others.
        """
        if warp in self._here:
            raise BarrierMisuse(
                "a warp arrives twice at the cluster's barrier before all others have arrived once",
                hint="each T.cluster_arrive needs its T.cluster_wait",
                location=location,
            )
        generation = self.generation
        self._here.add(warp)
        self._pending.join(clock)
        self._turn()
        return generation

    def leave(self, warp: int) -> None:
        """A warp has ended: nobody waits for it any more."""
        self._gone.add(warp)
        self._turn()

    def _turn(self) -> None:
        if self._here and len(self._here | self._gone) == self._warps:
            self.done.join(self._pending)
            self._pending = Clock.zero(self._warps)
            self.generation += 1
            self._here.clear()

    def __str__(self) -> str:
        return f"the cluster's barrier ({len(self._here)} of {self._warps - len(self._gone)} warps have arrived)"
