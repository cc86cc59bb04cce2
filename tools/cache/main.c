/* SPDX-License-Identifier: BSD-3-Clause */
/* ummap cache - shows, flushes and removes the near files of cache+: one, or all of a folder. */
#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../overlay/actions.h"

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

/* Prints the process that uses a cache. Returns whether there is one. */
static bool is_busy(const struct job *job)
{
	struct ummap_geom geom = { .size = 0 };
	struct side file = { .h = NULL };
	int err = side_open(&file, job->file, 0, 0, UMMAP_LOCK_SHARED, &geom);

	if (err == -EBUSY)
		printf("%s\n", geom.why);
	if (!err)
		side_close(&file);
	return err == -EBUSY;
}

/* Counts the slots that are clean, or dirty, and their bytes. */
static uint64_t count_slots(const struct overlay *o, bool clean, uint64_t *bytes)
{
	uint32_t end = o->ngroups * OVERLAY_GROUP;
	uint64_t n = 0;

	*bytes = 0;
	for (uint32_t slot = 0; slot < end; slot++) {
		const struct overlay_slot *s = overlay_slot(o, slot);

		if (s->block == OVERLAY_EMPTY || (bool)(s->flags & SLOT_CLEAN) != clean)
			continue;
		n++;
		*bytes += (unsigned)__builtin_popcountll(s->valid) * OVERLAY_PART;
	}
	return n;
}

static int do_ls(const struct job *job)
{
	bool busy = is_busy(job);
	uint64_t clean, dirty, nclean, ndirty;
	struct overlay o;

	look_at(job, &any_near, UMMAP_LOCK_NONE, &o);
	if (o.damaged_at && !busy)
		refuse("cannot use '%s': it is damaged at byte %" PRIu64 ". Try `ummap cache "
		       "drop`, which loses unwritten changes", job->file, o.damaged_at);
	printf("%s: cache of '%s', %" PRIu64 " bytes; room for %" PRIu64 " blocks of %" PRIu64
	       " bytes\n", job->file, *o.head.uri ? o.head.uri : o.head.store.name, o.newest.size,
	       o.head.slots_max, o.head.block);
	nclean = count_slots(&o, true, &clean);
	ndirty = count_slots(&o, false, &dirty);
	if (!busy)
		printf("%s: %" PRIu64 " blocks with %" PRIu64 " bytes are clean, %" PRIu64
		       " blocks with %" PRIu64 " bytes are dirty\n", job->file, nclean, clean,
		       ndirty, dirty);
	if (o.slots.damaged)
		printf("%s: one of the two copies of the header is damaged; the other one is "
		       "intact\n", job->file);
	overlay_close(&o);
	return EXIT_SUCCESS;
}

static int do_flush(const struct job *job)
{
	flush_near(job);
	return do_ls(job);
}

static int do_drop(const struct job *job)
{
	return drop_overlay(job, &any_near);
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
	struct overlay o;
	struct stat st;

	if (lstat(job->file, &st) < 0)
		refuse("cannot open '%s': %s", job->file, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
		refuse("cannot flush '%s': the file is not yours. Try --cache with its store",
		       job->file);
	look_at(job, &any_near, UMMAP_LOCK_NONE, &o);
	overlay_close(&o);
	if (!*o.head.uri)
		refuse("cannot flush '%s': it does not tell how its store '%s' is opened. Try "
		       "--cache with its store", job->file, o.head.store.name);
	return do_flush(&(struct job){ .store = o.head.uri, .file = job->file });
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
