"""Clocks, power and what slows the device down while it is measured, as nvidia-smi tells them."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core import processes

#: Bits of the mask of reasons (nvml.h, nvmlClocksEventReasons) that mean: slower than it could be. Idle, clocks set by
#: the user and synchronised boost are not among them.
REASONS = {
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x20: "software thermal limit",
    0x40: "hardware thermal limit",
    0x80: "power brake",
}
_PERIOD_MS = 200
_FIELDS = ("clocks.sm", "power.draw", "temperature.gpu")
#: Newer drivers' name of the mask, then the older.
_MASKS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")


@dataclass(frozen=True, slots=True)
class Reading:
    """The device at a moment of the monotonic clock: MHz, watts, degrees Celsius, the mask of reasons."""

    time_s: float
    clock_mhz: float
    power_w: float
    temperature_c: float
    mask: int


class Watch:
    """Reads the device from a second process until it is closed; has no readings where nvidia-smi is not there.

    Args:
        uuid: of the device; None watches nothing.
    """

    def __init__(self, uuid: str | None) -> None:
        self._readings: list[Reading] = []
        self._process: subprocess.Popen[str] | None = None
        self.why_not = "" if uuid else "the device is not NVIDIA's"
        tool = shutil.which("nvidia-smi")
        if uuid and tool is None:
            self.why_not = "nvidia-smi is not here"
        if not uuid or tool is None:
            return
        for mask in _MASKS:
            query = [tool, f"--id={uuid}", f"--query-gpu={','.join((*_FIELDS, mask))}", "--format=csv,noheader,nounits"]
            if parse(_output(query), 0.0) is not None:
                self._process = processes.start(
                    [*query, f"--loop-ms={_PERIOD_MS}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )
                threading.Thread(target=self._read, daemon=True).start()
                return
        self.why_not = "nvidia-smi does not tell"

    def summary(self, since_s: float) -> dict[str, Any] | None:
        """The device since a moment of the monotonic clock; None without readings."""
        return summary([one for one in self._readings if one.time_s >= since_s])

    def close(self) -> None:
        """Ends the second process."""
        if self._process is not None:
            processes.end(self._process)

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in self._process.stdout:
                reading = parse(line, time.monotonic())
                if reading is not None:
                    self._readings.append(reading)


def parse(line: str, time_s: float) -> Reading | None:
    """A line of nvidia-smi's CSV, None where it says anything else."""
    words = [word.strip() for word in line.strip().split(",")]
    if len(words) != len(_FIELDS) + 1:
        return None
    try:
        clock, power, temperature = map(float, words[:-1])
        return Reading(time_s, clock, power, temperature, int(words[-1], 16))
    except ValueError:
        return None


def summary(readings: Sequence[Reading]) -> dict[str, Any] | None:
    """Range of the clock under load, highest power and temperature, and the reasons seen with the share of readings."""
    busy = [one for one in readings if not one.mask & 0x1] or list(readings)
    if not busy:
        return None
    seen = {said: sum(bool(one.mask & bit) for one in busy) / len(busy) for bit, said in REASONS.items()}
    return {
        "clock_mhz": [min(one.clock_mhz for one in busy), max(one.clock_mhz for one in busy)],
        "power_w": max(one.power_w for one in busy),
        "temperature_c": max(one.temperature_c for one in busy),
        "slowed_by": {said: round(share, 2) for said, share in seen.items() if share},
    }


def _output(command: Sequence[str]) -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    return ""
