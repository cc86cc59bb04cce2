/* SPDX-License-Identifier: BSD-3-Clause */
/* ummap overlay - shows, checks, applies and removes the overlays of filters. */
#include <dirent.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <time.h>

#include "actions.h"

TOOL_HELP(OVERLAY_OPTIONS, .usage =
"usage: ummap overlay [--json] [--quiet] ls [FILE|FOLDER ...]\n"
"       ummap overlay [--json] [--quiet] show|check FILE ...\n"
"       ummap overlay [--quiet] [--store STORE] apply FILE\n"
"       ummap overlay [--quiet] drop FILE ...\n"
"Manages overlays: logs of wal+, files of changes of cow+, and near files of cache+. STORE is a\n"
"path or a URI.\n"
"\n"
"Actions:\n"
"  ls           show a line for each overlay; by default, for those of the current folder\n"
"  show         show the store, the commits and the size of each overlay\n"
"  check        read each overlay, and show the same; the exit status is 1 if one is damaged\n"
"  apply        write all contents of an overlay to its store, and remove the overlay\n"
"  drop         remove overlays; contents that the stores do not have are lost\n");

static bool json, quiet;
static const char *store; /* value of --store; NULL: the overlay names the store */
static unsigned n_shown;

static const char *filter_of(const struct overlay *o)
{
	return o->head.policy == OVERLAY_WAL ? "wal" : o->head.policy == OVERLAY_COW ? "cow" :
	       "cache";
}

/* ---- Text ---- */

static void print_commits(const struct overlay *o)
{
	if (o->head.policy == OVERLAY_CACHE) {
		printf("commit %" PRIu64, o->newest.number);
		return;
	}
	if (oldest_commit(o) > o->newest.number)
		printf("no commit can be opened");
	else
		printf("commits %" PRIu64 " to %" PRIu64, oldest_commit(o), o->newest.number);
	printf(", the store has commit %" PRIu64, o->head.home);
}

static void print_line(const struct job *job, const struct overlay *o)
{
	printf("%s: %s+ over '%s', ", job->file, filter_of(o), o->head.store.name);
	print_commits(o);
	printf("; %" PRIu64 " blocks with %" PRIu64 " bytes\n", o->used, o->used * o->head.block);
}

/* The time of a commit in UTC. */
static void format_time(char text[32], uint64_t nanoseconds)
{
	time_t seconds = (time_t)(nanoseconds / 1000000000);
	struct tm tm;

	strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &tm));
}

static void print_text(const struct job *job, struct overlay *o)
{
	struct overlay_commit c;
	char when[32];

	printf("%s: overlay of %s+, version 1\n", job->file, filter_of(o));
	printf("  store    '%s', %" PRIu64 " bytes%s%s\n", o->head.store.name, o->head.store.size,
	       *o->head.uri ? ", " : "", o->head.uri);
	if (o->head.flags & (OVERLAY_APPLYING | OVERLAY_MIXED))
		printf("  state    %s\n", o->head.flags & OVERLAY_APPLYING ?
		       "a commit to the store was interrupted" :
		       "the store has a part of the changes");
	fputs("  ", stdout);
	print_commits(o);
	putchar('\n');
	for (uint64_t n = oldest_commit(o); n <= o->newest.number; n++) {
		bool found = overlay_find_commit(o, n, &c);

		if (found && c.magic)
			format_time(when, c.time);
		if (found)
			printf("  commit   %" PRIu64 ", %s, %" PRIu64 " bytes\n", n,
			       c.magic ? when : "the beginning", c.size);
	}
	printf("  slots    %" PRIu64 " used, %" PRIu64 " void\n", o->used,
	       o->ngroups * (uint64_t)OVERLAY_GROUP - o->used);
	printf("  blocks   %" PRIu64 " of %" PRIu64 " bytes are current\n", o->index.count,
	       o->head.block);
	printf("  file     %" PRIu64 " bytes\n", file_length(job, o));
}

/* ---- JSON ---- */

static void print_pair(const char *key, const char *text)
{
	printf("\"%s\": ", key);
	print_json_string(stdout, text);
	fputs(", ", stdout);
}

static void print_number(const char *key, uint64_t number)
{
	printf("\"%s\": %" PRIu64 ", ", key, number);
}

static void print_json(const struct job *job, struct overlay *o)
{
	struct overlay_commit c;
	const char *between = "";

	fputs(n_shown++ ? ",\n {" : "\n {", stdout);
	print_pair("file", job->file);
	print_pair("filter", filter_of(o));
	print_number("version", 1);
	print_pair("store", o->head.store.name);
	print_pair("uri", o->head.uri);
	print_pair("state", o->head.flags & OVERLAY_APPLYING ? "applying" :
			    o->head.flags & OVERLAY_MIXED ? "mixed" : "normal");
	print_number("oldest_commit", oldest_commit(o));
	print_number("newest_commit", o->newest.number);
	print_number("store_commit", o->head.home);
	fputs("\"commits\": [", stdout);
	for (uint64_t n = oldest_commit(o); n <= o->newest.number; n++) {
		if (!overlay_find_commit(o, n, &c))
			continue;
		printf("%s{\"number\": %" PRIu64 ", \"time_ns\": %" PRIu64 ", \"size\": %" PRIu64
		       "}", between, n, c.time, c.size);
		between = ", ";
	}
	fputs("], ", stdout);
	print_number("block_bytes", o->head.block);
	print_number("slots_used", o->used);
	print_number("slots_void", o->ngroups * (uint64_t)OVERLAY_GROUP - o->used);
	print_number("blocks", o->index.count);
	print_number("file_bytes", file_length(job, o));
	printf("\"header_damaged\": %s, \"damaged_at\": ", o->slots.damaged ? "true" : "false");
	if (o->damaged_at)
		printf("%" PRIu64 "}", o->damaged_at);
	else
		fputs("null}", stdout);
}

/* ---- Actions on one overlay ---- */

/* Shows an overlay, and returns the exit status of `check`. */
static int show(const struct job *job, struct overlay *o, bool is_line)
{
	bool damaged = o->slots.damaged || o->damaged_at;

	if (json && !quiet)
		print_json(job, o);
	else if (!quiet && is_line)
		print_line(job, o);
	else if (!quiet)
		print_text(job, o);
	if (!json && !quiet)
		print_damage(job, o);
	overlay_close(o);
	return damaged ? EXIT_DAMAGED : EXIT_SUCCESS;
}

static int show_line(const struct job *job)
{
	struct overlay o;

	look_at(job, &any_overlay, UMMAP_LOCK_NONE, &o);
	show(job, &o, true);
	return EXIT_SUCCESS;
}

static int do_show(const struct job *job)
{
	struct overlay o;

	look_at(job, &any_overlay, UMMAP_LOCK_NONE, &o);
	show(job, &o, false);
	return EXIT_SUCCESS;
}

static int do_check(const struct job *job)
{
	struct overlay o;

	look_at(job, &any_overlay, UMMAP_LOCK_SHARED, &o);
	check_blocks(job, &o);
	return show(job, &o, false);
}

/* Whether a file is the overlay beside another store than `path`: its folder was copied or moved,
 * and the overlay still names the store in the former folder. */
static bool is_beside_another(const char *file, const char *path)
{
	size_t len = strlen(file), suffix = strlen(WAL_SUFFIX);
	struct stat beside, named;
	char own[PATH_MAX];

	if (len <= suffix || (strcmp(file + len - suffix, WAL_SUFFIX) != 0 &&
			      strcmp(file + len - suffix, COW_SUFFIX) != 0))
		return false;
	snprintf(own, sizeof(own), "%.*s", (int)(len - suffix), file);
	return stat(own, &beside) == 0 && (stat(path, &named) < 0 ||
		named.st_ino != beside.st_ino || named.st_dev != beside.st_dev);
}

/* The overlay names its store. This is trusted only in files of the user: in a shared folder,
 * others could plant an overlay that names any store. */
static void find_store(struct job *job, char uri[OVERLAY_URI], uint64_t *policy)
{
	char path[PATH_MAX];
	struct overlay o;
	struct stat st;

	look_at(job, &any_overlay, UMMAP_LOCK_NONE, &o);
	overlay_close(&o);
	*policy = o.head.policy;
	snprintf(uri, OVERLAY_URI, "%s", o.head.uri);
	job->store = store ? store : uri;
	if (!store && (lstat(job->file, &st) < 0 || !S_ISREG(st.st_mode) ||
		       st.st_uid != geteuid()))
		refuse("cannot apply '%s': the file is not yours. Try --store with its store",
		       job->file);
	if (!*job->store)
		refuse("cannot apply '%s': it does not tell how its store '%s' is opened. Try "
		       "--store with its store", job->file, o.head.store.name);
	store_path(job->store, path);
	if (!store && is_beside_another(job->file, path))
		refuse("cannot apply '%s': it names the store '%s', but is beside another file. "
		       "Try --store with the store to be written", job->file, path);
}

static int do_apply(const struct job *job)
{
	static char path[PATH_MAX], uri[OVERLAY_URI];
	struct job own = { .file = job->file, .path = path,
			   .remedy = "--store with the store of this log" };
	uint64_t policy, newest;

	find_store(&own, uri, &policy);
	store_path(own.store, path);
	if (policy == OVERLAY_CACHE) {
		newest = flush_near(&own);
		drop_overlay(&own, &any_near);
	} else {
		newest = policy == OVERLAY_WAL ? apply_log(&own) : apply_changes(&own);
	}
	if (!quiet)
		printf("%s: the store '%s' has commit %" PRIu64 ", and the overlay is removed\n",
		       own.file, own.store, newest);
	return EXIT_SUCCESS;
}

static int do_drop(const struct job *job)
{
	return drop_overlay(job, &any_overlay);
}

/* ---- Files and folders ---- */

/* Whether a regular file has the header of an overlay. */
static bool is_overlay(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	uint64_t magic[2] = { 0, 0 };
	struct stat st;
	bool is = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);

	for (unsigned i = 0; i < 2 && is; i++)
		is = pread(fd, &magic[i], sizeof(*magic), (off_t)(i * HEADER_SLOT)) >= 0;
	if (fd >= 0)
		close(fd);
	return magic[0] == OVERLAY_MAGIC || magic[1] == OVERLAY_MAGIC;
}

static void show_folder(const char *folder)
{
	struct dirent **entry;
	int n = scandir(folder, &entry, NULL, alphasort);
	char file[PATH_MAX];

	if (n < 0)
		refuse("cannot read the folder '%s': %s", folder, strerror(errno));
	for (int i = 0; i < n; i++) {
		if (snprintf(file, sizeof(file), "%s/%s", folder, entry[i]->d_name) <
			    (int)sizeof(file) && is_overlay(file))
			show_line(&(struct job){ .file = file });
		free(entry[i]);
	}
	free(entry);
}

static int do_ls(const struct job *job)
{
	struct stat st;

	if (stat(job->file, &st) == 0 && S_ISDIR(st.st_mode))
		show_folder(job->file);
	else
		show_line(job);
	return EXIT_SUCCESS;
}

static const struct action actions[] = {
	{ { "ls", 0, INT_MAX }, do_ls },       { { "show", 1, INT_MAX }, do_show },
	{ { "check", 1, INT_MAX }, do_check }, { { "apply", 1, 1 }, do_apply },
	{ { "drop", 1, INT_MAX }, do_drop },   { .run = NULL },
};

int main(int argc, char **argv)
{
	char *here[] = { "ls", ".", NULL };
	const struct action *action;
	int status = EXIT_SUCCESS, option;

	tool_begin(EXIT_TROUBLE);
	while ((option = take_option(argc, argv, &tool_help)) >= 0) {
		json |= option == OPTION_JSON;
		quiet |= option == OPTION_QUIET;
		store = option == OPTION_STORE ? optarg : store;
	}
	argv += optind;
	action = find_action(actions, sizeof(*actions), tool_help.usage, argv);
	if (!argv[1])
		argv = here;
	if (store && action->run != do_apply)
		refuse("cannot use --store: only apply takes it");
	json &= action->run == do_ls || action->run == do_show || action->run == do_check;
	if (json && !quiet)
		putchar('[');
	for (int i = 1; argv[i]; i++) {
		int result = action->run(&(struct job){ .file = argv[i] });

		status = result > status ? result : status;
	}
	if (json && !quiet)
		puts("\n]");
	return status;
}
