"""Times on the command line: a number and `s`, `m` or `h`."""

from __future__ import annotations

import re

from core.errors import TileHALError

#: How `--help` names the value of an option that takes a time.
METAVAR = "TIME"

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?")
_SECONDS = {None: 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def seconds_of(text: str, option: str) -> float:
    """Seconds of `90s`, `10m` or `2h`; a number alone is seconds.

    Raises:
        TileHALError: it is no time, or none at all (`0s`); `option` is what it was given for.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise TileHALError(f"{option} {text!r} is not a time", hint="a number and s, m or h: 90s, 10m, 2h")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds == 0:
        raise TileHALError(f"{option} {text!r} is no time at all", hint="a number and s, m or h: 90s, 10m, 2h")
    return seconds
