/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The handler of faults leaves a failed copy by siglongjmp(3), after the fault has been served as
 * far as possible: no lock is held then, and the thread is on the stack on which the signal was
 * delivered. A handler of the program that interrupts a copy may make copies of its own.
 */
#include "engine/copy.h"

#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

struct copy {
	const char *dst, *src;
	size_t len;
	volatile int error;      /* negative errno value with which the copy ends */
	sigjmp_buf out;
};

static _Thread_local struct copy *volatile current __attribute__((tls_model("initial-exec")));

static bool is_in(const void *addr, const char *range, size_t len)
{
	return (uintptr_t)addr - (uintptr_t)range < len;
}

bool copy_covers(const void *addr)
{
	const struct copy *c = current;

	return c && (is_in(addr, c->dst, c->len) || is_in(addr, c->src, c->len));
}

void copy_abort(const void *context, int error)
{
	struct copy *c = current;

	c->error = error;
	/* The kernel would restore this mask when the handler returns. */
	pthread_sigmask(SIG_SETMASK, &((const ucontext_t *)context)->uc_sigmask, NULL);
	siglongjmp(c->out, 1);
}

int copy_bytes(void *dst, const void *src, size_t len)
{
	struct copy copy = { .dst = dst, .src = src, .len = len };
	struct copy *volatile outer = current;

	if (sigsetjmp(copy.out, 0) == 0) {
		/* The compiler must not move accesses of the copy out of this section. */
		current = &copy;
		atomic_signal_fence(memory_order_seq_cst);
		memcpy(dst, src, len);
		atomic_signal_fence(memory_order_seq_cst);
	}
	current = outer;
	return copy.error;
}
