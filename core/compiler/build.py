"""Build, launch and simulate through a backend's hooks and the cache: what a `Kernel` needs after it is lowered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.compiler.artifacts import BuiltKernel, CompileOptions, LoweredKernel, Toolchain
from core.errors import BuildFailed, TileHALError, UnsupportedOp
from core.plugins.records import BuildRequest

if TYPE_CHECKING:
    from core.compiler.cache import Cache
    from core.hardware import Chip
    from core.plugins import Backend
    from core.program import Program
    from core.runtime.launcher import Launcher


class Builder:
    """One backend's stages after lowering, with the cache in front of them."""

    def __init__(self, backend: Backend, cache: Cache, lowered_key: str) -> None:
        self._backend = backend
        self._cache = cache
        self._lowered_key = lowered_key

    def toolchain(self, chip: Chip) -> Toolchain:
        """The native compiler that would build for `chip`. Raises ToolchainNotFound or UnsupportedOp."""
        self._require("tilehal_build", chip, "build")
        found: Toolchain = self._backend.call("tilehal_toolchain", chip)
        return found

    def build(self, chip: Chip, lowered: LoweredKernel, options: CompileOptions) -> tuple[BuiltKernel, bool]:
        """The built kernel, and whether it came from the cache."""
        from core.compiler.keys import build_key

        toolchain = self.toolchain(chip)
        key = build_key(self._lowered_key, toolchain)

        def make(directory: Path) -> BuiltKernel:
            request = BuildRequest(directory, options)
            built: BuiltKernel = self._backend.call("tilehal_build", chip, lowered=lowered, request=request)
            return replace(built, directory=directory)

        return self._cache.built(key, lowered, make)

    def launcher(self, chip: Chip, built: BuiltKernel) -> Launcher:
        self._require("tilehal_launcher", chip, "launch")
        found: Launcher = self._backend.call("tilehal_launcher", chip, built=built)
        return found

    def simulator(self, chip: Chip, lowered: LoweredKernel, options: CompileOptions) -> SimulatedLauncher:
        """A launcher that runs the lowered source on the CPU. Its files go with it, those of a failed build stay."""
        import shutil
        import weakref

        from core.compiler.cache import private

        self._require("tilehal_simulator", chip, "simulate")
        directory = private.new_folder()
        request = BuildRequest(directory, options)
        try:
            launcher: Launcher = self._backend.call("tilehal_simulator", chip, lowered=lowered, request=request)
        except BuildFailed:
            private.keep(directory)  # the message names a file in it
            raise
        simulated = SimulatedLauncher(launcher)
        # At exit the folder is `private`'s to remove, which a child made by fork leaves to its parent.
        weakref.finalize(simulated, shutil.rmtree, directory, ignore_errors=True).atexit = False
        return simulated

    def can_simulate(self, chip: Chip) -> bool:
        return self._backend.implements("tilehal_simulator", chip)

    def blockers(self, chip: Chip, stage: str) -> list[str]:
        """Messages of the backend's own findings that make `stage` impossible here."""
        if not self._backend.implements("tilehal_diagnose", chip):
            return []
        try:
            findings = self._backend.call("tilehal_diagnose", chip)
        except TileHALError as error:
            return [error.message]
        return [finding.message for finding in findings if stage in finding.blocks]

    def _require(self, hook: str, chip: Chip, verb: str) -> None:
        if not self._backend.implements(hook, chip):
            raise UnsupportedOp(
                f"the backend of {chip.vendor} ({self._backend.distribution} {self._backend.version}) cannot {verb}: "
                f"it does not implement {hook}",
                hint="`tilehal targets` shows what each target can do on this machine",
            )


class SimulatedLauncher:
    """A launcher together with what must outlive it."""

    def __init__(self, launcher: Callable[..., None]) -> None:
        self._launcher = launcher
        #: What a simulator changed in the source, for `k.provenance.rewrites`.
        self.rewrites: tuple[str, ...] = tuple(getattr(launcher, "rewrites", ()))

    def locate(self, error: TileHALError, program: Program) -> None:
        """Lets the simulator find the line of the user's kernel that a fault belongs to."""
        locate = getattr(self._launcher, "locate", None)
        if locate is not None:
            locate(error, program)

    def __call__(self, *arguments: Any, symbols: dict[str, int] | None = None, stream: int | None = None) -> None:
        self._launcher(*arguments, symbols=symbols, stream=stream)
