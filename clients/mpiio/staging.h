/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes that were accepted and are not in the file yet: copies, in the order in which they came. The owner locks. */
#ifndef STAGE_H
#define STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct piece {
	struct piece *next;
	uint64_t off;      /* in the share */
	size_t len;
	bool flying;       /* being written: its bytes and its place stay as they are */
	char data[];
};

struct stage {
	struct piece *first, **end;
	size_t bytes;      /* of those that do not fly */
	uint64_t top;      /* no piece reaches beyond it */
	uint64_t drops;    /* counts pieces that have left: who reads the file meanwhile looks again */
};

void stage_begin(struct stage *s);
/* Adds a copy, which takes the place of what it covers. false: there is no memory. */
bool stage_put(struct stage *s, const void *buf, size_t len, uint64_t off);
/* Whether a write past the stage would be undone by a piece, or undo one. What it covers it replaces, if not. */
bool stage_pass(struct stage *s, size_t len, uint64_t off);
/* Puts what is newer than the file over [off, off + len), which was read from there. */
void stage_overlay(const struct stage *s, char *buf, size_t len, uint64_t off);

/* Lets up to max pieces fly that have no bytes in common, in the order of their offsets, and no more when they have
 * `enough` bytes; returns how many. */
size_t stage_fly(struct stage *s, struct piece **list, size_t max, size_t enough);
/* They have landed: in the file, or not. */
void stage_land(struct stage *s, struct piece **list, size_t n, bool written);
void stage_end(struct stage *s);

#endif
