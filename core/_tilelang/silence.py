"""Keeping TileLang's logs out of a compile that was not asked to talk."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silent() -> Iterator[None]:
    """Nothing is logged inside: of what fails, TileLang logs the whole rewritten source, and the exception says why."""
    previous = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(previous)
