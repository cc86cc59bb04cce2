/* SPDX-License-Identifier: BSD-3-Clause */
/* Rights on the view: what the application can load and store, and how frames get there and back. */
#ifndef ENGINE_H
#define ENGINE_H

#include "chain.h"

#include <stdbool.h>
#include <stddef.h>

/* Faults on views are handed to fn from then on. Returns 0 or -errno with a sentence. */
int engine_start(enum chain_answer (*fn)(const struct chain_fault *fault));

/* Address space in which every access faults; NULL: none left. */
char *engine_attach(size_t len, size_t seg_size);
/* More of it right behind a view. false: something else is there. */
bool engine_extend(char *view, size_t len, size_t more);
void engine_detach(char *view, size_t len);

/*
 * The frame at home, which may be stored to there or not (`was_writable`), appears in the view, whole and with
 * its final rights at once. All of these return 0, or -errno and have changed nothing.
 */
int engine_publish(char *view, char *home, size_t len, bool was_writable, bool writable);
/* What stands in the view may be stored to, or no longer. */
int engine_protect(char *view, size_t len, bool writable);
/* The frame goes home, and keeps its rights (`writable`); the view's place faults. */
int engine_retract(char *view, char *home, size_t len, bool writable);
/* The view's place faults and what stood there is lost: the way out when no mapping may be added. */
int engine_discard(char *view, size_t len);

#endif
