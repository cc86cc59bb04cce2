/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public calls by which processes of one machine copy from and to each other's mappings. A copy
 * replaces a single load or store and must be fast: it blocks no signals and sets no message, and
 * only clears the message of an earlier call.
 */
#include "api/api.h"

#include "base/log.h"
#include "paging/mapping/lookup.h"
#include "memory/shared_pool.h"
#include "peer/import.h"

#include <string.h>

/* Size in bytes of the intermediate buffer for a copy from or to a mapping of this process. */
#define COPY_BUFFER_SIZE 4096

int umexport(void *addr, struct umexport *exported)
{
	struct guard g;
	struct mapping *map;
	int err;

	api_enter(&g);
	if (!exported)
		return api_leave(&g, fail(EINVAL, "cannot export the mapping: exported is NULL"));
	map = map_find(addr);
	if (!map)
		return api_leave(&g, api_fail_no_mapping(addr));
	if (map->range != addr)
		err = api_fail_no_mapping(addr);
	else if (!map->export.header)
		err = fail(EOPNOTSUPP, "cannot export the mapping at %p: it was made "
			   "without UMMAP_SHARED", addr);
	else
		err = export_describe(&map->export, shared_pool_fd(), exported);
	map_leave(map);
	return api_leave(&g, err);
}

int umimport_open(const struct umexport *exported, struct umimport **imported)
{
	struct guard g;

	api_enter(&g);
	if (!exported || !imported)
		return api_leave(&g, fail(EINVAL, "cannot import the mapping: %s is NULL",
					  exported ? "imported" : "exported"));
	return api_leave(&g, import_open(exported, imported));
}

void umimport_close(struct umimport *imported)
{
	struct guard g;

	api_enter(&g);
	if (imported)
		import_close(imported);
	api_leave(&g, 0);
}

/*
 * The caller's buffer may be in a mapping of this process. Touching it during an access to the
 * other mapping could deadlock: the fault may wait for a frame whose segment the other process is
 * accessing, while that process waits for the end of this access. Therefore the copy goes through
 * an intermediate buffer, and no mapping is touched during an access.
 */
static size_t get_through_buffer(struct umimport *imported, char *buf, size_t len, uint64_t offset)
{
	char between[COPY_BUFFER_SIZE];
	size_t done = 0, n, got;

	do {
		n = min_size(len - done, sizeof(between));
		got = import_get(imported, between, n, offset + done);
		memcpy(buf + done, between, got);
		done += got;
	} while (got == n && done < len);
	return done;
}

static size_t put_through_buffer(struct umimport *imported, const char *buf, size_t len,
				 uint64_t offset)
{
	char between[COPY_BUFFER_SIZE];
	size_t done = 0, n, got;

	do {
		n = min_size(len - done, sizeof(between));
		memcpy(between, buf + done, n);
		got = import_put(imported, between, n, offset + done);
		done += got;
	} while (got == n && done < len);
	return done;
}

size_t umimport_get(struct umimport *imported, void *buf, size_t len, uint64_t offset)
{
	fail_clear();
	return map_meets(buf, len) ? get_through_buffer(imported, buf, len, offset) :
				     import_get(imported, buf, len, offset);
}

size_t umimport_put(struct umimport *imported, const void *buf, size_t len, uint64_t offset)
{
	fail_clear();
	return map_meets(buf, len) ? put_through_buffer(imported, buf, len, offset) :
				     import_put(imported, buf, len, offset);
}

int umimport_hold(struct umimport *imported, uint64_t offset, int store, struct umhold *hold)
{
	fail_clear();
	return import_hold(imported, offset, store, hold);
}

void umimport_release(struct umhold *hold)
{
	fail_clear();
	import_release(hold);
}

int ummapped(const void *addr, size_t len)
{
	fail_clear();
	return map_meets(addr, len);
}
