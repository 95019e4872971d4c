// The simulated machine: threads in waves in a block, one block at a time on each worker.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "../include/tilehal_sim/interface.h"
#include "abi.h"
#include "switch.h"

namespace tilehal_sim {

constexpr uint64_t stack_bytes = 256 << 10;  // a power of two: a thread finds itself by its stack pointer
constexpr int most_threads = 1024;
constexpr int most_lanes = 64;
constexpr int most_frames = 62;
constexpr uint64_t stack_mark = 0x51ac4b0770115afeull;

enum class State : uint8_t { ready, in_wave_operation, at_barrier, done };

struct Worker;
struct Thread;

// What a wave does when its lanes have met. `active` has a bit for every lane that came.
typedef void (*WaveFunction)(Worker &, int wave, uint64_t active);

struct Copy {
  void *shared;
  const void *global;
  uint32_t bytes;
  bool condition;
};

// A write to a place another thread wrote since the last barrier: a race unless it writes the same value.
struct Suspicion {
  void *address;
  uintptr_t site;
  uint64_t other;      // the cell that was there
  uint32_t size;
  bool against_read, read_announced;
  unsigned char before[16];
};

// Lies at the bottom of the thread's own stack.
struct Thread {
  Context context;
  Worker *worker;
  Dim3 index;
  int number, lane, wave;
  State state;
  // The wave operation it waits in.
  WaveFunction operation;
  void *payload;
  uintptr_t site;
  // Return addresses of the functions it is inside of, watched mode only.
  uintptr_t frames[most_frames];
  uint32_t depth;
  uint32_t copies;
  Copy copy[16];
  bool suspicious;
  Suspicion suspicion;
  uint64_t mark;
};

inline Thread *self() {
  return (Thread *)((uintptr_t)__builtin_frame_address(0) & ~(uintptr_t)(stack_bytes - 1));
}

struct Wave {
  int live, waiting;
  uint32_t epoch;  // how often its lanes have met
};

// Who last wrote and last read a byte of shared memory; see checker.cpp.
struct Cell {
  uint64_t write, read;
};

// Shared memory of a block: one range with a gap after each array.
struct SharedArray {
  const char *name;
  uint64_t begin, bytes;  // offset in the arena
};

struct Launch {
  const LaunchRequest *request;
  std::atomic<uint64_t> next_block{0};
  std::atomic<uint64_t> first_fault{UINT64_MAX};
  std::mutex lock;
  Fault *fault;
};

struct SiteCache {
  uintptr_t site;
  uint32_t line, in_kernel;
};

struct Worker {
  Launch *launch = nullptr;
  const LaunchRequest *request = nullptr;
  Context scheduler;
  char *stacks = nullptr;
  int thread_count = 0, live = 0, arrived = 0;
  Dim3 block{};
  uint64_t block_number = 0;
  bool faulted = false;
  Wave waves[most_threads] = {};
  // Threads that can run, in a ring.
  uint16_t ready[most_threads];
  uint32_t ready_first = 0, ready_count = 0;
  // Shared memory.
  char *arena = nullptr;
  uint64_t arena_bytes = 0, arena_used = 0, dynamic_begin = 0;
  std::vector<SharedArray> arrays;
  std::vector<int> array_of_number;
  // Watched mode.
  Cell *cells = nullptr;
  uint64_t epoch = 1, first_epoch = 1;
  std::vector<SiteCache> sites;
  uint64_t last_region = 0;

  Thread *thread(int number) { return (Thread *)(stacks + (uint64_t)number * stack_bytes); }
  bool checked() const { return request->checked != 0; }
};

// scheduler.cpp
void run_block(Worker &, uint64_t number);
void meet(WaveFunction, void *payload, uintptr_t site);
[[noreturn]] void abandon(Thread *);

// checker.cpp
enum AccessKind { access_read, access_write, access_atomic };
void watch(Thread *, const void *address, uint64_t size, AccessKind, uintptr_t site);
void settle(Thread *);
uint32_t kernel_line(Thread *, uintptr_t site);
Fault *begin_fault(Thread *, FaultKind, uintptr_t site);
void name_any(Worker &, uint64_t address, uint32_t line, Fault *);
[[noreturn]] void raise_fault(Thread *, FaultKind, uintptr_t site, const char *detail);
void check_barrier(Worker &);

// signals.cpp
void watch_signals();
void unwatch_signals();
// While it lives, this thread of the operating system runs simulated threads of a worker.
struct Guarded {
  explicit Guarded(Worker *);
  ~Guarded();
};

} // namespace tilehal_sim
