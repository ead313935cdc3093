// Stacks that can be switched between within one OS thread.
#pragma once

#include <cstdint>

namespace sim {

// Saves the present stack pointer in `from` and goes on at `to`.
extern "C" void polysift_sim_switch(void **from, void *to) __attribute__((visibility("hidden")));

#ifndef __x86_64__
#error "the switch of stacks is written for x86-64"
#endif
asm(R"(
.text
.p2align 4
.hidden polysift_sim_switch
.globl polysift_sim_switch
.type polysift_sim_switch, @function
polysift_sim_switch:
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
.size polysift_sim_switch, .-polysift_sim_switch
)");

// The stack pointer of a stack that starts with `entry` when switched to; `top` is a multiple
// of 16.
inline void *prepare_stack(void *top, void (*entry)()) {
  auto **sp = static_cast<void **>(top);
  *--sp = nullptr;  // the return address of `entry`, which never returns
  *--sp = reinterpret_cast<void *>(entry);
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
  return sp;
}

}  // namespace sim
