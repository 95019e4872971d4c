"""One accelerator, several test processes: most tests share it, those that take times have it alone."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def device_turn(*, alone: bool, folder: Path | None = None) -> Iterator[None]:
    """Waits until the accelerator is free of processes it cannot be shared with, and holds it for the block.

    Args:
        alone: no other process has a turn meanwhile; otherwise all that want to share it may have theirs.
        folder: where its lock files lie; by default all runs of this user on this machine take turns.
    """
    prefix = Path(folder or tempfile.gettempdir()) / f"tilehal-tests-{os.getuid()}"
    with open(f"{prefix}.door", "a") as door, open(f"{prefix}.device", "a") as device:
        # Whoever waits to be alone keeps the door shut: those that share it would otherwise never all be outside.
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(device, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield
