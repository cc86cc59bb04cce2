/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An open file or block device: what the drivers posix and uring and the files beside stores (side.h)
 * are built on. The functions that take a void * are calls of ummap-driver.h on a handle which is a
 * struct file. Only opening, closing, locking and handing over take locks or allocate.
 */
#ifndef DRIVERS_FILE_H
#define DRIVERS_FILE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <ummap-driver.h>

enum when { AUTO, ALWAYS, NEVER };

struct file {
	int fd;                /* through the page cache */
	int direct_fd;         /* the same file with O_DIRECT; negative: it takes none */
	enum when direct;      /* what the user asked for */
	bool maps_pagecache;   /* page-cache mappings are wanted */
	size_t readahead;      /* bytes that the kernel reads ahead at most */
	size_t page;           /* of the page cache */
	size_t grain;          /* a direct transfer is of whole grains: pages, or more ... */
	size_t mem_align;      /* ... and its memory is aligned to this */
	bool shared;           /* the description is the caller's, too: its offset must not move */
	bool given;            /* the description was given by the key `fd`: the caller locks the file */
	bool block;            /* a block device ... */
	uint64_t had;          /* ... of so many bytes when it was opened; a file: 0 */
	atomic_bool refused;   /* a direct transfer was refused: this file does not mean its O_DIRECT */
	atomic_bool blind;     /* there is no asking what the page cache holds */
	int slot;              /* uring: where the rings have it registered; negative: nowhere */
	int depth;             /* uring: requests of one thread at a time */
	struct lock_group *locks; /* locks of this handle and of its partners in a hand-over */
};

/* What a system call gave, as the calls of drivers say it. */
static inline long answer(long res)
{
	return res < 0 ? -errno : res;
}

/* The descriptor, out of the way of those that a program chooses itself, by dup2(2) say; an error stays one. */
int file_away(int fd);

/* Closes a descriptor, unless that would end the program's own locks on the file: then it is closed
 * later. */
int file_close_fd(int fd);

/* Hands on the error of a call that writes, without the signal that may have come with it. */
int file_failed(int err);

/* Called before a path is opened, and may refuse it: returns 0 or a negative errno value. */
typedef int file_check(const char *path, struct ummap_geom *geom);

/* Both interpret the keys `direct`, `cached` and `fd`, and no other key. check NULL: none. */
int file_open(const struct ummap_uri *uri, int oflags, file_check *check, struct file **f,
	      struct ummap_geom *geom);
int file_open_fd(const struct ummap_uri *uri, int fd, int oflags, struct file **f,
		 struct ummap_geom *geom);
int file_close(void *h);
int file_read(void *h, void *buf, size_t len, uint64_t off);
int file_write(void *h, const void *buf, size_t len, uint64_t off);
int file_readv(void *h, const struct iovec *iov, int n, uint64_t off);
int file_writev(void *h, const struct iovec *iov, int n, uint64_t off);
int file_flush(void *h, uint64_t off, uint64_t len);
int file_resize(void *h, uint64_t size);
int file_size(void *h, uint64_t *size);
int file_map_pagecache(void *h, void *addr, size_t len, uint64_t off);
int file_data(void *h, uint64_t off, uint64_t *begin, uint64_t *end);
int file_lock(void *h, uint64_t off, uint64_t len, int how, char why[160]);
int file_hand_over(void *h, struct ummap_handover *to);

/* These calls in a driver's table, without those that open and close. */
#define FILE_CALLS                                                                                 \
	.read = file_read, .write = file_write, .flush = file_flush, .resize = file_resize,        \
	.readv = file_readv, .writev = file_writev, .size = file_size,                             \
	.map_pagecache = file_map_pagecache, .data = file_data, .lock = file_lock,                 \
	.hand_over = file_hand_over

/* Whether this process has locks of the other kind on the file (fcntl(2)'s traditional ones), which go as soon as it closes any
 * descriptor of it. */
bool file_is_locked_here(int fd);
/* Locks a range of an open file, or unlocks it, for its open file description. */
int file_lock_fd(int fd, uint64_t off, uint64_t len, int how, char why[160]);

/* A lock group: handles of one file that do not conflict with each other (file_lock.c). */
struct lock_group;
/* The group that this thread offers for the file behind fd, or a new one; NULL: no memory. */
struct lock_group *lock_group_join(int fd, bool writable);
/* Drops the locks of `owner`. true: the group keeps fd, which the caller must not close. */
bool lock_group_leave(struct lock_group *g, const void *owner, int fd);
/* Handles of the same file that this thread opens from now on join the group of `owner`; false: no
 * longer. */
void lock_group_offer(struct lock_group *g, const void *owner, bool offered);
/* Whether this thread offers a group for the file. */
struct stat;
bool lock_group_is_offered(const struct stat *st);
int lock_group_lock(struct lock_group *g, const void *owner, uint64_t off, uint64_t len, int how,
		    char why[160]);

enum file_way {
	FILE_DIRECT,           /* the whole of it past the page cache */
	FILE_CACHED,           /* out of the page cache, which has it */
	FILE_CUT               /* perhaps in pieces: by file_read or file_write */
};

/* How a transfer would go. */
enum file_way file_way(struct file *f, const void *buf, size_t len, uint64_t off, bool write);
/* Reads through the page cache. */
int file_read_cached(struct file *f, void *buf, size_t len, uint64_t off);

#endif
