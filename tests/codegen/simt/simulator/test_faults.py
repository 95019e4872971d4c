"""What hardware punishes, the checked simulator finds: kind, buffer, thread and line, one planted fault at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import core
from tests.codegen.simt.simulator.handwritten import kernel, tensor

OUT = [tensor("out", "float32", 64, writes=True)]


def fault(
    body: str, parameters: list[Any] = OUT, tensors: list[torch.Tensor] | None = None, **options: Any
) -> core.LaunchError:
    """The error of a checked run."""
    launch = kernel(body, parameters, checked=True, **options)
    with pytest.raises(core.LaunchError) as caught:
        launch(*(tensors or [torch.zeros(64)]))
    return caught.value


def line_of(body: str, text: str) -> int:
    """Line of the source (the headers' line is the first) that contains `text`."""
    return next(number for number, line in enumerate(body.splitlines(), 2) if text in line)


REVERSE = """
extern "C" __global__ void __launch_bounds__(64) k(float* out) {
  __shared__ float row[64];
  row[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = row[63 - threadIdx.x];
}
"""


def test_a_correct_kernel_runs_without_a_fault() -> None:
    out = torch.zeros(64)
    kernel(REVERSE, OUT, checked=True)(out)
    assert out.tolist() == list(range(63, -1, -1))


def test_a_removed_barrier_is_a_race_on_the_buffer() -> None:
    body = REVERSE.replace("  __syncthreads();\n", "")
    two_waves = body.replace("64", "128").replace("63", "127")
    error = fault(two_waves, [tensor("out", "float32", 128, writes=True)], [torch.zeros(128)], threads=128)
    # Threads run in order: the first to read what another wrote is the first of the upper half.
    assert error.details["fault"] == "race" or error.details["fault"] == "uninitialised"
    assert error.details["buffer"] == "row"
    assert error.details["generated_line"] == line_of(two_waves, "= row[")
    assert "row" in str(error)
    assert error.hint


def test_a_write_after_a_read_without_a_barrier_is_a_race() -> None:
    body = """
extern "C" __global__ void __launch_bounds__(128) k(float* out) {
  __shared__ float cell[1];
  if (threadIdx.x == 0) cell[0] = 1;
  __syncthreads();
  out[threadIdx.x % 64] = cell[0];
  if (threadIdx.x == 127) cell[0] = 2;
}
"""
    error = fault(body, threads=128)
    assert error.details["fault"] == "race"
    assert error.details["buffer"] == "cell"
    assert error.details["access"] == "write"
    assert error.details["thread"] == (127, 0, 0)
    assert error.details["generated_line"] == line_of(body, "cell[0] = 2")


def test_threads_that_write_the_same_value_do_not_race() -> None:
    body = """
extern "C" __global__ void __launch_bounds__(128) k(float* out) {
  __shared__ float cell[1];
  cell[0] = VALUE;
  __syncthreads();
  out[threadIdx.x % 64] = cell[0];
}
"""
    out = torch.zeros(64)
    kernel(body.replace("VALUE", "5"), OUT, checked=True, threads=128)(out)
    assert set(out.tolist()) == {5.0}
    error = fault(body.replace("VALUE", "(float)threadIdx.x"), threads=128)
    assert error.details["fault"] == "race"
    assert error.details["buffer"] == "cell"


def test_lanes_of_one_wave_are_ordered_by_what_they_do_together() -> None:
    body = """
extern "C" __global__ void __launch_bounds__(64) k(float* out) {
  __shared__ float row[64];
  row[threadIdx.x] = threadIdx.x;
  SYNC;
  out[threadIdx.x] = row[threadIdx.x ^ 1];
}
"""
    kernel(body.replace("SYNC", "__syncwarp()"), OUT, checked=True)(torch.zeros(64))
    assert fault(body.replace("SYNC;", "")).details["fault"] in ("race", "uninitialised")


def test_a_barrier_that_some_threads_skip_is_divergent() -> None:
    body = """
extern "C" __global__ void __launch_bounds__(64) k(float* out) {
  if (threadIdx.x < 60) {
    __syncthreads();
    out[threadIdx.x] = 1;
  }
}
"""
    error = fault(body)
    assert error.details["fault"] == "divergent-barrier"
    assert error.details["generated_line"] == line_of(body, "__syncthreads")
    assert "4 thread(s)" in error.message
    assert "thread (60, 0, 0) has left the kernel" in error.message


def test_threads_at_two_different_barriers_are_divergent() -> None:
    body = """
extern "C" __global__ void __launch_bounds__(64) k(float* out) {
  if (threadIdx.x < 32) {
    out[threadIdx.x] = 1;
    __syncthreads();  // first
  } else {
    out[threadIdx.x] = 2;
    __syncthreads();  // second
  }
}
"""
    error = fault(body)
    assert error.details["fault"] == "divergent-barrier"
    assert error.details["generated_line"] == line_of(body, "first")
    assert error.details["other_generated_line"] == line_of(body, "second")


@pytest.mark.parametrize(("index", "access"), [("threadIdx.x + 1", "write"), ("(int)threadIdx.x - 1", "write")])
def test_an_off_by_one_shared_index_is_out_of_bounds(index: str, access: str) -> None:
    body = REVERSE.replace("row[threadIdx.x] =", f"row[{index}] =")
    error = fault(body)
    assert error.details["fault"] == "out-of-bounds"
    assert error.details["buffer"] == "row"
    assert error.details["access"] == access
    assert error.details["offset_bytes"] in (-4, 256)
    assert error.details["generated_line"] == line_of(body, f"row[{index}]")


def test_an_index_into_the_neighbour_in_dynamic_shared_memory_is_out_of_bounds() -> None:
    body = """
extern "C" __global__ void __launch_bounds__(64) k(float* out) {
  extern __shared__ __align__(1024) unsigned char memory[];
  void* first = ((void*)((char*)memory + 0));
  void* second = ((void*)((char*)memory + 256));
  ((float*)first)[threadIdx.x + 1] = 1;
  ((float*)second)[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = ((float*)second)[threadIdx.x];
}
"""
    error = fault(body, dynamic=512)
    assert error.details["fault"] == "out-of-bounds"
    assert error.details["buffer"] == "first"
    assert error.details["offset_bytes"] == 256
    assert error.details["thread"] == (63, 0, 0)


@pytest.mark.parametrize("elements", [64, 63])
def test_an_access_past_a_tensor_is_out_of_bounds(elements: int) -> None:
    body = """
extern "C" __global__ void __launch_bounds__(64) k(const float* in, float* out) {
  out[threadIdx.x] = in[threadIdx.x];
}
"""
    parameters = [tensor("in", "float32", elements), *OUT]
    run = kernel(body, parameters, checked=True)
    if elements == 64:
        run(torch.ones(64), torch.zeros(64))
        return
    with pytest.raises(core.LaunchError) as caught:
        run(torch.ones(63), torch.zeros(64))
    assert caught.value.details == {
        "fault": "out-of-bounds",
        "buffer": "in",
        "offset_bytes": 252,
        "access": "read",
        "access_bytes": 4,
        "thread": (63, 0, 0),
        "block": [0, 0, 0],
        "generated_line": line_of(body, "in[threadIdx.x]"),
        "other_generated_line": None,
    }


def test_shared_memory_nobody_wrote_is_uninitialised() -> None:
    body = REVERSE.replace("row[threadIdx.x] =", "if (threadIdx.x != 5) row[threadIdx.x] =")
    error = fault(body)
    assert error.details["fault"] == "uninitialised"
    assert error.details["buffer"] == "row"
    assert error.details["offset_bytes"] == 20
    assert error.details["thread"] == (58, 0, 0)


def test_what_an_earlier_block_wrote_is_uninitialised_again() -> None:
    body = """
extern "C" __global__ void __launch_bounds__(64) k(float* out) {
  __shared__ float row[64];
  if (blockIdx.x == 0) row[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = row[threadIdx.x];
}
"""
    error = fault(body, grid=(3, 1, 1))
    assert error.details["fault"] == "uninitialised"
    assert error.details["block"] == [1, 0, 0]


def test_a_32_bit_mask_on_a_wave_of_64_lanes_is_named() -> None:
    body = """
extern "C" __global__ void __launch_bounds__(64) k(float* out) {
  float v = threadIdx.x;
  v += __shfl_xor_sync(0xffffffff, v, 1);
  out[threadIdx.x] = v;
}
"""
    error = fault(body)
    assert error.details["fault"] == "mask"
    assert error.details["thread"] == (32, 0, 0)
    assert error.details["generated_line"] == line_of(body, "__shfl_xor_sync")
    assert "0xffffffff" in error.message
    # The plain simulator does what a device does: lanes that are left out keep their value.
    out = torch.zeros(64)
    kernel(body, OUT)(out)
    assert out.tolist() == [float(2 * (i // 2 * 2) + 1) if i < 32 else 2.0 * i for i in range(64)]


def test_reading_a_lane_that_left_the_branch_is_named() -> None:
    body = """
extern "C" __global__ void __launch_bounds__(64) k(float* out) {
  float v = threadIdx.x;
  if (threadIdx.x < 16) v = __shfl_down_sync(0xffffffffffffffffull, v, 8);
  out[threadIdx.x] = v;
}
"""
    error = fault(body)
    assert error.details["fault"] == "inactive-lane"
    assert "lane 8 reads lane 16" in error.message


def test_a_misaligned_vector_is_named() -> None:
    body = """
extern "C" __global__ void __launch_bounds__(64) k(float* out) {
  *(float4*)(out + 1) = make_float4(0, 0, 0, 0);
}
"""
    error = fault(body)
    assert error.details["fault"] == "misaligned"
    assert (error.details["buffer"], error.details["offset_bytes"]) == ("out", 4)


@pytest.mark.parametrize("access", ["read", "write"])
def test_a_misaligned_vector_of_a_threads_own_array_is_named_by_the_line(access: str) -> None:
    statement = {
        "read": "*(float4*)out = *(float4*)(mine + 1);",
        "write": "*(float4*)(mine + 1) = *(float4*)(other + 0);",
    }[access]
    body = f"""
extern "C" __global__ void __launch_bounds__(64) k(float* out) {{
  __align__(16) float mine[8];
  __align__(16) float other[4];
  mine[0] = other[0] = out[0];
  {statement}
  out[4] = mine[4];
}}
"""
    error = fault(body)
    assert error.details["fault"] == "misaligned"
    assert error.details["buffer"] == "mine"
    assert error.details["access"] == access
    assert error.details["offset_bytes"] is None
    assert "16 bytes of local array mine" in error.message
    assert "global" not in error.message


@pytest.mark.parametrize(("align", "accepted"), [("", False), ("__align__(8) ", False), ("__align__(16) ", True)])
def test_shared_arrays_are_aligned_as_declared_and_no_better(align: str, accepted: bool) -> None:
    body = f"""
extern "C" __global__ void __launch_bounds__(64) k(float* out) {{
  __shared__ signed char before[3];
  __shared__ {align}float row[64];
  before[0] = 1;
  if (threadIdx.x < 16) *(float4*)(row + threadIdx.x * 4) = *(float4*)(out + threadIdx.x * 4);
}}
"""
    if accepted:
        kernel(body, OUT, checked=True)(torch.zeros(64))
        return
    error = fault(body)
    assert error.details["fault"] == "misaligned"
    assert error.details["buffer"] == "row"


def test_an_index_far_past_a_tensor_is_that_tensors_not_a_neighbours() -> None:
    body = """
extern "C" __global__ void __launch_bounds__(64) k(const float* in, const float* other, float* out) {
  const int far = other[0];
  out[threadIdx.x] = in[(int)threadIdx.x + far];
}
"""
    parameters = [tensor("in", "float32", 64), tensor("other", "float32", 64), *OUT]
    # Of three buffers, one at most is nearest on both sides.
    for far in (1 << 22, -(1 << 22)):
        launch = kernel(body, parameters, checked=True)
        with pytest.raises(core.LaunchError) as caught:
            launch(torch.zeros(64), torch.full((64,), float(far)), torch.zeros(64))
        details = caught.value.details
        assert (details["fault"], details["access"]) == ("out-of-bounds", "read")
        assert (details["buffer"], details["offset_bytes"]) == ("in", 4 * far)


def test_an_address_the_processor_does_not_give_names_no_buffer() -> None:
    body = """
extern "C" __global__ void __launch_bounds__(64) k(float* out) {
  *(volatile float*)((1ull << 62) + threadIdx.x * 4) = out[0];
}
"""
    with pytest.raises(core.LaunchError, match="nobody's or, of a vector, misaligned") as caught:
        kernel(body, OUT)(torch.zeros(64))
    assert caught.value.details["buffer"] is None


def test_a_matrix_instruction_needs_the_whole_wave_even_in_plain_mode() -> None:
    body = """
extern "C" __global__ void __launch_bounds__(64) k(float* out) {
  typedef __NATIVE_VECTOR__(4, _Float16) half4;
  typedef __NATIVE_VECTOR__(4, float) floats4;
  half4 a = {};
  floats4 c = {};
  if (threadIdx.x < 32) c = __builtin_mxc_mma_16x16x16f16(a, a, c);
  out[threadIdx.x] = c[0];
}
"""
    with pytest.raises(core.LaunchError, match="executed by 32 of 64 lanes"):
        kernel(body, OUT)(torch.zeros(64))


def test_the_first_block_with_a_fault_is_reported_whatever_runs_first() -> None:
    body = """
extern "C" __global__ void __launch_bounds__(64) k(float* out) {
  if (blockIdx.x >= 7) out[64 + blockIdx.x] = 1;
}
"""
    for _ in range(5):
        assert fault(body, grid=(40, 1, 1)).details["block"] == [7, 0, 0]


@pytest.mark.parametrize("planted", ["first", "second"])
def test_a_fault_inside_a_header_is_reported_at_the_kernels_line_that_calls_it(tmp_path: Path, planted: str) -> None:
    (tmp_path / "store.h").write_text(
        """
#pragma once
__device__ __forceinline__ void inner(float* p, int i) { p[i] = 1; }
__device__ __forceinline__ void outer(float* p, int i) { inner(p, i); }
""",
        encoding="utf-8",
    )
    body = """
#include <store.h>
extern "C" __global__ void __launch_bounds__(64) k(float* out) {
  outer(out, threadIdx.x + first);
  outer(out, threadIdx.x + second);
}
"""
    text = body.replace(planted, "1").replace("first", "0").replace("second", "0")
    error = fault(text, folders=(tmp_path,))
    assert error.details["fault"] == "out-of-bounds"
    assert error.details["generated_line"] == line_of(text, "threadIdx.x + 1")


def test_a_wild_address_in_plain_mode_ends_the_launch_not_the_process() -> None:
    body = """
extern "C" __global__ void __launch_bounds__(64) k(float* out) {
  out[-((long long)(threadIdx.x + 1) << 40)] = 1;
}
"""
    for _ in range(3):
        with pytest.raises(core.LaunchError, match="nobody's") as caught:
            kernel(body, OUT)(torch.zeros(64))
        assert caught.value.details["buffer"] == "out"
        assert "checked" in caught.value.hint


@pytest.mark.parametrize("checked", [False, True])
def test_a_division_by_zero_ends_the_launch_not_the_process(checked: bool) -> None:
    body = """
extern "C" __global__ void __launch_bounds__(64) k(int* out) {
  out[threadIdx.x] = 5 / out[threadIdx.x];
}
"""
    launch = kernel(body, [tensor("out", "int32", 64, writes=True)], checked=checked)
    with pytest.raises(core.LaunchError, match="division by zero"):
        launch(torch.zeros(64, dtype=torch.int32))
    # The next launch is none the worse for it.
    out = torch.full((64,), 2, dtype=torch.int32)
    launch(out)
    assert out.unique().tolist() == [2]
