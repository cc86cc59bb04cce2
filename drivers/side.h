/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file that a filter keeps beside a store: a log, a near file, or changes. Any thread may make
 * all calls but side_open, side_close, side_map and side_remove, also in a signal handler.
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

/* Bytes of an unused device that are zeros at its beginning. Other formats have headers there. */
#define SIDE_BLANK ((uint64_t)1 << 20)

struct side {
	void *h;       /* handle of side_driver; NULL: not open */
	struct file *file; /* the same handle; NULL: the driver is that of a test */
	char *path;    /* path for messages: the process may have changed its folder since */
	int folder;    /* descriptor of the folder of the file; negative: none */
	bool made;     /* whether side_open has made the file */
	bool device;   /* whether it is a block device, which cannot be made longer or removed */
	uint64_t id[2];/* identity of the file, as in struct ummap_geom */
	char *memory;  /* mapping of the file on persistent memory; NULL: none */
	size_t mapped; /* bytes of the mapping */
	void *pmem;    /* handle of the driver pmem */
};

/* Bit for side_open beside those of UMMAP_O_*: large reads of bytes that the page cache lacks go to
 * the storage directly. */
#define SIDE_READS_DIRECT (1 << 20)

/*
 * Opens a file by its path, and locks it (UMMAP_LOCK_*) until it is closed. UMMAP_O_CREATE makes a
 * missing file, with these permissions and a durable name. All errors have a sentence in geom->why.
 * -EBUSY: the file is in use. -EINVAL: it is the store, whose id is in geom.
 */
int side_open(struct side *s, const char *path, int oflags, mode_t mode, int how,
	      struct ummap_geom *geom);
int side_close(struct side *s);
/* As hand_over of ummap-driver.h: another handle of the same thread may lock the file, too. Does
 * nothing if the file is not open. */
void side_hand_over(struct side *s, struct ummap_handover *to);
/* Whether a path leads to the file. */
bool side_is(const struct side *s, const char *path);
/* Maps a file on persistent memory. Reads and writes are copies then, and writes are durable at
 * once. The file must keep its length. Other files do not change. */
int side_map(struct side *s);
/* -EINVAL with a sentence if it is a device, which does not end where its contents end. */
int side_must_be_file(const struct side *s, struct ummap_geom *geom);
/* Removes the file durably, or overwrites the header of a device. -EPERM: the device has no header,
 * and stays as it is. -ENOENT: the file has lost its name, which another file may have now. */
int side_remove(struct side *s);
int side_read(struct side *s, void *buf, size_t len, uint64_t off);
int side_readv(struct side *s, const struct iovec *iov, int n, uint64_t off);
int side_write(struct side *s, const void *buf, size_t len, uint64_t off);
int side_writev(struct side *s, const struct iovec *iov, int n, uint64_t off);
int side_flush(struct side *s);
/* Starts to write these bytes to storage, so that a later flush is shorter. */
void side_start(struct side *s, uint64_t off, uint64_t len);
int side_resize(struct side *s, uint64_t size);
int side_size(struct side *s, uint64_t *size);
/* Reads blocks from `first` on until one has no place in the file: at most `most`. Returns how
 * many. */
uint64_t side_collect(struct side *s, struct blockmap *places, uint64_t first, uint64_t most,
		      size_t block, char *buf, int *err);
/* Sets the length, and reserves the space if the file system can, so that no later write fails for
 * lack of space. */
int side_reserve(struct side *s, uint64_t size);
/* An empty header for such a file (common/header.h). */
extern const struct header_calls side_header_calls;
static inline struct header side_header(uint64_t magic)
{
	return (struct header){ .calls = &side_header_calls, .magic = magic };
}

#endif
