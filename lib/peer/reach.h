/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What other processes of the machine see of a mapping, and the wait for those that are in one of its segments. A
 * visitor takes no lock: it writes into a slot of its process where it goes, and then looks whether it may.
 * Whoever has a segment's lock, and is going to take VALID or DIRTY from it, waits until it is in no slot any
 * more; who comes later sees the lock.
 */
#ifndef REACH_H
#define REACH_H

#include "cache/header.h"

#include <ummap.h>

#define REACH_MAGIC 0x6863616572ull /* "reach" */
#define REACH_VERSION 1
#define REACH_PEERS 1023
#define REACH_SLOTS 8        /* one cache line */

/*
 * A memory object of the mapping's own: its parts follow one another, each from a page on. Others may write the
 * second one only. Who has line k holds a lock on byte k of the object (F_OFD_SETLK), which ends with him.
 */
struct reach_head {
	uint64_t magic;
	uint32_t version, page;
	uint64_t seg_size;
	uint64_t count;          /* headers that follow */
	_Atomic uint64_t size;   /* bytes of the mapping now */
};

struct reach_line {
	_Atomic uint64_t slot[REACH_SLOTS]; /* 1 + the segment that a thread is in; 0: free */
} __attribute__((aligned(64)));

struct reach_lines {
	_Atomic uint32_t used;   /* lines from here on were never anybody's */
	struct reach_line line[REACH_PEERS];
};

static inline size_t reach_lines_at(void)
{
	return round_up(sizeof(struct reach_head), sys_page());
}

static inline size_t reach_segs_at(void)
{
	return reach_lines_at() + round_up(sizeof(struct reach_lines), sys_page());
}

/* What stands in a struct umoffer. */
struct reach_offer {
	uint32_t magic;
	int32_t pid;
	int32_t control, pool;   /* descriptors of that process: the mapping's object, and that of its frames */
	uint64_t machine, space; /* where such numbers mean anything: this boot of a machine, and a namespace */
	uint64_t device, control_file, pool_file; /* what these descriptors are of */
	uint64_t none;
};

_Static_assert(sizeof(struct reach_offer) == sizeof(struct umoffer), "an offer");

/* The owner's side; all zeros for a mapping that nobody can reach. */
struct reach {
	struct reach_head *head; /* NULL: nobody can */
	struct reach_lines *lines;
	struct seg *segs;        /* the headers */
	size_t count;
	int fd;
};

/* Makes the headers of a mapping, all zeros, where others can see them. 0, or -errno with a sentence. */
int reach_open(struct reach *r, size_t size, size_t seg_size, size_t count);
void reach_close(struct reach *r);
/* In a forked child, where its memory is not mapped. */
void reach_forget(struct reach *r);
void reach_resize(struct reach *r, size_t size);

/* This machine and namespace. */
void reach_place(uint64_t *machine, uint64_t *space);
/* Fills an offer. 0 or -errno. */
int reach_offer(const struct reach *r, int pool, struct umoffer *offer);

void reach_wait(const struct reach *r, const struct seg *s);

/* Waits until no visitor is in the segment, which the caller has locked. */
static inline void reach_await(const struct reach *r, const struct seg *s)
{
	if (__builtin_expect(r->head != NULL, 0))
		reach_wait(r, s);
}

#endif
