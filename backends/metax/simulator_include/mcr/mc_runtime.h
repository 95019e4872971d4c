// The device side of MACA's runtime header, on TileHAL's SIMT simulator: what generated and hand-written MACA C++ uses.
#pragma once

#include <tilehal_sim/language.h>

#define __NATIVE_VECTOR__(n, T) T __attribute__((vector_size(n * sizeof(T))))

inline void __syncthreadshared() { tilehal_sim_block_barrier(); }
inline void __syncwave() { tilehal_sim_wave_barrier(); }
inline void __builtin_mxc_barrier_inst() { tilehal_sim_block_barrier(); }
inline void __builtin_mxc_barrier_ex(int) { tilehal_sim_block_barrier(); }

template <typename T> inline T __builtin_mxc_readfirstlane(T value) {
  return tilehal_sim::from_word<T>(tilehal_sim::reduce(tilehal_sim::reduce_first, false, 0, tilehal_sim::word(value)));
}
inline float __builtin_mxc_rcpf(float x) { return 1.0f / x; }
template <typename T> inline T __shfl_down_sync_16(unsigned long long mask, T value, unsigned int delta) {
  return __shfl_down_sync(mask, value, delta, 16);
}

// Asynchronous copies. They land when the thread waits, so that a missing wait shows. The condition is `left op right`;
// where it does not hold, zeros are written.
enum tilehal_sim_condition { MACA_ICMP_EQ, MACA_ICMP_NE, MACA_ICMP_GT, MACA_ICMP_GE, MACA_ICMP_LT, MACA_ICMP_LE };
namespace tilehal_sim {
inline bool holds(int left, int right, tilehal_sim_condition condition) {
  switch (condition) {
  case MACA_ICMP_EQ: return left == right;
  case MACA_ICMP_NE: return left != right;
  case MACA_ICMP_GT: return left > right;
  case MACA_ICMP_GE: return left >= right;
  case MACA_ICMP_LT: return left < right;
  default: return left <= right;
  }
}
} // namespace tilehal_sim
#define __builtin_mxc_ldg_b32_bsm_predicator(to, from, offset, a, b, c, d, left, right, op)                            \
  tilehal_sim_copy_start(to, (const char *)(from) + (offset), 4, tilehal_sim::holds(left, right, op))
#define __builtin_mxc_ldg_b64_bsm_predicator(to, from, offset, a, b, c, d, left, right, op)                            \
  tilehal_sim_copy_start(to, (const char *)(from) + (offset), 8, tilehal_sim::holds(left, right, op))
#define __builtin_mxc_ldg_b128_bsm_predicator(to, from, offset, a, b, c, d, left, right, op)                           \
  tilehal_sim_copy_start(to, (const char *)(from) + (offset), 16, tilehal_sim::holds(left, right, op))
inline void __builtin_mxc_arrive_gvmcnt(int outstanding) { tilehal_sim_copy_wait((uint32_t)outstanding); }
inline void __builtin_mxc_arrive_bsmcnt(int outstanding) { tilehal_sim_copy_wait((uint32_t)outstanding); }
inline void __builtin_mxc_arrive(int counter) {
  tilehal_sim_copy_wait((uint32_t)(counter >= 4096 ? (counter - 4096) / 128 : counter - 64));
}

// Matrix builtins of the chip, made from its descriptor.
#include <tilehal_sim_matrix.h>
