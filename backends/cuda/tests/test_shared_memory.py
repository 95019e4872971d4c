"""Static shared memory read off the source: what ptxas reports, to the byte."""

import pytest
import tilelang.language as T

import core
from backends.cuda.shared_memory import static_shared_bytes
from backends.cuda.toolchain import find_nvcc
from core.errors import ToolchainNotFound
from core.ops.gemm import gemm


def _nvcc_missing() -> bool:
    try:
        find_nvcc()
    except ToolchainNotFound:
        return True
    return False


def kernel(*arrays: str) -> str:
    return 'extern "C" __global__ void k(float* A) {\n' + "\n".join(arrays) + "\n}\n"


DYNAMIC = "extern __shared__ __align__(1024) uchar buf_dyn_shmem[];"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (kernel(), 0),
        (kernel(DYNAMIC), 0),
        (kernel("__shared__ __align__(16) uint64_t mbarrier_mem[6];"), 48),
        (kernel(DYNAMIC, "__shared__ __align__(16) uint64_t mbarrier_mem[6];"), 1024),
        (kernel("__shared__ __align__(16) half_t a[3];", "__shared__ __align__(16) float b[4];"), 32),
        (kernel("__shared__ __align__(16) half_t a[3];") + kernel("__shared__ __align__(16) float b[9];"), 36),
        (kernel("__shared__ __align__(16) some_new_t a[3];"), None),
    ],
)
def test_arrays_lie_one_after_the_other_and_fill_up_to_where_dynamic_memory_begins(
    source: str, expected: int | None
) -> None:
    assert static_shared_bytes(source) == expected


def static_tiles():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((64, 64), "float16", scope="shared")
            T.copy(A, a)
            for i, j in T.Parallel(64, 64):
                B[i, j] = a[j, i]

    return main


@pytest.mark.skipif(_nvcc_missing(), reason="nvcc is not installed")
def test_what_is_predicted_is_what_ptxas_says() -> None:
    for built in (
        core.compile(static_tiles(), target="cuda:a100", out_idx=[1], build=True),
        gemm.compile(512, 512, 512, target="cuda:h200", build=True),
    ):
        predicted, actual = built.resources.predicted, built.resources.actual
        assert actual is not None
        assert predicted.static_shared_bytes
        assert predicted.static_shared_bytes == actual.static_shared_bytes
        assert predicted.memory_bytes["shared"] == actual.memory_bytes["shared"]
