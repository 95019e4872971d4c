"""Launching through libmcruntime.so."""

from __future__ import annotations

from functools import lru_cache

from backends.metax.dialect import MACA
from core.codegen.simt import Runtime, SimtLauncher
from core.compiler import BuiltKernel


@lru_cache(maxsize=1)
def runtime() -> Runtime:
    """The MACA runtime of this process. Raises DeviceUnavailable."""
    return Runtime(MACA)


def launcher(built: BuiltKernel) -> SimtLauncher:
    """A launcher on torch's current stream. MACA's torch calls its device `cuda`; its handles are the runtime's."""
    return SimtLauncher(built, runtime())
