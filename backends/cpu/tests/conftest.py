"""Compiling small kernels for the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(scope="session")
def cpu() -> Callable[..., Any]:
    """`cpu(prim_func, out_idx)`: the kernel, compiled for this machine's CPU."""
    import core

    def compile(prim_func: Any, out_idx: Any = None, **options: Any) -> Any:
        return core.compile(prim_func, target="cpu", out_idx=out_idx, **options)

    return compile
