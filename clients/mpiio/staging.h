/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes that were accepted and are not in the file yet: copies, in the order in which they came. The owner locks. */
#ifndef STAGING_H
#define STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct staged {
	struct staged *next;
	uint64_t off;      /* in the share */
	size_t len;
	bool submitted;    /* being written: its bytes and its place stay as they are */
	char data[];
};

struct staging {
	struct staged *first, **end;
	size_t bytes;      /* of those that are not submitted */
	uint64_t top;      /* none reaches beyond it */
	uint64_t drops;    /* counts those that have left: who reads the file meanwhile looks again */
};

void staging_init(struct staging *s);
/* Adds a copy, which takes the place of what it covers. false: there is no memory. */
bool staging_put(struct staging *s, const void *buf, size_t len, uint64_t off);
/* Whether a write past the buffer would be undone by one in it, or undo one. What it covers it replaces, if not. */
bool staging_bypass(struct staging *s, size_t len, uint64_t off);
/* Puts what is newer than the file over [off, off + len), which was read from there. */
void staging_overlay(const struct staging *s, char *buf, size_t len, uint64_t off);

/* Submits up to max that have no bytes in common, in the order of their offsets, and no more when they have
 * `enough` bytes; returns how many. */
size_t staging_submit(struct staging *s, struct staged **list, size_t max, size_t enough);
/* They are complete: in the file, or not. */
void staging_complete(struct staging *s, struct staged **list, size_t n, bool written);
void staging_free(struct staging *s);

#endif
