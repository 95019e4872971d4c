// Shuffles, votes, reductions and matrix instructions: what the lanes of a wave do together.

#include "machine.h"

#include <stdio.h>
#include <string.h>

#define SITE ((uintptr_t)__builtin_return_address(0))

namespace tilehal_sim {

namespace {

uint64_t all_lanes(int lanes) { return lanes == 64 ? ~0ull : (1ull << lanes) - 1; }

// A lane that takes part but is not in the mask it gave: in 32-bit masks, lanes 32 and up.
bool left_out(Worker &w, Thread *t, uint64_t mask, const char *what) {
  if (mask >> t->lane & 1) return false;
  if (!w.checked()) return true;
  char detail[200];
  snprintf(detail, sizeof(detail), "lane %d takes part in a %s whose mask 0x%llx leaves it out", t->lane, what,
           (unsigned long long)mask);
  Fault *f = begin_fault(t, fault_mask, t->site);
  if (f) snprintf(f->detail, sizeof(f->detail), "%s", detail);
  w.faulted = true;
  return true;
}

int source_lane(const Shuffle &s, int lane, int width) {
  const int first = lane & ~(width - 1);
  int from = lane;
  switch (s.kind) {
  case shuffle_index: from = first + (s.argument & (width - 1)); break;
  case shuffle_xor: from = lane ^ s.argument; return from >= first + width ? lane : from;
  case shuffle_up: from = lane - s.argument; return from < first ? lane : from;
  case shuffle_down: from = lane + s.argument; return from >= first + width ? lane : from;
  }
  return from;
}

void do_shuffle(Worker &w, int wave, uint64_t active) {
  const int lanes = (int)w.request->wave_lanes;
  for (int lane = 0; lane < lanes; ++lane) {
    if (!(active >> lane & 1)) continue;
    Thread *t = w.thread(wave * lanes + lane);
    Shuffle &s = *(Shuffle *)t->payload;
    s.result = s.value;
    if (s.masked && left_out(w, t, s.mask, "shuffle")) {
      if (w.faulted) return;
      continue;
    }
    const int width = s.width <= 0 || s.width > lanes ? lanes : s.width;
    const int from = source_lane(s, lane, width);
    if (from < 0 || from >= lanes || !(active >> from & 1) || (s.masked && !(s.mask >> from & 1))) {
      // Hardware leaves the value undefined. All ones is NaN in every float type.
      s.result = ~0ull;
      if (w.checked()) {
        Fault *f = begin_fault(t, fault_inactive_lane, t->site);
        if (f) snprintf(f->detail, sizeof(f->detail), "lane %d reads lane %d, which does not take part in the shuffle", lane, from);
        w.faulted = true;
        return;
      }
      continue;
    }
    s.result = ((Shuffle *)w.thread(wave * lanes + from)->payload)->value;
  }
}

void do_reduce(Worker &w, int wave, uint64_t active) {
  const int lanes = (int)w.request->wave_lanes;
  for (int lane = 0; lane < lanes; ++lane) {
    if (!(active >> lane & 1)) continue;
    Thread *t = w.thread(wave * lanes + lane);
    Reduce &own = *(Reduce *)t->payload;
    if (own.masked && left_out(w, t, own.mask, "vote or reduction")) {
      own.result = own.value;
      if (w.faulted) return;
      continue;
    }
    const uint64_t members = active & (own.masked ? own.mask : all_lanes(lanes));
    bool first = true;
    uint64_t result = 0;
    for (int other = 0; other < lanes; ++other) {
      if (!(members >> other & 1)) continue;
      const uint64_t value = ((Reduce *)w.thread(wave * lanes + other)->payload)->value;
      if (own.kind == reduce_ballot) {
        result |= (value & 1) << other;
        continue;
      }
      if (first) {
        result = value;
      } else {
        switch (own.kind) {
        case reduce_add: result += value; break;
        case reduce_min: result = (int64_t)value < (int64_t)result ? value : result; break;
        case reduce_max: result = (int64_t)value > (int64_t)result ? value : result; break;
        case reduce_min_unsigned: result = value < result ? value : result; break;
        case reduce_max_unsigned: result = value > result ? value : result; break;
        case reduce_and: result &= value; break;
        case reduce_or: result |= value; break;
        case reduce_xor: result ^= value; break;
        default: break;  // reduce_first keeps the first
        }
      }
      first = false;
    }
    own.result = result;
  }
}

void do_nothing(Worker &, int, uint64_t) {}

struct MatrixCall {
  const char *name;
  MatrixFunction function;
  MatrixOperands *operands;
};

void do_matrix(Worker &w, int wave, uint64_t active) {
  const int lanes = (int)w.request->wave_lanes;
  const MatrixOperands *operands[most_lanes];
  Thread *someone = nullptr;
  for (int lane = 0; lane < lanes; ++lane)
    if (active >> lane & 1) {
      someone = w.thread(wave * lanes + lane);
      operands[lane] = ((MatrixCall *)someone->payload)->operands;
    }
  if (active != all_lanes(lanes)) {
    Fault *f = begin_fault(someone, fault_partial_wave, someone->site);
    if (f)
      snprintf(f->detail, sizeof(f->detail), "%s is executed by %d of %d lanes", ((MatrixCall *)someone->payload)->name,
               __builtin_popcountll(active), lanes);
    w.faulted = true;
    return;
  }
  ((MatrixCall *)someone->payload)->function(operands);
}

} // namespace

} // namespace tilehal_sim

using namespace tilehal_sim;

void tilehal_sim_wave_barrier() { meet(do_nothing, nullptr, SITE); }
void tilehal_sim_shuffle(Shuffle *s) { meet(do_shuffle, s, SITE); }
void tilehal_sim_reduce(Reduce *r) { meet(do_reduce, r, SITE); }
void tilehal_sim_matrix(const char *name, MatrixFunction function, MatrixOperands *operands) {
  MatrixCall call{name, function, operands};
  meet(do_matrix, &call, SITE);
}
