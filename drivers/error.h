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
	struct behind next;
	unsigned ops;              /* OP_*: what to count */
	uint64_t nth;              /* the first call to fail */
	uint64_t times;            /* how many fail; UINT64_MAX: all from there on */
	int err;                   /* with what, positive */
	bool halfway;              /* move short_len bytes before failing */
	uint64_t short_len;
	uint64_t delay;            /* microseconds before every counted call */
	int count_fd;              /* -1: none */
	_Atomic uint64_t seen, fired;
	struct held held[HELD_MAX];
};

/* Counts this call; is it to fail? */
bool error_fires(struct error *f, unsigned op);
/* One piece after another, no more than `limit` bytes in all. */
int error_move(struct error *f, unsigned op, const struct iovec *iov, int n, uint64_t off,
	       uint64_t limit);

int error_submit(void *h, struct ummap_io **io, unsigned n);
int error_reap(void *h, struct ummap_io **done, unsigned max, unsigned min);

#endif
