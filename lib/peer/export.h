/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory of a mapping that other processes of the machine see, and the wait for their accesses.
 * A process that accesses a segment takes no lock: it writes the segment's number into one of its
 * slots, and then checks whether it may access the segment. Before the holder of a segment's lock
 * clears VALID or DIRTY, it waits until no slot has the segment. Later accesses see the lock.
 */
#ifndef EXPORT_H
#define EXPORT_H

#include "cache/header.h"

#include <ummap.h>

#define EXPORT_MAGIC 0x6863616572ull /* "reach" */
#define EXPORT_VERSION 2
#define EXPORT_MAX_IMPORTS 1023
#define EXPORT_LINE_SLOTS 8          /* one cache line */

/*
 * Beginning of a mapping's memory object, which consists of this structure, the lines and the
 * headers of segments. Each part begins at a page. Other processes may write to the lines only. The
 * importer that has line k holds a lock on byte k of the object (F_OFD_SETLK), which the kernel
 * releases when the process dies.
 */
struct export_header {
	uint64_t magic;          /* EXPORT_MAGIC */
	uint32_t version;        /* EXPORT_VERSION */
	uint32_t page;           /* size of a page in bytes */
	uint64_t seg_size;       /* size of a segment in bytes */
	uint64_t count;          /* number of headers of segments */
	_Atomic uint64_t size;   /* current size of the mapping in bytes */
};

/* Slots of one importer. */
struct export_line {
	_Atomic uint64_t slot[EXPORT_LINE_SLOTS]; /* 1 + the segment that a thread accesses, or 0 */
} __attribute__((aligned(64)));

struct export_lines {
	_Atomic uint32_t used;   /* number of lines that have ever been used, from the first on */
	struct export_line line[EXPORT_MAX_IMPORTS];
};

static inline size_t export_lines_at(void)
{
	return round_up(sizeof(struct export_header), sys_page());
}

static inline size_t export_segs_at(void)
{
	return export_lines_at() + round_up(sizeof(struct export_lines), sys_page());
}

/* The contents of a struct umexport. */
struct export_description {
	uint32_t magic;          /* lower half of EXPORT_MAGIC */
	int32_t pid;             /* the owner */
	int32_t control, pool;   /* the owner's descriptors of the memory objects of the mapping and
				    of the frames */
	uint64_t machine;        /* identifies the machine since it was started */
	uint64_t pid_namespace;  /* identifies the namespace in which the numbers are valid */
	uint64_t device;         /* device of both objects */
	uint64_t control_file;   /* inode of `control` */
	uint64_t pool_file;      /* inode of `pool` */
	uint64_t unused;         /* 0 */
};

_Static_assert(sizeof(struct export_description) == sizeof(struct umexport), "public size");

/* The export of a mapping in the process that owns it; all zeros for other mappings. */
struct export {
	struct export_header *header; /* NULL: the mapping is not exported */
	struct export_lines *lines;   /* slots of the importers */
	struct seg *segs;             /* headers of the segments */
	size_t count;                 /* number of these headers */
	int fd;                       /* descriptor of the memory object */
};

/* Creates the headers of a mapping, all zeros, in memory that other processes can map. 0, or -errno
 * with a message. */
int export_open(struct export *e, size_t size, size_t seg_size, size_t count);
void export_close(struct export *e);
/* In a forked child, which does not have the memory: closes the descriptor. */
void export_forget(struct export *e);
void export_resize(struct export *e, size_t size);

/* Describes the export to other processes. pool: descriptor of the frames. 0 or -errno. */
int export_describe(const struct export *e, int pool, struct umexport *exported);

void export_wait_for_slots(const struct export *e, const struct seg *s);

/* Waits until no other process accesses the segment, which the caller has locked. */
static inline void export_wait(const struct export *e, const struct seg *s)
{
	if (__builtin_expect(e->header != NULL, 0))
		export_wait_for_slots(e, s);
}

#endif
