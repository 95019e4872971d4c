"""Rankings that were made before: kept in this process, and on disk beside the compiled kernels.

A ranking depends on the factory's source, its arguments and tile parameters, the chip's figures, the packages whose
rules take part, TileHAL and TileLang; the key is a digest of all of these, found without tracing anything. What it
cannot see (an object of the user's whose state the kernel reads) shows in the program that the first choice makes: its
fingerprint is kept with the ranking, and whoever traces the first choice compares.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import KernelError, TileHALError
from core.tiling.ranking import Effort, Ranking
from core.tiling.ranking_files import UnreadableRanking, read_ranking, write_ranking
from core.tiling.rules import Tiles
from core.tiling.tracing import is_symbol

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.plugins import Backend
    from core.tiling.factory import KernelFactory

#: Changes when a ranking of the same key may come out differently for a reason that is not in the key.
SCHEMA = 1
#: Rankings kept in a process.
_MOST = 256

_lock = threading.Lock()
_known: OrderedDict[str, Ranking] = OrderedDict()


class _Failed(Exception):
    """Carries an error of ours through the cache, which would otherwise remember it as what this key always gives."""

    def __init__(self, error: TileHALError) -> None:
        self.error = error


def ranking_key(
    factory: KernelFactory,
    arguments: Mapping[str, Any],
    chip: Chip,
    backend: Backend,
    overrides: Tiles,
    options: Mapping[str, Any] | None = None,
) -> str | None:
    """The key of a ranking, 64 hexadecimal digits; None when an argument has no stable form."""
    from core._tilelang import tilelang_version
    from core.compiler.keys import digest, own_code_hash
    from core.tiling.fingerprint import source_fingerprint

    try:
        return digest(
            {
                "ranking": SCHEMA,
                "factory": [factory.name, source_fingerprint(factory)],
                "parameters": dict(factory.parameters),
                "arguments": {name: _plain(value) for name, value in arguments.items()},
                "given": dict(overrides),
                "options": dict(options or {}),
                "chip": chip.model_dump_for_fingerprint(),
                "packages": backend.fingerprint(chip),
                "core": own_code_hash(),
                "tilelang": tilelang_version(),
            }
        )
    except KernelError:
        return None


def _plain(value: Any) -> Any:
    """A symbolic dimension by its name and type, which is all there is to it."""
    return ["symbol", str(value.name), str(value.dtype)] if is_symbol(value) else value


def recalled(key: str | None, factory: KernelFactory, make: Callable[[], Ranking]) -> Ranking:
    """The ranking with this key, from this process or from disk; else `make` ranks, once among all processes.

    Raises:
        TileHALError: whatever `make` raises; it is not remembered.
    """
    if key is None:
        return make()
    with _lock:
        found = _known.get(key)
        if found is not None:
            _known.move_to_end(key)
            return replace(found, effort=Effort(recalled="process"))
    found = _from_disk(key, factory, make)
    _keep(key, found)
    return found


def remember(key: str | None, ranking: Ranking) -> None:
    """Puts a ranking in the place of a remembered one that turned out to be of another kernel, in this process."""
    if key is not None:
        _keep(key, ranking)


def forget() -> None:
    """Forgets what this process remembers. For tests and measurements; the disk is not touched."""
    with _lock:
        _known.clear()


def _keep(key: str, ranking: Ranking) -> None:
    with _lock:
        _known[key] = ranking
        _known.move_to_end(key)
        while len(_known) > _MOST:
            _known.popitem(last=False)


def _from_disk(key: str, factory: KernelFactory, make: Callable[[], Ranking]) -> Ranking:
    from core.compiler.cache import default

    cache = default()
    if not cache.enabled:
        return make()
    made: list[Ranking] = []

    def fill(folder: Path) -> None:
        if not made:  # asked again when the first folder could not be published
            try:
                made.append(make())
            except TileHALError as error:
                raise _Failed(error) from error
        write_ranking(made[0], folder)

    try:
        folder, _ = cache.folder(key, fill, label=f"ranking of {factory.name}")
    except _Failed as failed:
        raise failed.error from failed.error.__cause__
    except OSError:
        # A disk that cannot keep a ranking must not stop a compilation.
        return made[0] if made else make()
    if made:
        return made[0]
    try:
        return read_ranking(folder, factory.parameters)
    except UnreadableRanking:
        return make()
