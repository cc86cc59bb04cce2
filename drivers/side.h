/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file that a filter keeps beside a store: a log, a cache, changes. All of its calls but opening, locking and removing
 * are those of a fault-safe, parallel driver.
 */
#ifndef DRIVERS_SIDE_H
#define DRIVERS_SIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <ummap-driver.h>

#include "blockmap.h"
#include "common/header.h"

/* The calls on these files. Tests replace them by a driver that can lose power. */
extern const struct ummap_driver *side_driver;

/* So much of a device has zeros before it is used, and when it was: what others put on one begins there. */
#define SIDE_BLANK ((uint64_t)1 << 20)

struct side {
	void *h;       /* handle of side_driver; NULL: not open */
	struct file *file; /* the same handle; NULL: it is one of a test's driver */
	char *path;    /* as it was given, but not by way of a descriptor: for sentences only, the process may be in another folder now */
	int folder;    /* where it is; negative: nowhere */
	bool made;     /* it was not there before */
	bool device;   /* a block device, which cannot be made longer or removed */
	uint64_t id[2];/* as ummap_geom's */
	char *memory;  /* all of it, on persistent memory; NULL: by the driver */
	size_t mapped; /* bytes there */
	void *pmem;    /* the driver pmem's handle of it */
};

/* Opens a file by its path, and locks it until it is closed: nobody else may have it (UMMAP_LOCK_EXCLUSIVE), or all only to
 * read it (UMMAP_LOCK_SHARED). With UMMAP_O_CREATE it is made, with at most these rights, and its name is durable. -EBUSY:
 * another has it, and who is in the sentence in geom->why, which all errors have. -EINVAL: it is the store, whose id geom has. */
int side_open(struct side *s, const char *path, int oflags, mode_t mode, int how, struct ummap_geom *geom);
int side_close(struct side *s);
/* As ummap-driver.h says of hand_over: another handle of the same thread may lock the file, too.
 * Nothing if it is not open. */
void side_hand_over(struct side *s, struct ummap_handover *to);
/* Whether a path leads to it. */
bool side_is(const struct side *s, const char *path);
/* Where the file is on persistent memory, the driver pmem puts it in place: what is read and written is copied there, and is
 * durable at once. From now on its length stays, and its room is not given back. Elsewhere nothing changes. */
int side_map(struct side *s);
/* For what has to end where its contents end: -EINVAL with a sentence if it is a device. */
int side_must_be_file(const struct side *s, struct ummap_geom *geom);
/* Takes its name away, durably, or its head if it is a device (-EPERM: it has none, and is not touched). -ENOENT: it has not this name
 * any more, and another file that may have is none of ours. */
int side_remove(struct side *s);
int side_read(struct side *s, void *buf, size_t len, uint64_t off);
int side_readv(struct side *s, const struct iovec *iov, int n, uint64_t off);
int side_write(struct side *s, const void *buf, size_t len, uint64_t off);
int side_writev(struct side *s, const struct iovec *iov, int n, uint64_t off);
int side_flush(struct side *s);
/* Has the system begin to write these bytes, where it can: a flush later on has less to wait for. */
void side_start(struct side *s, uint64_t off, uint64_t len);
int side_resize(struct side *s, uint64_t size);
int side_size(struct side *s, uint64_t *size);
/* Reads the blocks from `first` on that stand in the file, by a map of their places, as far as there are neighbours and at most
 * `most`; returns how many. */
uint64_t side_collect(struct side *s, struct blockmap *places, uint64_t first, uint64_t most, size_t block, char *buf, int *err);
/* Makes it so long, and takes the room for it where the file system can, so that no write fails for want of it later. */
int side_reserve(struct side *s, uint64_t size);
/* Gives back the room of these bytes, which read as zeros then, where the file system can; else nothing. */
void side_punch(struct side *s, uint64_t off, uint64_t len);

/* An empty header for such a file (common/header.h). */
extern const struct header_calls side_header_calls;
static inline struct header side_header(uint64_t magic)
{
	return (struct header){ .calls = &side_header_calls, .magic = magic };
}

#endif
