"""Profile families: what they make of a handful of traces is what tracing each candidate gives."""

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
import tilelang.language as T

import core
from core.errors import KernelError
from core.program import Program
from core.tiling import KernelFactory, Tiles
from core.tiling.profile import profile
from core.tiling.profile.family import ProfileFamily
from core.tiling.profile.flat import flatten, structure_from_json, structure_to_json, unflatten


@core.kernel
def gemm(
    M: int,
    N: int,
    K: int,
    *,
    block_M: int = core.tile("M"),
    block_N: int = core.tile("N"),
    block_K: int = core.tile("K"),
    num_stages: int = core.stages(),
    threads: int = core.threads(),
    panel: int = core.swizzle(),
):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            a = T.alloc_shared((block_M, block_K), "float16")
            b = T.alloc_shared((block_K, block_N), "float16")
            c = T.alloc_fragment((block_M, block_N), "float32")
            T.use_swizzle(panel, enable=panel > 0)
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], a)
                T.copy(B[k * block_K, bx * block_N], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * block_M, bx * block_N])

    return main


@core.kernel
def scaled(
    M: int, N: int, *, block_M: int = core.tile("M"), block_N: int = core.tile("N"), threads: int = core.threads()
):
    """Whole rows at once, or the row in pieces: two structures."""

    @T.prim_func
    def whole(A: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            for i, j in T.Parallel(block_M, N):
                A[bx * block_M + i, j] = A[bx * block_M + i, j] * 2.0

    @T.prim_func
    def pieces(A: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    A[bx * block_M + i, k * block_N + j] = A[bx * block_M + i, k * block_N + j] * 2.0

    return whole if block_N >= N else pieces


@core.kernel
def odd(M: int, *, block_M: int = core.tile("M"), threads: int = core.threads()):
    """Its loop is the larger of two parameters: no product of functions of one each."""
    steps = max(block_M, threads)

    @T.prim_func
    def main(A: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            for _ in T.serial(steps):
                for i in T.Parallel(block_M):
                    A[bx * block_M + i] = A[bx * block_M + i] * 2.0

    return main


@core.kernel
def picky(M: int, *, block_M: int = core.tile("M"), threads: int = core.threads()):
    if block_M == 64:
        raise KernelError("64 is not liked", hint="take another")

    @T.prim_func
    def main(A: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            for i in T.Parallel(block_M):
                A[bx * block_M + i] = A[bx * block_M + i] * 2.0

    return main


def product(**values: Sequence[Any]) -> list[Tiles]:
    return [dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())]


def family_of(factory: KernelFactory, arguments: dict[str, Any], candidates: list[Tiles]) -> tuple[ProfileFamily, Any]:
    def trace(tiles: Tiles) -> Program:
        return Program(factory.trace(arguments, tiles).prim_func)

    return ProfileFamily.fit(trace, factory.parameters, candidates), trace


def test_a_products_candidates_are_explained_by_a_twentieth_of_their_traces() -> None:
    # 192 and 96 do not divide the dimensions: ceil-divisions that are no ratio of powers of two.
    candidates = product(
        block_M=(16, 64, 128, 192),
        block_N=(64, 96, 256),
        block_K=(32, 64),
        num_stages=(0, 1, 3),
        threads=(128, 256),
        panel=(0, 8),
    )
    family, trace = family_of(gemm, {"M": 1000, "N": 4096, "K": 2048}, candidates)
    assert family.notes == []
    assert family.traces <= len(candidates) / 15
    for tiles in random.Random(1).sample(candidates, 8):
        assert family.profile(tiles) == profile(trace(tiles)), tiles


def test_values_that_change_the_structure_make_families_of_their_own() -> None:
    candidates = product(block_M=(1, 2, 4, 8), block_N=(64, 256, 1024, 2048), threads=(64, 128, 256))
    family, trace = family_of(scaled, {"M": 512, "N": 1024}, candidates)
    assert family.notes == []
    assert family.traces < len(candidates)
    for tiles in candidates[::5]:
        assert family.profile(tiles) == profile(trace(tiles)), tiles
    assert len(family.profile(candidates[0]).launches[0].loops) == 2
    assert len(family.profile(candidates[-1]).launches[0].loops) == 1


def test_what_is_no_product_is_traced_and_said() -> None:
    candidates = product(block_M=(16, 32, 64, 128, 256), threads=(32, 64, 128, 256))
    family, trace = family_of(odd, {"M": 4096}, candidates)
    assert len(family.notes) == 1
    assert "traced one by one" in family.notes[0]
    for tiles in candidates[::3]:
        assert family.profile(tiles) == profile(trace(tiles)), tiles


def test_a_candidate_that_cannot_be_traced_raises_and_the_others_are_explained() -> None:
    candidates = product(block_M=(16, 32, 64, 128, 256), threads=(32, 64, 128, 256))
    family, trace = family_of(picky, {"M": 4096}, candidates)
    with pytest.raises(KernelError, match="not liked"):
        family.profile({"block_M": 64, "threads": 128})
    tiles = {"block_M": 128, "threads": 32}
    assert family.profile(tiles) == profile(trace(tiles))
    assert family.traces < len(candidates)


def test_a_value_nobody_asked_for_is_traced() -> None:
    family, trace = family_of(gemm, {"M": 512, "N": 512, "K": 512}, [])
    tiles = {"block_M": 48, "block_N": 80, "block_K": 32, "num_stages": 2, "threads": 128, "panel": 0}
    assert family.profile(tiles) == profile(trace(tiles))
    assert family.traces == 1


def test_a_profile_is_its_structure_and_its_numbers() -> None:
    tiles = {"block_M": 48, "block_N": 80, "block_K": 32, "num_stages": 2, "threads": 128, "panel": 0}
    found = profile(Program(gemm.trace({"M": 512, "N": 512, "K": 512}, tiles).prim_func))
    flat = flatten(found)
    assert unflatten(flat.structure, flat.numbers) == found
    assert structure_from_json(structure_to_json(flat.structure)) == flat.structure
    changed = tuple(number * 2 for number in flat.numbers)
    assert unflatten(flat.structure, changed) != found
