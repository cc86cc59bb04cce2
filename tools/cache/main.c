/* SPDX-License-Identifier: BSD-3-Clause */
/* ummap cache - shows, flushes and removes the near files of cache+: one, or all of a folder. */
#include <dirent.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../../drivers/cache_near.h"
#include "../beside.h"

TOOL_HELP(CACHE_OPTIONS, .usage =
"usage: ummap cache [--cache CACHE] ls|flush|drop STORE\n"
"       ummap cache ls|flush|drop FOLDER\n"
"Manages the cache of a store that is used through cache+, or all *.cache files of a folder.\n"
"STORE is the path or the URI of the far store.\n"
"\n"
"Actions:\n"
"  ls             show size and contents of the cache\n"
"  flush          write dirty blocks back to the store, and show what is left\n"
"  drop           remove the cache; dirty blocks are lost\n");

__attribute__((noreturn)) static void refuse_missing(const struct job *job)
{
	refuse("cannot find the cache of '%s': there is no file '%s'. Try --cache with the near "
	       "file, or 'ls' with the folder that cache.path names", job->store, job->file);
}

static void look(const struct job *job, struct cache_near *n, bool *busy)
{
	struct ummap_geom geom = { .size = 0 };
	int err = cache_near_look(n, job->file, UMMAP_LOCK_SHARED, &geom);

	*busy = err == -EBUSY;
	if (*busy) {
		printf("%s\n", geom.why);
		err = cache_near_look(n, job->file, UMMAP_LOCK_NONE, &geom);
	}
	if (err == -ENOENT && !job->named && job->store)
		refuse_missing(job);
	if (err < 0)
		refuse("%s", *geom.why ? geom.why : strerror(-err));
	if (err > 0)
		refuse("cannot read '%s': it is still empty", job->file);
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
		*sectors += (unsigned)__builtin_popcountll(slot->valid[0]) +
			    (unsigned)__builtin_popcountll(slot->valid[1]);
	}
	return blocks;
}

static int do_ls(const struct job *job)
{
	static struct cache_near n;
	uint64_t clean, dirty;
	bool busy;

	look(job, &n, &busy);
	printf("%s: cache of '%s', %" PRIu64 " bytes; room for %" PRIu64 " blocks of %" PRIu64
	       " bytes\n",
	       job->file, *n.head.store ? n.head.store : n.head.far.name, n.head.size, n.head.slots,
	       n.head.block);
	if (!busy) {
		unsigned blocks = count_sectors(&n.index, false, &clean),
			 changed = count_sectors(&n.index, true, &dirty);

		printf("%s: %u blocks with %" PRIu64 " bytes are clean, %u blocks with %" PRIu64
		       " bytes are dirty\n",
		       job->file, blocks, clean << n.sector_shift, changed,
		       dirty << n.sector_shift);
	}
	if (n.slots.damaged)
		printf("%s: one of the two copies of the header is damaged; the other one is "
		       "intact\n",
		       job->file);
	cache_near_close(&n);
	return EXIT_SUCCESS;
}

static int do_flush(const struct job *job)
{
	static char store[STORE_URI_MAX], cache[3 * PATH_MAX],
		uri[sizeof(store) + sizeof(cache) + 64];
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	static struct cache_near n;
	struct ummap_geom geom;
	bool busy;
	void *h;
	int err;

	/* Opening the store would create a missing cache. look ends the command if the cache is
	 * missing. */
	look(job, &n, &busy);
	cache_near_close(&n);
	store_uri(store, job->store);
	encode(cache, job->file);
	snprintf(uri, sizeof(uri), "cache+%s%ccache.path=%s", store, strchr(store, '?') ? '&' : '?',
		 cache);
	if (ummap_driver_open(uri, UMMAP_O_WRITE, &driver, &h, &geom) < 0)
		refuse("%s", umerrormsg());
	err = driver.close(h);
	if (err)
		refuse("cannot write back to '%s': %s. The dirty blocks stay in '%s'", job->store,
		       strerror(-err), job->file);
	return do_ls(job);
}

/* A cache with damaged records can be removed, too. */
static int do_drop(const struct job *job)
{
	static struct cache_near n;
	struct ummap_geom geom = { .size = 0 };
	struct side file;
	int err = side_open(&file, job->file, UMMAP_O_WRITE, 0, UMMAP_LOCK_EXCLUSIVE, &geom);

	if (err == -ENOENT && !job->named && job->store)
		refuse_missing(job);
	if (!err)
		err = cache_near_look(&n, job->file, UMMAP_LOCK_NONE, &geom);
	if (err < 0)
		refuse("%s", *geom.why ? geom.why : strerror(-err));
	tool_remove(job, &file, err || !job->store ? "" : n.head.far.name);
	cache_near_close(&n);
	side_close(&file);
	return EXIT_SUCCESS;
}

/* ---- All caches of a folder ---- */

static int is_cache(const struct dirent *entry)
{
	static const char suffix[] = ".cache";
	size_t len = strlen(entry->d_name), end = sizeof(suffix) - 1;

	return len > end && strcmp(entry->d_name + len - end, suffix) == 0;
}

/*
 * The cache names the store to write to. This is trusted only in files of the user: in a shared
 * folder others could plant a cache that names any store.
 */
static int flush_one(const struct job *job)
{
	static struct cache_near n;
	struct stat st;
	bool busy;

	if (lstat(job->file, &st) < 0)
		refuse("cannot open '%s': %s", job->file, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
		refuse("cannot flush '%s': the file is not yours. Try --cache with its store",
		       job->file);
	look(job, &n, &busy);
	cache_near_close(&n);
	if (!*n.head.store)
		refuse("cannot flush '%s': it does not tell how its store '%s' is opened. Try "
		       "--cache with its store",
		       job->file, n.head.far.name);
	return do_flush(&(struct job){ .store = n.head.store, .file = job->file });
}

/* Runs an action in a child, so that a cache that cannot be processed does not stop the others. */
static int run_one(int (*run)(const struct job *job), const char *file)
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0)
		exit(run(&(struct job){ .file = file }));
	if (child < 0 || waitpid(child, &status, 0) != child)
		refuse("cannot start a process for '%s': %s", file, strerror(errno));
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_TROUBLE;
}

static int run_all(const struct job *job, int (*run)(const struct job *job))
{
	struct dirent **entry;
	int n = scandir(job->store, &entry, is_cache, alphasort), result = EXIT_SUCCESS;
	char file[PATH_MAX];

	if (n < 0)
		refuse("cannot read the folder '%s': %s", job->store, strerror(errno));
	for (int i = 0; i < n; i++) {
		if (snprintf(file, sizeof(file), "%s/%s", job->store, entry[i]->d_name) >=
		    (int)sizeof(file))
			refuse("cannot use '%s': %s", job->store, strerror(ENAMETOOLONG));
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
	static const struct action actions[] = {
		{ { "ls", 1, 1 }, ls }, { { "flush", 1, 1 }, flush },
		{ { "drop", 1, 1 }, drop }, { .run = NULL },
	};
	const struct tool tool = {
		.help = &tool_help, .suffix = ".cache", .actions = actions,
	};

	return tool_main(&tool, argc, argv);
}
