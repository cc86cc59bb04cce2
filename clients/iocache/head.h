/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The header of a part: a small file beside the near file. It has the path of the cached file, the
 * facts of the file when the part last agreed with it, the layout of the parts, and the end of the
 * file. The code makes no MPI calls, because ummap-iocache(1) uses it, too.
 */
#ifndef IOCACHE_HEAD_H
#define IOCACHE_HEAD_H

#include "common/header.h"
#include "iocache/spread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum head_state {
	HEAD_CLEAN = 1,          /* the file has all data of the part */
	HEAD_OPEN,               /* a job uses the part, or has died */
	HEAD_KEPT,               /* the part was closed, and not written back */
	HEAD_ALONE               /* the part was written back alone; other parts may be dirty */
};

/* The state of the file when it was last examined. */
struct head_facts {
	uint64_t ino;
	uint64_t size;
	int64_t seconds, nanoseconds; /* time of its last change */
};

#define HEAD_PATH 2048

struct head {
	uint64_t job;            /* random number, equal in all parts that belong together */
	uint64_t end;            /* end of the file, as far as this part's data is concerned */
	struct head_facts facts;
	struct spread spread;
	uint32_t node;
	uint32_t state;          /* enum head_state */
	uint32_t wrote;          /* 1: the file may have been written since the facts were noted */
	uint32_t unused;
	char path[HEAD_PATH];    /* absolute path of the file */
};

/* An open header, which is locked against other handles of this and other processes. */
struct head_file {
	char *path;              /* path of the header */
	int fd;                  /* descriptor, which has the lock */
	struct header header;    /* state of the two slots on disk */
	pthread_mutex_t lock;    /* lock around the following fields */
	struct head head;
	const _Atomic int64_t *end; /* present end of the file, while a job uses the part; NULL:
				       head.end */
	unsigned writing;        /* number of writes in progress, which have read *end */
	pthread_cond_t idle;     /* condition: `writing` is 0 */
	int failed;              /* errno value of the last failed write to the file; 0: none */
};

/* Whether the file has all data of this part. */
static inline bool head_lacks_nothing(const struct head *head)
{
	return head->state == HEAD_CLEAN || head->state == HEAD_ALONE;
}

/* Whether the file may have been written since the facts were noted: from a cache or, if it is
 * longer than all parts, past the caches. */
static inline bool head_wrote(const struct head *head, uint64_t size)
{
	return head->wrote ||
	       (head->state == HEAD_OPEN && size > head->spread.room * head->spread.nodes);
}

/* Reads a header without a lock. Returns 0, -ENOENT, -EUCLEAN if it is damaged, or another negative
 * errno value. */
int head_read(const char *path, struct head *head);
/* Opens and locks a header. made: contents of a new one, which replace those of an existing file;
 * NULL: it exists. -EBUSY: it is open already, in this process or another one. */
int head_open(const char *path, const struct head *made, struct head_file **file);
void head_close(struct head_file *file);
/* Writes file->head durably. The caller holds the lock. */
int head_write(struct head_file *file);

#endif
