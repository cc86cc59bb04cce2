/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The methods of going over a file segment by segment that bench/passes compares:
 *
 * ummap    the library. The budget (UMMAP_MEM_LIMIT) is full of another mapping's segments, so that
 *          each segment evicts another one, in memory that was used before, as with the floor
 * fresh    the library with an empty budget, so that the kernel zeroes memory during the pass
 * auto     fresh with UMMAP_SEG_AUTO and without advice
 * listed   fresh with umprefetch(3): lists of 5000 segments, each one list ahead
 * floor    pread and pwrite with O_DIRECT between file and huge pages, one request at a time
 * deepN    the same with N requests in flight, by io_uring, ahead of the turns (deep.h)
 * mmap     the kernel's mmap, in a memory cgroup with the budget as its limit
 * inplace  the method of the reference implementation: SIGSEGV, mprotect, pread in place,
 *          MADV_DONTNEED
 */
#ifndef BENCH_METHODS_H
#define BENCH_METHODS_H

#include <pthread.h>
#include <signal.h>

#include "kit/deep.h"
#include "ummap.h"

/* Options of one pass. */
struct pass {
	const struct method *method;
	const char *path;
	const char *driver; /* scheme and keys of a URI for ummap; NULL: a descriptor is mapped */
	const char *engine; /* engine of ummap, as in UMMAP_ENGINE */
	size_t size, seg, budget;
	unsigned threads, rep;
	int ptype;          /* policy of ummap, UMMAP_PTYPE_* */
	bool random, write;
	bool zipf;          /* random accesses with a skewed distribution */
	bool modify;        /* segments are read and written */
	size_t step;        /* distance of accessed segments */
	unsigned cap_s;     /* seconds after which mmap at random stops */
	uint64_t salt;      /* salt of written data */
	int fd;             /* descriptor with the page cache */
	int direct;         /* descriptor with O_DIRECT */
	char *view;         /* address, for methods that map */
};

/* A thread of a pass. */
struct worker {
	struct pass *pass;
	pthread_t thread;
	uint32_t *order;    /* segments in the order of their turns */
	size_t segments;
	size_t done;        /* number of segments that were accessed */
	uint64_t deadline;  /* time at which the thread stops; 0: none */
	char *buffers;      /* floor: a few segments of memory */
	struct deep *deep;  /* deep: the ring */
	size_t *ring;       /* inplace: offsets of resident segments, oldest at `oldest` */
	size_t ring_size, oldest, resident;
};

struct method {
	const char *name;
	void (*begin)(struct pass *);                 /* called before the time is taken, or NULL */
	void (*begin_worker)(struct worker *); /* called before that by each thread, or NULL */
	char *(*enter)(struct worker *, size_t off);  /* returns the address of a segment */
	void (*leave)(struct worker *, size_t off, const char *at); /* ends its use, or NULL */
	void (*finish_worker)(struct worker *);       /* writes the rest of a thread, or NULL */
	void (*finish)(struct pass *);                /* makes written data durable */
	unsigned depth;                               /* requests in flight of the deep floor */
	bool counts;                                  /* umstat counts the loads */
	bool kernel;                                  /* runs in a memory cgroup of the budget */
};

/* Whether the pass reads the file's contents. */
bool reads(const struct pass *p);

enum { METHODS = 14 };
extern const struct method methods[METHODS];

#endif
