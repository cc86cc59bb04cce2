/* SPDX-License-Identifier: BSD-3-Clause */
/* The handle of the filter error. error_async.c has its calls on asynchronous drivers. */
#ifndef DRIVERS_ERROR_H
#define DRIVERS_ERROR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <ummap-driver.h>

#include "held.h"

enum { OP_READ = 1, OP_WRITE = 2, OP_FLUSH = 4, OP_ANY = OP_READ | OP_WRITE | OP_FLUSH };

struct error {
	struct behind next;        /* next driver; the first field */
	unsigned ops;              /* OP_*: kinds of calls that are counted */
	uint64_t nth;              /* number of the first call that fails */
	uint64_t times;            /* number of calls that fail; UINT64_MAX: all */
	int err;                   /* errno of these calls */
	bool halfway;              /* whether they first move short_len bytes */
	uint64_t short_len;        /* bytes that a failing transfer moves */
	uint64_t delay;            /* microseconds before every counted call */
	int count_fd;              /* descriptor of the file with the counts; -1: none */
	_Atomic uint64_t seen;     /* number of calls counted */
	_Atomic uint64_t fired;    /* number of calls that failed */
	struct held held[HELD_MAX]; /* requests that have ended and were not reaped */
};

/* Counts a call. Returns whether the call must fail. */
bool error_fires(struct error *f, unsigned op);
/* Transfers one piece after another, at most `limit` bytes in all. */
int error_move(struct error *f, unsigned op, const struct iovec *iov, int n, uint64_t off,
	       uint64_t limit);

int error_submit(void *h, struct ummap_io **io, unsigned n);
int error_reap(void *h, struct ummap_io **done, unsigned max, unsigned min);

#endif
