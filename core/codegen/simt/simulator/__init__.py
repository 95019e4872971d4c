"""The SIMT simulator: generated device code of a CUDA-like chip, compiled for the CPU and run there.

A backend gives its language's shim headers; the chip's descriptor gives wave width and matrix instructions.
docs/simulator.md says what is modelled, what is found, and what is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core._lazy import lazy_names

if TYPE_CHECKING:
    from core.codegen.simt.simulator.simulate import CHECKED_VARIABLE as CHECKED_VARIABLE
    from core.codegen.simt.simulator.simulate import simulator as simulator

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {"simulate": ("CHECKED_VARIABLE", "simulator")},
)
