// All-reduce over groups of threads: every thread of a group ends with the combined value.
//
// `Threads` consecutive threads form a block of partners; thread t combines with t ^ offset for offset = Threads/2 down
// to `Scale`, so that threads equal modulo Scale (within the group) meet. Offsets of a wave and more go through shared
// memory (`exchange`, one element per thread), smaller ones through lane shuffles. Both sizes are powers of two.
#pragma once

#include "numeric.h"
#include "shuffle.h"

namespace tilehal {

template <class Combine, int Threads, int Scale, int FirstThread = 0, int Batch = 1, int Stride = 0> struct AllReduce {
  static_assert((Threads & (Threads - 1)) == 0 && (Scale & (Scale - 1)) == 0 && Scale < Threads,
                "a butterfly needs powers of two");

  template <typename T> static TILEHAL_DEVICE T run(T value, T *exchange = nullptr) {
#pragma unroll
    for (int offset = Threads / 2; offset >= Scale; offset /= 2) {
      if (offset >= TILEHAL_WAVE_LANES) {
        const int thread = platform::thread_x() - FirstThread;
        platform::block_barrier();
        exchange[thread] = value;
        platform::block_barrier();
        value = Combine()(value, exchange[thread ^ offset]);
      } else {
        value = Combine()(value, lane_xor(value, offset));
      }
    }
    return value;
  }

  template <typename T> static TILEHAL_DEVICE void run_batch(T *values, T *exchange = nullptr) {
#pragma unroll
    for (int offset = Threads / 2; offset >= Scale; offset /= 2) {
      if (offset >= TILEHAL_WAVE_LANES) {
        const int thread = platform::thread_x() - FirstThread;
        platform::block_barrier();
#pragma unroll
        for (int i = 0; i < Batch; ++i) exchange[thread + i * Stride] = values[i];
        platform::block_barrier();
#pragma unroll
        for (int i = 0; i < Batch; ++i) values[i] = Combine()(values[i], exchange[(thread ^ offset) + i * Stride]);
      } else {
#pragma unroll
        for (int i = 0; i < Batch; ++i) values[i] = Combine()(values[i], lane_xor(values[i], offset));
      }
    }
  }
};

} // namespace tilehal
