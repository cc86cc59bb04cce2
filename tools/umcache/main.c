/* SPDX-License-Identifier: BSD-3-Clause */
/* umcache - shows, empties and ends the caches of stores that were used through cache+. */
#include <inttypes.h>

#include "../../drivers/cache_near.h"
#include "../beside.h"

static const char usage[] =
"usage: umcache [--cache CACHE] ls|flush|drop STORE\n"
"Caches of stores that are used through cache+; STORE is a path or a URI, CACHE its cache.path (STORE.cache).\n"
"  ls        what is in the cache\n"
"  flush     writes back what is dirty\n"
"  drop      removes the cache, and what of it was not written back\n"
"  --help, --version\n";

static void look(const struct job *job, struct cache_near *n, bool *busy)
{
	struct ummap_geom geom = { .size = 0 };
	int err = cache_near_look(n, job->file, UMMAP_LOCK_SHARED, &geom);

	*busy = err == -EBUSY;
	if (*busy) {
		printf("%s\n", geom.why);
		err = cache_near_look(n, job->file, UMMAP_LOCK_NONE, &geom);
	}
	if (err < 0)
		refuse("%s", *geom.why ? geom.why : strerror(-err));
	if (err > 0)
		refuse("%s has nothing in it yet", job->file);
}

static unsigned count_sectors(const struct cache_index *ix, bool dirty, uint64_t *sectors)
{
	unsigned blocks = 0;

	*sectors = 0;
	for (uint32_t s = 0; s < ix->slots; s++) {
		const struct cache_slot *slot = &ix->slot[s];

		if (slot->key == CACHE_NO_KEY || (bool)(slot->key & 1) != dirty)
			continue;
		blocks++;
		*sectors += (unsigned)__builtin_popcountll(slot->valid[0]) + (unsigned)__builtin_popcountll(slot->valid[1]);
	}
	return blocks;
}

static int do_ls(const struct job *job)
{
	static struct cache_near n;
	uint64_t clean, dirty;
	bool busy;

	look(job, &n, &busy);
	printf("%s: of \"%s\", %" PRIu64 " bytes; %" PRIu64 " blocks of %" PRIu64 " bytes\n", job->file, n.head.far.name,
	       n.head.size, n.head.slots, n.head.block);
	if (!busy) {
		unsigned blocks = count_sectors(&n.index, false, &clean), changed = count_sectors(&n.index, true, &dirty);

		printf("%s: %u blocks with %" PRIu64 " bytes that the store has, too; %u with %" PRIu64 " that it has not\n", job->file,
		       blocks, clean << n.sector_shift, changed, dirty << n.sector_shift);
	}
	if (n.slots.damaged)
		printf("%s: one of the two slots of the head is not whole; the other one is\n", job->file);
	cache_near_close(&n);
	return EXIT_SUCCESS;
}

static int do_flush(const struct job *job)
{
	static char store[3 * PATH_MAX], cache[3 * PATH_MAX], uri[sizeof(store) + sizeof(cache) + 64];
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	bool is_uri = strchr(job->store, ':') != NULL;
	struct ummap_geom geom;
	void *h;
	int err;

	/* One that is not there is not to be made. */
	do_ls(job);
	encode(store, job->store);
	encode(cache, job->file);
	snprintf(uri, sizeof(uri), "cache+%s%s%ccache.path=%s", is_uri ? "" : "posix:", is_uri ? job->store : store,
		 is_uri && strchr(job->store, '?') ? '&' : '?', cache);
	if (ummap_driver_open(uri, UMMAP_O_WRITE, &driver, &h, &geom) < 0)
		refuse("%s", umerrormsg());
	err = driver.close(h);
	if (err)
		refuse("%s: %s; what is dirty stays in the cache", job->store, strerror(-err));
	return EXIT_SUCCESS;
}

/* Records that are damaged are no reason to keep it. */
static int do_drop(const struct job *job)
{
	static struct cache_near n;
	struct ummap_geom geom = { .size = 0 };
	struct side file;
	int err = side_open(&file, job->file, UMMAP_O_WRITE, 0, UMMAP_LOCK_EXCLUSIVE, &geom);

	if (!err)
		err = cache_near_look(&n, job->file, UMMAP_LOCK_NONE, &geom);
	if (err < 0)
		refuse("%s", *geom.why ? geom.why : strerror(-err));
	tool_remove(job, &file, err ? "" : n.head.far.name);
	cache_near_close(&n);
	side_close(&file);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	static const struct verb verbs[] = {
		{ "ls", 2, do_ls }, { "flush", 2, do_flush }, { "drop", 2, do_drop }, { NULL, 0, NULL },
	};
	const struct tool tool = { .usage = usage, .option = "cache", .suffix = ".cache", .verbs = verbs };

	return tool_main(&tool, argc, argv);
}
