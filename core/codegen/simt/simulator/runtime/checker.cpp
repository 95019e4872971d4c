// Watched mode: every memory access of the kernel's file comes through here before it happens.
//
// The compiler puts the calls in (-fsanitize=thread; its runtime library is not used). A byte of shared memory has a cell
// for its last write and one for its last reads: barrier epoch of the block, epoch of the wave, and who. Two accesses of
// different threads, one of them a write, are ordered when a barrier of the block lies between them, or, in one wave, an
// operation of the wave. What is not ordered is a race, unless the write leaves the same value behind.

#include "machine.h"

#include <algorithm>
#include <stdio.h>
#include <string.h>

// The kernel's line table: one entry for every call in its file, made from the compiler's line marks (lines.py).
struct LineEntry {
  uint64_t address;
  uint32_t line, in_kernel;
};
extern "C" __attribute__((visibility("hidden"), weak)) const LineEntry tilehal_sim_lines[];
extern "C" __attribute__((visibility("hidden"), weak)) const uint64_t tilehal_sim_line_count;
// The library's own image: constants of the kernel live there.
extern "C" __attribute__((visibility("hidden"))) char __ehdr_start[];
extern "C" __attribute__((visibility("hidden"))) char _end[];

namespace tilehal_sim {

namespace {

// A cell: [epoch 30][wave epoch 20][same 1][atomic 1][who 12].
// who: a thread's number, most_threads + wave for several lanes of a wave, or `several_waves`.
// same: several threads wrote this one value.
constexpr uint64_t several_waves = 4095, who_mask = 4095, atomic_bit = 1 << 12, same_bit = 1 << 13;
constexpr uint64_t wave_epoch_mask = (1 << 20) - 1, ident_mask = who_mask | atomic_bit | same_bit;

uint64_t who(uint64_t cell) { return cell & who_mask; }
uint64_t epoch_of(uint64_t cell) { return cell >> 34; }
uint64_t wave_epoch_of(uint64_t cell) { return cell >> 14 & wave_epoch_mask; }

uint64_t wave_of(const Worker &w, uint64_t cell) {
  const uint64_t number = who(cell);
  if (number == several_waves) return several_waves;
  return number >= most_threads ? number - most_threads : number / w.request->wave_lanes;
}

struct Now {
  const Worker &w;
  uint64_t me, wave, epoch, wave_epoch, stamp;
};

Now now(const Worker &w, const Thread *t) {
  const uint64_t wave_epoch = w.waves[t->wave].epoch & wave_epoch_mask;
  return {w, (uint64_t)t->number, (uint64_t)t->wave, w.epoch, wave_epoch, w.epoch << 34 | wave_epoch << 14};
}

// Whether the access in the cell is neither this thread's nor ordered before now.
bool concurrent(const Now &n, uint64_t cell) {
  if (epoch_of(cell) != n.epoch || who(cell) == n.me) return false;
  return wave_of(n.w, cell) != n.wave || wave_epoch_of(cell) == n.wave_epoch;
}

// Who, when this thread joins those in the cell.
uint64_t joined(const Now &n, uint64_t cell) {
  if (epoch_of(cell) != n.epoch) return n.me;
  if (wave_of(n.w, cell) != n.wave) return several_waves;
  if (wave_epoch_of(cell) != n.wave_epoch) return n.me;
  return who(cell) == n.me ? n.me : most_threads + n.wave;
}

std::vector<LineEntry> sorted_lines() {
  std::vector<LineEntry> lines;
  if (&tilehal_sim_line_count) lines.assign(tilehal_sim_lines, tilehal_sim_lines + tilehal_sim_line_count);
  std::sort(lines.begin(), lines.end(), [](const LineEntry &a, const LineEntry &b) { return a.address < b.address; });
  return lines;
}

const LineEntry *line_entry(uintptr_t site) {
  static const std::vector<LineEntry> lines = sorted_lines();
  const auto found = std::lower_bound(lines.begin(), lines.end(), (uint64_t)site,
                                      [](const LineEntry &e, uint64_t address) { return e.address < address; });
  return found != lines.end() && found->address == site ? &*found : nullptr;
}

int number_of(uint64_t cell) { return who(cell) < most_threads ? (int)who(cell) : -1; }

void name_shared(Worker &w, uint64_t offset, uint32_t line, Fault *f) {
  f->is_shared = 1;
  // The array it lies in or nearest to.
  size_t chosen = 0;
  uint64_t nearest = UINT64_MAX;
  for (size_t i = 0; i < w.arrays.size(); ++i) {
    const uint64_t begin = w.arrays[i].begin, end = begin + w.arrays[i].bytes;
    if (w.arrays[i].bytes == 0) continue;
    const uint64_t distance = offset < begin ? begin - offset : offset >= end ? offset - end + 1 : 0;
    if (distance < nearest) {
      nearest = distance;
      chosen = i;
    }
  }
  const SharedArray &array = w.arrays[chosen];
  const char *name = array.name;
  int64_t inside = (int64_t)offset - (int64_t)array.begin;
  uint64_t bytes = array.bytes;
  const LaunchRequest &r = *w.request;
  if (chosen == 0 && r.part_count > 0) {
    // Dynamic shared memory: the part the line mentions, the nearest of them; without a line, the part it lies in.
    const uint64_t mentioned = line < r.line_count ? r.parts_of_line[line] : 0;
    int64_t best = INT64_MAX;
    const int64_t whole = inside;
    for (uint64_t p = 0; p < r.part_count; ++p) {
      if (mentioned && !(mentioned >> p & 1)) continue;
      const int64_t begin = (int64_t)r.parts[p].offset;
      const int64_t size = (int64_t)(r.parts[p].bytes ? r.parts[p].bytes : array.bytes - r.parts[p].offset);
      const int64_t distance = whole < begin ? begin - whole : whole >= begin + size ? whole - begin - size + 1 : 0;
      if (distance < best) {
        best = distance;
        name = r.parts[p].name;
        inside = whole - begin;
        bytes = (uint64_t)size;
      }
    }
  }
  snprintf(f->buffer, sizeof(f->buffer), "%s", name);
  f->offset = inside;
  f->buffer_bytes = bytes;
}

void check_shared(Thread *t, Worker &w, const void *address, uint64_t offset, uint64_t size, AccessKind kind, uintptr_t site) {
  // Bounds: inside one array, and for the dynamic one inside a part that the line mentions.
  bool inside = false;
  for (size_t i = 0; i < w.arrays.size() && !inside; ++i) {
    const SharedArray &array = w.arrays[i];
    if (offset < array.begin || offset + size > array.begin + array.bytes) continue;
    inside = true;
    const LaunchRequest &r = *w.request;
    if (i != 0 || r.part_count == 0) continue;
    const uint32_t line = kernel_line(t, site);
    const uint64_t mentioned = line < r.line_count ? r.parts_of_line[line] : 0;
    if (!mentioned) continue;
    inside = false;
    const uint64_t begin = offset - array.begin;
    for (uint64_t p = 0; p < r.part_count && !inside; ++p)
      if (mentioned >> p & 1)
        inside = begin >= r.parts[p].offset && (!r.parts[p].bytes || begin + size <= r.parts[p].offset + r.parts[p].bytes);
  }
  auto fault = [&](FaultKind what, uint64_t at, uint64_t other, bool other_is_write) {
    Fault *f = begin_fault(t, what, site);
    if (f) {
      f->is_write = kind != access_read;
      f->size = (uint32_t)size;
      name_shared(w, at, f->line, f);
      if (what == fault_race) {
        f->other_thread = number_of(other);
        f->other_is_write = other_is_write;
        if (who(other) == several_waves)
          snprintf(f->detail, sizeof(f->detail), "several threads");
        else if (f->other_thread < 0)
          snprintf(f->detail, sizeof(f->detail), "several threads of wave %d", (int)wave_of(w, other));
      }
    }
    abandon(t);
  };
  if (!inside) fault(fault_out_of_bounds, offset, 0, false);

  const Now n = now(w, t);
  Cell *cells = w.cells + offset;
  bool suspect = false, against_read = false;
  uint64_t other = 0;
  for (uint64_t i = 0; i < size;) {
    const Cell cell = cells[i];
    uint64_t run = 1;
    while (i + run < size && cells[i + run].write == cell.write && cells[i + run].read == cell.read) ++run;
    Cell changed = cell;
    const bool written = epoch_of(cell.write) >= w.first_epoch;
    if (kind == access_read) {
      if (!written) fault(fault_uninitialised, offset + i, 0, false);
      if (concurrent(n, cell.write)) {
        // Several threads left the same value; the reader may be one of them.
        const bool may_be_own = (cell.write & same_bit) && (who(cell.write) == several_waves || wave_of(w, cell.write) == n.wave);
        if (!may_be_own) fault(fault_race, offset + i, cell.write, true);
      }
      changed.read = n.stamp | joined(n, cell.read);
    } else {
      const bool both_atomic = kind == access_atomic && (cell.write & atomic_bit);
      const bool after_write = written && !both_atomic && concurrent(n, cell.write);
      const bool after_read = epoch_of(cell.read) >= w.first_epoch && concurrent(n, cell.read);
      if (after_write || after_read) {
        if (kind == access_atomic || size > sizeof(t->suspicion.before))
          fault(fault_race, offset + i, after_write ? cell.write : cell.read, after_write);
        if (!suspect) {
          suspect = true;
          against_read = !after_write;
          other = after_write ? cell.write : cell.read;
        }
      }
      if (kind == access_atomic && !written) fault(fault_uninitialised, offset + i, 0, false);
      changed.write = n.stamp | (kind == access_atomic ? atomic_bit : 0) |
                      (after_write || both_atomic ? joined(n, cell.write) : n.me) | (after_write ? same_bit : 0);
    }
    for (uint64_t j = i; j < i + run; ++j) cells[j] = changed;
    i += run;
  }
  if (suspect) {
    Suspicion &s = t->suspicion;
    s.address = (void *)address;
    s.size = (uint32_t)size;
    s.site = site;
    s.other = other;
    s.against_read = against_read;
    s.read_announced = false;
    memcpy(s.before, address, size);
    t->suspicious = true;
  }
}

void check_global(Thread *t, Worker &w, uint64_t address, uint64_t size, AccessKind kind, uintptr_t site) {
  const LaunchRequest &r = *w.request;
  for (uint64_t tried = 0; tried < r.region_count; ++tried) {
    const uint64_t i = (w.last_region + tried) % r.region_count;
    if (address >= r.regions[i].begin && address + size <= r.regions[i].begin + r.regions[i].bytes) {
      w.last_region = i;
      return;
    }
  }
  if (address >= (uint64_t)__ehdr_start && address + size <= (uint64_t)_end) return;
  Fault *f = begin_fault(t, fault_out_of_bounds, site);
  if (f) {
    f->is_write = kind != access_read;
    f->size = (uint32_t)size;
    name_any(w, address, f->line, f);
  }
  abandon(t);
}

} // namespace

// The buffer that an address lies in or nearest to. A thread's own arrays lie on its stack and have no names here.
void name_any(Worker &w, uint64_t address, uint32_t line, Fault *f) {
  if (address - (uint64_t)w.stacks < (uint64_t)w.thread_count * stack_bytes) {
    f->is_local = 1;
    return;
  }
  const uint64_t offset = address - (uint64_t)w.arena;
  if (offset < w.arena_bytes) {
    name_shared(w, offset, line, f);
    return;
  }
  uint64_t best = UINT64_MAX;
  snprintf(f->buffer, sizeof(f->buffer), "%s", "global memory");
  for (uint64_t i = 0; i < w.request->region_count; ++i) {
    const Region &region = w.request->regions[i];
    const uint64_t end = region.begin + region.bytes;
    const uint64_t distance = address < region.begin ? region.begin - address : address >= end ? address - end : 0;
    if (distance < best) {
      best = distance;
      snprintf(f->buffer, sizeof(f->buffer), "%s", region.name);
      f->offset = (int64_t)(address - region.begin);
      f->buffer_bytes = region.bytes;
    }
  }
}

namespace {

// The line of a return address; looked up once per worker.
const SiteCache &line_of(Worker &w, uintptr_t site) {
  SiteCache &cached = w.sites[site >> 1 & (w.sites.size() - 1)];
  if (cached.site != site) {
    const LineEntry *entry = line_entry(site);
    cached = {site, entry ? entry->line : 0, entry && entry->in_kernel};
  }
  return cached;
}

} // namespace

// The line of the kernel's file at which it happens: the place itself, or the innermost caller in that file.
uint32_t kernel_line(Thread *t, uintptr_t site) {
  Worker &w = *t->worker;
  const SiteCache *found = &line_of(w, site);
  for (uint32_t i = t->depth < most_frames ? t->depth : most_frames; !found->in_kernel && i > 0; --i)
    found = &line_of(w, t->frames[i - 1]);
  return found->in_kernel ? found->line : 0;
}

Fault *begin_fault(Thread *t, FaultKind kind, uintptr_t site) {
  Worker &w = *t->worker;
  w.faulted = true;
  Launch &launch = *w.launch;
  std::lock_guard<std::mutex> hold(launch.lock);
  if (launch.first_fault.load() <= w.block_number) return nullptr;
  launch.first_fault.store(w.block_number);
  Fault *f = launch.fault;
  memset(f, 0, sizeof(*f));
  f->kind = kind;
  f->line = w.checked() && site ? kernel_line(t, site) : 0;
  f->thread = t->number;
  f->other_thread = -1;
  f->block[0] = w.block.x;
  f->block[1] = w.block.y;
  f->block[2] = w.block.z;
  return f;
}

void raise_fault(Thread *t, FaultKind kind, uintptr_t site, const char *detail) {
  Fault *f = begin_fault(t, kind, site);
  if (f) snprintf(f->detail, sizeof(f->detail), "%s", detail);
  abandon(t);
}

void watch(Thread *t, const void *address, uint64_t size, AccessKind kind, uintptr_t site) {
  Worker &w = *t->worker;
  const uint64_t on_stack = (uint64_t)address - (uint64_t)t;
  if (on_stack < stack_bytes) return;
  // The compiler announces the write of `*p = *q` before its read: the first read after a write may belong to it, so that
  // the store has happened only when something else is announced.
  if (t->suspicious && (kind != access_read || t->suspicion.read_announced)) settle(t);
  t->suspicion.read_announced = true;
  const uint64_t offset = (uint64_t)address - (uint64_t)w.arena;
  if (offset < w.arena_bytes)
    check_shared(t, w, address, offset, size, kind, site);
  else
    check_global(t, w, (uint64_t)address, size, kind, site);
}

void settle(Thread *t) {
  if (!t->suspicious) return;
  t->suspicious = false;
  Suspicion &s = t->suspicion;
  if (memcmp(s.before, s.address, s.size) == 0) return;
  Worker &w = *t->worker;
  Fault *f = begin_fault(t, fault_race, s.site);
  if (f) {
    f->is_write = 1;
    f->size = s.size;
    name_shared(w, (uint64_t)s.address - (uint64_t)w.arena, f->line, f);
    f->other_thread = number_of(s.other);
    f->other_is_write = !s.against_read;
    if (f->other_thread < 0) snprintf(f->detail, sizeof(f->detail), "several threads");
  }
  abandon(t);
}

// All threads that still run have arrived at a barrier: is it the same one, and is nobody missing?
void check_barrier(Worker &w) {
  Thread *first = nullptr, *other = nullptr, *gone = nullptr;
  uint32_t missing = 0;
  auto same_place = [](const Thread *a, const Thread *b) {
    return a->site == b->site && a->depth == b->depth &&
           (a->depth == 0 || memcmp(a->frames, b->frames, sizeof(uintptr_t) * std::min<uint32_t>(a->depth, most_frames)) == 0);
  };
  for (int i = 0; i < w.thread_count; ++i) {
    Thread *t = w.thread(i);
    if (t->state == State::done) {
      ++missing;
      if (!gone) gone = t;
    } else if (!first) {
      first = t;
    } else if (!same_place(first, t) && kernel_line(first, first->site) != kernel_line(t, t->site)) {
      ++missing;
      if (!other) other = t;
    }
  }
  if (!gone && !other) return;
  Fault *f = begin_fault(first, fault_divergent_barrier, first->site);
  if (!f) return;
  f->missing = missing;
  f->other_thread = gone ? gone->number : other->number;
  f->other_line = gone ? 0 : kernel_line(other, other->site);
}

} // namespace tilehal_sim

using namespace tilehal_sim;

#define SITE ((uintptr_t)__builtin_return_address(0))
#define WATCHED extern "C" __attribute__((visibility("hidden"))) void

WATCHED __tsan_init() {}
WATCHED __tsan_func_entry(void *caller) {
  Thread *t = self();
  if (t->depth < most_frames) t->frames[t->depth] = (uintptr_t)caller;
  ++t->depth;
}
WATCHED __tsan_func_exit() { --self()->depth; }

namespace {

// A vector at an address that is no multiple of its alignment is a fault on GPUs.
[[noreturn]] void misaligned(void *address, bool is_write, uint32_t size, uintptr_t site) {
  Thread *t = self();
  Fault *f = begin_fault(t, fault_misaligned, site);
  if (f) {
    f->is_write = is_write;
    f->size = size;
    name_any(*t->worker, (uint64_t)address, f->line, f);
  }
  abandon(t);
}

// The compiler's word that the access is aligned; for what may not be it calls the `unaligned` functions.
inline void aligned(void *address, uint32_t size, AccessKind kind, uintptr_t site) {
  if ((uint64_t)address & (size - 1)) misaligned(address, kind == access_write, size, site);
  watch(self(), address, size, kind, site);
}

} // namespace

#define EVERY_SIZE(N)                                                                                                  \
  WATCHED __tsan_read##N(void *p) { aligned(p, N, access_read, SITE); }                                                \
  WATCHED __tsan_write##N(void *p) { aligned(p, N, access_write, SITE); }                                              \
  WATCHED __tsan_unaligned_read##N(void *p) { watch(self(), p, N, access_read, SITE); }                                \
  WATCHED __tsan_unaligned_write##N(void *p) { watch(self(), p, N, access_write, SITE); }                              \
  WATCHED __tsan_volatile_read##N(void *p) { watch(self(), p, N, access_read, SITE); }                                 \
  WATCHED __tsan_volatile_write##N(void *p) { watch(self(), p, N, access_write, SITE); }                               \
  WATCHED __tsan_read_write##N(void *p) {                                                                              \
    aligned(p, N, access_read, SITE);                                                                                  \
    aligned(p, N, access_write, SITE);                                                                                 \
  }
EVERY_SIZE(1)
EVERY_SIZE(2)
EVERY_SIZE(4)
EVERY_SIZE(8)
EVERY_SIZE(16)

// -fsanitize=alignment: where the compiler takes a vector apart, this says that it was misaligned as a whole.
struct MisalignedAt {
  const char *file;
  uint32_t line, column;
  const void *type;
  unsigned char log_alignment, kind;
};
WATCHED __ubsan_handle_type_mismatch_v1_abort(MisalignedAt *what, void *address) {
  misaligned(address, what->kind == 1, 1u << what->log_alignment, SITE);
}
WATCHED __tsan_read_range(void *p, uint64_t size) { watch(self(), p, size, access_read, SITE); }
WATCHED __tsan_write_range(void *p, uint64_t size) { watch(self(), p, size, access_write, SITE); }

// What lines.py renames the kernel's calls of memcpy and its like to.
extern "C" __attribute__((visibility("hidden"))) void *tilehal_sim_memcpy(void *to, const void *from, uint64_t size) {
  Thread *t = self();
  if (size) {
    watch(t, from, size, access_read, SITE);
    watch(t, to, size, access_write, SITE);
  }
  return memmove(to, from, size);
}
extern "C" __attribute__((visibility("hidden"))) void *tilehal_sim_memset(void *to, int value, uint64_t size) {
  if (size) watch(self(), to, size, access_write, SITE);
  return memset(to, value, size);
}

// Atomics: one access to the checker, then the step itself.
#define ATOMIC(BITS)                                                                                                   \
  uint##BITS##_t tilehal_sim_swap##BITS(void *address, uint##BITS##_t expected, uint##BITS##_t wanted) {               \
    Thread *t = self();                                                                                                \
    if (t->worker->checked()) watch(t, address, BITS / 8, access_atomic, SITE);                                        \
    __atomic_compare_exchange_n((uint##BITS##_t *)address, &expected, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    return expected;                                                                                                   \
  }                                                                                                                    \
  uint##BITS##_t tilehal_sim_read##BITS(const void *address) {                                                         \
    Thread *t = self();                                                                                                \
    if (t->worker->checked()) watch(t, address, BITS / 8, access_atomic, SITE);                                        \
    return __atomic_load_n((const uint##BITS##_t *)address, __ATOMIC_SEQ_CST);                                         \
  }
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

// The compiler's own atomics, where a header uses them: the step, and one access to the checker.
#define COMPILER_ATOMIC(BITS, OPERATION)                                                                               \
  extern "C" __attribute__((visibility("hidden"))) uint##BITS##_t __tsan_atomic##BITS##_##OPERATION(                    \
      volatile uint##BITS##_t *address, uint##BITS##_t value, int) {                                                   \
    watch(self(), (const void *)address, BITS / 8, access_atomic, SITE);                                               \
    return __atomic_##OPERATION(address, value, __ATOMIC_SEQ_CST);                                                     \
  }
#define COMPILER_ATOMICS(BITS)                                                                                         \
  COMPILER_ATOMIC(BITS, fetch_add)                                                                                     \
  COMPILER_ATOMIC(BITS, fetch_sub)                                                                                     \
  COMPILER_ATOMIC(BITS, fetch_and)                                                                                     \
  COMPILER_ATOMIC(BITS, fetch_or)                                                                                      \
  COMPILER_ATOMIC(BITS, fetch_xor)                                                                                     \
  COMPILER_ATOMIC(BITS, fetch_nand)                                                                                    \
  extern "C" __attribute__((visibility("hidden"))) uint##BITS##_t __tsan_atomic##BITS##_exchange(                       \
      volatile uint##BITS##_t *address, uint##BITS##_t value, int) {                                                   \
    watch(self(), (const void *)address, BITS / 8, access_atomic, SITE);                                               \
    return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                                    \
  extern "C" __attribute__((visibility("hidden"))) uint##BITS##_t __tsan_atomic##BITS##_load(                           \
      const volatile uint##BITS##_t *address, int) {                                                                   \
    watch(self(), (const void *)address, BITS / 8, access_atomic, SITE);                                               \
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                                                 \
  }                                                                                                                    \
  WATCHED __tsan_atomic##BITS##_store(volatile uint##BITS##_t *address, uint##BITS##_t value, int) {                   \
    watch(self(), (const void *)address, BITS / 8, access_atomic, SITE);                                               \
    __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                                                \
  }                                                                                                                    \
  extern "C" __attribute__((visibility("hidden"))) int __tsan_atomic##BITS##_compare_exchange_strong(                   \
      volatile uint##BITS##_t *address, uint##BITS##_t *expected, uint##BITS##_t value, int, int) {                    \
    watch(self(), (const void *)address, BITS / 8, access_atomic, SITE);                                               \
    return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);           \
  }                                                                                                                    \
  extern "C" __attribute__((visibility("hidden"))) int __tsan_atomic##BITS##_compare_exchange_weak(                     \
      volatile uint##BITS##_t *address, uint##BITS##_t *expected, uint##BITS##_t value, int, int) {                    \
    watch(self(), (const void *)address, BITS / 8, access_atomic, SITE);                                               \
    return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);           \
  }
COMPILER_ATOMICS(8)
COMPILER_ATOMICS(16)
COMPILER_ATOMICS(32)
COMPILER_ATOMICS(64)
WATCHED __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
WATCHED __tsan_atomic_signal_fence(int) {}
