"""Asserting that a kernel is refused as users need it: type, line and hint, at once."""

from __future__ import annotations

import linecache
import time
from typing import Any

import pytest

import core

#: Seconds of this process within which a refusal must come: no compiler has run then.
AT_ONCE_S = 1.0


def refused(kernel: Any, target: str, error: type[core.TileHALError], line: str) -> core.TileHALError:
    """The error that compiling for `target` ends with: of exactly this type, placed at the line that holds `line`."""
    import tilelang  # noqa: F401  # importing it is not part of the refusal

    core.chip(target)
    started = time.process_time()
    with pytest.raises(core.TileHALError) as caught:
        core.compile(kernel, target=target)
    seconds = time.process_time() - started
    found = caught.value
    assert type(found) is error, found
    assert found.hint
    assert found.location is not None
    assert line in linecache.getline(found.location.file, found.location.line)
    assert seconds < AT_ONCE_S
    return found
