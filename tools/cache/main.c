/* SPDX-License-Identifier: BSD-3-Clause */
/* ummap cache - shows, empties and ends the caches of stores that were used through cache+: one, or all of a folder. */
#include <dirent.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../../drivers/cache_near.h"
#include "../beside.h"

static const char usage[] =
"usage: ummap cache [--cache CACHE] ls|flush|drop STORE\n"
"       ummap cache ls|flush|drop FOLDER\n"
"Caches of stores that are used through cache+; STORE is a path or a URI, CACHE its cache.path (STORE.cache).\n"
"Of a folder, all files with names in .cache are meant.\n"
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
	printf("%s: of \"%s\", %" PRIu64 " bytes; %" PRIu64 " blocks of %" PRIu64 " bytes\n", job->file,
	       *n.head.store ? n.head.store : n.head.far.name, n.head.size, n.head.slots, n.head.block);
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
	static char store[STORE_URI_MAX], cache[3 * PATH_MAX], uri[sizeof(store) + sizeof(cache) + 64];
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct ummap_geom geom;
	void *h;
	int err;

	/* One that is not there is not to be made. */
	do_ls(job);
	store_uri(store, job->store);
	encode(cache, job->file);
	snprintf(uri, sizeof(uri), "cache+%s%ccache.path=%s", store, strchr(store, '?') ? '&' : '?', cache);
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
	tool_remove(job, &file, err || !job->store ? "" : n.head.far.name);
	cache_near_close(&n);
	side_close(&file);
	return EXIT_SUCCESS;
}

/* ---- All of a folder ---- */

static int is_cache(const struct dirent *entry)
{
	static const char suffix[] = ".cache";
	size_t len = strlen(entry->d_name), end = sizeof(suffix) - 1;

	return len > end && strcmp(entry->d_name + len - end, suffix) == 0;
}

/* What it says of its store is only believed of a file of one's own: others may make some there, too. */
static int flush_one(const struct job *job)
{
	static struct cache_near n;
	struct stat st;
	bool busy;

	if (lstat(job->file, &st) < 0)
		refuse("%s: %s", job->file, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
		refuse("%s is not a file of yours: --cache has to name it, with its store", job->file);
	look(job, &n, &busy);
	cache_near_close(&n);
	if (!*n.head.store)
		refuse("%s does not say how its store \"%s\" is opened: --cache has to name it, with its store", job->file,
		       n.head.far.name);
	return do_flush(&(struct job){ .store = n.head.store, .file = job->file });
}

/* In a process of its own, because one that is refused is no reason to leave the others. */
static int run_one(int (*run)(const struct job *job), const char *file)
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0)
		exit(run(&(struct job){ .file = file }));
	if (child < 0 || waitpid(child, &status, 0) != child)
		refuse("%s: %s", file, strerror(errno));
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_TROUBLE;
}

static int run_all(const struct job *job, int (*run)(const struct job *job))
{
	struct dirent **entry;
	int n = scandir(job->store, &entry, is_cache, alphasort), result = EXIT_SUCCESS;
	char file[PATH_MAX];

	if (n < 0)
		refuse("%s: %s", job->store, strerror(errno));
	for (int i = 0; i < n; i++) {
		if (snprintf(file, sizeof(file), "%s/%s", job->store, entry[i]->d_name) >= (int)sizeof(file))
			refuse("%s: %s", job->store, strerror(ENAMETOOLONG));
		if (run_one(run, file))
			result = EXIT_TROUBLE;
		free(entry[i]);
	}
	free(entry);
	return result;
}

static bool is_folder(const struct job *job)
{
	struct stat st;

	return !job->named && stat(job->store, &st) == 0 && S_ISDIR(st.st_mode);
}

static int ls(const struct job *job)
{
	return is_folder(job) ? run_all(job, do_ls) : do_ls(job);
}

static int flush(const struct job *job)
{
	return is_folder(job) ? run_all(job, flush_one) : do_flush(job);
}

static int drop(const struct job *job)
{
	return is_folder(job) ? run_all(job, do_drop) : do_drop(job);
}

int main(int argc, char **argv)
{
	static const struct verb verbs[] = {
		{ "ls", 2, ls }, { "flush", 2, flush }, { "drop", 2, drop }, { NULL, 0, NULL },
	};
	const struct tool tool = { .usage = usage, .option = "cache", .suffix = ".cache", .verbs = verbs };

	return tool_main(&tool, argc, argv);
}
