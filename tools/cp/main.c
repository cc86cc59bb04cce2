/* SPDX-License-Identifier: BSD-3-Clause */
/* ummap cp - copies a store to another one: both are mapped, and the copy goes from one mapping to
 * the other, so that reads and writes of many segments are in flight. */
#include <inttypes.h>
#include <sys/mman.h>
#include <time.h>

#include <ummap-driver.h>
#include <ummap.h>

#include "../tool.h"
#include "common/minmax.h"
#include "common/uri_encode.h"

#define EXIT_TROUBLE 2
#define STEP_BYTES ((size_t)4 << 20)
#define PROGRESS_SECONDS 0.2

TOOL_HELP(CP_OPTIONS, .usage =
"usage: ummap cp [--force] [--quiet] SOURCE DESTINATION\n"
"Copies a store, such as a file or an object at a URL, to another one.\n"
"SOURCE and DESTINATION are paths or URIs (https://HOST/PATH, s3:BUCKET/KEY,\n"
"object:CONTAINER/NAME).\n");

static bool force, quiet;

struct store {
	const char *name;              /* argument of the command */
	char uri[4096 + 16];
	struct ummap_driver driver;
	void *h;                       /* handle; the mapping closes it, if there is one */
	struct ummap_geom geom;
	char *bytes;                   /* mapping; NULL: the store is empty */
};

/* ---- Opening ---- */

static bool is_uri(const char *name)
{
	size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789+-");

	return len > 0 && name[len] == ':';
}

static void open_store(struct store *s, const char *name, int oflags)
{
	char path[4096];

	s->name = name;
	s->driver.struct_size = sizeof(s->driver);
	if (is_uri(name)) {
		snprintf(s->uri, sizeof(s->uri), "%s", name);
	} else {
		uri_encode(path, sizeof(path), name);
		snprintf(s->uri, sizeof(s->uri), "posix:%s", path);
	}
	if (ummap_driver_open(s->uri, oflags, &s->driver, &s->h, &s->geom) < 0)
		refuse("%s", umerrormsg());
}

static void map_store(struct store *s, size_t size, int prot, int flags)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.flags = flags;
	if (ummap_open_handle(&s->driver, s->h, &s->geom, size, 0, prot, &attr, &addr) < 0)
		refuse("cannot map '%s': %s", s->name, umerrormsg());
	s->bytes = addr;
	umadvise(addr, size, UMMAP_ADV_SEQUENTIAL);
}

/* ---- The copy ---- */

static double seconds_since(const struct timespec *begin)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - begin->tv_sec) +
	       1e-9 * (double)(now.tv_nsec - begin->tv_nsec);
}

static void show_progress(size_t done, size_t size, const struct timespec *begin)
{
	static double shown;
	double seconds = seconds_since(begin), mib = (double)done / (1 << 20);

	if (quiet || !isatty(STDERR_FILENO))
		return;
	if (done < size && seconds - shown < PROGRESS_SECONDS)
		return;
	shown = seconds;
	fprintf(stderr, "\r%.1f of %.1f MiB, %.1f MiB/s  %s", mib, (double)size / (1 << 20),
		seconds > 0 ? mib / seconds : 0, done == size ? "\n" : "");
}

/* Bytes behind the end of a store that has become shorter are read as zeros. */
static void check_length(const struct store *from, size_t size)
{
	uint64_t now = size;

	if (from->driver.size && from->driver.size(from->h, &now) == 0 && now < size)
		refuse("cannot copy '%s': it has become shorter, from %zu to %" PRIu64 " bytes. "
		       "The copy is incomplete. Try again with --force", from->name, size, now);
}

static void copy_bytes(struct store *from, struct store *to, size_t size)
{
	struct timespec begin;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (size_t at = 0, n; at < size; at += n) {
		n = min_size(size - at, STEP_BYTES);
		if (umcopy(to->bytes + at, from->bytes + at, n) < 0)
			refuse("cannot copy bytes %zu to %zu of '%s': %s. The copy is incomplete. "
			       "Try again with --force", at, at + n - 1, from->name,
			       strerror(errno));
		show_progress(at + n, size, &begin);
	}
	if (umunmap(to->bytes, 1) < 0)
		refuse("cannot write '%s': %s. The copy is incomplete. Try again with --force",
		       to->name, strerror(errno));
	check_length(from, size);
	umunmap(from->bytes, 0);
}

/* A longer store becomes as short as the source. */
static void cut(struct store *to, uint64_t size)
{
	int err = to->driver.resize ? to->driver.resize(to->h, size) : -EOPNOTSUPP;

	if (err)
		refuse("cannot shorten '%s' to %" PRIu64 " bytes: %s. Try another destination",
		       to->name, size, strerror(-err));
}

/* A store without bytes cannot be mapped. Creates it, or makes its new length durable. */
static void write_empty(struct store *to)
{
	int err = to->driver.flush ? abs(to->driver.flush(to->h, 0, UINT64_MAX)) : 0;
	int closing = to->driver.close(to->h);

	err = err ? err : abs(closing);
	if (err)
		refuse("cannot write '%s': %s", to->name, strerror(err));
}

static void copy_store(const char *source, const char *destination)
{
	static struct store from, to;
	uint64_t size;

	open_store(&from, source, 0);
	open_store(&to, destination, UMMAP_O_WRITE | UMMAP_O_CREATE);
	size = from.geom.size;
	if (from.geom.id[0] && from.geom.id[0] == to.geom.id[0] &&
	    from.geom.id[1] == to.geom.id[1])
		refuse("cannot copy '%s' to itself", source);
	if (to.geom.size > 0 && !force && (to.geom.caps & UMMAP_CAP_GROW))
		refuse("cannot copy to '%s': it has data. Try --force, which overwrites it",
		       destination);
	if (to.geom.size > size && (to.geom.caps & UMMAP_CAP_GROW))
		cut(&to, size);
	to.geom.size = min_u64(to.geom.size, size);
	if (size == 0) {
		write_empty(&to);
		return;
	}
	map_store(&from, (size_t)size, PROT_READ, 0);
	map_store(&to, (size_t)size, PROT_READ | PROT_WRITE, UMMAP_CREATE | UMMAP_BLANK);
	copy_bytes(&from, &to, (size_t)size);
}

int main(int argc, char **argv)
{
	int option;

	tool_begin(EXIT_TROUBLE);
	while ((option = take_option(argc, argv, &tool_help)) >= 0) {
		force |= option == OPTION_FORCE;
		quiet |= option == OPTION_QUIET;
	}
	if (argc - optind != 2) {
		fputs(tool_help.usage, stderr);
		return EXIT_TROUBLE;
	}
	copy_store(argv[optind], argv[optind + 1]);
	return EXIT_SUCCESS;
}
