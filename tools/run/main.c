/* SPDX-License-Identifier: BSD-3-Clause */
/* umrun - runs a program with its file mappings on libummap: sets the environment, tries it, and becomes the program. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <link.h>
#include <ummap.h>

#include "../output.h"
#include "program.h"
#include "base/size.h"

static const char usage[] =
"usage: umrun [OPTION ...] PROGRAM [ARGUMENT ...]\n"
"Runs a program whose file mappings of 1 MiB and more are paged by libummap: memory, and how it moves, as the options say.\n"
"  --limit SIZE      memory for all mappings of the program and its children, such as 512M or 50% (default: as\n"
"                    ummap(7) says)\n"
"  --segment SIZE    what is read and evicted at a time (256K)\n"
"  --policy NAME     what is evicted first: fifo, lifo, plru, prnd, wiro-f, wiro-l, s3fifo, or one that is\n"
"                    loaded (s3fifo)\n"
"  --driver NAME     how files are read and written (uring, or posix where that cannot be used)\n"
"  --engine NAME     how accesses are caught: uffd, by which any system call may be given a mapping; sigbus or segv,\n"
"                    which are faster (uffd, where it may be used)\n"
"  --only GLOB       only files whose path, or name, matches\n"
"  --min SIZE        only mappings of at least so many bytes (1M)\n"
"  --heap FOLDER     allocations of 64 KiB and more, and private memory of 256 KiB and more, are paged to a file there, too\n"
"  --heap-min SIZE   ... from another size of allocations on (64K)\n"
"  --exclusive       no other process uses the files: take mappings that would otherwise stay with the kernel\n"
"  --stats           print at the end what was mapped and read\n"
"  --verbose         also print which mappings are left to the kernel, and why\n"
"  --quiet           print nothing about mappings that stayed with the kernel\n"
"  --help, --version\n";

enum { LIMIT = 256, SEGMENT, POLICY, DRIVER, ENGINE, ONLY, MIN, HEAP, HEAP_MIN, EXCLUSIVE, STATS, VERBOSE, QUIET, HELP, VERSION };

static const struct option options[] = {
	{ "limit", required_argument, NULL, LIMIT },
	{ "segment", required_argument, NULL, SEGMENT },
	{ "policy", required_argument, NULL, POLICY },
	{ "driver", required_argument, NULL, DRIVER },
	{ "engine", required_argument, NULL, ENGINE },
	{ "only", required_argument, NULL, ONLY },
	{ "min", required_argument, NULL, MIN },
	{ "heap", required_argument, NULL, HEAP },
	{ "heap-min", required_argument, NULL, HEAP_MIN },
	{ "exclusive", no_argument, NULL, EXCLUSIVE },
	{ "quiet", no_argument, NULL, QUIET },
	{ "stats", no_argument, NULL, STATS },
	{ "verbose", no_argument, NULL, VERBOSE },
	{ "help", no_argument, NULL, HELP },
	{ "version", no_argument, NULL, VERSION },
	{ NULL, 0, NULL, 0 },
};

__attribute__((noreturn, format(printf, 1, 2)))
static void refuse(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "umrun: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	exit(125);
}

static void set(const char *name, const char *value)
{
	if (setenv(name, value, 1) < 0)
		refuse("no memory for the environment");
}

static void set_size(const char *name, const char *text, const char *option)
{
	char number[32];
	uint64_t size;

	if (size_parse(text, &size) < 0)
		refuse("--%s %s: a size is " SIZE_FORMS, option, text);
	snprintf(number, sizeof(number), "%llu", (unsigned long long)size);
	set(name, number);
}

/* A part of the memory is for the library to compute. */
static void set_limit(const char *text)
{
	double percent;

	if (size_parse_percent(text, &percent) == 0)
		set("UMMAP_MEM_LIMIT", text);
	else
		set_size("UMMAP_MEM_LIMIT", text, "limit");
}

/* Wherever the program goes. */
static void set_folder(const char *name, const char *path)
{
	char real[PATH_MAX];
	struct stat st;

	if (!realpath(path, real) || stat(real, &st) < 0)
		refuse("--heap %s: %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode) || access(real, W_OK | X_OK) < 0)
		refuse("--heap %s: this has to be a folder in which files can be made", path);
	set(name, real);
}

/* Where the library is loaded from. */
static int look_for(struct dl_phdr_info *info, size_t size, void *path)
{
	const char *name = strrchr(info->dlpi_name, '/');

	(void)size;
	if (!name || strncmp(name, "/libummap.so", 12) != 0)
		return 0;
	snprintf(path, PATH_MAX, "%s", info->dlpi_name);
	return 1;
}

/* The preloaded library is beside the other. */
static void preload(const char *name)
{
	const char *others = getenv("LD_PRELOAD");
	char library[PATH_MAX] = "", real[PATH_MAX], value[3 * PATH_MAX], path[PATH_MAX];
	char *slash;

	if (!dl_iterate_phdr(look_for, library) || !realpath(library, real))
		refuse("libummap.so is not where it was loaded from");
	slash = strrchr(real, '/');
	*slash = '\0';
	if (snprintf(path, sizeof(path), "%s/%s.so.0", real, name) >= (int)sizeof(path) || access(path, R_OK) < 0)
		refuse("%s/%s.so.0 cannot be read: %s", real, name, strerror(errno));
	if (strpbrk(path, " :"))
		refuse("%s cannot be preloaded, because its path has a blank or a colon", path);
	*slash = '/';
	if (snprintf(value, sizeof(value), "%s:%s%s%s", path, real, others ? ":" : "", others ? others : "") >= (int)sizeof(value))
		refuse("LD_PRELOAD would be too long");
	set("LD_PRELOAD", value);
}

/* All that programs share, unless they are told of another group, is their limit. */
static void set_group(void)
{
	char group[32];

	snprintf(group, sizeof(group), "umrun.%d", (int)getpid());
	if (setenv("UMMAP_GROUP", group, 0) < 0)
		refuse("no memory for the environment");
}

/* A driver with its keys, before a path. A trace is the program's, and none is made for a trial. */
static void make_uri(char *uri, size_t room, const char *driver)
{
	size_t name = strcspn(driver, ":?");
	const char *keys = driver + strcspn(driver, "?"), *file = strstr(keys, "trace.file=");
	const char *behind = file ? file + strcspn(file, "&") : "";

	if (snprintf(uri, room, "%.*s:/proc/self/exe%.*s%s%s", (int)name, driver, file ? (int)(file - keys) : (int)strlen(keys), keys,
		     file ? "trace.file=/dev/null" : "", behind) >= (int)room)
		refuse("--driver %s: this is too long", driver);
}

/* What the library would refuse in the program, where nobody would hear of it, it refuses here. */
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
	const char *driver = NULL, *policy = NULL, *heap = NULL;
	int option;

	output_watch(125);
	if (!getenv("UMMAP_SEG_SIZE"))
		set("UMMAP_SEG_SIZE", "256K");
	while ((option = getopt_long(argc, argv, "+", options, NULL)) != -1) {
		switch (option) {
		case LIMIT: set_limit(optarg); break;
		case SEGMENT: set_size("UMMAP_SEG_SIZE", optarg, "segment"); set("UMRUN_SEGMENT", getenv("UMMAP_SEG_SIZE")); break;
		case MIN: set_size("UMRUN_MIN", optarg, "min"); break;
		case POLICY: set("UMRUN_POLICY", policy = optarg); break;
		case DRIVER: set("UMRUN_DRIVER", driver = optarg); break;
		case ENGINE: set("UMMAP_ENGINE", optarg); set("UMRUN_ENGINE", optarg); break;
		case ONLY: set("UMRUN_ONLY", optarg); break;
		case HEAP: set_folder("UMRUN_HEAP", heap = optarg); break;
		case HEAP_MIN: set_size("UMRUN_HEAP_MIN", optarg, "heap-min"); break;
		case EXCLUSIVE: set("UMRUN_EXCLUSIVE", "1"); break;
		case QUIET: set("UMRUN_QUIET", "1"); break;
		case STATS: set("UMRUN_STATS", "1"); break;
		case VERBOSE: set("UMRUN_VERBOSE", "1"); break;
		case HELP: fputs(usage, stdout); return 0;
		case VERSION: puts("umrun (libummap) " UMMAP_VERSION); return 0;
		default: fputs(usage, stderr); return 125;
		}
	}
	if (optind == argc) {
		fputs(usage, stderr);
		return 125;
	}
	set_group();
	try_options(driver, policy);
	program_check(argv[optind]);
	preload(heap ? "libumrun-heap" : "libumrun");
	execvp(argv[optind], argv + optind);
	fprintf(stderr, "umrun: %s cannot be run: %s\n", argv[optind], strerror(errno));
	return errno == ENOENT ? 127 : 126;
}
