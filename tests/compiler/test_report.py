"""`kernel.config`: what became of the tile parameters."""

from __future__ import annotations

from typing import Any

import pytest
import tilelang.language as T

import core
from core.tiling.parameters import stages as stages_of
from core.tiling.parameters import threads as threads_of
from core.tiling.parameters import warp_policy


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


@core.kernel
def summed(
    K: int, *, deeper: int = 0, viewed: bool = False, second: int = 0, num_stages: int = stages_of(), threads: int = 64
) -> Any:
    """Adds K tiles, in a loop that is pipelined, and where `second` is not 0 in another one too, of that depth."""

    @T.prim_func
    def summed(A: T.Tensor((K * 32, 32), "float16"), B: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=threads):
            total = T.alloc_fragment((32, 32), "float32")
            tile, other = (T.alloc_shared((32, 32), "float16") for _ in range(2))
            used = T.view(tile, (32, 32), "float16") if viewed else tile
            T.clear(total)
            for k in T.Pipelined(K, num_stages=num_stages + deeper):
                T.copy(A[k * 32, 0], tile)
                for i, j in T.Parallel(32, 32):
                    total[i, j] += used[i, j]
            if second:
                for again in T.Pipelined(K, num_stages=second):
                    T.copy(A[again * 32, 0], other)
                    for i, j in T.Parallel(32, 32):
                        total[i, j] += other[i, j]
            T.copy(total, B)

    return summed


def stages(target: str, **arguments: Any) -> tuple[Any, Any, str]:
    found = summed.compile(8, num_stages=3, target=target, build=False, **arguments).config["num_stages"]
    return found.requested, found.effective, found.note


@pytest.mark.parametrize("target", ["cuda:h200", "cuda:a100", "metax:c500"])
def test_stages_that_a_rewrite_takes_off_are_told(target: str) -> None:
    assert stages(target) == (3, 3, "")
    note = "the loop over k is not pipelined: pipelined-tile-viewed, it fills a tile that it uses through a view"
    assert stages(target, viewed=True) == (3, 0, note)
    assert stages(target, viewed=True, second=2) == (3, 2, note)


def test_stages_in_the_text_that_a_rewrite_takes_off_are_told() -> None:
    @T.prim_func
    def turned(A: T.Tensor((32, 32), "float32"), B: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=64):
            s, t = (T.alloc_shared((32, 32), "float32") for _ in range(2))
            T.copy(A, s)
            T.copy(s, B)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(B, s)
                for i, j in T.Parallel(32, 32):
                    t[31 - i, j] = s[i, j] + T.cast(k, "float32")
                T.copy(t, B)

    found = core.compile(turned, target="cuda:h200", build=False).config["num_stages"]
    note = "the loop over k is not pipelined: order-of-global-memory, its rounds touch what other rounds write"
    assert (found.requested, found.effective, found.note) == (2, 0, note)


def test_a_loop_that_cannot_be_staged_is_told() -> None:
    @T.prim_func
    def copied(A: T.Tensor((128, 32), "float16"), B: T.Tensor((128, 32), "float16")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((32, 32), "float16")
            for k in T.Pipelined(4, num_stages=2):
                for i, j in T.Parallel(32, 32):
                    tile[i, j] = A[k * 32 + i, j] * 2
                T.copy(tile, B[k * 32, 0])

    found = core.compile(copied, target="metax:c500", build=False).config["num_stages"]
    why = "no copy from global memory can be made ahead of its use"
    assert (found.requested, found.effective) == (2, 0)
    assert found.note == f"the loop over k is not pipelined: {why}"


def test_stages_that_the_kernel_adds_by_itself_are_told() -> None:
    assert stages("cuda:h200", deeper=1) == (3, 4, "the kernel's own text pipelines 4 deep")
    assert stages("cuda:h200", deeper=1, viewed=True)[1] == 0


@pytest.mark.parametrize(
    ("target", "dtype", "applies"),
    [
        ("cuda:h200", "float16", True),
        ("cuda:h200", "float32", False),
        ("metax:c500", "float32", True),
        ("cpu", "float16", False),
    ],
)
def test_a_policy_of_warps_applies_where_a_product_is_left_for_them(target: str, dtype: str, applies: bool) -> None:
    @core.kernel
    def product(N: int, *, policy: int = warp_policy()) -> Any:
        @T.prim_func
        def product(A: T.Tensor((N, N), dtype), B: T.Tensor((N, N), dtype), C: T.Tensor((N, N), "float32")):
            with T.Kernel(1, threads=128):
                a, b = (T.alloc_shared((N, N), dtype) for _ in range(2))
                c = T.alloc_fragment((N, N), "float32")
                T.copy(A, a)
                T.copy(B, b)
                T.clear(c)
                T.gemm(a, b, c, policy=T.GemmWarpPolicy(policy))
                T.copy(c, C)

        return product

    found = product.compile(64, policy=0, target=target, build=False).config["policy"]
    assert found.applies is applies
    assert bool(found.note) is not applies
