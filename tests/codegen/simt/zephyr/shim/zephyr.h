// Zephyr's device language on the SIMT simulator.
#pragma once

#include <tilehal_sim/language.h>

#define zeph_entry __global__
#define zeph_inline __device__ __forceinline__
#define zeph_bounds(threads) __launch_bounds__(threads)
#define zeph_local threadIdx
#define zeph_group blockIdx
#define zeph_groups gridDim
#define zeph_barrier __syncthreads
#define zeph_half _Float16
#define zeph_vector(n, T) T __attribute__((vector_size(n * sizeof(T))))
#define zeph_lane() __lane_id()
#define zeph_shuffle(word, lane) __shfl_sync(0xffffffffu, word, lane, 32)
#define zeph_shuffle_xor(word, mask) __shfl_xor_sync(0xffffffffu, word, mask, 32)
#define zeph_shuffle_up(word, delta) __shfl_up_sync(0xffffffffu, word, (unsigned int)(delta), 32)
#define zeph_shuffle_down(word, delta) __shfl_down_sync(0xffffffffu, word, (unsigned int)(delta), 32)
#define zeph_fetch_add atomicAdd
#define zeph_fetch_max atomicMax
#define zeph_fetch_min atomicMin
#define zeph_swap_if atomicCAS
#define zeph_exp2 exp2f
#define zeph_exp expf

#include <tilehal_sim_matrix.h>
