// Atomics on global memory. 32-bit integers and float add use the platform's own; everything else is a compare-and-swap
// loop on the 32-bit word (or 64-bit, for double) that holds the element.
//
// The platform gives tilehal::platform::atomic_add(int*/unsigned int*/float*, value), atomic_max/min/or on int* and
// unsigned int*, and compare_and_swap on unsigned int* and unsigned long long*; each returns the old value.
#pragma once

#include "numeric.h"

namespace tilehal {

template <typename Word, typename T, typename Combine> TILEHAL_DEVICE T swap_loop(T *address, T value, Combine combine) {
  // The word that contains the element, and the element's place in it.
  const unsigned long long place = (unsigned long long)address;
  Word *word = (Word *)(place & ~(unsigned long long)(sizeof(Word) - 1));
  const int offset = (int)(place & (sizeof(Word) - 1));
  Word seen = *(volatile Word *)word;
  while (true) {
    T old;
    __builtin_memcpy(&old, (const char *)&seen + offset, sizeof(T));
    const T combined = combine(old, value);
    Word wanted = seen;
    __builtin_memcpy((char *)&wanted + offset, &combined, sizeof(T));
    const Word found = platform::compare_and_swap(word, seen, wanted);
    if (found == seen) return old;
    seen = found;
  }
}

template <typename T, typename Combine> TILEHAL_DEVICE T atomic_update(T *address, T value, Combine combine) {
  if constexpr (sizeof(T) <= 4)
    return swap_loop<unsigned int>(address, value, combine);
  else
    return swap_loop<unsigned long long>(address, value, combine);
}

template <typename T> TILEHAL_DEVICE T fetch_add(T *address, T value) { return atomic_update(address, value, Sum()); }
template <> TILEHAL_DEVICE int fetch_add(int *address, int value) { return platform::atomic_add(address, value); }
template <> TILEHAL_DEVICE unsigned int fetch_add(unsigned int *address, unsigned int value) {
  return platform::atomic_add(address, value);
}
template <> TILEHAL_DEVICE float fetch_add(float *address, float value) { return platform::atomic_add(address, value); }

template <typename T> TILEHAL_DEVICE T fetch_max(T *address, T value) { return atomic_update(address, value, Max()); }
template <> TILEHAL_DEVICE int fetch_max(int *address, int value) { return platform::atomic_max(address, value); }
template <typename T> TILEHAL_DEVICE T fetch_min(T *address, T value) { return atomic_update(address, value, Min()); }
template <> TILEHAL_DEVICE int fetch_min(int *address, int value) { return platform::atomic_min(address, value); }
template <typename T> TILEHAL_DEVICE T fetch_or(T *address, T value) { return atomic_update(address, value, BitOr()); }

// What generated code calls. `order` is a C++ memory order: relaxed (0) needs nothing, for any other what was written
// before is made visible first, and what is read afterwards is not read earlier.
TILEHAL_DEVICE void order_fence(int order) {
  if (order != 0) __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
#define TILEHAL_ATOMIC(NAME, FETCH)                                                                                    \
  template <typename T, typename V> TILEHAL_DEVICE void NAME(T *address, V value, int order = 0) {                      \
    order_fence(order);                                                                                                \
    FETCH(address, (T)value);                                                                                          \
    order_fence(order);                                                                                                \
  }                                                                                                                    \
  template <typename T, typename V> TILEHAL_DEVICE void NAME(T &address, V value, int order = 0) {                      \
    NAME(&address, value, order);                                                                                      \
  }
TILEHAL_ATOMIC(AtomicAdd, fetch_add)
TILEHAL_ATOMIC(AtomicMax, fetch_max)
TILEHAL_ATOMIC(AtomicMin, fetch_min)
TILEHAL_ATOMIC(AtomicOr, fetch_or)
#undef TILEHAL_ATOMIC
template <typename T, typename V> TILEHAL_DEVICE T AtomicAddRet(T *address, V value, int order = 0) {
  order_fence(order);
  const T old = fetch_add(address, (T)value);
  order_fence(order);
  return old;
}

// Pairs and quadruples: indivisible per element, as docs/program.md asks.
// The values come as a pointer to them, in a type of their own, or packed into a vector of elements of the tensor's type.
template <int Count, typename T, typename V> TILEHAL_DEVICE void add_each(T *address, const V *values) {
#pragma unroll
  for (int i = 0; i < Count; ++i) fetch_add(address + i, (T)values[i]);
}
template <int Count, typename T, typename Packed> TILEHAL_DEVICE void add_packed(T *address, Packed packed) {
  static_assert(sizeof(Packed) == Count * sizeof(T), "the values fill the vector");
  T values[Count];
  __builtin_memcpy(values, &packed, sizeof(Packed));
  add_each<Count>(address, (const T *)values);
}
#define TILEHAL_ATOMIC_SEVERAL(NAME, COUNT)                                                                            \
  template <typename T, typename V> TILEHAL_DEVICE void NAME(T *address, V *values, int order = 0) {                    \
    order_fence(order);                                                                                                \
    add_each<COUNT>(address, (const V *)values);                                                                       \
    order_fence(order);                                                                                                \
  }                                                                                                                    \
  template <typename T, typename V> TILEHAL_DEVICE void NAME(T *address, V values, int order = 0) {                     \
    order_fence(order);                                                                                                \
    add_packed<COUNT>(address, values);                                                                                \
    order_fence(order);                                                                                                \
  }
TILEHAL_ATOMIC_SEVERAL(AtomicAddx2, 2)
TILEHAL_ATOMIC_SEVERAL(AtomicAddx4, 4)
#undef TILEHAL_ATOMIC_SEVERAL

} // namespace tilehal
