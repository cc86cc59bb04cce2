/* SPDX-License-Identifier: BSD-3-Clause */
/* ummap cow - shows, commits and discards changes of stores that are written through cow+. */
#include <inttypes.h>
#include <sys/stat.h>

#include "../overlay/actions.h"

TOOL_HELP(COW_OPTIONS, .usage =
"usage: ummap cow [--changes CHANGES] ls|commit|discard STORE\n"
"Manages the changes of a store that is written through cow+. STORE is a path or a URI.\n"
"\n"
"Actions:\n"
"  ls           show offsets and lengths of the changes; the exit status is 1 if they are damaged\n"
"  commit       write the changes to the store, and remove them\n"
"  discard      remove the changes\n");

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

	look_at(job, &any_changes, UMMAP_LOCK_NONE, &o);
	printf("%s: changes of %s, %" PRIu64 " bytes of %" PRIu64 "%s\n", job->file,
	       o.head.store.name, o.index.count * (uint64_t)OVERLAY_BLOCK, o.size,
	       o.head.flags & OVERLAY_APPLYING ? "; a commit was interrupted" :
	       o.head.flags ? "; the store has a part of them" : "");
	while (blockmap_next(&o.index, &block, &place))
		block = show_run(&o, block);
	bad = print_damage(job, &o);
	show_mismatch(job, &o);
	overlay_close(&o);
	return bad ? EXIT_DAMAGED : EXIT_SUCCESS;
}

static int do_commit(const struct job *job)
{
	apply_changes(job);
	return EXIT_SUCCESS;
}

static int do_discard(const struct job *job)
{
	return drop_overlay(job, &any_changes);
}

static int find_changes(char path[PATH_MAX], const char *store)
{
	return overlay_beside(path, store, COW_SUFFIX);
}

int main(int argc, char **argv)
{
	static const struct action actions[] = {
		{ { "ls", 1, 1 }, do_ls }, { { "commit", 1, 1 }, do_commit },
		{ { "discard", 1, 1 }, do_discard }, { .run = NULL },
	};
	const struct tool tool = {
		.help = &tool_help, .beside = find_changes, .actions = actions,
	};

	return tool_main(&tool, argc, argv);
}
