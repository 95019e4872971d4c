// What the Python side passes in and gets back. `launcher.py` has the same structures for ctypes.
#pragma once

#include <stdint.h>

namespace tilehal_sim {

// Global memory the kernel may touch.
struct Region {
  const char *name;
  uint64_t begin, bytes;
};

// A named part of dynamic shared memory. bytes 0: unknown, up to the end of the whole.
struct Part {
  const char *name;
  uint64_t offset, bytes;
};

struct LaunchRequest {
  void (*entry)(void **);
  void **arguments;
  uint32_t grid[3], block[3];
  uint32_t wave_lanes, workers, checked, reserved;
  uint64_t dynamic_shared_bytes;
  const Region *regions;
  uint64_t region_count;
  const Part *parts;
  uint64_t part_count;
  // Bit p of parts_of_line[n]: line n of the kernel's file mentions part p.
  const uint64_t *parts_of_line;
  uint64_t line_count;
};

enum FaultKind : uint32_t {
  fault_none,
  fault_out_of_bounds,
  fault_race,
  fault_uninitialised,
  fault_divergent_barrier,
  fault_mask,
  fault_inactive_lane,
  fault_partial_wave,
  fault_misaligned,
  fault_stack,
  fault_trap,
  fault_address,
};

// Thread indices are linear, -1 when there is none; lines are of the kernel's file, 0 when unknown. `buffer` is empty where
// nothing tells it: of a thread's own arrays (is_local) only the text knows the names.
struct Fault {
  uint32_t kind, is_write, is_shared, size;
  uint32_t line, other_line, other_is_write, missing;
  int32_t thread, other_thread;
  uint32_t block[3], is_local;
  int64_t offset;
  uint64_t buffer_bytes;
  char buffer[96];
  char detail[256];
};

} // namespace tilehal_sim
