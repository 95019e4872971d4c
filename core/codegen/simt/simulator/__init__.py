"""The SIMT simulator: generated device code of a CUDA-like chip, compiled for the CPU and run there.

A backend gives its language's shim headers; the chip's descriptor gives wave width and matrix instructions.
docs/simulator.md says what is modelled, what is found, and what is not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.codegen.simt.simulator.simulate import CHECKED_VARIABLE as CHECKED_VARIABLE
    from core.codegen.simt.simulator.simulate import simulator as simulator

_HOMES = {"simulate": ("CHECKED_VARIABLE", "simulator")}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
