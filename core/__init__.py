"""TileHAL: one TileLang kernel, any chip.

`core.compile(kernel, target="cuda:h200")` lowers an ordinary `tilelang.language` kernel for a chip; `core.chip(...)`
describes one; `@core.kernel` lets the chip's rules choose tile sizes. Importing this package is cheap: torch, tilelang
and the backends are loaded when first needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from core.errors import (
    ArtifactError,
    BackendHookError,
    BackendLoadError,
    BaselineError,
    BenchError,
    BuildFailed,
    DescriptorError,
    DeviceUnavailable,
    KernelError,
    LaunchError,
    Location,
    PortabilityWarning,
    ResourceExceeded,
    ShapeMismatch,
    TargetNotFound,
    TileHALError,
    ToolchainNotFound,
    TuningError,
    TuningStoreError,
    TuningWarning,
    UnsupportedOp,
)

if TYPE_CHECKING:
    from core._tilelang.targets import install_tilelang_targets
    from core.compiler.driver import compile
    from core.hardware import Chip
    from core.runtime.kernel import Kernel
    from core.target import chip, targets
    from core.tiling import buffers, choice, kernel, split, stages, swizzle, threads, tile, unroll, warp_policy, workers

__version__ = "0.1.0"

#: Public names that are loaded on first use.
_LAZY = {
    "Chip": "core.hardware",
    "Kernel": "core.runtime.kernel",
    "buffers": "core.tiling",
    "chip": "core.target",
    "choice": "core.tiling",
    "compile": "core.compiler.driver",
    "install_tilelang_targets": "core._tilelang.targets",
    "kernel": "core.tiling",
    "split": "core.tiling",
    "stages": "core.tiling",
    "swizzle": "core.tiling",
    "targets": "core.target",
    "threads": "core.tiling",
    "tile": "core.tiling",
    "unroll": "core.tiling",
    "warp_policy": "core.tiling",
    "workers": "core.tiling",
}

__all__ = [
    "ArtifactError",
    "BackendHookError",
    "BackendLoadError",
    "BaselineError",
    "BenchError",
    "BuildFailed",
    "Chip",
    "DescriptorError",
    "DeviceUnavailable",
    "Kernel",
    "KernelError",
    "LaunchError",
    "Location",
    "PortabilityWarning",
    "ResourceExceeded",
    "ShapeMismatch",
    "TargetNotFound",
    "TileHALError",
    "ToolchainNotFound",
    "TuningError",
    "TuningStoreError",
    "TuningWarning",
    "UnsupportedOp",
    "buffers",
    "chip",
    "choice",
    "compile",
    "install_tilelang_targets",
    "kernel",
    "split",
    "stages",
    "swizzle",
    "targets",
    "threads",
    "tile",
    "unroll",
    "warp_policy",
    "workers",
]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'core' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
