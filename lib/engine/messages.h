/* SPDX-License-Identifier: BSD-3-Clause */
/* The threads that serve faults which userfaultfd(2) reports by messages. */
#ifndef MESSAGES_H
#define MESSAGES_H

#include "engine/table.h"

/* Starts the threads (UMMAP_FAULT_THREADS), which run engine_serve_messages. Returns 0, or -errno
 * with a sentence. */
int messages_start(void);
/* In a forked child: no thread has the turn. */
void messages_forget(void);

/* Whether the calling thread has the turn; and the slow part of messages_pass_turn. */
extern _Thread_local bool messages_has_turn __attribute__((tls_model("initial-exec")));
void messages_release_turn(void);
/* Takes the next fault that must be served; waits for one if `wait`. Returns false if there is none
 * at the moment, or another thread has the turn. */
bool messages_next(struct fault *fault, bool wait);
/* A serving thread calls this before it may wait for long, so that another thread takes the next
 * fault. Any thread may call it. */
static inline void messages_pass_turn(void)
{
	if (messages_has_turn)
		messages_release_turn();
}

#endif
