/* SPDX-License-Identifier: BSD-3-Clause */
/* For test suites in which requests to the file beside a store, on the disk of power.h, fail. */
#ifndef TESTS_FAULTS_H
#define TESTS_FAULTS_H

#include "cuts.h"

enum { READS = 1, WRITES = 2, FLUSHES = 4 };

static struct {
	_Atomic unsigned ops;      /* kinds of requests that are counted */
	_Atomic uint64_t nth;      /* number of the first request that fails, from 1 on */
	_Atomic uint64_t times;    /* number of requests that fail */
	_Atomic uint64_t from, to; /* reads and writes count only if they touch these bytes */
	_Atomic uint64_t seen, fired;
} fault;

static inline void fail_side(unsigned ops, uint64_t nth, uint64_t times)
{
	fault.ops = 0;
	fault.seen = fault.fired = 0;
	fault.nth = nth;
	fault.times = times;
	fault.from = 0;
	fault.to = UINT64_MAX;
	fault.ops = ops;
}

static inline int fires(unsigned op, uint64_t off, uint64_t len)
{
	uint64_t number;

	if (!(fault.ops & op) || off >= fault.to || off + len <= fault.from)
		return 0;
	number = ++fault.seen;
	if (number < fault.nth || number - fault.nth >= fault.times)
		return 0;
	fault.fired++;
	return -EIO;
}

static inline int faulty_read(void *h, void *buf, size_t len, uint64_t off)
{
	return fires(READS, off, len) ? -EIO : power_read(h, buf, len, off);
}

/* A write that fails has written the first half. */
static inline int faulty_write(void *h, const void *buf, size_t len, uint64_t off)
{
	bool fails = fires(WRITES, off, len) != 0;
	int err = power_write(h, buf, fails ? len / 2 : len, off);

	return fails ? -EIO : err;
}

static inline int faulty_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	size_t len = 0;

	for (int i = 0; i < n; i++)
		len += iov[i].iov_len;
	if (!fires(WRITES, off, len))
		return power_writev(h, iov, n, off);
	power_write(h, iov->iov_base, iov->iov_len / 2, off);
	return -EIO;
}

static inline int faulty_flush(void *h, uint64_t off, uint64_t len)
{
	return fires(FLUSHES, 0, 1) ? -EIO : power_flush(h, off, len);
}

static struct ummap_driver faulty_driver;

static inline void faults_begin(void)
{
	cuts_begin();
	faulty_driver = power_driver;
	faulty_driver.read = faulty_read;
	faulty_driver.write = faulty_write;
	faulty_driver.writev = faulty_writev;
	faulty_driver.flush = faulty_flush;
	side_driver = &faulty_driver;
}

#endif
