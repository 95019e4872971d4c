// MACA: what the headers in tilehal/simt need of the chip, and the operand types of its matrix instructions.
//
// Everything taken from the MACA SDK is in this file and asynchronous.h; docs/metax.md lists it. Masks are 64 bits wide
// everywhere: a 32-bit full mask silently drops lanes 32 to 63.
#pragma once

#include <mcr/mc_runtime.h>

#ifndef TILEHAL_WAVE_LANES
#define TILEHAL_WAVE_LANES 64
#endif
#if TILEHAL_WAVE_LANES != 64
#error "MACA waves have 64 lanes"
#endif

#define TILEHAL_DEVICE __device__ __forceinline__

using half_t = _Float16;

namespace tilehal {
namespace platform {

constexpr unsigned long long all_lanes = 0xffffffffffffffffull;

TILEHAL_DEVICE int thread_x() { return (int)threadIdx.x; }
TILEHAL_DEVICE int thread_y() { return (int)threadIdx.y; }
TILEHAL_DEVICE int thread_z() { return (int)threadIdx.z; }
TILEHAL_DEVICE unsigned int block_x() { return blockIdx.x; }
TILEHAL_DEVICE unsigned int block_y() { return blockIdx.y; }
TILEHAL_DEVICE unsigned int block_z() { return blockIdx.z; }
TILEHAL_DEVICE unsigned int grid_x() { return gridDim.x; }
TILEHAL_DEVICE unsigned int grid_y() { return gridDim.y; }
TILEHAL_DEVICE void block_barrier() { __syncthreads(); }

TILEHAL_DEVICE int lane() { return (int)__lane_id(); }
TILEHAL_DEVICE unsigned int lane_get(unsigned int word, int lane) { return __shfl_sync(all_lanes, word, lane, 64); }
TILEHAL_DEVICE unsigned int lane_xor(unsigned int word, int mask) { return __shfl_xor_sync(all_lanes, word, mask, 64); }
TILEHAL_DEVICE unsigned int lane_up(unsigned int word, int delta) {
  return __shfl_up_sync(all_lanes, word, (unsigned int)delta, 64);
}
TILEHAL_DEVICE unsigned int lane_down(unsigned int word, int delta) {
  return __shfl_down_sync(all_lanes, word, (unsigned int)delta, 64);
}

TILEHAL_DEVICE int atomic_add(int *address, int value) { return atomicAdd(address, value); }
TILEHAL_DEVICE unsigned int atomic_add(unsigned int *address, unsigned int value) { return atomicAdd(address, value); }
TILEHAL_DEVICE float atomic_add(float *address, float value) { return atomicAdd(address, value); }
TILEHAL_DEVICE int atomic_max(int *address, int value) { return atomicMax(address, value); }
TILEHAL_DEVICE int atomic_min(int *address, int value) { return atomicMin(address, value); }
TILEHAL_DEVICE unsigned int compare_and_swap(unsigned int *address, unsigned int expected, unsigned int wanted) {
  return atomicCAS(address, expected, wanted);
}
TILEHAL_DEVICE unsigned long long compare_and_swap(unsigned long long *address, unsigned long long expected,
                                                   unsigned long long wanted) {
  return atomicCAS(address, expected, wanted);
}

// Operands of the matrix instructions, as the builtins take them.
using f16x4 = __NATIVE_VECTOR__(4, _Float16);
using i16x4 = __NATIVE_VECTOR__(4, short);
using f32x2 = __NATIVE_VECTOR__(2, float);
using f32x4 = __NATIVE_VECTOR__(4, float);
using f64x4 = __NATIVE_VECTOR__(4, double);
using i32x2 = __NATIVE_VECTOR__(2, int);
using i32x4 = __NATIVE_VECTOR__(4, int);

} // namespace platform
} // namespace tilehal

#if TILEHAL_ASYNC_COPY
#include "asynchronous.h"
#endif
