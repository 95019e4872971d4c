"""`kernel.config`: what became of the tile parameters."""

from __future__ import annotations

from typing import Any

import pytest
import tilelang.language as T

import core
from core.tiling.parameters import threads as threads_of


@core.kernel
def doubled(N: int, *, extra: int = 0, threads: int = threads_of()) -> Any:
    """Doubles N numbers; `extra` threads of a block have nothing to do."""

    @T.prim_func
    def doubled(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(N // 128, threads=threads + extra) as block:
            for i in T.Parallel(128):
                B[block * 128 + i] = A[block * 128 + i] * 2.0

    return doubled


def entry(target: str, **arguments: int) -> tuple[Any, Any, str]:
    found = doubled.compile(1024, threads=64, target=target, build=False, **arguments).config["threads"]
    return found.requested, found.effective, found.note


def test_threads_that_the_kernel_adds_by_itself_are_told() -> None:
    assert entry("cuda:h200") == (64, 64, "")
    note = "the kernel's own text launches 128, 64 more than the parameter"
    assert entry("cuda:h200", extra=64) == (64, 128, note)
    assert entry("metax:c500", extra=64) == (64, 128, note)


def test_threads_that_it_leaves_out_are_told() -> None:
    assert entry("cuda:h200", extra=-32) == (64, 32, "the kernel's own text launches 32, not all 64")


@pytest.mark.parametrize("extra", [0, 64])
def test_a_chip_without_threads_says_so_whatever_is_launched(extra: int) -> None:
    assert entry("cpu", extra=extra) == (64, None, "one CPU thread runs a whole block")
