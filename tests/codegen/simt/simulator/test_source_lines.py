"""From a generated line to the user's: by the buffers that are read and written there."""

from __future__ import annotations

import pytest

import core
from core.codegen.simt.simulator.source_lines import user_location
from tests.codegen.simt.simulator.test_generated import line_of, matmul

SOURCE = """\
extern "C" __global__ void main_kernel(half_t* A, half_t* B, float* C) {
  void* A_shared = ((void*)((char*)buf_dyn_shmem + 0));
  C_local[0] = 0;
  __syncthreads();
  *(uint4*)(((half_t*)A_shared) + 1) = *(uint4*)(A + 2);
  *(uint4*)(((half_t*)B_shared) + 1) = *(uint4*)(B + 2);
  if (A_shared == B_shared) {}
  a[0] = ((half_t*)A_shared)[7];
  C[0] = C_local[0];
}
"""


@pytest.mark.parametrize(
    ("generated", "user"),
    [
        (3, "T.clear(C_local)"),
        (4, "T.copy(A["),  # a barrier: what comes next
        (5, "T.copy(A["),
        (6, "T.copy(B["),
        (8, "T.gemm("),
        (9, "T.copy(C_local"),
        (10, "T.copy(C_local"),  # nothing comes next: what came before
    ],
)
def test_lines(generated: int, user: str) -> None:
    view = core.compile(matmul(64, 64, 64, 32, 32), target="cpu", build=False)._program.view
    location = user_location(view, SOURCE, generated)
    assert location is not None
    assert location.line == line_of(user)


def test_a_line_outside_of_the_source_is_the_kernel() -> None:
    view = core.compile(matmul(64, 64, 64, 32, 32), target="cpu", build=False)._program.view
    assert user_location(view, SOURCE, 0) == view.location
