"""Times on the command line: read as a number and `s`, `m`, `h`, `d` or `w`, printed in the unit that suits them."""

from __future__ import annotations

import re

from core.errors import TileHALError

#: How `--help` names the value of an option that takes a time.
METAVAR = "TIME"

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)?")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def seconds_of(text: str, option: str) -> float:
    """Seconds of `90s`, `10m` or `2h`; a number alone is seconds.

    Raises:
        TileHALError: it is no time, or none at all (`0s`); `option` is what it was given for.
    """
    hint = "a number and s, m or h: 90s, 10m, 2h"
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise TileHALError(f"{option} {text!r} is not a time", hint=hint)
    seconds = float(match[1]) * _SECONDS[match[2] or "s"]
    if seconds == 0:
        raise TileHALError(f"{option} {text!r} is no time at all", hint=hint)
    return seconds


def age_of(text: str, option: str) -> float:
    """Seconds of an age such as `12h` or `7d`, which may be none at all; a number alone could be any unit's.

    Raises:
        TileHALError: it is no age; `option` is what it was given for.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or match[2] is None:
        raise TileHALError(f"{option} {text!r} is not an age", hint="a number and s, m, h, d or w: 12h, 7d")
    return float(match[1]) * _SECONDS[match[2]]


def time_text(seconds: float) -> str:
    """A time with four significant digits: `6.13 us`, `29.06 ms`, `1.5 s`."""
    scale, unit = (1, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "us")
    return f"{seconds * scale:.4g} {unit}"
