// What a simulated kernel may ask of the simulator. Everything that touches another thread's state is behind a call into
// the runtime, which is compiled apart: the kernel's own file is the only one whose memory accesses are watched.
#pragma once

#include <stdint.h>

#define TILEHAL_SIM_API extern "C" __attribute__((visibility("hidden")))
// Two calls in two branches must stay two.
#if defined(__clang__)
#define TILEHAL_SIM_APART __attribute__((nomerge))
#else
#define TILEHAL_SIM_APART
#endif

namespace tilehal_sim {

struct Dim3 {
  unsigned int x, y, z;
};

// A value on its way through a shuffle, and how it travels. `result` is set for every lane that takes part.
enum ShuffleKind : int { shuffle_index, shuffle_xor, shuffle_up, shuffle_down };
struct Shuffle {
  uint64_t value, result, mask;
  ShuffleKind kind;
  int argument, width;
  bool masked;  // whether the kernel gave a mask
};

// A vote or an integer reduction over the lanes of a mask; for a vote, value is 0 or 1 and result has a bit per lane.
enum ReduceKind : int { reduce_ballot, reduce_add, reduce_min, reduce_max, reduce_min_unsigned, reduce_max_unsigned,
                        reduce_and, reduce_or, reduce_xor, reduce_first };
struct Reduce {
  uint64_t value, result, mask;
  ReduceKind kind;
  bool masked;
};

// Operands of a matrix instruction as one lane holds them; c is replaced by the result.
struct MatrixOperands {
  const void *a, *b;
  void *c;
};
typedef void (*MatrixFunction)(const MatrixOperands *const *lanes);

} // namespace tilehal_sim

// Constant while a thread runs, so that the compiler may ask once.
TILEHAL_SIM_API tilehal_sim::Dim3 tilehal_sim_thread_index() __attribute__((const));
TILEHAL_SIM_API tilehal_sim::Dim3 tilehal_sim_block_index() __attribute__((const));
TILEHAL_SIM_API tilehal_sim::Dim3 tilehal_sim_block_dim() __attribute__((const));
TILEHAL_SIM_API tilehal_sim::Dim3 tilehal_sim_grid_dim() __attribute__((const));
TILEHAL_SIM_API int tilehal_sim_lane() __attribute__((const));
TILEHAL_SIM_API int tilehal_sim_wave_lanes() __attribute__((const));

TILEHAL_SIM_API TILEHAL_SIM_APART void tilehal_sim_block_barrier();
TILEHAL_SIM_API TILEHAL_SIM_APART void tilehal_sim_wave_barrier();
TILEHAL_SIM_API void tilehal_sim_shuffle(tilehal_sim::Shuffle *);
TILEHAL_SIM_API void tilehal_sim_reduce(tilehal_sim::Reduce *);
TILEHAL_SIM_API void tilehal_sim_matrix(const char *name, tilehal_sim::MatrixFunction, tilehal_sim::MatrixOperands *);

// Memory of the block. A static array has the same address in every thread of a block, found by its number.
TILEHAL_SIM_API void *tilehal_sim_dynamic_shared();
TILEHAL_SIM_API void *tilehal_sim_static_shared(int number, const char *name, uint64_t bytes, uint64_t alignment);

// Atomic steps; every read-modify-write is a loop around them. All are sequentially consistent.
TILEHAL_SIM_API uint16_t tilehal_sim_swap16(void *address, uint16_t expected, uint16_t wanted);
TILEHAL_SIM_API uint32_t tilehal_sim_swap32(void *address, uint32_t expected, uint32_t wanted);
TILEHAL_SIM_API uint64_t tilehal_sim_swap64(void *address, uint64_t expected, uint64_t wanted);
TILEHAL_SIM_API uint16_t tilehal_sim_read16(const void *address);
TILEHAL_SIM_API uint32_t tilehal_sim_read32(const void *address);
TILEHAL_SIM_API uint64_t tilehal_sim_read64(const void *address);

// A copy from global to shared memory that lands when the thread waits for it; zeros when the condition does not hold.
TILEHAL_SIM_API void tilehal_sim_copy_start(void *shared, const void *global, uint32_t bytes, bool condition);
TILEHAL_SIM_API void tilehal_sim_copy_wait(uint32_t still_outstanding);

// Ends the launch: the kernel's own assertion.
TILEHAL_SIM_API void tilehal_sim_trap(const char *message) __attribute__((noreturn));
