// A CUDA-like device language on the simulator: qualifiers, indices, barriers, shuffles, votes, atomics, maths.
//
// A vendor's shim includes this and adds what is its own: header names, types, builtins.
#pragma once

#include <cstddef>
// C++17's special functions (Bessel's and so on) are two thirds of what libstdc++'s <cmath> includes, and a third of the
// time that a small kernel takes to compile. The macro is libstdc++'s own, set by any of its headers.
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#include <cmath>
#include <cstdlib>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interface.h"
#include "vectors.h"

// ------------------------------------------------------------------------------------------------- qualifiers

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __constant__ const
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// Shared arrays of a kernel are rewritten (rewrite.py); one that was not does not compile.
#define __shared__ tilehal_sim_this_shared_array_was_not_rewritten
#undef __noinline__
#define __noinline__ __attribute__((noinline))
#if TILEHAL_SIM_CHECKED
// Functions stay functions (-fno-inline too), so that an access inside one is traced to the kernel's line that called it.
#define __forceinline__ inline
#else
#define __forceinline__ inline __attribute__((always_inline))
#endif
#define TILEHAL_SIM_INLINE inline

// ------------------------------------------------------------------------------------------------- places

// Objects, not macros: kernels declare variables of these names (a swizzled blockIdx). Each member asks when it is read.
#define TILEHAL_SIM_PLACE(NAME, FUNCTION)                                                                              \
  namespace tilehal_sim {                                                                                              \
  struct NAME##_place {                                                                                                \
    struct {                                                                                                           \
      __attribute__((always_inline)) operator unsigned int() const { return FUNCTION().x; }                            \
    } x;                                                                                                               \
    struct {                                                                                                           \
      __attribute__((always_inline)) operator unsigned int() const { return FUNCTION().y; }                            \
    } y;                                                                                                               \
    struct {                                                                                                           \
      __attribute__((always_inline)) operator unsigned int() const { return FUNCTION().z; }                            \
    } z;                                                                                                               \
    __attribute__((always_inline)) operator Dim3() const { return FUNCTION(); }                                        \
  };                                                                                                                   \
  }                                                                                                                    \
  static constexpr tilehal_sim::NAME##_place NAME{};
TILEHAL_SIM_PLACE(threadIdx, tilehal_sim_thread_index)
TILEHAL_SIM_PLACE(blockIdx, tilehal_sim_block_index)
TILEHAL_SIM_PLACE(blockDim, tilehal_sim_block_dim)
TILEHAL_SIM_PLACE(gridDim, tilehal_sim_grid_dim)
#undef TILEHAL_SIM_PLACE
#define warpSize (tilehal_sim_wave_lanes())
TILEHAL_SIM_INLINE int __lane_id() { return tilehal_sim_lane(); }

using dim3 = tilehal_sim::Dim3;

// ------------------------------------------------------------------------------------------------- barriers

#define __syncthreads() tilehal_sim_block_barrier()
TILEHAL_SIM_INLINE void __syncwarp(unsigned long long = ~0ull) { tilehal_sim_wave_barrier(); }
TILEHAL_SIM_INLINE void __threadfence() {}
TILEHAL_SIM_INLINE void __threadfence_block() {}
TILEHAL_SIM_INLINE void __threadfence_system() {}

// ------------------------------------------------------------------------------------------------- shuffles, votes

namespace tilehal_sim {

template <typename T> inline uint64_t word(T value) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  uint64_t result = 0;
  __builtin_memcpy(&result, &value, sizeof(T));
  return result;
}

template <typename T> inline T from_word(uint64_t value) {
  T result;
  __builtin_memcpy(&result, &value, sizeof(T));
  return result;
}

template <typename T> inline T shuffle(ShuffleKind kind, bool masked, uint64_t mask, T value, int argument, int width) {
  Shuffle call{word(value), 0, mask, kind, argument, width, masked};
  tilehal_sim_shuffle(&call);
  return from_word<T>(call.result);
}

inline uint64_t reduce(ReduceKind kind, bool masked, uint64_t mask, uint64_t value) {
  Reduce call{value, 0, mask, kind, masked};
  tilehal_sim_reduce(&call);
  return call.result;
}

} // namespace tilehal_sim

#define TILEHAL_SIM_SHUFFLE(NAME, KIND, ARGUMENT)                                                                      \
  template <typename T> inline T __shfl##NAME##_sync(unsigned long long mask, T value, ARGUMENT a, int width = 0) {    \
    return tilehal_sim::shuffle(tilehal_sim::KIND, true, mask, value, (int)a, width);                                  \
  }                                                                                                                    \
  template <typename T> inline T __shfl##NAME(T value, ARGUMENT a, int width = 0) {                                    \
    return tilehal_sim::shuffle(tilehal_sim::KIND, false, 0, value, (int)a, width);                                    \
  }
TILEHAL_SIM_SHUFFLE(, shuffle_index, int)
TILEHAL_SIM_SHUFFLE(_xor, shuffle_xor, int)
TILEHAL_SIM_SHUFFLE(_up, shuffle_up, unsigned int)
TILEHAL_SIM_SHUFFLE(_down, shuffle_down, unsigned int)
#undef TILEHAL_SIM_SHUFFLE

TILEHAL_SIM_INLINE unsigned long long __ballot_sync(unsigned long long mask, int predicate) {
  return tilehal_sim::reduce(tilehal_sim::reduce_ballot, true, mask, predicate != 0);
}
TILEHAL_SIM_INLINE unsigned long long __ballot(int predicate) {
  return tilehal_sim::reduce(tilehal_sim::reduce_ballot, false, 0, predicate != 0);
}
TILEHAL_SIM_INLINE unsigned long long __activemask() { return __ballot(1); }
TILEHAL_SIM_INLINE int __any_sync(unsigned long long mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
TILEHAL_SIM_INLINE int __all_sync(unsigned long long mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
TILEHAL_SIM_INLINE int __any(int predicate) { return __ballot(predicate) != 0; }
TILEHAL_SIM_INLINE int __all(int predicate) { return __ballot(!predicate) == 0; }

#define TILEHAL_SIM_REDUCE(NAME, SIGNED, UNSIGNED)                                                                     \
  inline int __reduce_##NAME##_sync(unsigned long long mask, int value) {                                              \
    return (int)tilehal_sim::reduce(tilehal_sim::SIGNED, true, mask, (uint64_t)(int64_t)value);                        \
  }                                                                                                                    \
  inline unsigned int __reduce_##NAME##_sync(unsigned long long mask, unsigned int value) {                            \
    return (unsigned int)tilehal_sim::reduce(tilehal_sim::UNSIGNED, true, mask, value);                                \
  }
TILEHAL_SIM_REDUCE(add, reduce_add, reduce_add)
TILEHAL_SIM_REDUCE(min, reduce_min, reduce_min_unsigned)
TILEHAL_SIM_REDUCE(max, reduce_max, reduce_max_unsigned)
TILEHAL_SIM_REDUCE(and, reduce_and, reduce_and)
TILEHAL_SIM_REDUCE(or, reduce_or, reduce_or)
TILEHAL_SIM_REDUCE(xor, reduce_xor, reduce_xor)
#undef TILEHAL_SIM_REDUCE

// ------------------------------------------------------------------------------------------------- atomics

namespace tilehal_sim {

template <int Bytes> struct Atomic;
template <> struct Atomic<2> {
  typedef uint16_t Word;
  static Word read(const void *p) { return tilehal_sim_read16(p); }
  static Word swap(void *p, Word expected, Word wanted) { return tilehal_sim_swap16(p, expected, wanted); }
};
template <> struct Atomic<4> {
  typedef uint32_t Word;
  static Word read(const void *p) { return tilehal_sim_read32(p); }
  static Word swap(void *p, Word expected, Word wanted) { return tilehal_sim_swap32(p, expected, wanted); }
};
template <> struct Atomic<8> {
  typedef uint64_t Word;
  static Word read(const void *p) { return tilehal_sim_read64(p); }
  static Word swap(void *p, Word expected, Word wanted) { return tilehal_sim_swap64(p, expected, wanted); }
};

// Replaces *address by combine(*address, value) and returns what was there.
template <typename T, typename Combine> inline T update(T *address, T value, Combine combine) {
  typedef Atomic<sizeof(T)> A;
  typename A::Word seen = A::read(address);
  while (true) {
    const T old = from_word<T>(seen);
    const typename A::Word found = A::swap(address, seen, (typename A::Word)word<T>(combine(old, value)));
    if (found == seen) return old;
    seen = found;
  }
}

} // namespace tilehal_sim

#define TILEHAL_SIM_ATOMIC(NAME, EXPRESSION)                                                                           \
  template <typename T, typename V> inline T NAME(T *address, V operand) {                                             \
    return tilehal_sim::update<T>(address, (T)operand, [](T old, T value) { return (T)(EXPRESSION); });                \
  }
TILEHAL_SIM_ATOMIC(atomicAdd, old + value)
TILEHAL_SIM_ATOMIC(atomicSub, old - value)
TILEHAL_SIM_ATOMIC(atomicMax, value > old ? value : old)
TILEHAL_SIM_ATOMIC(atomicMin, value < old ? value : old)
TILEHAL_SIM_ATOMIC(atomicAnd, old & value)
TILEHAL_SIM_ATOMIC(atomicOr, old | value)
TILEHAL_SIM_ATOMIC(atomicXor, old ^ value)
TILEHAL_SIM_ATOMIC(atomicExch, ((void)old, value))
TILEHAL_SIM_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
TILEHAL_SIM_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef TILEHAL_SIM_ATOMIC

template <typename T, typename E, typename V> inline T atomicCAS(T *address, E expected, V wanted) {
  typedef tilehal_sim::Atomic<sizeof(T)> A;
  typedef typename A::Word Word;
  return tilehal_sim::from_word<T>(
      A::swap(address, (Word)tilehal_sim::word<T>((T)expected), (Word)tilehal_sim::word<T>((T)wanted)));
}

// ------------------------------------------------------------------------------------------------- maths

using std::abs;
#ifdef __FLT16_MAX__
TILEHAL_SIM_INLINE bool isnan(_Float16 x) { return __builtin_isnan((float)x); }
TILEHAL_SIM_INLINE bool isinf(_Float16 x) { return __builtin_isinf((float)x); }
TILEHAL_SIM_INLINE bool isfinite(_Float16 x) { return __builtin_isfinite((float)x); }
#endif
TILEHAL_SIM_INLINE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
TILEHAL_SIM_INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }

// Approximate functions: the simulator gives the exact ones. C libraries use some of these names, hence macros.
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __powf(x, y) powf(x, y)
#define __fdividef(x, y) ((x) / (y))
#define __frcp_rn(x) (1.0f / (x))
#define __fsqrt_rn(x) sqrtf(x)
#define __fadd_rn(x, y) ((x) + (y))
#define __fsub_rn(x, y) ((x) - (y))
#define __fmul_rn(x, y) ((x) * (y))
#define __fdiv_rn(x, y) ((x) / (y))
#define __fmaf_rn(x, y, z) fmaf(x, y, z)

TILEHAL_SIM_INLINE int __popc(unsigned int x) { return __builtin_popcount(x); }
TILEHAL_SIM_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
TILEHAL_SIM_INLINE int __clz(unsigned int x) { return x ? __builtin_clz(x) : 32; }
TILEHAL_SIM_INLINE int __clzll(unsigned long long x) { return x ? __builtin_clzll(x) : 64; }
TILEHAL_SIM_INLINE int __ffs(unsigned int x) { return __builtin_ffs((int)x); }
TILEHAL_SIM_INLINE int __ffsll(unsigned long long x) { return __builtin_ffsll((long long)x); }
TILEHAL_SIM_INLINE unsigned int __brev(unsigned int x) {
  unsigned int result = 0;
  for (int i = 0; i < 32; ++i) result |= (x >> i & 1u) << (31 - i);
  return result;
}

TILEHAL_SIM_INLINE int __float_as_int(float x) { return tilehal_sim::from_word<int>(tilehal_sim::word(x)); }
TILEHAL_SIM_INLINE unsigned int __float_as_uint(float x) { return tilehal_sim::from_word<unsigned int>(tilehal_sim::word(x)); }
TILEHAL_SIM_INLINE float __int_as_float(int x) { return tilehal_sim::from_word<float>(tilehal_sim::word(x)); }
TILEHAL_SIM_INLINE float __uint_as_float(unsigned int x) { return tilehal_sim::from_word<float>(tilehal_sim::word(x)); }

// The kernel's assertions end the launch, not the process.
#undef assert
#define assert(condition) ((condition) ? (void)0 : tilehal_sim_trap("assertion failed: " #condition))
#define __trap() tilehal_sim_trap("__trap()")

// ------------------------------------------------------------------------------------------------- entry

namespace tilehal_sim {

template <size_t... I> struct Places {};
template <size_t N, size_t... I> struct PlacesTo : PlacesTo<N - 1, N - 1, I...> {};
template <size_t... I> struct PlacesTo<0, I...> {
  typedef Places<I...> type;
};

template <typename... Args, size_t... I>
__attribute__((no_sanitize("thread"))) void call(void (*kernel)(Args...), void **arguments, Places<I...>) {
  kernel(*(Args *)arguments[I]...);
}

template <typename... Args> __attribute__((no_sanitize("thread"))) void call(void (*kernel)(Args...), void **arguments) {
  call(kernel, arguments, typename PlacesTo<sizeof...(Args)>::type());
}

} // namespace tilehal_sim

// One per kernel: what the launcher calls, with a pointer to each argument.
#define TILEHAL_SIM_ENTRY(NAME)                                                                                        \
  extern "C" __attribute__((visibility("default"), no_sanitize("thread"))) void tilehal_sim_entry_##NAME(void **a) {  \
    tilehal_sim::call(&NAME, a);                                                                                       \
  }
