/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of the engine for a mapping. */
#ifndef ENGINE_H
#define ENGINE_H

#include "engine/range.h"

/* From now on, faults in mapped ranges are passed to `fault`, and threads that serve messages run
 * `serve`. Returns 0 or -errno with a sentence. */
int engine_start(enum fault_answer (*fault)(struct fault *), void *(*serve)(void *));
/* Chooses the engine for a mapping and starts it. Returns 0, or -errno with a sentence. */
int engine_choose(const struct engine_wish *wish, const struct engine **e);
/* In a forked child: no engine has started. */
void engine_forget(void);
/* Whether the memory of blocks can move to and from the range of a mapping; writable: to which the
 * program can store. */
bool engine_moves_blocks(const struct engine *e, bool writable);

#endif
