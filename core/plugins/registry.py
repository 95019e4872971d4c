"""All plugins of this process: what is installed, what was loaded, what failed and why.

Nothing is imported before it is asked for: `vendors()` reads metadata, `backend(vendor)` loads that vendor's owner, and
a chip's extensions load when a hook is first called for it.
"""

from __future__ import annotations

import contextlib
import difflib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.errors import BackendLoadError, TargetNotFound, TileHALError
from core.plugins.entries import LOAD_PLUGINS, Entry, discover, is_selected, selection_from_environment

if TYPE_CHECKING:
    from core.plugins.backend import Backend
    from core.plugins.loading import Plugin


@dataclass(frozen=True, slots=True)
class Failure:
    """A plugin, a hook of one, or a vendor with two owners, that cannot be used."""

    vendor: str
    entries: tuple[Entry, ...]
    error: BackendLoadError


class Manager:
    """The plugins of a process, or of a test. Safe to use from several threads.

    Args:
        entries: the installed plugins; None discovers them on `sys.path` when first needed.
        selection: distribution or vendor names to use, everything else is left out; None for what the environment
            variable `TILEHAL_LOAD_PLUGINS` says.
    """

    def __init__(self, entries: Iterable[Entry] | None = None, *, selection: Iterable[str] | None = None) -> None:
        self._lock = threading.RLock()
        self._entries = None if entries is None else tuple(entries)
        self._selection = None if selection is None else tuple(selection)
        self._backends: dict[str, Backend] = {}
        self._failures: dict[tuple[Entry, ...], Failure] = {}
        self._refused_hooks: list[Failure] = []
        self._loading: set[Entry] = set()

    def entries(self) -> tuple[Entry, ...]:
        """Every installed plugin, the left out ones too. Imports nothing."""
        with self._lock:
            if self._entries is None:
                self._entries = discover()
            return self._entries

    def selected_entries(self) -> tuple[Entry, ...]:
        """The installed plugins that `TILEHAL_LOAD_PLUGINS` does not leave out. Imports nothing."""
        with self._lock:
            if self._selection is None:
                self._selection = selection_from_environment()
            return tuple(entry for entry in self.entries() if is_selected(entry, self._selection))

    def vendors(self) -> tuple[str, ...]:
        """Every vendor with an installed owner, sorted. Imports nothing, so a vendor listed may still fail to load."""
        return tuple(sorted({entry.vendor for entry in self.selected_entries() if entry.role == "owner"}))

    def left_out_vendors(self) -> tuple[str, ...]:
        """Vendors whose owner is installed but left out by `TILEHAL_LOAD_PLUGINS`, sorted."""
        installed = {entry.vendor for entry in self.entries() if entry.role == "owner"}
        return tuple(sorted(installed.difference(self.vendors())))

    def backend(self, vendor: str) -> Backend:
        """The backend of a vendor, loaded at the first call.

        Raises TargetNotFound for a vendor nobody owns; BackendLoadError when its package failed to load (the cause is
        chained, and a failed package is not tried again) or when two packages own it.
        """
        vendor = vendor.strip().casefold()
        with self._lock:
            if vendor not in self._backends:
                self._backends[vendor] = self._load_backend(vendor)
            return self._backends[vendor]

    def load_all(self) -> tuple[Backend, ...]:
        """Loads every vendor and returns those that could be; `failures()` says what became of the others."""
        loaded = []
        for vendor in self.vendors():
            with contextlib.suppress(BackendLoadError):
                loaded.append(self.backend(vendor))
        return tuple(loaded)

    def failures(self) -> tuple[Failure, ...]:
        """What failed to load so far in this process, and hooks that an extension has and only an owner may have."""
        with self._lock:
            return (*self._failures.values(), *self._refused_hooks)

    def _load_backend(self, vendor: str) -> Backend:
        # Here, not above: pluggy and what loads plugins are not needed to list vendors.
        from core.plugins.backend import Backend

        selected = [entry for entry in self.selected_entries() if entry.vendor == vendor]
        owners = tuple(entry for entry in selected if entry.role == "owner")
        if not owners:
            raise self.unknown_vendor(vendor)
        if len(owners) > 1:
            error = _two_owners(vendor, owners)
            self._failures.setdefault(owners, Failure(vendor, owners, error))
            raise error
        extensions = [entry for entry in selected if entry.role == "extension"]
        return Backend(self._load(owners[0]), extensions, self._load)

    def _load(self, entry: Entry) -> Plugin:
        from core.plugins.loading import load, load_error

        with self._lock:
            known = self._failures.get((entry,))
            if known is not None:
                # A copy: an exception raised twice would grow the first one's traceback.
                error = known.error
                again = type(error)(error.message, hint=error.hint, details=error.details)
                raise again from error.__cause__
            if entry in self._loading:
                raise load_error(entry, "import", "its own import asks for the target it is to provide")
            self._loading.add(entry)
            try:
                plugin = load(entry)
                self._refused_hooks += [Failure(entry.vendor, (entry,), error) for error in plugin.refused]
                return plugin
            except BackendLoadError as error:
                self._failures[entry,] = Failure(entry.vendor, (entry,), error)
                raise
            finally:
                self._loading.discard(entry)

    def unknown_vendor(self, vendor: str) -> TileHALError:
        """The error for a vendor that no selected package owns. Imports nothing."""
        vendors = self.vendors()
        near = difflib.get_close_matches(vendor, vendors, n=3)
        if vendor in self.left_out_vendors():
            message = f"the backend for {vendor!r} is installed, but {LOAD_PLUGINS} leaves it out"
            hint = f"add {vendor} to {LOAD_PLUGINS}, or unset it"
        else:
            message = f"no installed backend owns the vendor {vendor!r}"
            hint = f"did you mean {' or '.join(near)}?" if near else _install_hint(vendor, vendors)
        details = {"vendor": vendor, "vendors": list(vendors), "near": near, "left_out": self.left_out_vendors()}
        return TargetNotFound(message, hint=hint, details=details)


def _install_hint(vendor: str, vendors: tuple[str, ...]) -> str:
    if not vendors:
        return "no backend is installed: install one, for example tilehal-cpu"
    return f"installed are {', '.join(vendors)}; a package with an entry point {vendor!r} in tilehal.backends adds it"


def _two_owners(vendor: str, owners: tuple[Entry, ...]) -> BackendLoadError:
    packages = [owner.package for owner in owners]
    names = sorted({owner.distribution for owner in owners})
    if len(names) == 1:
        message = f"{packages[0]} declares the vendor {vendor!r} twice: {', '.join(owner.value for owner in owners)}"
        return BackendLoadError(message, hint=f"report it to the authors of {names[0]}", details={"vendor": vendor})
    return BackendLoadError(
        f"{len(owners)} packages own the vendor {vendor!r}: {' and '.join(packages)}",
        hint=f"keep one: `pip uninstall {names[1]}` (or {names[0]}), or name the ones to use, for example "
        f"{LOAD_PLUGINS}={names[0]}",
        details={"vendor": vendor, "distributions": names, "stage": "ownership"},
    )


_process_lock = threading.Lock()
_process_manager: Manager | None = None


def manager() -> Manager:
    """The plugins of this process."""
    global _process_manager
    with _process_lock:
        if _process_manager is None:
            _process_manager = Manager()
        return _process_manager


@contextlib.contextmanager
def use_manager(replacement: Manager) -> Iterator[Manager]:
    """Makes `manager()` return `replacement` inside a `with` block, for every thread: for tests."""
    global _process_manager
    with _process_lock:
        before, _process_manager = _process_manager, replacement
    try:
        yield replacement
    finally:
        with _process_lock:
            _process_manager = before
