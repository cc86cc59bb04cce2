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

/* Takes the next fault that must be served; waits for one if `wait`. Returns false if there is none
 * at the moment, or another thread has the turn. */
bool messages_next(struct fault *fault, bool wait);
/* A thread that serves an access by the engine calls this before it may wait for long, so that
 * another thread takes the next fault. If the engine sends no messages, no thread has the turn. */
void messages_release_turn(void);
static inline void messages_pass_turn(const struct engine *e)
{
	if (e->wake)
		messages_release_turn();
}

#endif
