/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The head of a node's cache of a file: a small file beside it, which says of which file it is, as that was when the cache was
 * last known to agree with it; which bytes of it are this node's; and how far it reaches. Knows nothing of MPI, for ummap-cache
 * reads it, too.
 */
#ifndef FILE_HEAD_H
#define FILE_HEAD_H

#include "common/header.h"
#include "iocache/spread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum head_state {
	HEAD_CLEAN = 1,          /* the file has all that is in the cache */
	HEAD_OPEN,               /* a job has it; or it has ended without a word */
	HEAD_KEPT,               /* closed, and not written back */
	HEAD_ALONE               /* written back by itself: the caches that belong to it may not be */
};

/* The file as it was seen. */
struct head_facts {
	uint64_t ino;
	uint64_t size;
	int64_t seconds, nanoseconds; /* of its last change */
};

#define HEAD_PATH 2048

struct head {
	uint64_t job;            /* the same in all caches that belong together */
	uint64_t end;            /* the file reaches so far, as far as what is in this cache goes */
	struct head_facts facts;
	struct spread spread;
	uint32_t node;
	uint32_t state;          /* enum head_state */
	uint32_t wrote;          /* the file may have been written since the facts were noted */
	uint32_t unused;
	char path[HEAD_PATH];    /* of the file */
};

/* One that is open, and locked against other processes: one for all who open it in this process. */
struct head_file {
	struct head_file *next;
	char *path;
	int fd;
	struct header header;    /* state of the two slots on disk */
	unsigned users;
	pthread_mutex_t lock;    /* around what follows */
	struct head head;
	const _Atomic int64_t *end; /* where the file reaches at the moment, in the place of head.end; NULL: head.end */
	unsigned writing;        /* writes to the file that are under way, each with the end that it has read */
	pthread_cond_t idle;     /* signaled when there are none any more */
	int failed;              /* an errno with which writing back has failed since this was last 0 */
};

/* Whether the file has all that is in it, whatever the others have. */
static inline bool head_lacks_nothing(const struct head *head)
{
	return head->state == HEAD_CLEAN || head->state == HEAD_ALONE;
}

/* Whether the file may have been written since the facts were noted: by way of the caches, or past them, where it is so long. */
static inline bool head_wrote(const struct head *head, uint64_t size)
{
	return head->wrote || (head->state == HEAD_OPEN && size > head->spread.room * head->spread.nodes);
}

/* Reads one without opening it for long. 0, -ENOENT, -EUCLEAN where it is damaged, or another negative errno. */
int head_read(const char *path, struct head *head);
/* With `made`, the file is made, or taken, and gets that. -EBUSY: another process has it. */
int head_open(const char *path, const struct head *made, struct head_file **file);
void head_close(struct head_file *file);
/* Writes the head as it is, durably. Under the lock. */
int head_write(struct head_file *file);

#endif
