/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program chooses the size of its alternate stacks (sigaltstack(2)), often without knowing how
 * much is needed: 8192 bytes are common, of which the kernel takes up to half for the registers.
 * Drivers need more than is left. Therefore a fault on a small stack is served on memory of the
 * library (base/scratch.h). Meanwhile the thread has no alternate stack, because the kernel would
 * start the next handler at its upper end, and overwrite the frames to return to. Takes no lock.
 */
#include "engine/stack.h"

#include "base/scratch.h"
#include "base/sys.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Stack for the message of a thread whose own stack is too small. The first such thread takes
 * it. */
static char last_stack[SCRATCH_SIZE] __attribute__((aligned(16)));
static atomic_flag last_taken = ATOMIC_FLAG_INIT;

/*
 * Calls fn(arg) with the stack pointer at `end`. Marked as the frame of a signal, because the
 * caller's frame may be above or below, which debuggers otherwise take for damage.
 */
void stack_switch(void *arg, void (*fn)(void *arg), char *end)
	__attribute__((visibility("hidden")));

__asm__(".pushsection .text\n"
	".globl stack_switch\n"
	".hidden stack_switch\n"
#if defined(__x86_64__)
	".type stack_switch, @function\n"
	"stack_switch:\n"
	".cfi_startproc\n"
	".cfi_signal_frame\n"
	"	push %rbp\n"
	".cfi_def_cfa_offset 16\n"
	".cfi_offset %rbp, -16\n"
	"	mov %rsp, %rbp\n"
	".cfi_def_cfa_register %rbp\n"
	"	mov %rdx, %rsp\n"
	"	call *%rsi\n"
	"	leave\n"
	".cfi_def_cfa %rsp, 8\n"
	"	ret\n"
	".cfi_endproc\n"
#elif defined(__aarch64__)
	".type stack_switch, %function\n"
	"stack_switch:\n"
	".cfi_startproc\n"
	".cfi_signal_frame\n"
	"	stp x29, x30, [sp, #-16]!\n"
	".cfi_def_cfa_offset 16\n"
	".cfi_offset x29, -16\n"
	".cfi_offset x30, -8\n"
	"	mov x29, sp\n"
	".cfi_def_cfa_register x29\n"
	"	mov sp, x2\n"
	"	blr x1\n"
	"	mov sp, x29\n"
	".cfi_def_cfa_register sp\n"
	"	ldp x29, x30, [sp], #16\n"
	".cfi_restore x29\n"
	".cfi_restore x30\n"
	".cfi_def_cfa_offset 0\n"
	"	ret\n"
	".cfi_endproc\n"
#else
#error "the stack can be changed on x86-64 and AArch64 only"
#endif
	".size stack_switch, . - stack_switch\n"
	".popsection\n");

/* A call that is made on another stack. */
struct call {
	void (*fn)(void *arg);
	void *arg;
};

static void run_call(void *arg)
{
	struct call *call = arg;
	stack_t none = { .ss_flags = SS_DISABLE }, theirs;

	/* The current state is restored: a stack with SS_AUTODISARM is disabled already. */
	syscall(SYS_sigaltstack, &none, &theirs);
	call->fn(call->arg);
	syscall(SYS_sigaltstack, &theirs, NULL);
}

/* The reason why the process ends. */
struct shortage {
	size_t has, needs;  /* bytes of the alternate stack */
	const char *where;  /* end of the sentence */
};

/* Never returns, because its caller has no stack left. */
static void report_shortage(void *arg)
{
	const struct shortage *lack = arg;
	char text[400];
	int len = snprintf(text, sizeof(text), "ummap[%d] fatal: cannot handle a fault on the "
			   "alternate signal stack of this thread: it has %zu bytes, and libummap "
			   "needs %zu%s. Try at least %zu bytes for sigaltstack(2)\n",
			   (int)getpid(), lack->has, lack->needs, lack->where,
			   max_size(lack->needs, (size_t)SIGSTKSZ));

	syscall(SYS_write, STDERR_FILENO, text, (size_t)len);
	abort();
}

static void end_process(const stack_t *alternate, size_t needs, const char *where)
{
	struct shortage lack = { alternate->ss_size, needs, where };

	while (atomic_flag_test_and_set(&last_taken))
		pause();  /* another thread reports */
	stack_switch(&lack, report_shortage, last_stack + sizeof(last_stack));
}

void stack_switch_call(const stack_t *alternate, void (*fn)(void *arg), void *arg)
{
	size_t left = stack_left(alternate), used = alternate->ss_size - left;
	struct call call = { fn, arg };
	char *piece;

	if (left < STACK_MIN_BYTES)
		end_process(alternate, used + STACK_MIN_BYTES, " here");
	piece = scratch_take(SCRATCH_STACK, alternate->ss_sp);
	if (!piece)
		end_process(alternate, used + STACK_AMPLE_BYTES,
			    ", because there is no memory for a stack of its own");
	stack_switch(&call, run_call, piece + SCRATCH_SIZE);
	scratch_give(SCRATCH_STACK, alternate->ss_sp, piece);
}
