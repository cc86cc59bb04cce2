/* SPDX-License-Identifier: BSD-3-Clause */
/* ummap cow - shows, commits and discards changes of stores that are written through cow+. */
#include <inttypes.h>
#include <sys/stat.h>

#include "../../drivers/overlay/cow.h"
#include "../beside.h"

TOOL_HELP(COW_OPTIONS, .usage =
"usage: ummap cow [--changes CHANGES] ls|commit|discard STORE\n"
"Manages the changes of a store that is written through cow+. STORE is a path or a URI.\n"
"\n"
"Actions:\n"
"  ls           show offsets and lengths of the changes; the exit status is 1 if they are damaged\n"
"  commit       write the changes to the store, and remove them\n"
"  discard      remove the changes\n");

static void look(const struct job *job, int how, struct overlay *o)
{
	struct ummap_geom geom = { .size = 0 };
	int err = cow_look(o, job->file, how, &geom);

	if (err)
		refuse("%s", *geom.why ? geom.why : strerror(-err));
}

/* Prints a run of consecutive changed blocks, and returns the number of the block after it. */
static uint64_t show_run(struct overlay *o, uint64_t first)
{
	uint64_t end = first + 1, off = first * OVERLAY_BLOCK, len;

	while (blockmap_get(&o->index, end))
		end++;
	len = (end - first) * OVERLAY_BLOCK;
	printf("%" PRIu64 " %" PRIu64 "\n", off,
	       len < o->size - off ? len : o->size - off);
	return end;
}

/* Prints why the changes do not fit the store. Devices have no modification time to compare. */
static void show_mismatch(const struct job *job, const struct overlay *o)
{
	struct ummap_geom geom = { .size = 0 };
	struct store_facts base;
	struct stat st;

	if (stat(job->path, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	overlay_describe(&base, job->path, -1, (uint64_t)st.st_size);
	if (cow_fits(o, &base, &geom) != 0)
		printf("%s: %s\n", job->file, geom.why);
}

static int do_ls(const struct job *job)
{
	uint64_t block = 0, place;
	struct overlay o;
	bool bad;

	look(job, UMMAP_LOCK_NONE, &o);
	printf("%s: changes of %s, %" PRIu64 " bytes of %" PRIu64 "%s\n", job->file,
	       o.head.store.name, o.index.count * (uint64_t)OVERLAY_BLOCK, o.size,
	       o.head.flags & OVERLAY_APPLYING ? "; a commit was interrupted" :
	       o.head.flags ? "; the store has a part of them" : "");
	while (blockmap_next(&o.index, &block, &place))
		block = show_run(&o, block);
	if (o.slots.damaged)
		printf("%s: one of the two copies of the header is damaged; the other one is "
		       "intact\n",
		       job->file);
	if (o.damaged_at)
		printf("%s: damaged at byte %" PRIu64 "\n", job->file, o.damaged_at);
	show_mismatch(job, &o);
	bad = o.slots.damaged || o.damaged_at;
	overlay_close(&o);
	return bad ? EXIT_DAMAGED : EXIT_SUCCESS;
}

static void open_store(const struct job *job, struct ummap_driver *driver, void **h,
		       struct ummap_geom *geom)
{
	static char uri[STORE_URI_MAX];
	char who[160] = "";

	store_uri(uri, job->store);
	if (ummap_driver_open(uri, UMMAP_O_WRITE, driver, h, geom) < 0)
		refuse("%s", umerrormsg());
	if (driver->lock && driver->lock(*h, 0, INT64_MAX, UMMAP_LOCK_EXCLUSIVE, who) == -EBUSY)
		refuse("cannot commit to '%s': it is in use by %s. Try again when that has ended",
		       job->store, *who ? who : "another process");
}

/* Changes that were made over another filter must be committed through it: its file has part of the
 * contents. */
static void check_way(const struct job *job, const struct overlay *o)
{
	if (*o->head.way && strcmp(o->head.way, "posix") != 0 && !is_uri(job->store))
		refuse("cannot commit '%s': its store was opened as '%s'. Try the URI of the store "
		       "in place of its path",
		       job->file, o->head.way);
}

static int do_commit(const struct job *job)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct ummap_geom geom;
	struct store_facts base;
	struct overlay o;
	void *store;
	int err;

	look(job, UMMAP_LOCK_EXCLUSIVE, &o);
	check_way(job, &o);
	open_store(job, &driver, &store, &geom);
	overlay_describe(&base, job->path, -1, geom.size);
	err = cow_commit(&o, &base, &driver, store, &geom);
	if (err)
		refuse("%s", geom.why);
	overlay_close(&o);
	err = driver.close(store);
	if (err)
		refuse("cannot close '%s': %s", job->store, strerror(-err));
	return EXIT_SUCCESS;
}

static int do_discard(const struct job *job)
{
	struct overlay o;
	int err;

	look(job, UMMAP_LOCK_EXCLUSIVE, &o);
	if (o.head.flags)
		refuse("cannot discard '%s': a commit was not completed, and '%s' has a part of "
		       "it. Try 'commit'",
		       job->file, job->store);
	err = side_remove(&o.file);
	if (err)
		refuse("cannot remove '%s': %s", job->file, strerror(-err));
	overlay_close(&o);
	return EXIT_SUCCESS;
}

static int find_changes(char path[PATH_MAX], const char *store)
{
	return overlay_beside(path, store, COW_SUFFIX);
}

int main(int argc, char **argv)
{
	static const struct action actions[] = {
		{ "ls", 2, do_ls },
		{ "commit", 2, do_commit },
		{ "discard", 2, do_discard },
		{ NULL, 0, NULL },
	};
	const struct tool tool = {
		.help = &tool_help, .beside = find_changes, .actions = actions,
	};

	return tool_main(&tool, argc, argv);
}
