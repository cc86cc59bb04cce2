/* SPDX-License-Identifier: BSD-3-Clause */
/* ummap sum - makes and checks the checksums of stores for sum+. */
#include <inttypes.h>

#include "../../drivers/sum.h"
#include "../beside.h"

TOOL_HELP(SUM_OPTIONS, .usage =
"usage: ummap sum [--sums FILE] make|check STORE\n"
"Manages the checksums of a store that is accessed through sum+. STORE is a path or a URI.\n"
"\n"
"Actions:\n"
"  make         read the store, and keep checksums of it; existing ones that fit stay\n"
"  check        read the store, and show all blocks that differ from their checksums; the exit\n"
"               status is 1 if there are any\n");

struct store {
	struct ummap_driver driver;
	void *h;
	struct ummap_geom geom;
};

/* Opens the store behind sum+, with a value of sum.changed. */
static void open_store(const struct job *job, int oflags, const char *changed, struct store *s)
{
	static char behind[STORE_URI_MAX], path[3 * PATH_MAX];
	static char uri[STORE_URI_MAX + sizeof(path) + 64];

	store_uri(behind, job->store);
	uri_encode(path, sizeof(path), job->file);
	snprintf(uri, sizeof(uri), "sum+%s%csum.path=%s&sum.changed=%s", behind,
		 strchr(behind, '?') ? '&' : '?', path, changed);
	s->driver.struct_size = sizeof(s->driver);
	if (ummap_driver_open(uri, oflags, &s->driver, &s->h, &s->geom) < 0)
		refuse("%s", umerrormsg());
}

static void close_store(struct store *s)
{
	int err = s->driver.close(s->h);

	if (err)
		refuse("cannot close the store: %s", strerror(-err));
}

static int do_make(const struct job *job)
{
	struct store s;

	open_store(job, UMMAP_O_WRITE, "renew", &s);
	if (*s.geom.why)
		printf("%s\n", s.geom.why);
	close_store(&s);
	return EXIT_SUCCESS;
}

static char notice[512]; /* last notice of the driver */

static void keep_notice(void *unused, const char *message)
{
	(void)unused;
	snprintf(notice, sizeof(notice), "%s", message);
}

/* Reads a window, and prints a line for each block that cannot be read. Returns their number. */
static uint64_t check_window(struct store *s, char *window, size_t len, uint64_t off)
{
	uint64_t bad = 0;

	if (s->driver.read(s->h, window, len, off) == 0)
		return 0;
	for (size_t at = 0; at < len; at += SUM_BLOCK) {
		size_t n = len - at < SUM_BLOCK ? len - at : SUM_BLOCK;
		int err;

		*notice = '\0';
		err = s->driver.read(s->h, window, n, off + at);
		if (err && *notice)
			printf("%s\n", notice);
		else if (err)
			printf("cannot read the store at byte %" PRIu64 ": %s\n", off + at,
			       strerror(-err));
		bad += err != 0;
	}
	return bad;
}

/* After a crash, blocks near the last writes are not compared. */
static void show_doubt(const struct job *job)
{
	struct header slots = side_header(SUM_MAGIC);
	struct ummap_geom geom = { .size = 0 };
	static struct sum_head head;
	uint64_t any = 0;
	struct side file;

	if (side_open(&file, job->file, 0, 0, UMMAP_LOCK_NONE, &geom) < 0)
		refuse("%s", geom.why);
	if (header_read(&slots, &file, &head, sizeof(head)) == 0) {
		for (unsigned w = 0; w < SUM_REGIONS / 64; w++)
			any |= head.doubt[w];
	}
	side_close(&file);
	if (any)
		printf("the last writer of '%s' did not end normally: blocks near its writes are "
		       "not compared. Try `ummap sum make`\n", job->store);
}

static int do_check(const struct job *job)
{
	static char window[SUM_WINDOW];
	uint64_t bad = 0, off = 0;
	struct store s;

	open_store(job, 0, "check", &s);
	show_doubt(job);
	s.driver.set_notice(s.h, keep_notice, NULL);
	for (; off < s.geom.size; off += SUM_WINDOW) {
		uint64_t left = s.geom.size - off;

		bad += check_window(&s, window, left < SUM_WINDOW ? left : SUM_WINDOW, off);
	}
	close_store(&s);
	if (bad)
		printf("%s: %" PRIu64 " blocks are damaged\n", job->store, bad);
	return bad ? EXIT_DAMAGED : EXIT_SUCCESS;
}

static int find_sums(char path[PATH_MAX], const char *store)
{
	return overlay_beside(path, store, SUM_SUFFIX);
}

int main(int argc, char **argv)
{
	static const struct action actions[] = {
		{ { "make", 1, 1 }, do_make }, { { "check", 1, 1 }, do_check }, { .run = NULL },
	};
	static const struct tool sum = { .help = &tool_help, .beside = find_sums,
					 .actions = actions };

	return tool_main(&sum, argc, argv);
}
