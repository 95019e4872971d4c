"""The device language on the simulator, against what it must compute: waves, masks, votes, atomics, shared memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.codegen.simt.simulator.handwritten import kernel, tensor

MODES = pytest.mark.parametrize("checked", [False, True], ids=["plain", "checked"])


def run(
    body: str, count: int = 64, dtype: str = "int32", *, checked: bool = False, **options: object
) -> list[int | float]:
    """The contents of `out` after one launch of `count` threads."""
    out = torch.zeros(count, dtype=getattr(torch, dtype))
    options.setdefault("threads", count)
    kernel(body, [tensor("out", dtype, count, writes=True)], checked=checked, **options)(out)
    return out.tolist()


def expression(*texts: str, prelude: str = "") -> str:
    """A kernel that stores one value per thread and expression; `t` is the thread, `lane` its lane."""
    stores = "\n".join(f"  out[{row} * blockDim.x + t] = {text};" for row, text in enumerate(texts))
    return f"""
extern "C" __global__ void __launch_bounds__(1024) k(int* out) {{
  const int t = threadIdx.x, lane = __lane_id();
  const unsigned long long all = 0xffffffffffffffffull;
  {prelude}
{stores}
}}
"""


#: A shuffle, and the lane whose value a lane gets.
SHUFFLES: dict[str, Callable[[int], int]] = {
    "__shfl_sync(all, t, 5)": lambda lane: 5,
    "__shfl_sync(all, t, 63 - lane)": lambda lane: 63 - lane,
    "__shfl_sync(all, t, 3, 16)": lambda lane: lane // 16 * 16 + 3,
    "__shfl_sync(all, t, 19, 16)": lambda lane: lane // 16 * 16 + 3,
    "__shfl_xor_sync(all, t, 32)": lambda lane: lane ^ 32,
    "__shfl_xor_sync(all, t, 5, 8)": lambda lane: lane ^ 5,
    "__shfl_up_sync(all, t, 3)": lambda lane: lane - 3 if lane >= 3 else lane,
    "__shfl_up_sync(all, t, 3, 32)": lambda lane: lane - 3 if lane % 32 >= 3 else lane,
    "__shfl_down_sync(all, t, 7)": lambda lane: lane + 7 if lane + 7 < 64 else lane,
    "__shfl_down_sync(all, t, 7, 16)": lambda lane: lane + 7 if lane % 16 + 7 < 16 else lane,
    "__shfl_down(t, 1)": lambda lane: lane + 1 if lane < 63 else lane,
}


@MODES
def test_shuffles(checked: bool) -> None:
    got = run(expression(*SHUFFLES), 64 * len(SHUFFLES), checked=checked, threads=64)
    for row, (call, source) in enumerate(SHUFFLES.items()):
        assert got[64 * row : 64 * row + 64] == [source(lane) for lane in range(64)], call


def test_each_wave_shuffles_by_itself() -> None:
    got = run(expression("__shfl_xor_sync(all, t, 1)"), 192)
    assert got == [t ^ 1 for t in range(192)]


def test_values_of_every_width_travel_whole() -> None:
    body = """
struct pair { short x, y; };
extern "C" __global__ void k(int* out) {
  const unsigned long long all = ~0ull;
  const int t = threadIdx.x;
  const double d = __shfl_sync(all, t + 0.5, 63 - t);
  const long long l = __shfl_sync(all, (long long)t << 40, 63 - t);
  const _Float16 h = __shfl_sync(all, (_Float16)t, 63 - t);
  const pair p = __shfl_sync(all, pair{(short)t, (short)-t}, 63 - t);
  const int want = 63 - t;
  out[t] = (d == want + 0.5) + (l == (long long)want << 40) + ((int)h == want) + (p.x == want && p.y == -want);
}
"""
    assert run(body) == [4] * 64


@MODES
def test_votes_see_64_lanes(checked: bool) -> None:
    votes = {
        "__popcll(__ballot(lane % 3 == 0))": 22,
        "(int)(__ballot_sync(all, lane >= 40) >> 32)": -(1 << 8),
        "__any_sync(all, lane == 63)": 1,
        "__all_sync(all, lane < 63)": 0,
    }
    got = run(expression(*votes), 64 * len(votes), checked=checked, threads=64)
    assert got == [value for value in votes.values() for _ in range(64)]


def test_reductions_honour_the_mask() -> None:
    inside = "0x00000000ffffffffull"
    text = f"lane < 32 ? __reduce_add_sync({inside}, t) : __reduce_max_sync(~{inside}, t)"
    got = run(expression(text, "__reduce_min_sync(all, t - 5)"), 128, threads=64)
    assert got == [sum(range(32))] * 32 + [63] * 32 + [-5] * 64


def test_lanes_in_two_branches_shuffle_apart_as_an_execution_mask_makes_them() -> None:
    body = """
extern "C" __global__ void k(int* out) {
  int v = threadIdx.x;
  if (threadIdx.x % 2 == 0) v = __shfl_xor_sync(0x5555555555555555ull, v, 2);
  else v = -__popcll(__ballot_sync(0xaaaaaaaaaaaaaaaaull, 1));
  out[threadIdx.x] = v;
}
"""
    for checked in (False, True):
        assert run(body, checked=checked) == [t ^ 2 if t % 2 == 0 else -32 for t in range(64)]


@MODES
def test_a_block_of_1024_threads_in_three_dimensions(checked: bool) -> None:
    body = """
extern "C" __global__ void __launch_bounds__(1024) k(int* out) {
  extern __shared__ int row[];
  const int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  row[t] = t;
  for (int step = 512; step > 0; step /= 2) {
    __syncthreads();
    if (t < step) row[t] += row[t + step];
  }
  __syncthreads();
  out[t] = row[0] + threadIdx.z;
}
"""
    got = run(body, 1024, checked=checked, threads=(16, 16, 4), dynamic=4096)
    assert got == [1023 * 512 + t // 256 for t in range(1024)]


def test_the_grid_has_three_dimensions() -> None:
    body = """
extern "C" __global__ void k(int* out) {
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  if (threadIdx.x == 0) out[block] = 100 * blockIdx.z + 10 * blockIdx.y + blockIdx.x;
}
"""
    got = run(body, 24, threads=64, grid=(2, 3, 4))
    assert got == [100 * z + 10 * y + x for z in range(4) for y in range(3) for x in range(2)]


@MODES
def test_static_and_dynamic_shared_memory_side_by_side(checked: bool) -> None:
    body = """
extern "C" __global__ void k(int* out) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ __align__(16) short grid[4][16];
  __shared__ int one;
  const int t = threadIdx.x;
  ((int*)memory)[t] = t;
  grid[t / 16][t % 16] = 2 * t;
  if (t == 0) one = 1000;
  __syncthreads();
  out[t] = ((int*)memory)[63 - t] + grid[3 - t / 16][15 - t % 16] + one;
}
"""
    assert run(body, checked=checked, dynamic=256) == [3 * (63 - t) + 1000 for t in range(64)]


@MODES
def test_atomics_of_every_kind(checked: bool) -> None:
    body = """
extern "C" __global__ void k(int* out) {
  __shared__ int cells[8];
  __shared__ float real[1];
  __shared__ _Float16 half_[2];
  const int t = threadIdx.x;
  if (t < 8) cells[t] = t == 2 ? 1000 : 0;
  if (t == 0) real[0] = 0;
  if (t < 2) half_[t] = 0;
  __syncthreads();
  atomicAdd(&cells[0], t);
  atomicMax(&cells[1], t);
  atomicMin(&cells[2], t);
  atomicOr(&cells[3], 1 << (t % 5));
  atomicXor(&cells[4], t);
  const int found = atomicCAS(&cells[5], 0, t + 1);
  if (found == 0) atomicExch(&cells[6], t + 1);
  atomicSub(&cells[7], 1);
  atomicAdd(&real[0], 0.5f);
  atomicAdd(&half_[1], (_Float16)1);
  __syncthreads();
  if (t < 8) out[t] = cells[t];
  if (t == 8) out[8] = (int)real[0];
  if (t == 9) out[9] = (int)half_[1];
  if (t == 10) out[10] = (int)half_[0];
}
"""
    got = run(body, checked=checked)
    assert got[:11] == [2016, 63, 0, 31, 0, got[6], got[6], -64, 32, 64, 0]
    assert got[6] >= 1


def test_atomics_on_global_memory_across_blocks_that_run_in_parallel() -> None:
    body = """
extern "C" __global__ void k(int* out) {
  atomicAdd(&out[threadIdx.x % 4], 1);
}
"""
    assert run(body, 64, grid=(200, 1, 1))[:4] == [200 * 16] * 4


def test_an_atomic_and_a_plain_access_of_two_threads_race() -> None:
    import core

    body = """
extern "C" __global__ void k(int* out) {
  __shared__ int cell[1];
  if (threadIdx.x == 0) cell[0] = 0;
  __syncthreads();
  if (threadIdx.x < 100) atomicAdd(&cell[0], 1);
  else out[0] = cell[0];
}
"""
    with pytest.raises(core.LaunchError) as caught:
        run(body, 128, checked=True)
    assert caught.value.details["fault"] == "race"
    assert caught.value.details["buffer"] == "cell"


def test_an_asynchronous_copy_lands_when_it_is_waited_for() -> None:
    body = """
extern "C" __global__ void k(int* out) {
  __shared__ __align__(16) int tile[64];
  tile[threadIdx.x] = -1;
  __syncthreads();
  if (threadIdx.x < 16)
    __builtin_mxc_ldg_b128_bsm_predicator(tile + 4 * threadIdx.x, out + 4 * threadIdx.x, 0, true, true, false, true,
                                          threadIdx.x < 8, 1, MACA_ICMP_EQ);
  WAIT;
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x] + 1;
}
"""
    # `out` holds zeros: where the condition holds they are copied, elsewhere zeros are written.
    assert run(body.replace("WAIT", "__builtin_mxc_arrive_gvmcnt(0)")) == [1] * 64
    assert run(body.replace("WAIT;", "")) == [0] * 64


def test_fp16_and_bf16_and_fp8_of_the_vendors_headers() -> None:
    body = """
#include <maca_fp16.h>
#include <maca_bfloat16.h>
#include <maca_fp8.h>
extern "C" __global__ void k(float* out) {
  const int t = threadIdx.x;
  const __half third = __float2half(1.0f / 3.0f);
  const maca_bfloat16 rounded = __float2bfloat16(1.0f + 1.0f / 256.0f);
  const __maca_fp8_e4m3 small = {0x01};
  const __maca_fp8_e4m3 large = {0x7e};
  const __maca_fp8_e5m2 wide = {0xfb};
  const float values[] = {(float)third, (float)__hadd(third, third), (float)rounded, (float)small, (float)large,
                          (float)wide};
  if (t < 6) out[t] = values[t];
}
"""
    third = torch.tensor(1 / 3, dtype=torch.float16)
    expected = [third.item(), (third + third).item(), 1.0, 2.0**-9, 448.0, -57344.0]
    assert run(body, 64, "float32")[:6] == expected


def test_half_arithmetic_rounds_after_every_operation() -> None:
    body = """
extern "C" __global__ void k(float* out) {
  const _Float16 a = (_Float16)(1.0f + threadIdx.x * 0.0009765625f), b = (_Float16)3.140625f;
  const _Float16 c = a * b + a;
  out[threadIdx.x] = (float)c;
}
"""
    a = (1.0 + torch.arange(64) * 0.0009765625).half()
    assert run(body, 64, "float32") == (a * torch.tensor(3.140625).half() + a).float().tolist()


def test_an_assertion_of_the_kernel_ends_the_launch_not_the_process() -> None:
    import core

    body = """
extern "C" __global__ void k(int* out) {
  assert(threadIdx.x != 7 && "not seven");
  out[threadIdx.x] = 1;
}
"""
    with pytest.raises(core.LaunchError, match="not seven"):
        run(body)


def test_memory_nobody_wrote_reads_as_nan_in_plain_mode() -> None:
    body = """
extern "C" __global__ void k(float* out) {
  __shared__ float never[64];
  out[threadIdx.x] = never[threadIdx.x];
}
"""
    assert all(value != value for value in run(body, 64, "float32"))


def test_threads_switch_the_same_way_with_the_portable_context(monkeypatch: pytest.MonkeyPatch) -> None:
    from core.codegen.simt.simulator import build

    text = expression(
        "__shfl_xor_sync(all, cells[255 - t], 1)",
        prelude="__shared__ int cells[256]; cells[t] = t; __syncthreads();",
    )
    expected = [255 - (t ^ 1) for t in range(256)]
    assert run(text, 256) == expected
    monkeypatch.setattr(build, "_RUNTIME", (*build._RUNTIME, "-DTILEHAL_SIM_PORTABLE_SWITCH"))
    assert run(text, 256) == expected


@MODES
def test_the_compilers_own_atomics_and_fences(checked: bool) -> None:
    body = """
extern "C" __global__ void k(int* out) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  __threadfence();
  __atomic_fetch_add(&out[0], 1, __ATOMIC_RELAXED);
  int seen = __atomic_load_n(&out[1], __ATOMIC_ACQUIRE);
  while (!__atomic_compare_exchange_n(&out[1], &seen, seen + 2, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {}
  __atomic_fetch_or(&out[2], 1 << (threadIdx.x % 31), __ATOMIC_RELAXED);
  __atomic_store_n(&out[3], 9, __ATOMIC_RELEASE);
}
"""
    assert run(body, checked=checked, grid=(5, 1, 1))[:4] == [320, 640, 2**31 - 1, 9]
