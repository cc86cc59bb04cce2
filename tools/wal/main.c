/* SPDX-License-Identifier: BSD-3-Clause */
/* ummap wal - shows, checks, applies and removes logs of stores that are written through wal+. */
#include <inttypes.h>

#include "../../drivers/wal_log.h"
#include "../beside.h"

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

static void look(const struct job *job, int how, struct wal_log *l, struct wal_found *found)
{
	struct ummap_geom geom = { .size = 0 };
	int err = wal_look(l, job->file, how, found, &geom);

	if (err)
		refuse("%s", *geom.why ? geom.why : strerror(-err));
}

static void show(const struct job *job, const struct wal_log *l, const struct wal_found *found)
{
	/* Damage may leave no commit of those that could be opened. */
	if (found->floor > found->end.epoch)
		printf("%s: no commit can be opened", job->file);
	else
		printf("%s: commits %" PRIu64 " to %" PRIu64, job->file, found->floor,
		       found->end.epoch);
	printf(", the store has commit %" PRIu64 "; %" PRIu64 " records with %" PRIu64
	       " bytes, file size %" PRIu64 " bytes\n",
	       l->head.home, found->records, found->blocks * (uint64_t)WAL_BLOCK, found->length);
	if (l->slots.number && l->slots.damaged)
		printf("%s: one of the two copies of the header is damaged; the other one is "
		       "intact\n",
		       job->file);
	if (found->damaged_at)
		printf("%s: damaged at byte %" PRIu64 ", after commit %" PRIu64 "\n", job->file,
		       found->damaged_at, found->end.epoch);
}

static int do_ls(const struct job *job)
{
	struct wal_found found;
	struct wal_log l;

	look(job, UMMAP_LOCK_NONE, &l, &found);
	show(job, &l, &found);
	wal_close(&l);
	return EXIT_SUCCESS;
}

static int do_check(const struct job *job)
{
	struct wal_found found;
	struct wal_log l;
	bool bad;

	look(job, UMMAP_LOCK_SHARED, &l, &found);
	show(job, &l, &found);
	bad = found.damaged_at || l.slots.damaged;
	wal_close(&l);
	return bad ? EXIT_DAMAGED : EXIT_SUCCESS;
}

static int do_apply(const struct job *job)
{
	static char store[STORE_URI_MAX], log[3 * PATH_MAX], uri[sizeof(store) + sizeof(log) + 32];
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct wal_found found;
	struct ummap_geom geom;
	struct wal_log l;
	void *h;
	int err;

	/* Opening the store would create a missing log. look ends the command if the log is
	 * missing. */
	look(job, UMMAP_LOCK_NONE, &l, &found);
	wal_close(&l);
	if (*l.head.name && *job->path && !is_called(job->path, l.head.name))
		refuse("cannot apply '%s' to '%s': it is the log of another store, '%s'. Try "
		       "--log with the log of this store", job->file, job->store, l.head.name);
	store_uri(store, job->store);
	encode(log, job->file);
	snprintf(uri, sizeof(uri), "wal+%s%cwal.path=%s", store, strchr(store, '?') ? '&' : '?',
		 log);
	if (ummap_driver_open(uri, UMMAP_O_WRITE, &driver, &h, &geom) < 0)
		refuse("%s", umerrormsg());
	err = driver.close(h);
	if (err)
		refuse("cannot apply '%s' to '%s': %s. The log is kept", job->file, job->store,
		       strerror(-err));
	printf("%s: the store '%s' has commit %" PRIu64 ", and the log is removed\n", job->file,
	       job->store, found.end.epoch);
	return EXIT_SUCCESS;
}

static int do_back(const struct job *job)
{
	struct wal_wish wish = {
		.path = job->file, .write = true, .back = true, .keep = 1, .limit = UINT64_MAX
	};
	struct ummap_geom geom = { .size = 0 };
	struct wal_log l;
	int err;

	if (size_parse_count(job->word, &wish.epoch) < 0)
		refuse("cannot go back to commit '%s': it must be a number. Try 'ls'", job->word);
	err = wal_open(&l, &wish, &geom);
	if (err)
		refuse("%s", *geom.why ? geom.why : strerror(-err));
	if (!l.file.h)
		refuse("cannot go back in '%s': there is no such log", job->file);
	wal_close(&l);
	return do_ls(job);
}

static int do_drop(const struct job *job)
{
	struct wal_found found;
	struct wal_log l;
	int status;

	look(job, UMMAP_LOCK_EXCLUSIVE, &l, &found);
	status = tool_remove(job, &l.file, l.head.name);
	wal_close(&l);
	return status;
}

int main(int argc, char **argv)
{
	static const struct action actions[] = {
		{ "ls", 2, do_ls }, { "check", 2, do_check }, { "apply", 2, do_apply },
		{ "back", 3, do_back }, { "drop", 2, do_drop },
		{ NULL, 0, NULL },
	};
	const struct tool tool = {
		.help = &tool_help, .beside = wal_beside, .actions = actions,
	};

	return tool_main(&tool, argc, argv);
}
