"""Locks between processes: one timing at a time on a device, one tuner at a time on a shape.

`flock` on small files: the system releases them when their holder dies, however it dies. Threads are kept apart too,
since every lock has a file description of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from core.errors import TuningError

_POLL_S = 0.02


def device_lock_path(device: str) -> Path:
    """The file that stands for a torch device (`cuda:0`, `cpu`) of this machine, the same for all users."""
    kind, _, index = device.partition(":")
    visible = os.environ.get(f"{kind.upper()}_VISIBLE_DEVICES", "").split(",")
    number = int(index or 0)
    # What is "cuda:0" to a process is the first that the variable names.
    name = visible[number].strip() if visible != [""] and number < len(visible) else index or "0"
    word = "".join(letter if letter.isalnum() else "-" for letter in f"{kind}-{name}")
    return Path(os.environ.get("TILEHAL_LOCK_DIR") or tempfile.gettempdir()) / f"tilehal-device-{word}.lock"


@contextlib.contextmanager
def hold_device(
    device: str, *, shared: bool = False, while_waiting: Callable[[], None] | None = None
) -> Iterator[None]:
    """Holds a torch device of this machine against every other process that measures on it.

    Args:
        shared: together with others that hold it shared: what only loads the machine (compiling, where the CPU is the
            device) keeps timings away, but not its like.
        while_waiting: called again and again until it is free; may raise.

    Raises:
        TuningError: the lock's file cannot be made or opened.
    """
    held = acquire(device_lock_path(device), shared=shared)
    while held is None:
        if while_waiting is not None:
            while_waiting()
        time.sleep(_POLL_S)
        held = acquire(device_lock_path(device), shared=shared)
    try:
        yield
    finally:
        os.close(held)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Holds the lock file `path`, which is removed afterwards; gives False at once when somebody else holds it.

    Raises:
        TuningError: the file cannot be made.
    """
    held = acquire(path)
    try:
        yield held is not None
    finally:
        if held is not None:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(held)


def acquire(path: Path, *, shared: bool = False) -> int | None:
    """A file descriptor that holds the lock until it is closed, or None when somebody else holds it.

    Raises:
        TuningError: the file cannot be made or opened.
    """
    try:
        while True:
            descriptor = _open(path)
            try:
                fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
            except BlockingIOError:
                os.close(descriptor)
                return None
            except FileNotFoundError:
                pass
            os.close(descriptor)  # whoever held it removed it: another file has the name now
    except OSError as error:
        raise TuningError(
            f"the lock file {path} cannot be used: {error.strerror or error}",
            hint="make its folder writable; for a device's lock, TILEHAL_LOCK_DIR names another folder",
        ) from error


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)  # without O_CREAT first: a file of another user's in /tmp must not be "created"
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, flags | os.O_CREAT, 0o666)
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, 0o666)  # past the process's mask: other users lock it too
        return descriptor
