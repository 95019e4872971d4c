"""Arrays are declared with the alignment that the widest access to them needs."""

from __future__ import annotations

from typing import Any

import pytest
import tilelang.language as T
import torch

import core
from core.codegen.simt.arrays import align_arrays
from core.ops.rmsnorm import add_rmsnorm


def kernel(*lines: str, name: str = "k") -> str:
    return "\n".join([f'extern "C" __global__ void __launch_bounds__(64) {name}(half_t* A) {{', *lines, "}", ""])


@pytest.mark.parametrize(
    ("declared", "access", "expected"),
    [
        ("half_t w[4];", "x = *(uint2*)(w + 0);", "__align__(8) half_t w[4];"),
        ("half_t w[8];", "x = *(uint1*)(w + 2); *(uint4*)(w + 0) = y;", "__align__(16) half_t w[8];"),
        ("float x[4];", "*(float4*)(x + 0) = y;", "__align__(16) float x[4];"),
        ("signed char q[4];", "z = *(int*)(q + 0);", "__align__(4) signed char q[4];"),
        ("unsigned char q[8];", "z = *(uint2*)(q + 0);", "__align__(8) unsigned char q[8];"),
        ("fp8_e4_t q[4];", "z = *(fp8_e4_4_t*)(q + 0);", "__align__(4) fp8_e4_t q[4];"),
        ("half_t w[4];", "z = ((float*)w)[1];", "__align__(4) half_t w[4];"),
        ("int v[4];", "((half_t*)v)[1] = z;", "int v[4];"),
        ("int v[4];", "*(uint4*)(((half_t*)v) + 0) = z;", "__align__(16) int v[4];"),
        ("half_t w[4];", "w[0] = A[0]; x = *(uint2*)(A + 4); y = *(half_t*)(w + 1);", "half_t w[4];"),
        ("__shared__ half_t s[64];", "*(uint4*)(s + (i * 8)) = x;", "__shared__ __align__(16) half_t s[64];"),
        (
            "__shared__ half_t s[64];",
            "tl::cp_async_gs<16>((&(s[(i * 8)])), (&(A[(i * 8)])));",
            "__shared__ __align__(16) half_t s[64];",
        ),
        ("__shared__ float s[64];", "s[threadIdx.x] = 1;", "__shared__ float s[64];"),
    ],
)
def test_an_array_is_aligned_as_its_widest_access_needs(declared: str, access: str, expected: str) -> None:
    source = kernel(f"  {declared}", f"  {access}")
    assert align_arrays(source) == source.replace(declared, expected)


def test_arrays_of_one_name_in_two_kernels_are_two() -> None:
    narrow, wide = (
        kernel("  half_t w[4];", "  w[0] = 1;"),
        kernel("  half_t w[4];", "  x = *(uint2*)(w + 0);", name="l"),
    )
    assert align_arrays(narrow + wide) == narrow + wide.replace("half_t w", "__align__(8) half_t w")


@pytest.mark.parametrize(("offset", "accepted"), [(2048, True), (2056, False)])
def test_a_part_of_shared_memory_begins_where_it_can_be_accessed(offset: int, accepted: bool) -> None:
    source = kernel(
        "  extern __shared__ __align__(1024) uchar memory[];",
        f"  void* tile = ((void*)((char*)memory + {offset}));",
        "  *(uint4*)(((half_t*)tile) + (i * 8)) = x;",
    )
    if accepted:
        assert align_arrays(source) == source
        return
    with pytest.raises(core.TileHALError, match="tile at byte 2056 of shared memory, where accesses of 16 bytes"):
        align_arrays(source)


CHECKED: dict[str, Any] = {"target": "metax:c500", "simulate": True, "options": {"simulator": "checked"}}


def test_rows_of_33_halves_are_read_from_aligned_registers() -> None:
    made = add_rmsnorm.compile(T.dynamic("M"), 33, dtype="float16", **CHECKED)
    assert "  __align__(8) half_t w[4];\n" in made.get_kernel_source()
    x, residual, weight = torch.randn(5, 33).half(), torch.randn(5, 33).half(), torch.randn(33).half()
    _, total = made(x, residual, weight)
    torch.testing.assert_close(total, (x.float() + residual.float()).half())


def test_static_shared_memory_behind_a_short_array_is_aligned() -> None:
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=64):
            flag = T.alloc_shared((3,), "int8", scope="shared")
            tile = T.alloc_shared((64, 64), "float16", scope="shared")
            flag[0] = T.int8(1)
            T.copy(A, tile)
            T.copy(tile, B)

    a, b = torch.randn(64, 64).half(), torch.zeros(64, 64).half()
    core.compile(main, **CHECKED)(a, b)
    assert torch.equal(a, b)
