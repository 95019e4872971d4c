// What the processor itself refuses in a kernel (an address nobody mapped, a division by zero) ends the launch, not the
// process. Plain mode relies on it; watched mode finds bad addresses earlier.

#include "machine.h"

#include <signal.h>
#include <stdio.h>

namespace tilehal_sim {

namespace {

constexpr int signals[] = {SIGSEGV, SIGBUS, SIGFPE};
constexpr int signal_count = sizeof(signals) / sizeof(signals[0]);

struct sigaction earlier[signal_count];
std::mutex installing;
int users = 0;
thread_local Worker *working = nullptr;

// On the stack of whatever ran: a simulated thread's own, when the kernel is at fault.
void handle(int number, siginfo_t *info, void *context) {
  Thread *t = self();
  Worker *w = working;
  const bool ours = w && (char *)t >= w->stacks && (char *)t < w->stacks + (uint64_t)w->thread_count * stack_bytes;
  if (!ours) {
    for (int i = 0; i < signal_count; ++i)
      if (signals[i] == number) {
        const struct sigaction &before = earlier[i];
        if (before.sa_flags & SA_SIGINFO)
          before.sa_sigaction(number, info, context);
        else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
          before.sa_handler(number);
        else
          sigaction(number, &before, nullptr);  // the instruction is tried again, and the default happens
      }
    return;
  }
  if (number == SIGFPE) raise_fault(t, fault_trap, 0, "integer division by zero");
  Fault *f = begin_fault(t, fault_address, 0);
#ifdef SI_KERNEL
  // The processor gives no address: it has more bits than addresses have, or a vector's is no multiple of its size.
  if (f && info->si_code == SI_KERNEL)
    snprintf(f->detail, sizeof(f->detail), "%s", "an address that is nobody's or, of a vector, misaligned");
  else
#endif
  if (f) name_any(*w, (uint64_t)info->si_addr, 0, f);
  abandon(t);
}

} // namespace

Guarded::Guarded(Worker *w) { working = w; }
Guarded::~Guarded() { working = nullptr; }

void watch_signals() {
  std::lock_guard<std::mutex> hold(installing);
  if (users++ > 0) return;
  struct sigaction action = {};
  action.sa_sigaction = handle;
  // The handler does not return, so the signal must not stay blocked.
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < signal_count; ++i) sigaction(signals[i], &action, &earlier[i]);
}

void unwatch_signals() {
  std::lock_guard<std::mutex> hold(installing);
  if (--users > 0) return;
  for (int i = 0; i < signal_count; ++i) {
    struct sigaction now;
    sigaction(signals[i], nullptr, &now);
    // Somebody else may have come since: then theirs stays, and it passes on what is not theirs.
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handle) sigaction(signals[i], &earlier[i], nullptr);
  }
}

} // namespace tilehal_sim
