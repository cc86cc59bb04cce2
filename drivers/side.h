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

/* What opens them: the driver posix. Tests put one there that can lose power. */
extern const struct ummap_driver *side_driver;

/* So much of a device has zeros before it is used, and when it was: what others put on one begins there. */
#define SIDE_BLANK ((uint64_t)1 << 20)

struct side {
	void *h;       /* NULL: not open */
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

/* XXH3 of 64 bits. */
uint64_t side_sum(const void *bytes, size_t len, uint64_t seed);

/*
 * The head of such a file: two slots of a page, written in turn, so that one of them is whole whatever becomes of a write.
 * The newer whole one counts. A slot is only written when the other one is durable.
 */
#define SIDE_SLOT ((size_t)4096)
#define SIDE_HEAD (2 * SIDE_SLOT)
#define SIDE_BODY_MAX (SIDE_SLOT - 32)

struct side_head {
	uint64_t magic;    /* what kind of file it is, and in which form; the caller's */
	uint64_t number;   /* of the newer slot; 0: there is none yet */
	unsigned damaged;  /* slots that are not whole, as they were read: bits 1 and 2 */
	bool flying;       /* the newer slot may not be durable */
};

/* -ENODATA: neither slot is whole; 1: for a file of so many bytes that is because making it was cut off. */
int side_head_read(struct side *s, struct side_head *head, uint64_t length, void *body, size_t len);
/* It is durable after the next flush. */
int side_head_write(struct side *s, struct side_head *head, const void *body, size_t len);
/* Writes both slots; it is durable. */
int side_head_settle(struct side *s, struct side_head *head, const void *body, size_t len);
/*
 * What was found is durable, and is going to be written over: a slot that is there in part is made whole before, because a part
 * of a later head may be all that it lacks to be a newer one, which nobody goes by. It is durable.
 */
int side_head_mend(struct side *s, struct side_head *head, const void *body, size_t len);
/* For the caller, who has flushed the file. */
static inline void side_head_flushed(struct side_head *head)
{
	head->flying = false;
}
/* The newer slot is to be written once more instead of the other one, which is durable: because what it says was not flushed
 * yet, or because a flush has failed and may have lost it. */
static inline void side_head_again(struct side_head *head)
{
	head->number -= head->flying;
	head->flying = false;
}

#endif
