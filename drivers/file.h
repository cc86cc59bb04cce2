/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An open file or device, on which the drivers posix, uring and pmem and the files beside stores
 * (side.h) are built. The functions that take a void * are calls of ummap-driver.h on a handle
 * which is a struct file. Only opening, closing, locking and handing over take locks or allocate.
 */
#ifndef DRIVERS_FILE_H
#define DRIVERS_FILE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <ummap-driver.h>

enum when { AUTO, ALWAYS, NEVER };

struct file {
	int fd;                /* descriptor through the page cache */
	int direct_fd;         /* descriptor with O_DIRECT; negative: the file supports none */
	enum when direct;      /* value of the key `direct` */
	bool caches_writes;    /* whether all writes go to the page cache */
	bool maps_pagecache;   /* whether the user wants page-cache mappings */
	size_t readahead;      /* maximum readahead of the kernel in bytes */
	size_t page;           /* page size of the page cache */
	size_t grain;          /* unit of direct transfers: at least a page */
	size_t mem_align;      /* alignment of memory for direct transfers */
	bool shared;           /* the caller shares the description: its offset must not move */
	bool given;            /* the key `fd` gave the description: the caller locks the file */
	bool block;            /* whether it is a block device */
	uint64_t device_size;  /* size of a block device when it was opened; otherwise 0 */
	atomic_bool refused;   /* a direct transfer failed with EINVAL in spite of O_DIRECT */
	atomic_bool blind;     /* the kernel lacks the call that counts pages in the page cache */
	int slot;              /* uring: number among the registered files; negative: none */
	int depth;             /* uring: maximum requests of one thread in flight */
	struct lock_group *locks; /* locks of this handle and of its partners in a hand-over */
};

/* Converts the result of a system call: returns the result, or -errno if it is negative. */
static inline long answer(long res)
{
	return res < 0 ? -errno : res;
}

/* Moves a descriptor away from the numbers that a program may choose itself, as by dup2(2). Returns
 * the new number; fd if that is negative. */
int file_away(int fd);

/* Closes a descriptor; later, if the program's own locks on the file would end by it. */
int file_close_fd(int fd);

/* Returns the error of a call that writes, and removes the SIGXFSZ that may have come with it. */
int file_failed(int err);

/* Called before a path is opened, and may refuse it: returns 0 or a negative errno value. */
typedef int file_check(const char *path, struct ummap_geom *geom);

/* Open a file, or a device of the kind S_IFBLK or S_IFCHR, by its path or by a descriptor. Both
 * interpret the keys `direct`, `cached` and `fd`, and no other key. check may be NULL. */
int file_open(const struct ummap_uri *uri, int oflags, mode_t device, file_check *check,
	      struct file **f, struct ummap_geom *geom);
int file_open_fd(const struct ummap_uri *uri, int fd, int oflags, mode_t device, struct file **f,
		 struct ummap_geom *geom);
int file_close(void *h);
/* The descriptor through the page cache, which the handle keeps. */
static inline int file_descriptor(void *h)
{
	const struct file *f = h;

	return f->fd;
}
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

/* The rows of these calls in a driver's table, without open and close. */
#define FILE_CALLS                                                                                 \
	.read = file_read, .write = file_write, .flush = file_flush, .resize = file_resize,        \
	.readv = file_readv, .writev = file_writev, .size = file_size,                             \
	.map_pagecache = file_map_pagecache, .data = file_data, .lock = file_lock,                 \
	.hand_over = file_hand_over

/* Whether this process has traditional locks of fcntl(2) on the file, which end when it closes any
 * descriptor of the file. */
bool file_is_locked_here(int fd);
/* Locks a range of an open file, or unlocks it, for its open file description. */
int file_lock_fd(int fd, uint64_t off, uint64_t len, int how, char why[160]);

/* A lock group: handles of one file that do not conflict with each other (file_lock.c). */
struct lock_group;
/* The group that this thread offers for the file behind fd, or a new one; NULL: no memory. */
struct lock_group *lock_group_join(int fd, bool writable);
/* Drops the locks of `owner`. true: the group keeps fd, which the caller must not close. */
bool lock_group_leave(struct lock_group *g, const void *owner, int fd);
/* Handles of the same file that this thread opens from now on join the group. `how` is the step of
 * the handover; UMMAP_HANDOVER_CANCEL ends the offer. */
void lock_group_offer(struct lock_group *g, const void *owner, int how);
/* The step of the handover in which this thread offers a group for the file; 0: it does not. */
struct stat;
int lock_group_find_offer(const struct stat *st);
int lock_group_lock(struct lock_group *g, const void *owner, uint64_t off, uint64_t len, int how,
		    char why[160]);

enum file_way {
	FILE_DIRECT,           /* one direct transfer of the whole range */
	FILE_CACHED,           /* a copy from the page cache, which contains all bytes */
	FILE_CUT               /* file_read or file_write, perhaps in several pieces */
};

/* Selects how to make a transfer. */
enum file_way file_way(struct file *f, const void *buf, size_t len, uint64_t off, bool write);
/* Reads through the page cache. */
int file_read_cached(struct file *f, void *buf, size_t len, uint64_t off);

#endif
