/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap conform - runs the same checks on every driver; see ummap-conform(1). This process makes
 * and removes the store, and runs each check in a child, so that a driver which crashes or hangs
 * fails one check only. It never calls the driver itself.
 */
#include "conform.h"

#include "common/size.h"

#include "../tool.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <ummap.h>

#define SIZE_DEFAULT (1024 * KIB)
#define SIZE_MIN (64 * KIB)
#define SIZE_MAX_ASKED (64 * KIB * KIB * KIB)
#define SECONDS_DEFAULT 60

static const struct check {
	const char *name, *asks;
	void (*run)(void);
} checks[] = {
#define CHECK(function, name, asks) { name, asks, check_##function },
#include "checks.def"
#undef CHECK
};

enum { EXIT_ALL_OK, EXIT_SOME_FAILED, EXIT_CANNOT };

static const char *only;
static unsigned seconds = SECONDS_DEFAULT; /* time limit of a check */
static const char *const beside[] = { ".other",
				      ".missing" }; /* suffixes of stores that checks make */

/* ---- Options ---- */

TOOL_HELP(CONFORM_OPTIONS, .usage =
"usage: ummap conform [OPTION ...] URI\n"
"Checks whether a storage driver of libummap keeps its contract. URI is a store of the driver.\n",
.notes = "Exit status: 0 if all checks passed, 1 if some failed, 2 if they could not be run.\n");

static void print_list(void)
{
	for (size_t i = 0; i < COUNT(checks); i++)
		printf("%-15s %s\n", checks[i].name, checks[i].asks);
}

static size_t take_size(const char *text)
{
	size_t size;

	if (size_parse(text, &size) < 0 || size < SIZE_MIN || size > SIZE_MAX_ASKED)
		refuse("cannot use --size '%s': it must be 64K to 64G", text);
	return size;
}

static void choose_check(const char *name)
{
	for (size_t i = 0; i < COUNT(checks); i++) {
		if (strcmp(checks[i].name, name) == 0) {
			only = name;
			return;
		}
	}
	refuse("cannot run the check '%s': there is no such check. Try --list", name);
}

static void parse_options(int argc, char **argv)
{
	int option;

	options.size = SIZE_DEFAULT;
	options.seed = (uint64_t)time(NULL);
	while ((option = take_option(argc, argv, &tool_help)) >= 0) {
		switch (option) {
		case OPTION_SIZE: options.size = take_size(optarg); break;
		case OPTION_ONLY: choose_check(optarg); break;
		case OPTION_SEED:
			options.seed = parse_number("--seed", optarg, 0, UINT64_MAX);
			break;
		case OPTION_KEEP: options.keep = true; break;
		case OPTION_OVERWRITE: options.overwrite = true; break;
		case OPTION_ALONE: options.alone = true; break;
		case OPTION_FORGETS: options.forgets = true; break;
		case OPTION_SWALLOWS: options.swallows = true; break;
		case OPTION_BESIDE: options.beside = optarg; break;
		case OPTION_FREE: options.free_keys = optarg; break;
		case OPTION_SECONDS:
			seconds = (unsigned)parse_number("--seconds", optarg, 1, 86400);
			break;
		case OPTION_LIST: print_list(); exit(EXIT_ALL_OK);
		}
	}
	if (optind != argc - 1)
		refuse("cannot run checks: there must be one URI. Try '%s "
		       "posix:/tmp/store'", program_invocation_short_name);
	options.uri = argv[optind];
}

/* ---- The store ---- */

static bool is_there(const char *suffix)
{
	char path[URI_MAX + 16];

	snprintf(path, sizeof(path), "%s%s", facts->path, suffix);
	return access(path, F_OK) == 0;
}

static void read_path(void)
{
	const char *path = strchr(options.uri, ':');
	size_t len = path ? strcspn(path + 1, "?") : 0;

	if (len == 0 || strlen(options.uri) >= URI_MAX / 2)
		refuse("cannot use '%s': it must be DRIVER:PATH", options.uri);
	if (memchr(path, '%', len) || memchr(path, '{', len))
		refuse("cannot use '%s': the path must not have %% or {}", options.uri);
	memcpy(facts->path, path + 1, len);
	if (!options.overwrite && is_there(""))
		refuse("cannot use '%s': the file exists. Try another path, or --overwrite, which "
		       "loses its contents",
		       facts->path);
	for (size_t i = 0; i < COUNT(beside); i++) {
		if (is_there(beside[i]))
			refuse("cannot use '%s': the file '%s%s' exists, which a check would "
			       "create",
			       facts->path, facts->path, beside[i]);
	}
}

static void remove_path(const char *suffix, const char *end)
{
	char path[2 * URI_MAX];

	snprintf(path, sizeof(path), "%s%s%s", facts->path, suffix, end);
	if (unlink(path) < 0 && errno != ENOENT)
		refuse("cannot remove '%s': %m", path);
}

/* Removes a store, and the files that the driver has left beside it. */
static void remove_file(const char *suffix)
{
	char ends[URI_MAX] = "", *rest = NULL;

	remove_path(suffix, "");
	if (options.beside)
		snprintf(ends, sizeof(ends), "%s", options.beside);
	for (char *end = strtok_r(ends, ",", &rest); end; end = strtok_r(NULL, ",", &rest))
		remove_path(suffix, end);
}

/* Makes a store of zeros, for a driver that cannot create stores. */
static void make_file(void)
{
	int fd = open(facts->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

	if (fd < 0 || ftruncate(fd, (off_t)options.size) < 0)
		refuse("cannot create '%s': %m", facts->path);
	close(fd);
}

/* Whether the path can be one of a file: its folder exists. */
static bool may_be_file(void)
{
	char folder[URI_MAX];
	const char *slash = strrchr(facts->path, '/');

	snprintf(folder, sizeof(folder), "%.*s/", slash ? (int)(slash - facts->path) : 0,
		 facts->path);
	return slash && access(folder, W_OK) == 0;
}

static void remove_store(void)
{
	for (size_t i = 0; i < COUNT(beside) && facts->file; i++)
		remove_file(beside[i]);
	if (facts->file && !options.overwrite && !options.keep)
		remove_file("");
}

/* Gives the next check a new store, if the checker can make one. */
static void renew_store(void)
{
	if (!facts->file || options.overwrite)
		return;
	remove_file("");
	if (!facts->creates)
		make_file();
}

/* ---- Opening for the first time, in a child as a check would be ---- */

/* Opens the store with these flags, and records its properties in facts. */
static bool look(int oflags)
{
	struct handle h;
	struct stat st;
	uint64_t size;
	bool grows;

	if (handle_try(options.uri, oflags, &h) < 0)
		return false;
	facts->file = stat(facts->path, &st) == 0 && S_ISREG(st.st_mode);
	facts->creates = oflags & UMMAP_O_CREATE;
	facts->writable = oflags & UMMAP_O_WRITE;
	size = handle_size(&h);
	grows = facts->writable && (handle_can(&h, UMMAP_CAP_GROW) ||
				    (h.driver.resize && h.driver.resize(h.h, options.size) == 0));
	facts->size = grows || size > options.size ? options.size : (size_t)size;
	handle_close(&h);
	return facts->size >= SIZE_MIN;
}

static void look_first(void)
{
	if (look(UMMAP_O_WRITE | UMMAP_O_CREATE))
		return;
	/* The driver cannot create a store that is large enough: use a file of the checker, or the
	 * existing store. */
	facts->creates = false;
}

static void look_again(void)
{
	if (look(UMMAP_O_WRITE) || look(0))
		return;
	expect(!*umerrormsg(), "%s", umerrormsg());
	expect(false, "the store has only %zu bytes; the checks need %zu", facts->size, SIZE_MIN);
}

/* ---- Running ---- */

/* Waits for a child. Returns false if it was killed because its time was over. The child cannot use
 * a timer, because the library blocks signals. */
static bool wait_in_time(pid_t child, int *status)
{
	time_t deadline = time(NULL) + seconds;
	const struct timespec pause = { 0, 5000000 };

	while (waitpid(child, status, WNOHANG) == 0) {
		if (time(NULL) > deadline) {
			kill(child, SIGKILL);
			waitpid(child, status, 0);
			return false;
		}
		nanosleep(&pause, NULL);
	}
	return true;
}

static void fail_at(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void fail_at(const char *format, ...)
{
	size_t len, size = sizeof(verdict->sentence);
	va_list args;

	va_start(args, format);
	len = (size_t)vsnprintf(verdict->sentence, size, format, args);
	va_end(args);
	snprintf(verdict->sentence + len, size - len, " at: %s", verdict->doing);
	verdict->outcome = OUTCOME_FAILED;
}

/* Runs fn in a child, and records in the verdict how it ended. */
static void run_apart(void (*fn)(void))
{
	int status, none = OUTCOME_NONE;
	pid_t child;

	memset(verdict, 0, sizeof(*verdict));
	child = fork_child();
	if (child == 0) {
		fn();
		atomic_compare_exchange_strong(&verdict->outcome, &none, OUTCOME_OK);
		_exit(0);
	}
	if (!wait_in_time(child, &status))
		fail_at("did not end within %u seconds", seconds);
	else if (WIFSIGNALED(status))
		fail_at("died of signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) != 0)
		fail_at("exited with status %d", WEXITSTATUS(status));
}

static void look_at_store(void)
{
	bool ours = !options.overwrite && may_be_file();

	run_apart(look_first);
	if (verdict->outcome == OUTCOME_OK && facts->creates)
		return;
	if (ours) {
		remove_file("");
		make_file();
	}
	run_apart(look_again);
	if (verdict->outcome == OUTCOME_OK)
		return;
	if (ours)
		remove_file("");
	refuse("cannot open '%s': %s", options.uri, verdict->sentence);
}

static unsigned run_checks(void)
{
	unsigned counts[OUTCOME_SKIPPED + 1] = { 0 };

	for (size_t i = 0; i < COUNT(checks); i++) {
		if (only && strcmp(checks[i].name, only) != 0)
			continue;
		renew_store();
		run_apart(checks[i].run);
		counts[verdict->outcome]++;
		if (verdict->outcome == OUTCOME_OK)
			printf("ok %s\n", checks[i].name);
		else
			printf("%s %s: %s\n",
			       verdict->outcome == OUTCOME_FAILED ? "FAILED" : "skipped",
			       checks[i].name, verdict->sentence);
		remove_store();
	}
	printf("%s: %u ok, %u failed, %u skipped (seed %ju)\n", options.uri, counts[OUTCOME_OK],
	       counts[OUTCOME_FAILED], counts[OUTCOME_SKIPPED], (uintmax_t)options.seed);
	return counts[OUTCOME_FAILED];
}

static void share_verdict(int fd)
{
	verdict_fd = fd;
	if (fd < 0 || ftruncate(fd, sizeof(*verdict)) < 0)
		refuse("cannot make shared memory: %m");
	verdict = mmap(NULL, sizeof(*verdict), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (verdict == MAP_FAILED)
		refuse("cannot make shared memory: %m");
}

int main(int argc, char **argv)
{
	/* The check "new-process" starts this: --verify CONTENTS-FD VERDICT-FD SIZE URI */
	if (argc == 6 && strcmp(argv[1], "--verify") == 0) {
		share_verdict(atoi(argv[3]));
		options.uri = argv[5];
		return verify_main(atoi(argv[2]), strtoull(argv[4], NULL, 10));
	}
	tool_begin(EXIT_CANNOT);
	parse_options(argc, argv);
	share_verdict(memfd_create("verdict", MFD_CLOEXEC));
	facts = mmap(NULL, sizeof(*facts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (facts == MAP_FAILED)
		refuse("cannot make shared memory: %m");
	read_path();
	look_at_store();
	return run_checks() > 0 ? EXIT_SOME_FAILED : EXIT_ALL_OK;
}
