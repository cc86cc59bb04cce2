/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What other processes of the machine see of a mapping, and the wait for those that access one of its segments. A
 * remote accessor takes no lock: it writes the segment's number into a slot of its process, and then checks whether it
 * may access it. Before the holder of a segment's lock clears VALID or DIRTY, it waits until the segment is in no slot
 * any more; later accessors see the lock.
 */
#ifndef EXPORT_H
#define EXPORT_H

#include "cache/header.h"

#include <ummap.h>

#define EXPORT_MAGIC 0x6863616572ull /* "reach" */
#define REACH_VERSION 1
#define EXPORT_PEERS 1023
#define EXPORT_SLOTS 8        /* one cache line */

/*
 * A memory object of the mapping: its parts follow one another, each from a page on. Other processes may write only the
 * second part. The process that has line k holds a lock on byte k of the object (F_OFD_SETLK), which ends with the
 * process.
 */
struct export_head {
	uint64_t magic;
	uint32_t version, page;
	uint64_t seg_size;
	uint64_t count;          /* headers that follow */
	_Atomic uint64_t size;   /* bytes of the mapping now */
};

struct export_line {
	_Atomic uint64_t slot[EXPORT_SLOTS]; /* 1 + the segment that a thread accesses; 0: free */
} __attribute__((aligned(64)));

struct export_lines {
	_Atomic uint32_t used;   /* lines from here on were never used */
	struct export_line line[EXPORT_PEERS];
};

static inline size_t export_lines_at(void)
{
	return round_up(sizeof(struct export_head), sys_page());
}

static inline size_t export_segs_at(void)
{
	return export_lines_at() + round_up(sizeof(struct export_lines), sys_page());
}

/* The contents of a struct umexport. */
struct export_offer {
	uint32_t magic;
	int32_t pid;
	int32_t control, pool;   /* descriptors of that process: the mapping's object, and that of its frames */
	uint64_t machine, space; /* where these numbers are valid: a boot of a machine, and a namespace */
	uint64_t device, control_file, pool_file; /* device and inodes of these descriptors */
	uint64_t none;
};

_Static_assert(sizeof(struct export_offer) == sizeof(struct umexport), "an offer");

/* The owner's side; all zeros for a mapping that is not exported. */
struct export {
	struct export_head *head; /* NULL: not exported */
	struct export_lines *lines;
	struct seg *segs;        /* the headers */
	size_t count;
	int fd;
};

/* Makes the headers of a mapping, all zeros, in memory that other processes can map. 0, or -errno with a sentence. */
int export_open(struct export *r, size_t size, size_t seg_size, size_t count);
void export_close(struct export *r);
/* In a forked child, where its memory is not mapped. */
void export_forget(struct export *r);
void export_resize(struct export *r, size_t size);

/* This machine and namespace. */
void export_place(uint64_t *machine, uint64_t *space);
/* Fills an offer. 0 or -errno. */
int export_offer(const struct export *r, int pool, struct umexport *offer);

void export_wait(const struct export *r, const struct seg *s);

/* Waits until no remote accessor uses the segment, which the caller has locked. */
static inline void export_await(const struct export *r, const struct seg *s)
{
	if (__builtin_expect(r->head != NULL, 0))
		export_wait(r, s);
}

#endif
