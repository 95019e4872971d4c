// Running a block: which thread is next, barriers, and the operations a wave does together.
//
// A thread runs until it has to wait for others, then the next one that can run continues. When nobody can, a wave whose
// lanes wait in different places does what hardware with an execution mask does: one place after the other, with the lanes
// that are there.

#include "machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <thread>

#define SITE ((uintptr_t)__builtin_return_address(0))

namespace tilehal_sim {

namespace {

void make_ready(Worker &w, Thread *t) {
  t->state = State::ready;
  w.ready[(w.ready_first + w.ready_count++) % most_threads] = (uint16_t)t->number;
}

// Lets the lanes that wait in this operation, at this place, do it.
void complete(Worker &w, int wave, WaveFunction operation, uintptr_t site, bool same_site) {
  const int lanes = (int)w.request->wave_lanes, first = wave * lanes;
  uint64_t active = 0;
  for (int lane = 0; lane < lanes && first + lane < w.thread_count; ++lane) {
    Thread *t = w.thread(first + lane);
    if (t->state == State::in_wave_operation && t->operation == operation && (!same_site || t->site == site))
      active |= 1ull << lane;
  }
  operation(w, wave, active);
  if (w.faulted) return;
  ++w.waves[wave].epoch;
  for (int lane = 0; lane < lanes; ++lane)
    if (active >> lane & 1) {
      --w.waves[wave].waiting;
      make_ready(w, w.thread(first + lane));
    }
}

// Whether every lane that waits in the wave waits for the same thing.
bool together(Worker &w, int wave, WaveFunction operation) {
  const int lanes = (int)w.request->wave_lanes, first = wave * lanes;
  for (int lane = 0; lane < lanes && first + lane < w.thread_count; ++lane) {
    Thread *t = w.thread(first + lane);
    if (t->state == State::in_wave_operation && t->operation != operation) return false;
  }
  return true;
}

void release_barrier(Worker &w) {
  if (w.checked()) {
    check_barrier(w);
    if (w.faulted) return;
  }
  w.arrived = 0;
  ++w.epoch;
  for (int i = 0; i < w.thread_count; ++i) {
    Thread *t = w.thread(i);
    if (t->state == State::at_barrier) make_ready(w, t);
  }
  for (int i = 0; i * (int)w.request->wave_lanes < w.thread_count; ++i) ++w.waves[i].epoch;
}

// Nobody can run: the first wave with waiting lanes goes on, place by place.
void break_up(Worker &w) {
  for (int i = 0; i < w.thread_count; ++i) {
    Thread *t = w.thread(i);
    if (t->state == State::in_wave_operation) {
      complete(w, t->wave, t->operation, t->site, true);
      return;
    }
  }
  if (w.arrived > 0) release_barrier(w);
}

// The thread that runs next, or the scheduler's own context when the block is done or has failed.
Context *next(Worker &w) {
  while (!w.faulted) {
    if (w.ready_count > 0) {
      Thread *t = w.thread(w.ready[w.ready_first]);
      w.ready_first = (w.ready_first + 1) % most_threads;
      --w.ready_count;
      return &t->context;
    }
    if (w.live == 0) break;
    break_up(w);
  }
  return &w.scheduler;
}

void wait(Thread *t) {
  Worker &w = *t->worker;
  if (t->mark != stack_mark) raise_fault(t, fault_stack, 0, "the thread's private arrays do not fit the simulator's stack");
  Context *to = next(w);
  if (to != &t->context) switch_context(&t->context, to);
}

void thread_main() {
  Thread *t = self();
  Worker &w = *t->worker;
  w.request->entry(w.request->arguments);
  if (w.checked()) settle(t);
  t->state = State::done;
  --w.live;
  Wave &wave = w.waves[t->wave];
  --wave.live;
  if (w.live > 0 && w.arrived == w.live && w.arrived > 0) release_barrier(w);
  Context *to = next(w);
  switch_context(&t->context, to);
  __builtin_trap();
}

} // namespace

void meet(WaveFunction operation, void *payload, uintptr_t site) {
  Thread *t = self();
  Worker &w = *t->worker;
  if (w.checked()) settle(t);
  t->operation = operation;
  t->payload = payload;
  t->site = site;
  t->state = State::in_wave_operation;
  Wave &wave = w.waves[t->wave];
  // Only when all lanes that still run are here, and for the same thing, is it an operation of the whole wave.
  if (++wave.waiting == wave.live && together(w, t->wave, operation)) complete(w, t->wave, operation, 0, false);
  wait(t);
}

void abandon(Thread *t) {
  t->worker->faulted = true;
  switch_context(&t->context, &t->worker->scheduler);
  __builtin_unreachable();
}

void run_block(Worker &w, uint64_t number) {
  const LaunchRequest &r = *w.request;
  w.block_number = number;
  w.block = {(unsigned)(number % r.grid[0]), (unsigned)(number / r.grid[0] % r.grid[1]),
             (unsigned)(number / r.grid[0] / r.grid[1])};
  const int lanes = (int)r.wave_lanes;
  w.live = w.thread_count;
  w.arrived = 0;
  w.ready_first = w.ready_count = 0;
  w.faulted = false;
  w.first_epoch = ++w.epoch;
  // What was never written reads as NaN, in every float type.
  memset(w.arena, 0xff, w.arena_used);
  for (int i = 0; i < w.thread_count; ++i) {
    Thread *t = w.thread(i);
    t->worker = &w;
    t->index = {(unsigned)i % r.block[0], (unsigned)i / r.block[0] % r.block[1], (unsigned)i / r.block[0] / r.block[1]};
    t->number = i;
    t->lane = i % lanes;
    t->wave = i / lanes;
    t->depth = t->copies = 0;
    t->suspicious = false;
    t->mark = stack_mark;
    if (t->lane == 0) w.waves[t->wave] = {0, 0, w.waves[t->wave].epoch + 1};
    ++w.waves[t->wave].live;
    char *bottom = (char *)t;
    prepare(&t->context, bottom + sizeof(Thread), bottom + stack_bytes, thread_main);
    make_ready(w, t);
  }
  switch_context(&w.scheduler, next(w));
}

namespace {

// Arena and stacks of one worker, kept from launch to launch.
struct Storage {
  char *stacks;
  uint64_t stacks_bytes;
  char *arena;
  uint64_t arena_bytes;
  Cell *cells;
};

std::mutex storage_lock;
std::vector<Storage> spare;

char *reserve(uint64_t bytes) {
  void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : (char *)p;
}

constexpr uint64_t static_bytes = 1 << 20, gap_bytes = 4096;

bool take_storage(uint64_t threads, uint64_t dynamic, bool checked, Storage *found) {
  const uint64_t stacks_bytes = (threads + 1) * stack_bytes;
  const uint64_t arena_bytes = (dynamic + static_bytes + 4 * gap_bytes + 4095) / 4096 * 4096;
  {
    std::lock_guard<std::mutex> hold(storage_lock);
    for (size_t i = 0; i < spare.size(); ++i)
      if (spare[i].stacks_bytes >= stacks_bytes && spare[i].arena_bytes >= arena_bytes && (!checked || spare[i].cells)) {
        *found = spare[i];
        spare.erase(spare.begin() + (long)i);
        // Epochs begin again: what they say about bytes is forgotten.
        if (checked) madvise(found->cells, found->arena_bytes * sizeof(Cell), MADV_DONTNEED);
        return true;
      }
  }
  found->stacks_bytes = stacks_bytes;
  found->stacks = reserve(stacks_bytes);
  found->arena_bytes = arena_bytes;
  found->arena = reserve(arena_bytes);
  found->cells = checked ? (Cell *)reserve(arena_bytes * sizeof(Cell)) : nullptr;
  return found->stacks && found->arena && (!checked || found->cells);
}

void give_storage(const Storage &storage) {
  std::lock_guard<std::mutex> hold(storage_lock);
  if (spare.size() < 4) {
    spare.push_back(storage);
    return;
  }
  munmap(storage.stacks, storage.stacks_bytes);
  munmap(storage.arena, storage.arena_bytes);
  if (storage.cells) munmap(storage.cells, storage.arena_bytes * sizeof(Cell));
}

void work(Launch *launch, Storage *storage) {
  const LaunchRequest &r = *launch->request;
  Worker *w = new Worker;
  w->launch = launch;
  w->request = &r;
  w->thread_count = (int)(r.block[0] * r.block[1] * r.block[2]);
  w->stacks = (char *)(((uintptr_t)storage->stacks + stack_bytes - 1) & ~(uintptr_t)(stack_bytes - 1));
  w->arena = storage->arena;
  w->arena_bytes = storage->arena_bytes;
  w->cells = storage->cells;
  w->dynamic_begin = gap_bytes;
  w->arrays.push_back({"dynamic shared memory", w->dynamic_begin, r.dynamic_shared_bytes});
  w->arena_used = (w->dynamic_begin + r.dynamic_shared_bytes + gap_bytes + 255) / 256 * 256;
  if (r.checked) w->sites.resize(1 << 12);
  const uint64_t blocks = (uint64_t)r.grid[0] * r.grid[1] * r.grid[2];
  Guarded guarded(w);
  while (true) {
    const uint64_t number = launch->next_block.fetch_add(1);
    // A fault is reported for the first block that has one, whatever the number of workers.
    if (number >= blocks || number > launch->first_fault.load()) break;
    run_block(*w, number);
  }
  delete w;
}

} // namespace

} // namespace tilehal_sim

using namespace tilehal_sim;

// Runs a launch to its end. 0: done; 1: *fault says what is wrong; 2: no memory for the threads' stacks.
extern "C" __attribute__((visibility("default"))) int tilehal_sim_launch(const LaunchRequest *request, Fault *fault) {
  const uint64_t blocks = (uint64_t)request->grid[0] * request->grid[1] * request->grid[2];
  const uint64_t workers = request->workers < blocks ? request->workers : blocks;
  Launch launch;
  launch.request = request;
  launch.fault = fault;
  fault->kind = fault_none;
  std::vector<Storage> storage(workers);
  const uint64_t threads = (uint64_t)request->block[0] * request->block[1] * request->block[2];
  for (Storage &each : storage)
    if (!take_storage(threads, request->dynamic_shared_bytes, request->checked != 0, &each)) return 2;
  watch_signals();
  std::vector<std::thread> others;
  for (uint64_t i = 1; i < workers; ++i) others.emplace_back(work, &launch, &storage[i]);
  if (workers > 0) work(&launch, &storage[0]);
  for (std::thread &each : others) each.join();
  unwatch_signals();
  for (Storage &each : storage) give_storage(each);
  return fault->kind == fault_none ? 0 : 1;
}

// ------------------------------------------------------------------------------------------------- what kernels call

Dim3 tilehal_sim_thread_index() { return self()->index; }
Dim3 tilehal_sim_block_index() { return self()->worker->block; }
Dim3 tilehal_sim_block_dim() {
  const uint32_t *b = self()->worker->request->block;
  return {b[0], b[1], b[2]};
}
Dim3 tilehal_sim_grid_dim() {
  const uint32_t *g = self()->worker->request->grid;
  return {g[0], g[1], g[2]};
}
int tilehal_sim_lane() { return self()->lane; }
int tilehal_sim_wave_lanes() { return (int)self()->worker->request->wave_lanes; }

void tilehal_sim_block_barrier() {
  Thread *t = self();
  Worker &w = *t->worker;
  if (w.checked()) settle(t);
  t->site = SITE;
  t->state = State::at_barrier;
  if (++w.arrived == w.live) release_barrier(w);
  wait(t);
}

void *tilehal_sim_dynamic_shared() {
  Worker &w = *self()->worker;
  return w.arena + w.dynamic_begin;
}

void *tilehal_sim_static_shared(int number, const char *name, uint64_t bytes, uint64_t alignment) {
  Thread *t = self();
  Worker &w = *t->worker;
  if ((size_t)number >= w.array_of_number.size()) w.array_of_number.resize((size_t)number + 1, -1);
  int &place = w.array_of_number[(size_t)number];
  if (place < 0) {
    // Aligned as declared and no better, so that accesses that need more are found.
    const uint64_t twice = 2 * alignment;
    const uint64_t begin = (w.arena_used + twice - 1) / twice * twice + alignment;
    if (begin + bytes + gap_bytes > w.arena_bytes)
      raise_fault(t, fault_trap, SITE, "static shared arrays are larger than the simulator has room for");
    memset(w.arena + begin, 0xff, bytes);
    w.arrays.push_back({name, begin, bytes});
    w.arena_used = (begin + bytes + gap_bytes + 255) / 256 * 256;
    place = (int)w.arrays.size() - 1;
  }
  return w.arena + w.arrays[(size_t)place].begin;
}

void tilehal_sim_trap(const char *message) { raise_fault(self(), fault_trap, SITE, message); }

void tilehal_sim_copy_start(void *shared, const void *global, uint32_t bytes, bool condition) {
  Thread *t = self();
  if (t->worker->checked()) {
    if (condition) watch(t, global, bytes, access_read, SITE);
  }
  if (t->copies == 16) tilehal_sim_copy_wait(15);
  t->site = SITE;
  t->copy[t->copies++] = {shared, global, bytes, condition};
}

void tilehal_sim_copy_wait(uint32_t still_outstanding) {
  Thread *t = self();
  uint32_t done = t->copies > still_outstanding ? t->copies - still_outstanding : 0;
  for (uint32_t i = 0; i < done; ++i) {
    const Copy &c = t->copy[i];
    if (t->worker->checked()) watch(t, c.shared, c.bytes, access_write, t->site);
    if (c.condition)
      memcpy(c.shared, c.global, c.bytes);
    else
      memset(c.shared, 0, c.bytes);
  }
  for (uint32_t i = done; i < t->copies; ++i) t->copy[i - done] = t->copy[i];
  t->copies -= done;
}
