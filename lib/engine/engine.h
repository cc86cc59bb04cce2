/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of the engine for a mapping. */
#ifndef ENGINE_H
#define ENGINE_H

#include "engine/range.h"
#include "engine/sigsegv.h"

/* What a mapping requires of its engine. */
struct engine_wish {
	int wanted;              /* UMMAP_ENGINE_* */
	bool kernel, shared;     /* UMMAP_KERNEL, UMMAP_SHARED */
	bool small;              /* its segments are small */
	bool writable;
};

/* From now on faults in mapped ranges are passed to `fault`, and threads that serve messages run `serve`.
 * Returns 0 or -errno with a sentence. */
int engine_start(enum fault_answer (*fault)(struct fault *), void *(*serve)(void *));
/* Chooses the engine for a mapping and starts it. 0, or -errno with a sentence. */
int engine_choose(const struct engine_wish *wish, const struct engine **e);
/* In a forked child: none is started. */
void engine_forget(void);
/* As UMMAP_ENGINE_* has it. */
int engine_number(const struct engine *e);
/* Whether accesses by system calls and other processes fault, too. */
bool engine_sees_kernel(const struct engine *e);

#endif
