"""Keeping TileLang's logs out of a compile that was not asked to talk."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside = 0
_before = logging.NOTSET


@contextmanager
def silent() -> Iterator[None]:
    """Nothing is logged inside: of what fails, TileLang logs the whole rewritten source, and the exception says why.

    Python switches logging off for the process, not for a thread. So the first thread that enters notes how it was, and
    the last one that leaves puts it back: each for itself would let a thread restore what another had switched off.
    """
    global _inside, _before
    with _lock:
        if _inside == 0:
            _before = logging.root.manager.disable
            logging.disable(logging.CRITICAL)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                logging.disable(_before)
