"""A vendor's backend: its owner and the extensions of its chips, and the one function that routes a hook call."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from core.errors import BackendHookError, TileHALError
from core.plugins.entries import Entry, Role
from core.plugins.hookspecs import HOOK_NAMES
from core.plugins.loading import Plugin, hook_error, new_plugin_manager
from core.plugins.results import RESULT_TYPES

if TYPE_CHECKING:
    import pluggy

    from core.hardware import Chip
    from core.plugins.records import DetectedDevice


@dataclass(frozen=True, slots=True)
class Package:
    """A package that takes part in what happens to a chip: what provenance shows and cache keys contain."""

    distribution: str
    version: str
    code_hash: str
    role: Role


class Backend:
    """The plugins of one vendor. Made by :class:`core.plugins.Manager`; safe to use from several threads."""

    def __init__(self, owner: Plugin, extensions: Sequence[Entry], load: Callable[[Entry], Plugin]) -> None:
        """Takes the loaded owner, the entries of every extension of the vendor, and how to load one of them."""
        self.vendor = owner.entry.vendor
        self._owner = owner
        self._extensions = tuple(extensions)
        self._load = load
        self._lock = threading.RLock()
        self._loaded: dict[Entry, Plugin] = {owner.entry: owner}
        self._pluggy = self._registered([owner])
        self._chips: tuple[Chip, ...] | None = None
        self._devices: tuple[DetectedDevice, ...] | None = None

    def __repr__(self) -> str:
        return f"<Backend {self.vendor}: {self._owner.entry.package}>"

    @property
    def distribution(self) -> str:
        """Name of the distribution that owns the vendor."""
        return self._owner.entry.distribution

    @property
    def version(self) -> str:
        """Version of the distribution that owns the vendor."""
        return self._owner.entry.version

    @property
    def code_hash(self) -> str:
        """SHA-256 of the owner's files. For a cache key use `packages(chip)`, which has the extensions too."""
        return self._owner.code_hash

    @property
    def package(self) -> str:
        """The owner as people write it: `tilehal-metax 0.1.0`."""
        return self._owner.entry.package

    def chips(self) -> tuple[Chip, ...]:
        """The vendor's chips, default first. Raises BackendHookError when they clash or belong to somebody else."""
        with self._lock:
            if self._chips is None:
                chips: tuple[Chip, ...] = self.call("tilehal_chips")
                fault = _chips_fault(self.vendor, chips)
                if fault:
                    raise hook_error(self._owner.entry, "tilehal_chips", fault)
                self._chips = chips
            return self._chips

    def detect(self) -> tuple[DetectedDevice, ...]:
        """The vendor's devices on this machine, best first; asked once per process."""
        with self._lock:
            if self._devices is None:
                self._devices = self.call("tilehal_detect")
            return self._devices

    def implements(self, hook_name: str, chip: Chip | None = None) -> bool:
        """Whether the owner, or an extension of `chip`, answers a hook. A wrapper alone does not."""
        _require_hook(hook_name)
        return any(hook_name in plugin.implemented for plugin in self._plugins_for(chip))

    def packages(self, chip: Chip) -> tuple[Package, ...]:
        """Every package called for `chip`, in calling order."""
        return tuple(
            Package(plugin.entry.distribution, plugin.entry.version, plugin.code_hash, plugin.entry.role)
            for plugin in reversed(self._plugins_for(chip))
        )

    def fingerprint(self, chip: Chip) -> str:
        """Changes whenever the code or version of a package called for `chip` does."""
        digest = hashlib.sha256()
        for package in self.packages(chip):
            digest.update(f"{package.distribution}\0{package.version}\0{package.code_hash}\0{package.role}\n".encode())
        return digest.hexdigest()

    def call(self, hook_name: str, chip: Chip | None = None, **arguments: Any) -> Any:
        """Calls a hook on the owner and on the extensions of `chip`.

        Args:
            hook_name: a name of `core.plugins.HOOK_NAMES`.
            chip: the chip it is for; left out only for `tilehal_chips` and `tilehal_detect`, which take none.
            arguments: the hook's other arguments, all of them.

        Returns what the first implementation that has a result returns or, for a hook that returns a sequence,
        everything returned as one tuple, highest priority first.

        Raises the hook's own TileHALError; BackendHookError when it raised anything else, returned the wrong type, or
        when a hook that must give a result gave none; BackendLoadError when an extension of the chip cannot be loaded.
        """
        if chip is not None:
            arguments["chip"] = chip
        caller = self._route(hook_name, chip)
        result = caller(**arguments)
        if RESULT_TYPES[hook_name].many:
            # A wrapper may have handed on something else than the list it was given.
            parts = result if isinstance(result, list) else [result]
            return tuple(chain.from_iterable(part for part in parts if part is not None))
        if result is None:
            raise self._no_result(hook_name, chip)
        return result

    def _route(self, hook_name: str, chip: Chip | None) -> pluggy.HookCaller:
        """The one place where it is decided who is called: the owner, and the extensions that match the chip."""
        _require_hook(hook_name)
        wanted = self._plugins_for(chip)
        with self._lock:
            called = {id(plugin.hooks) for plugin in wanted}
            others = [plugin.hooks for plugin in self._loaded.values() if id(plugin.hooks) not in called]
            return self._pluggy.subset_hook_caller(hook_name, remove_plugins=others)

    def _plugins_for(self, chip: Chip | None) -> list[Plugin]:
        """The owner and the extensions of a chip, loaded, lowest priority first: pluggy calls the last one first."""
        wanted = [entry for entry in self._extensions if chip is not None and _extends(entry, chip)]
        # Outside the lock: loading takes the manager's, and an import that runs under the manager's may ask this
        # backend for something. Two threads may both load an extension; the first one stays.
        fresh = {entry: self._load(entry) for entry in wanted if entry not in self._loaded}
        with self._lock:
            if not fresh.keys() <= self._loaded.keys():
                # All or nothing: the new table replaces the old one once every extension has loaded.
                loaded = fresh | self._loaded
                self._pluggy = self._registered(list(loaded.values()))
                self._loaded = loaded
            return _in_order([self._owner, *(self._loaded[entry] for entry in wanted)])

    @staticmethod
    def _registered(plugins: Sequence[Plugin]) -> pluggy.PluginManager:
        manager = new_plugin_manager()
        for plugin in _in_order(plugins):
            manager.register(
                plugin.hooks, name=f"{plugin.entry.distribution} ({plugin.entry.role} {plugin.entry.name})"
            )
        return manager

    def _no_result(self, hook_name: str, chip: Chip | None) -> TileHALError:
        plugins = self._plugins_for(chip)
        target = chip.target if chip else self.vendor
        asked = [plugin.entry.package for plugin in plugins if hook_name in plugin.implemented | plugin.wrapped]
        if not self.implements(hook_name, chip):
            message = f"{self.package} does not implement {hook_name}: {target} does not go that far with it"
            hint = f"`tilehal targets` lists what each target can do; a newer {self.distribution} may do more"
        else:
            message = f"{hook_name} gave no result for {target}; asked: {', '.join(asked)}"
            hint = "an implementation returned None, or a wrapper did not return what it was given"
        details = {"distribution": self.distribution, "version": self.version, "hook": hook_name, "target": target}
        return BackendHookError(message, hint=hint, details=details)


def _in_order(plugins: Sequence[Plugin]) -> list[Plugin]:
    # The owner is registered first among equals, so that an extension of priority 0 is still asked before it.
    return sorted(
        plugins, key=lambda plugin: (plugin.priority, plugin.entry.role != "owner", plugin.entry.distribution)
    )


def _extends(entry: Entry, chip: Chip) -> bool:
    return entry.chip is None or entry.chip in {name.casefold() for name in (chip.name, *chip.aliases)}


def _require_hook(hook_name: str) -> None:
    if hook_name not in HOOK_NAMES:
        raise ValueError(f"{hook_name!r} is no hook; the hooks are {', '.join(HOOK_NAMES)}")


def _chips_fault(vendor: str, chips: Sequence[Chip]) -> str | None:
    if not chips:
        return "it returned no chip"
    owner_of: dict[str, str] = {}
    for chip in chips:
        if chip.vendor != vendor:
            return f"chip {chip.name!r} says its vendor is {chip.vendor!r}, not {vendor!r}"
        for name in {chip.name.casefold(), *(alias.casefold() for alias in chip.aliases)}:
            if name in owner_of:
                return f"chips {owner_of[name]!r} and {chip.name!r} are both called {name!r}"
            owner_of[name] = chip.name
    return None
