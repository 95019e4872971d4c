"""What a simulated schedule can do wrong. Each fault names the lines of the kernel that have a part in it."""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import Location, TileHALError


class ScheduleFault(TileHALError):
    """A kernel scheduled by hand does something that the hardware gives no promise for, or never ends.

    Attributes:
        location: the line that brought the fault to light.
        related: further lines that have a part in it, the other side of a race first.
        seed: of the simulated run; the same seed shows the same fault again.
        block: number of the block in the grid, x fastest.
    """

    code = "schedule-fault"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        location: Location | None = None,
        related: Sequence[Location | None] = (),
    ) -> None:
        self.related: tuple[Location, ...] = tuple(place for place in related if place is not None)
        self.seed: int | None = None
        self.block: int | None = None
        super().__init__(message, hint=hint, location=location)

    def __str__(self) -> str:
        run = f" [simulated, seed {self.seed}]" if self.seed is not None else " [simulated]"
        first, *rest = super().__str__().split("\n  hint: ")
        return "\n  hint: ".join([first + run, *rest])


class Deadlock(ScheduleFault):
    """Everybody left waits for something that nobody will do. The message lists who waits for what, and where."""

    code = "schedule-deadlock"


class Race(ScheduleFault):
    """Two accesses to shared memory of which one writes, and nothing orders them."""

    code = "schedule-race"


class MissingFence(ScheduleFault):
    """Threads wrote shared memory and the copy engine or the matrix unit gets at it without a proxy fence between."""

    code = "schedule-fence"


class RegistersInFlight(ScheduleFault):
    """Registers of a product that is still on its way are touched before a wait that covers it."""

    code = "schedule-registers"


class BarrierMisuse(ScheduleFault):
    """A barrier is used in a way that has no meaning: more arrivals than it counts, two counts for one barrier."""

    code = "schedule-barrier"


class EndsEarly(ScheduleFault):
    """A block ends while something still reads or writes its shared memory or registers."""

    code = "schedule-end"


class OutOfBounds(ScheduleFault):
    """An element outside an on-chip buffer is read or written."""

    code = "schedule-bounds"
