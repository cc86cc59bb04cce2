/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads of the library read the messages, and the accessing thread sleeps until the segment is
 * mapped, be it for a load or a store, a system call or another process. The threads take turns:
 * the thread that has the turn waits for the next fault and serves it, and passes the turn on only
 * before it has to wait for something else. Therefore a fault that needs no I/O costs one switch of
 * threads each way. These threads never touch parts of a mapped range that may be absent, because
 * no thread would be left to serve the fault. Lock: `turn`.
 */
#include "engine/messages.h"

#include "base/config.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/userfaultfd.h"

#include <string.h>

static _Atomic uint32_t turn; /* lock: its holder waits for the next fault */
static _Thread_local bool has_turn __attribute__((tls_model("initial-exec")));

void messages_release_turn(void)
{
	if (!has_turn)
		return;
	has_turn = false;
	futex_unlock(&turn);
}

bool messages_next(struct fault *fault, bool wait)
{
	if (!has_turn && wait)
		futex_lock(&turn);
	else if (!has_turn && !futex_trylock(&turn))
		return false;
	has_turn = true;
	return userfaultfd_next(&fault->addr, &fault->write, wait);
}

int messages_start(void)
{
	unsigned running = 0;
	int err = 0;

	while (running < config.fault_threads && !err) {
		err = sys_start_thread(engine_serve_messages, NULL);
		running += !err;
	}
	return running ? 0 : fail(-err, "cannot start a thread to serve accesses: %s"
				  SYS_THREAD_LIMITS, strerror(-err));
}

void messages_forget(void)
{
	turn = 0;
}
