"""What callers see: lowered and built kernels by key, and what lies in the cache."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from core.compiler import serialize
from core.compiler.artifacts import BuiltKernel, LoweredKernel
from core.compiler.cache import entry, inspection, refusals
from core.compiler.cache.entry import Manifest, Stage, Summary
from core.compiler.cache.inspection import CacheEntry, CacheStats, Cleared
from core.compiler.cache.settings import DEFAULT_LIMIT_BYTES, format_size
from core.compiler.cache.store import Store, checked
from core.errors import BackendHookError, Location, TileHALError


class Cache:
    """Content-addressed kernels on disk, safe under any number of threads and processes.

    Args:
        root: its folder, created when first written to.
        limit_bytes: most it may hold; least recently used entries go first.
        enabled: when False nothing is read or written; kernels are built in temporary folders.
    """

    def __init__(self, root: Path, limit_bytes: int = DEFAULT_LIMIT_BYTES, *, enabled: bool = True) -> None:
        self._store = Store(root, limit_bytes, enabled)

    @property
    def root(self) -> Path:
        """Its folder."""
        return self._store.base

    @property
    def enabled(self) -> bool:
        """Whether it is used."""
        return self._store.enabled

    @property
    def limit_bytes(self) -> int:
        """Most it may hold."""
        return self._store.limit_bytes

    # ------------------------------------------------------------------------------------------------ compilation

    def lowered(
        self, key: str, make: Callable[[], LoweredKernel], *, origin: Location | None = None
    ) -> tuple[LoweredKernel, bool]:
        """The lowered kernel with this key, and whether it was there; else `make` is called, once among all processes.

        Args:
            key: from :func:`core.compiler.keys.compile_key`.
            make: lowers the kernel.
            origin: where the kernel is defined; with it, a failure that names a line is remembered too.

        Raises:
            BackendHookError: the kernel holds something that cannot be written to a file and read back.
            TileHALError: whatever `make` raises, or raised under the same key less than a day ago.
        """

        def read(folder: Path, manifest: Manifest) -> LoweredKernel:
            return serialize.read_lowered(entry.read_contents(folder, manifest))

        def fill(work: Path | None) -> LoweredKernel:
            made = serialize.normalised(make())
            if work is not None:
                with self._store.trouble.tolerated("a kernel could not be written"):
                    serialize.write_lowered(made, work)
                    self._store.publish(work, "lowered", key, _summary(made, made.language))
                shutil.rmtree(work, ignore_errors=True)  # there only when it could not be published
            return made

        return self._store.obtain("lowered", key, read, fill, origin)

    def built(self, key: str, lowered: LoweredKernel, make: Callable[[Path], BuiltKernel]) -> tuple[BuiltKernel, bool]:
        """The built kernel with this key, and whether it was there; else `make` is called, once among all processes.

        Args:
            key: from :func:`core.compiler.keys.build_key`.
            lowered: what is built. An entry built from any other source is not used, whatever its key.
            make: builds into the empty folder it is given. The folder then moves to its final place, so files must
                not refer to each other by absolute paths; the result's `directory` is that place.

        Raises:
            BackendHookError: the result does not belong to `lowered`, names files that are not there, or holds
                something that cannot be written and read back.
            TileHALError: whatever `make` raises, or raised under the same key less than a day ago.
        """

        def read(folder: Path, manifest: Manifest) -> BuiltKernel | None:
            entry.check_files(folder, manifest)
            return serialize.read_built((folder / serialize.BUILT_FILE).read_bytes(), lowered, folder)

        def build(work: Path) -> Summary:
            made = make(work)
            if made.lowered is not lowered and made.lowered != lowered:
                raise BackendHookError(
                    f"the build hook for {lowered.target} returned a kernel made from other source than it was given",
                    hint="return BuiltKernel(lowered=lowered, ...) with the `lowered` of the call",
                )
            serialize.write_built(made, work)
            return _summary(lowered, f"{made.toolchain.name} {made.toolchain.version}".splitlines()[0])

        def reread(folder: Path) -> BuiltKernel:
            made = serialize.read_built((folder / serialize.BUILT_FILE).read_bytes(), lowered, folder)
            assert made is not None  # it was written from `lowered` a moment ago
            return made

        return self._store.obtain(
            "built", key, read, lambda work: reread(self._store.fill_folder(work, "built", key, build))
        )

    def folder(self, key: str, make: Callable[[Path], None], *, label: str = "") -> tuple[Path, bool]:
        """A folder of files with this key, and whether it was there; else `make` fills it, once among all processes.

        For what is neither a lowered nor a built kernel, such as a simulator's shared object. `label` is what
        `tilehal cache list` shows.

        Raises:
            TileHALError: whatever `make` raises, or raised under the same key less than a day ago.
        """

        def read(folder: Path, manifest: Manifest) -> Path:
            entry.check_files(folder, manifest)
            return folder

        def build(work: Path) -> Summary:
            make(work)
            return Summary(kernel=label)

        return self._store.obtain("files", key, read, lambda work: self._store.fill_folder(work, "files", key, build))

    def refusal(self, key: str, *, stage: Stage = "built", origin: Location | None = None) -> TileHALError | None:
        """The failure remembered under this key, or None. :meth:`lowered` and :meth:`built` raise it by themselves."""
        return refusals.recall(self._store.root, stage, checked(key), origin) if self.enabled else None

    def maintain(self) -> None:
        """Sweeps what dead processes left and evicts down to the limit. It happens by itself after some stores.

        Raises:
            OSError: the cache cannot be written.
        """
        self._store.maintain()

    # ------------------------------------------------------------------------------------------------ inspection

    def stats(self) -> CacheStats:
        """Counts and sizes; reads the whole folder."""
        counts, sizes, refused = inspection.stats(self._store.root)
        return CacheStats(
            root=self.root,
            limit_bytes=self.limit_bytes,
            enabled=self.enabled,
            entries=counts,
            size_bytes=sizes,
            refusals=refused,
            hits=dict(self._store.hits),
            misses=dict(self._store.misses),
            damaged=self._store.damaged,
        )

    def entries(self) -> list[CacheEntry]:
        """Every entry, most recently used first."""
        return sorted(inspection.entries(self._store.root, check=False), key=lambda found: -found.used_s)

    def verify(self) -> list[CacheEntry]:
        """Compares every byte with the manifests; returns the damaged entries, which stay where they are."""
        return [found for found in inspection.entries(self._store.root, check=True) if found.damaged]

    def clear(
        self,
        *,
        keys: Collection[str] | None = None,
        stage: Stage | None = None,
        target: str | None = None,
        older_than_s: float | None = None,
        force: bool = False,
    ) -> Cleared:
        """Removes the entries that fit every given condition; with none given, everything, remembered failures too.

        Args:
            keys: only these. stage: only `lowered`, `built` or `files`. target: only this chip, or this vendor.
            older_than_s: only entries not used for so many seconds.
            force: also entries that a living process uses.

        Raises:
            OSError: the cache cannot be written.
        """
        return inspection.clear(
            self._store.root, keys=keys, stage=stage, target=target, older_than_s=older_than_s, force=force
        )

    def __repr__(self) -> str:
        state = f"up to {format_size(self.limit_bytes)}" if self.enabled else "disabled"
        return f"<Cache {self.root} ({state})>"


def _summary(lowered: LoweredKernel, detail: str) -> Summary:
    return Summary(lowered.signature.name, lowered.target, lowered.route, detail)
