/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ways of going over a file segment by segment that bench/passes compares:
 *
 *   ummap    the library, its budget set by UMMAP_MEM_LIMIT and full of another mapping's segments, so that
 *            each segment has to make room, in memory that was touched before as the floor's was
 *   fresh    the same with an empty budget: the system clears memory while the clock is running
 *   listed   fresh, which is told of 5000 segments to come by one umprefetch(3), and of as many again when it begins with these
 *   floor    pread and pwrite with O_DIRECT between the file and huge pages, one request at a time
 *   deepN    the same with N requests in flight, by io_uring, ahead of the turns (deep.h)
 *   mmap     the kernel's mmap, in a memory cgroup of the same budget
 *   inplace  how the reference implementation does it: on SIGSEGV mprotect, pread into place, MADV_DONTNEED
 */
#ifndef BENCH_METHODS_H
#define BENCH_METHODS_H

#include <pthread.h>
#include <signal.h>

#include "kit/deep.h"
#include "ummap.h"

/* One pass, as the command line asked for it. */
struct pass {
	const struct method *method;
	const char *path;
	const char *driver; /* scheme and keys of a URI for ummap; NULL: by descriptor */
	const char *engine; /* of ummap, as in UMMAP_ENGINE */
	size_t size, seg, budget;
	unsigned threads, rep;
	int ptype;          /* of ummap, UMMAP_PTYPE_* */
	bool random, write;
	bool zipf;          /* random, few segments often */
	bool modify;        /* read and written */
	size_t step;        /* every so manyth segment has its turn */
	unsigned cap_s;     /* mmap at random stops after this many seconds */
	uint64_t salt;      /* of what a write pass writes */
	int fd;             /* buffered */
	int direct;         /* O_DIRECT */
	char *view;         /* of the methods that map */
};

/* One thread's share of it. */
struct worker {
	struct pass *pass;
	pthread_t thread;
	uint32_t *order;    /* segments in the order of their turns */
	size_t segments;
	size_t done;        /* of them, touched */
	uint64_t deadline;  /* 0: none */
	char *buffers;      /* floor: a few segments of memory */
	struct deep *deep;  /* deep: the ring */
	size_t *ring;       /* inplace: offsets of what is resident, oldest at `oldest` */
	size_t ring_size, oldest, resident;
};

struct method {
	const char *name;
	void (*begin)(struct pass *);                 /* before the clock starts; may be NULL */
	void (*begin_worker)(struct worker *);        /* the same, for each thread; may be NULL */
	char *(*enter)(struct worker *, size_t off);  /* where the segment is to be read or filled */
	void (*leave)(struct worker *, size_t off, const char *at); /* it has been; may be NULL */
	void (*finish_worker)(struct worker *);       /* write: the clock is running; may be NULL */
	void (*finish)(struct pass *);                /* write: makes it durable, the clock is running */
	unsigned depth;                               /* of the deep floor */
	bool counts;                                  /* umstat says what was loaded */
	bool kernel;                                  /* the kernel's paging: it runs in a memory cgroup of the budget */
};

/* Whether the file's contents are wanted. */
bool reads(const struct pass *p);

enum { METHODS = 13 };
extern const struct method methods[METHODS];

#endif
