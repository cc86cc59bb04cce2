/* SPDX-License-Identifier: BSD-3-Clause */
/* What drivers make of the values of their keys, and say when they refuse one. */
#ifndef DRIVERS_KEYS_H
#define DRIVERS_KEYS_H

#include <stdbool.h>
#include <ummap-driver.h>

/* Stores the sentence in geom->why, and returns -err. */
int keys_refuse(struct ummap_geom *geom, int err, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The end of such a sentence about a thread that cannot be started. */
#define KEYS_THREAD_LIMITS "; larger limits may help: RLIMIT_AS (ulimit -v), RLIMIT_NPROC (ulimit -u), pids.max of the cgroup"
/* A number of bytes from 1, which may end in K, M, G or T. */
bool keys_size(const char *text, uint64_t *size);
/* A decimal number of a range. */
bool keys_number(const char *text, uint64_t min, uint64_t max, uint64_t *value);

#endif
