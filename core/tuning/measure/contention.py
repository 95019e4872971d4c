"""How much of the CPUs others took while something was timed on them: on a busy machine, times say little."""

from __future__ import annotations

import os
import time
from pathlib import Path

#: Share of the CPUs' time from which on a measurement is called disturbed.
BUSY_SHARE = 0.1

#: Columns of a CPU in /proc/stat that are no work: idle, and idle for want of a disk. Steal, the time that a virtual
#: machine's neighbours took, is among the others.
_IDLE = (3, 4)
#: user, nice, system, idle, iowait, irq, softirq, steal; guests' time, which follows, is in user and nice already.
_COLUMNS = 8


class OthersShare:
    """Watches from its making on; Linux only."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._began = self._now()

    def share(self) -> float | None:
        """The share of the time of the CPUs that this process may use which other processes took, 0 to 1.

        None where the system does not say. Its clock ticks every 10 ms: ask after a few tenths of a second.
        """
        now = self._now()
        if now is None or self._began is None:
            return None
        (busy, own, wall, cpus), (busy_then, own_then, wall_then, _) = now, self._began
        others = (busy - busy_then) - (own - own_then)
        return min(1.0, max(0.0, others / max(1e-9, cpus * (wall - wall_then))))

    def _now(self) -> tuple[float, float, float, int] | None:
        """Seconds that the CPUs worked, that this process did, of wall time; and how many CPUs there are."""
        try:
            text = self._stat.read_text()
            ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        except (OSError, AttributeError):
            return None
        busy, cpus = 0, 0
        for line in text.splitlines():
            name, *ticks = line.split()
            if name in ours:
                counted = list(map(int, ticks[:_COLUMNS]))
                busy += sum(counted) - sum(counted[column] for column in _IDLE)
                cpus += 1
        if not cpus:
            return None
        return busy / os.sysconf("SC_CLK_TCK"), time.process_time(), time.monotonic(), cpus
