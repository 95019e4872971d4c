// Switching between simulated threads: each runs on a stack of its own, inside one thread of the operating system.
#pragma once

#include <stdint.h>

// TILEHAL_SIM_PORTABLE_SWITCH takes ucontext everywhere, as processors that are neither of the two below do.
#if defined(TILEHAL_SIM_PORTABLE_SWITCH) || (!defined(__x86_64__) && !defined(__aarch64__))
#define TILEHAL_SIM_UCONTEXT 1
#include <ucontext.h>
#endif

namespace tilehal_sim {

#if defined(__x86_64__) && !defined(TILEHAL_SIM_UCONTEXT)

typedef void *Context;

// Saves the callee-saved registers on this stack, leaves its top in *from, and continues on `to`.
extern "C" __attribute__((visibility("hidden"))) void tilehal_sim_switch(void **from, void *to);
asm(R"(
	.text
	.p2align 4
	.weak tilehal_sim_switch
	.hidden tilehal_sim_switch
	.type tilehal_sim_switch, @function
tilehal_sim_switch:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
	.size tilehal_sim_switch, .-tilehal_sim_switch
)");

inline void prepare(Context *context, char *, char *top, void (*start)()) {
  void **stack = (void **)((uintptr_t)top & ~(uintptr_t)63);
  *--stack = nullptr;         // where `start` would return to: it does not
  *--stack = (void *)start;
  for (int i = 0; i < 6; ++i) *--stack = nullptr;
  *context = stack;
}
inline void switch_context(Context *from, Context *to) { tilehal_sim_switch(from, *to); }

#elif defined(__aarch64__) && !defined(TILEHAL_SIM_UCONTEXT)

typedef void *Context;

extern "C" __attribute__((visibility("hidden"))) void tilehal_sim_switch(void **from, void *to);
asm(R"(
	.text
	.p2align 4
	.weak tilehal_sim_switch
	.hidden tilehal_sim_switch
	.type tilehal_sim_switch, %function
tilehal_sim_switch:
	sub sp, sp, #160
	stp x19, x20, [sp, #0]
	stp x21, x22, [sp, #16]
	stp x23, x24, [sp, #32]
	stp x25, x26, [sp, #48]
	stp x27, x28, [sp, #64]
	stp x29, x30, [sp, #80]
	stp d8, d9, [sp, #96]
	stp d10, d11, [sp, #112]
	stp d12, d13, [sp, #128]
	stp d14, d15, [sp, #144]
	mov x9, sp
	str x9, [x0]
	mov sp, x1
	ldp x19, x20, [sp, #0]
	ldp x21, x22, [sp, #16]
	ldp x23, x24, [sp, #32]
	ldp x25, x26, [sp, #48]
	ldp x27, x28, [sp, #64]
	ldp x29, x30, [sp, #80]
	ldp d8, d9, [sp, #96]
	ldp d10, d11, [sp, #112]
	ldp d12, d13, [sp, #128]
	ldp d14, d15, [sp, #144]
	add sp, sp, #160
	ret
	.size tilehal_sim_switch, .-tilehal_sim_switch
)");

inline void prepare(Context *context, char *, char *top, void (*start)()) {
  uint64_t *stack = (uint64_t *)((uintptr_t)top & ~(uintptr_t)63) - 20;
  for (int i = 0; i < 20; ++i) stack[i] = 0;
  stack[11] = (uint64_t)start;  // x30
  *context = stack;
}
inline void switch_context(Context *from, Context *to) { tilehal_sim_switch(from, *to); }

#else

typedef ucontext_t Context;

inline void prepare(Context *context, char *bottom, char *top, void (*start)()) {
  getcontext(context);
  context->uc_stack.ss_sp = bottom;
  context->uc_stack.ss_size = (size_t)(top - bottom);
  context->uc_link = nullptr;
  makecontext(context, start, 0);
}
inline void switch_context(Context *from, Context *to) { swapcontext(from, to); }

#endif

} // namespace tilehal_sim
