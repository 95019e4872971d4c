"""The operator library: one portable TileLang source per operator, tile parameters chosen by the chip's rules.

Each operator is a module of its name with a `@core.kernel` factory in it (`core.ops.gemm.gemm`). Modules are imported
on first use, because they import tilelang. A module whose name begins with an operator's is a variant of it for some
chips (`gemm_split`, `attention_hopper`); what an underscore begins, several modules share.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = (
    "activations",
    "attention",
    "attention_varlen",
    "conv2d",
    "functional",
    "gemm",
    "grouped_gemm",
    "layernorm",
    "mla",
    "rmsnorm",
    "softmax",
)


def __getattr__(name: str) -> Any:
    """The operator's module, imported on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module 'core.ops' has no attribute {name!r}")
    return importlib.import_module(f"core.ops.{name}")


def __dir__() -> list[str]:
    return sorted(_MODULES)
