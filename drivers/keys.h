/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses the values of URI keys, and makes the messages for invalid ones. */
#ifndef DRIVERS_KEYS_H
#define DRIVERS_KEYS_H

#include "key_tables.h"

#include "common/size.h"

#include <limits.h>
#include <stdbool.h>
#include <ummap-driver.h>

/* Stores the message in geom->why. Returns -err. */
int keys_refuse(struct ummap_geom *geom, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The end of a message about a thread that cannot be started. */
#define KEYS_THREAD_LIMITS \
	"; larger limits may help: RLIMIT_AS (ulimit -v), RLIMIT_NPROC (ulimit -u), pids.max of " \
	"the cgroup"

/*
 * A key of a driver and its type:
 * static const struct key_type types[] = { WAL_KEYS(KEY_TYPE) KEY_TYPES_END };
 */
struct key_type {
	const char *name, *type;
};
#define KEY_TYPE(name, type, default, meaning) { name, type },
#define KEY_TYPES_END \
	{ \
		NULL, NULL \
	}
/*
 * Reports that the value is not of the key's type. prefix: "wal." for a filter, "" for a driver.
 * Returns -EINVAL.
 */
int keys_refuse_value(struct ummap_geom *geom, const char *prefix, const struct ummap_key *key,
		      const struct key_type *types);

/* A size of at least 1 byte. */
bool keys_size(const char *text, uint64_t *size);
/* A decimal number from min to max. */
bool keys_number(const char *text, uint64_t min, uint64_t max, uint64_t *value);
/* A path of at least one character. */
bool keys_path(const char *text, char path[PATH_MAX]);
/* "no" or "yes". */
bool keys_flag(const char *text, bool *value);
/* The index of the value among `words`, which NULL ends; -1: it is not among them. */
int keys_word(const char *text, const char *const *words);

#endif
