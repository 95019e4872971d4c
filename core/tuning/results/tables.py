"""Tables of tuned results that plugin packages ship for a chip."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from core.errors import TuningError, TuningWarning
from core.tuning.results.exchange import read_file
from core.tuning.results.records import Result

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.plugins import Backend

_lock = threading.Lock()
#: By backend and target: read once per process.
_read: WeakKeyDictionary[Backend, dict[str, tuple[Table, ...]]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Table:
    """A shipped file, its results by kernel and fingerprint."""

    path: Path
    results: dict[tuple[str, str], list[Result]]

    def of_kernel(self, kernel: str, fingerprint: str) -> Iterator[Result]:
        """The results for one kernel."""
        yield from self.results.get((kernel, fingerprint), ())


def shipped_tables(chip: Chip, backend: Backend) -> tuple[Table, ...]:
    """The tables for a chip from its backend and the extensions, highest priority first.

    A file that does not read is left out with a warning that names it: a kernel compiles without it.
    """
    if not backend.implements("tilehal_tuned_tables", chip):
        return ()
    with _lock:
        known = _read.setdefault(backend, {})
        if chip.target not in known:
            paths: tuple[Path, ...] = backend.call("tilehal_tuned_tables", chip)
            known[chip.target] = tuple(table for path in paths if (table := _table(path, chip)) is not None)
        return known[chip.target]


def _table(path: Path, chip: Chip) -> Table | None:
    try:
        found = read_file(path)
    except TuningError as error:
        warnings.warn(f"a table of tuned results for {chip.target} is left out: {error}", TuningWarning, stacklevel=4)
        return None
    results: dict[tuple[str, str], list[Result]] = {}
    for result in found:
        if result.key.chip == chip.target:
            results.setdefault((result.key.kernel, result.key.fingerprint), []).append(result)
    return Table(path, results)
