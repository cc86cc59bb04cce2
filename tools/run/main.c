/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap run - runs a program with its file mappings paged by libummap: sets the environment, tries
 * the options, and becomes the program.
 */
#include <limits.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <link.h>
#include <ummap.h>

#include "../tool.h"
#include "program.h"
#include "common/size.h"

/* Exit statuses are those of env(1) and nohup(1). */
enum { EXIT_OWN_ERROR = 125, EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127 };

TOOL_HELP(RUN_OPTIONS, .ends_at_program = true, .usage =
"usage: ummap run [OPTION ...] PROGRAM [ARGUMENT ...]\n"
"Runs a program whose file mappings of 1 MiB and more are paged by libummap.\n",
.notes = "umrun is a short name of 'ummap run'.\n");

static void set(const char *name, const char *value)
{
	if (setenv(name, value, 1) < 0)
		refuse("cannot set '%s': no memory", name);
}

/* Adds a line to UMRUN_OPTIONS, by which the preloaded library receives its options. */
static void add_option(const char *option, const char *value)
{
	const char *others = getenv("UMRUN_OPTIONS");
	char *lines;

	if (strchr(value, '\n'))
		refuse("cannot use --%s '%s': it must be a single line", option, value);
	if (asprintf(&lines, "%s%s=%s\n", others ? others : "", option, value) < 0)
		refuse("cannot set UMRUN_OPTIONS: no memory");
	set("UMRUN_OPTIONS", lines);
	free(lines);
}

static void add_size(const char *option, const char *text)
{
	uint64_t size;

	if (size_parse(text, &size) < 0)
		refuse("cannot use --%s '%s': a size is " SIZE_FORMS, option, text);
	add_option(option, text);
}

/* A percentage is left to the library, which knows how much memory there is. */
static void set_limit(const char *text)
{
	double percent;
	uint64_t size;

	if (size_parse_percent(text, &percent) < 0 && (size_parse(text, &size) < 0 || size == 0))
		refuse("cannot use --limit '%s': it must be more than 0: a percentage of the "
		       "memory (50%%, at most 100%%), " SIZE_FORMS, text);
	set("UMMAP_MEM_LIMIT", text);
}

/* The library checks whether the limit holds enough segments of this size. */
static void set_segment(const char *text)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), size;

	if (strcmp(text, "auto") != 0 &&
	    (size_parse(text, &size) < 0 || size < page || (size & (size - 1)) != 0))
		refuse("cannot use --segment '%s': it must be " A_SEGMENT_SIZE, text);
	set("UMMAP_SEG_SIZE", text);
}

static void set_engine(const char *text)
{
	if (strcmp(text, "uffd") != 0 && strcmp(text, "sigbus") != 0 &&
	    strcmp(text, "segv") != 0 && strcmp(text, "auto") != 0)
		refuse("cannot use --engine '%s': it must be uffd, sigbus or segv", text);
	set("UMMAP_ENGINE", text);
}

/* Only frames of the engine segv move between tiers. */
static void set_tiers(const char *text)
{
	set("UMMAP_TIERS", text);
	if (!getenv("UMMAP_ENGINE"))
		set("UMMAP_ENGINE", "segv");
}

/* The paths are those of the files that the program maps. */
static const char *check_driver(const char *text)
{
	size_t len = strcspn(text, "?"), scheme = strcspn(text, ":?");

	/* A colon without a path is accepted, as in UMMAP_DRIVER. */
	if (scheme + 1 < len)
		refuse("cannot use --driver '%s': it must be NAME or NAME?KEYS, without a path. "
		       "Try '%.*s'",
		       text, (int)strcspn(text, ":"), text);
	if ((scheme == 3 && strncmp(text, "mem", 3) == 0) ||
	    (scheme == 4 && strncmp(text, "null", 4) == 0))
		refuse("cannot use --driver '%s': it does not store data in files. Try posix",
		       text);
	return text;
}

/* Passes an absolute path, because the program may change its working directory. */
static void add_folder(const char *path)
{
	char real[PATH_MAX];
	struct stat st;

	if (!realpath(path, real) || stat(real, &st) < 0)
		refuse("cannot use --heap '%s': %m", path);
	if (!S_ISDIR(st.st_mode) || access(real, W_OK | X_OK) < 0)
		refuse("cannot use --heap '%s': it must be a folder in which you can create files",
		       path);
	add_option("heap", real);
}

/* Copies the path of libummap.so, for dl_iterate_phdr(3). */
static int copy_library_path(struct dl_phdr_info *info, size_t size, void *path)
{
	const char *name = strrchr(info->dlpi_name, '/');

	(void)size;
	if (!name || strncmp(name, "/libummap.so", 12) != 0)
		return 0;
	snprintf(path, PATH_MAX, "%s", info->dlpi_name);
	return 1;
}

/* Preloads a library that stands beside libummap.so. */
static void preload(const char *name)
{
	const char *others = getenv("LD_PRELOAD");
	char library[PATH_MAX] = "", real[PATH_MAX], value[3 * PATH_MAX], path[PATH_MAX];
	char *slash;

	if (!dl_iterate_phdr(copy_library_path, library) || !realpath(library, real))
		refuse("cannot find libummap.so: it is no longer where it was loaded from");
	slash = strrchr(real, '/');
	*slash = '\0';
	if (snprintf(path, sizeof(path), "%s/%s.so.0", real, name) >= (int)sizeof(path) ||
	    access(path, R_OK) < 0)
		refuse("cannot read '%s/%s.so.0': %m", real, name);
	if (strpbrk(path, " :"))
		refuse("cannot preload '%s': its path has a blank or a colon", path);
	*slash = '/';
	if (snprintf(value, sizeof(value), "%s:%s%s%s", path, real, others ? ":" : "",
		     others ? others : "") >= (int)sizeof(value))
		refuse("cannot extend LD_PRELOAD: it would be too long");
	set("LD_PRELOAD", value);
}

/* The program and its children form a group of their own, unless the user has named one. */
static void set_group(void)
{
	char group[32];

	snprintf(group, sizeof(group), "umrun.%d", (int)getpid());
	if (!getenv("UMMAP_GROUP"))
		set("UMMAP_GROUP", group);
}

/* Makes the URI of a trial. A trace file belongs to the program, so the trial writes none. */
static void make_uri(char *uri, size_t room, const char *driver)
{
	size_t name = strcspn(driver, ":?");
	const char *keys = driver + strcspn(driver, "?"), *file = strstr(keys, "trace.file=");
	const char *behind = file ? file + strcspn(file, "&") : "";

	if (snprintf(uri, room, "%.*s:/proc/self/exe%.*s%s%s", (int)name, driver,
		     file ? (int)(file - keys) : (int)strlen(keys), keys,
		     file ? "trace.file=/dev/null" : "", behind) >= (int)room)
		refuse("cannot use --driver '%s': it is too long", driver);
}

/* Tries the options here, because the library would not report a wrong one in the program. */
static void try_options(const char *driver, const char *policy)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[PATH_MAX];
	void *base;

	attr.policy = policy;
	make_uri(uri, sizeof(uri), driver ? driver : "posix");
	if (ummap_open(uri, 4096, 0, PROT_READ, &attr, &base) < 0)
		refuse("%s", umerrormsg());
	umunmap(base, 0);
}

int main(int argc, char **argv)
{
	const char *driver = NULL, *policy = NULL, *heap = NULL, *tiers = NULL;
	int option;

	tool_begin(EXIT_OWN_ERROR);
	unsetenv("UMRUN_OPTIONS");
	while ((option = take_option(argc, argv, &tool_help)) >= 0) {
		switch (option) {
		case OPTION_LIMIT: set_limit(optarg); break;
		case OPTION_SEGMENT: set_segment(optarg); break;
		case OPTION_POLICY: add_option("policy", policy = optarg); break;
		case OPTION_DRIVER: add_option("driver", driver = check_driver(optarg)); break;
		case OPTION_ENGINE: set_engine(optarg); break;
		case OPTION_TIERS: tiers = optarg; break;
		case OPTION_ONLY: add_option("only", optarg); break;
		case OPTION_MIN: add_size("min", optarg); break;
		case OPTION_HEAP: add_folder(heap = optarg); break;
		case OPTION_HEAP_MIN: add_size("heap-min", optarg); break;
		case OPTION_EXCLUSIVE: add_option("exclusive", ""); break;
		case OPTION_NODE_CACHE: set("UMMAP_NODE_CACHE", "1"); break;
		case OPTION_STATS: add_option("stats", ""); break;
		case OPTION_VERBOSE: add_option("verbose", ""); break;
		case OPTION_QUIET: add_option("quiet", ""); break;
		}
	}
	if (optind == argc) {
		fputs(tool_help.usage, stderr);
		return EXIT_OWN_ERROR;
	}
	set_group();
	if (tiers)
		set_tiers(tiers);
	try_options(driver, policy);
	program_check(argv[optind]);
	preload(heap ? "libumrun-heap" : "libumrun");
	execvp(argv[optind], argv + optind);
	tool_failed = errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
	refuse("cannot run '%s': %m", argv[optind]);
}
