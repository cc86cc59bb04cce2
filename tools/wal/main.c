/* SPDX-License-Identifier: BSD-3-Clause */
/* ummap wal - shows, checks, applies and removes logs of stores that are written through wal+. */
#include <inttypes.h>

#include "../../drivers/overlay/overlay.h"
#include "../overlay/actions.h"

TOOL_HELP(WAL_OPTIONS, .usage =
"usage: ummap wal [--log LOG] ls|check|apply|drop STORE\n"
"       ummap wal [--log LOG] back STORE COMMIT\n"
"Manages the log of a store that is written through wal+. STORE is a path or a URI.\n"
"\n"
"Actions:\n"
"  ls           show the commits and the size of the log\n"
"  check        read the whole log; the exit status is 1 if it is damaged\n"
"  apply        copy all commits to the store, and remove the log\n"
"  back         make an older commit the newest one\n"
"  drop         remove the log; commits that the store does not have are lost\n");

/* Returns whether the log is damaged. */
static bool show(const struct job *job, struct overlay *o)
{
	/* Damage may leave no commit of those that could be opened. */
	if (oldest_commit(o) > o->newest.number)
		printf("%s: no commit can be opened", job->file);
	else
		printf("%s: commits %" PRIu64 " to %" PRIu64, job->file, oldest_commit(o),
		       o->newest.number);
	printf(", the store has commit %" PRIu64 "; %" PRIu64 " blocks with %" PRIu64
	       " bytes, file size %" PRIu64 " bytes\n",
	       o->head.home, o->used, o->used * (uint64_t)OVERLAY_BLOCK, file_length(job, o));
	return print_damage(job, o);
}

static int do_ls(const struct job *job)
{
	struct overlay o;

	look_at(job, &any_log, UMMAP_LOCK_NONE, &o);
	show(job, &o);
	overlay_close(&o);
	return EXIT_SUCCESS;
}

static int do_check(const struct job *job)
{
	struct overlay o;
	bool damaged;

	look_at(job, &any_log, UMMAP_LOCK_SHARED, &o);
	check_blocks(job, &o);
	damaged = show(job, &o);
	overlay_close(&o);
	return damaged ? EXIT_DAMAGED : EXIT_SUCCESS;
}

static int do_apply(const struct job *job)
{
	uint64_t newest = apply_log(job);

	printf("%s: the store '%s' has commit %" PRIu64 ", and the log is removed\n", job->file,
	       job->store, newest);
	return EXIT_SUCCESS;
}

static int do_back(const struct job *job)
{
	struct ummap_geom geom = { .size = 0 };
	struct overlay o;
	uint64_t number;
	int err;

	if (size_parse_count(job->word, &number) < 0)
		refuse("cannot go back to commit '%s': it must be a number. Try 'ls'", job->word);
	look_at(job, &any_log, UMMAP_LOCK_EXCLUSIVE, &o);
	err = overlay_go_back(&o, number, &geom);
	if (!err)
		err = overlay_make_ready(&o);
	if (err)
		refuse("%s", *geom.why ? geom.why : strerror(-err));
	overlay_close(&o);
	return do_ls(job);
}

static int do_drop(const struct job *job)
{
	return drop_overlay(job, &any_log);
}

static int find_log(char path[PATH_MAX], const char *store)
{
	return overlay_beside(path, store, WAL_SUFFIX);
}

int main(int argc, char **argv)
{
	static const struct action actions[] = {
		{ { "ls", 1, 1 }, do_ls }, { { "check", 1, 1 }, do_check },
		{ { "apply", 1, 1 }, do_apply }, { { "back", 2, 2 }, do_back },
		{ { "drop", 1, 1 }, do_drop }, { .run = NULL },
	};
	const struct tool tool = {
		.help = &tool_help, .beside = find_log, .actions = actions,
		.remedy = "--log with the log of this store",
	};

	return tool_main(&tool, argc, argv);
}
