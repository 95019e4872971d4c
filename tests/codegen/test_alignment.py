"""What alignment a kernel demands of its tensors, read off the generated source."""

from __future__ import annotations

from typing import Any

import pytest
import tilelang.language as T

import core
from core.codegen.alignment import with_alignments
from core.runtime.signature import Signature, TensorArgument
from tests.runtime import launch_kernels

ONE = Signature("one", (TensorArgument("A", "float16", (64,)),))


def alignment(statement: str, element: str = "half_t") -> int:
    source = (
        f'extern "C" __global__ void __launch_bounds__(64, 1) one(const {element}* __restrict__ A) {{ {statement} }}'
    )
    (argument,) = with_alignments(ONE, source, {"one": [0]}).arguments
    assert isinstance(argument, TensorArgument)
    return argument.alignment


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("x = *(uint4*)(A + (i * 8));", 16),
        ("*(const uint2*)(A + 4) = x;", 8),
        ("x = *(half2*)(A + 2);", 4),
        ("x = *(uint1*)(A + 2);", 4),
        ("x = *(uint4*)(((half_t*)A) + 8);", 16),
        ("x = *(int4*)(((signed char*)A) + 16);", 16),
        ("x = *(uint2*)(((unsigned long long*)A) + 1);", 8),
        ("x = *(float3*)(A + 3);", 4),
        ("x = A[i];", 1),
        ("A[i] = x; y = *(half_t*)(A + 1);", 1),
        ("x = *(uint4*)(B + i) ; y = A[*(int*)(B + A[0])];", 1),
        ("x = (float4*)y * A[3];", 1),
        ("x = *(uint2*)(A + 1); y = *(uint4*)(A + 8);", 16),
        ("tl::cp_async_gs<8>((&(((half_t*)s)[0])), (&(A[(i * 4)])));", 8),
        ("tl::cp_async_gs_conditional<16>((&(((half_t*)s)[0])), (&(A[(f(i) * 4)])), (i < n));", 16),
        ("copy_start<4>((&(s[0])), (&(A[2])));", 4),
        ("tl::tma_store((&(A[0])), (&(s[0])), 1024);", 16),
        ("tl::store_global_128((&(A[0])), x);", 16),
        ("AtomicAddx2((&(A[0])), x);", 4),
        ("AtomicAdd((&(A[0])), x);", 1),
        ("user::function((&(A[0])), x);", 1),
    ],
)
def test_an_access_needs_as_many_bytes_as_it_moves(statement: str, expected: int) -> None:
    assert alignment(statement) == expected


@pytest.mark.parametrize(
    ("element", "statement", "expected"),
    [
        ("float", "AtomicAddx4((&(A[0])), x);", 16),
        ("float", "AtomicAddx2Ret((&(A[0])), x);", 8),
        ("fp8_e4_t", "x = *(fp8_e4_8_t*)(A + 8);", 8),
        ("unsigned char", "x = *(uchar2*)(A + 8);", 2),
        ("int64_t", "x = *(longlong2*)(A + 2);", 16),
    ],
)
def test_elements_of_other_sizes(element: str, statement: str, expected: int) -> None:
    assert alignment(statement, element) == expected


def test_each_kernel_has_its_own_parameters() -> None:
    source = """
    __global__ void first(float* A, float* B) { *(float4*)(A + 4) = x; B[0] = 1; }
    __global__ void second(float* A, float* B) { A[1] = B[2]; for (;;) { x = *(float2*)(B + 2); } }
    __device__ void third(float* A) { *(float4*)(A + 4) = x; }
    """
    signature = Signature("two", tuple(TensorArgument(name, "float32", (8,)) for name in "XYZ"))
    found = with_alignments(signature, source, {"first": [2, 1], "second": [1, 0]}, described=[])
    assert [argument.alignment for argument in found.arguments if isinstance(argument, TensorArgument)] == [8, 1, 16]


def alignments(kernel: Any, target: str) -> dict[str, int]:
    lowered = core.compile(kernel, target=target, build=False).lowered
    return {a.name: a.alignment for a in lowered.signature.arguments if isinstance(a, TensorArgument)}


def elementwise(lanes: int) -> Any:
    @T.prim_func
    def elementwise(A: T.Tensor((1024,), "float16"), B: T.Tensor((1024,), "float16")):
        with T.Kernel(1024 // (64 * lanes), threads=64) as b:
            for i in T.Parallel(64 * lanes):
                B[b * 64 * lanes + i] = A[b * 64 * lanes + i] + T.float16(1)

    return elementwise


@pytest.mark.parametrize("target", ["cuda:h200", "metax:c500"])
@pytest.mark.parametrize("lanes", [1, 2, 8])
def test_vector_code_demands_its_width_and_scalar_code_nothing(lanes: int, target: str) -> None:
    needed = 2 * lanes if lanes > 1 else 1
    assert alignments(elementwise(lanes), target) == {"A": needed, "B": needed}


def test_tensor_maps_demand_sixteen_bytes() -> None:
    found = alignments(launch_kernels.product(), "cuda:h200")
    assert (found["A"], found["B"]) == (16, 16)
    assert found["C"] in (4, 8, 16)


def test_what_the_cpu_runs_may_start_anywhere() -> None:
    assert alignments(elementwise(8), "cpu") == {"A": 1, "B": 1}
