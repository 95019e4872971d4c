"""A device with a clock of its own and a queue, for the timing code: what a real one does, without one.

The host's clock moves when something is launched; the device works through its queue and is idle where the host was
late. A launch costs `launch_s` of the host; one inside a graph costs the device `gap_s`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


class FakeEvent:
    def __init__(self, device: FakeDevice) -> None:
        self._device = device
        self.at_s = -1.0

    def record(self) -> None:
        self.at_s = self._device.enqueue(0.0)

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.at_s >= 0
        assert end.at_s >= 0
        return (end.at_s - self.at_s) * 1e3


class FakeDevice:
    def __init__(self, *, launch_s: float = 10e-6, gap_s: float = 0.0, graphs: bool = True) -> None:
        self.launch_s, self.gap_s, self.graphs = launch_s, gap_s, graphs
        self.host_s = 0.0
        self.device_s = 0.0
        self.cached: object = None
        self.capturing: list[float] | None = None
        self.flushes = 0

    def enqueue(self, work_s: float) -> float:
        """Queues work; returns when it is done, on the device's clock."""
        self.device_s = max(self.device_s, self.host_s) + work_s
        return self.device_s

    def kernel(self, seconds: float, *, cold_s: float | None = None, tag: object = None) -> Callable[[], None]:
        """A call that takes `seconds` where it was the last one to run, else `cold_s`."""
        own = tag if tag is not None else object()

        def call() -> None:
            if self.capturing is not None:
                self.capturing.append(seconds + self.gap_s)
                return
            self.host_s += self.launch_s
            self.enqueue(seconds if cold_s is None or self.cached is own else cold_s)
            self.cached = own

        return call

    def event(self) -> FakeEvent:
        return FakeEvent(self)

    def synchronize(self) -> None:
        self.host_s = max(self.host_s, self.device_s)

    def capture(self, calls: Sequence[Callable[[], None]]) -> Callable[[], None] | None:
        if not self.graphs:
            return None
        self.capturing = []
        try:
            for call in calls:
                call()
        finally:
            captured, self.capturing = self.capturing, None

        def replay() -> None:
            self.host_s += self.launch_s
            self.enqueue(sum(captured))

        return replay

    def occupy(self, seconds: float) -> None:
        self.enqueue(seconds)

    def flush(self) -> None:
        self.flushes += 1
        self.cached = None
        self.enqueue(50e-6)
