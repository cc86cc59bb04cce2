/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of access between processes: copies from and to a mapping of another process, compared
 * with memcpy; and loads of segments in a mapping that is exported, compared with one that is not.
 * The compared methods alternate.
 */
#include <sys/wait.h>

#include "kit/raw.h"
#include "kit/turns.h"
#include "ummap.h"

static const char help[] = "usage: reach [OPTION ...]\n"
			   "Copies from and to a mapping of another process, and goes through one "
			   "that has no store; CSV on stdout.\n"
			   "  --size SIZE      16G\n"
			   "  --budget BUDGET  256M\n"
			   "  --seg SIZE       2M\n"
			   "  --reps N         pairs (5)\n"
			   "  --help\n";

static const size_t lengths[] = { 8, 4 * KIB, MIB };

static char *map_null(const struct options *o, size_t size, unsigned flags)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[64];
	void *addr;

	attr.seg_size = o->seg;
	attr.flags = flags;
	attr.engine = UMMAP_ENGINE_SEGV;
	snprintf(uri, sizeof(uri), "null:%zu?fill=no", size);
	if (ummap_open(uri, size, 0, PROT_READ | PROT_WRITE, &attr, &addr))
		die("ummap_open: %s", umerrormsg());
	return addr;
}

/* ---- Loads of segments ---- */

/* Returns the nanoseconds per segment for an access to each page. */
static double turn(const struct options *o, unsigned flags)
{
	char *m = map_null(o, o->size, flags);
	uint64_t start;

	for (size_t i = 0; i < 2 * o->budget; i += 4 * KIB)
		*(const volatile char *)(m + i);
	start = now_ns();
	for (size_t i = 0; i < o->size; i += 4 * KIB)
		*(const volatile char *)(m + i);
	start = now_ns() - start;
	if (umunmap(m, 0))
		die("umunmap: %s", umerrormsg());
	return (double)start / (double)(o->size / o->seg);
}

/* ---- Copies ---- */

/* Starts a process that has `budget / 4` dirty bytes in memory until it is told to end. */
static pid_t start_owner(const struct options *o, int from, int to)
{
	pid_t pid = fork();
	struct umexport offer;
	char *m, byte;

	if (pid)
		return pid;
	m = map_null(o, o->budget / 4, UMMAP_SHARED);
	memset(m, 1, o->budget / 4);
	if (umexport(m, &offer))
		die("umexport: %s", umerrormsg());
	must(write(to, &offer, sizeof(offer)) == sizeof(offer), "write");
	must(read(from, &byte, 1) >= 0, "read");
	_exit(0);
}

enum op { GET, PUT, MEMCPY };

static void copy(struct umimport *peer, enum op op, char *buf, char *plain, size_t len, uint64_t at)
{
	size_t done = len;

	if (op == GET)
		done = umimport_get(peer, buf, len, at);
	else if (op == PUT)
		done = umimport_put(peer, buf, len, at);
	else
		memcpy(buf, plain + at, len);
	if (done != len)
		die("%zu of %zu bytes were reached", done, len);
	__asm__ volatile("" : : "r"(buf) : "memory");
}

/* Returns the nanoseconds per copy of len bytes at random places. Places of short copies fit into
 * the processor's caches. */
static double time_copies(struct umimport *peer, enum op op, char *plain, size_t size, size_t len)
{
	size_t n = (len < 64 ? 256 * MIB : 2 * GIB) / (len + 56),
	       places = (len < MIB ? 256 * KIB : size) / len;
	char *buf = huge_memory(MIB);
	uint64_t random = 1, start;

	memset(buf, 1, MIB);
	for (size_t i = 0; i < places; i++)
		copy(peer, op, buf, plain, len, i * len);
	start = now_ns();
	for (size_t i = 0; i < n; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		copy(peer, op, buf, plain, len, (random >> 33) % places * len);
	}
	start = now_ns() - start;
	munmap(buf, MIB);
	return (double)start / (double)n;
}

static void compare_copies(const struct options *o)
{
	static const char *const names[] = { "get", "put", "memcpy" };
	size_t size = o->budget / 4;
	char *plain = huge_memory(size);
	int there[2], back[2];
	struct umexport offer;
	struct umimport *peer;
	pid_t owner;

	must(pipe(there) == 0 && pipe(back) == 0, "pipe");
	owner = start_owner(o, there[0], back[1]);
	must(read(back[0], &offer, sizeof(offer)) == sizeof(offer), "read");
	if (umimport_open(&offer, &peer))
		die("umimport_open: %s", umerrormsg());
	memset(plain, 1, size);
	for (unsigned rep = 0; rep < o->reps; rep++)
		for (unsigned i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
			for (enum op op = GET; op <= MEMCPY; op++)
				printf("%u,%s,%zu,%.1f\n", rep, names[op], lengths[i],
				       time_copies(peer, op, plain, size, lengths[i]));
	umimport_close(peer);
	must(write(there[1], "", 1) == 1, "write");
	waitpid(owner, NULL, 0);
	munmap(plain, size);
}

static void check_budget(const struct options *o)
{
	if (o->budget < 16 * o->seg || o->budget % (4 * MIB) || o->size < 4 * o->budget)
		die("--budget must be a multiple of 4M, of 16 segments at least, and a quarter of "
		    "--size at most");
}

int main(int argc, char **argv)
{
	struct options o = { .size = 16 * GIB, .budget = 256 * MIB, .seg = 2 * MIB, .reps = 5 };
	char text[32];

	parse_options(&o, argc, argv, help);
	check_budget(&o);
	snprintf(text, sizeof(text), "%zu", o.budget);
	setenv("UMMAP_MEM_LIMIT", text, 1);
	snprintf(text, sizeof(text), "reach.%d", (int)getpid());
	setenv("UMMAP_GROUP", text, 1);
	printf("rep,what,bytes,ns\n");
	compare_copies(&o);
	for (unsigned rep = 0; rep < o.reps; rep++) {
		printf("%u,private turn,%zu,%.0f\n", rep, o.seg, turn(&o, 0));
		printf("%u,shared turn,%zu,%.0f\n", rep, o.seg, turn(&o, UMMAP_SHARED));
	}
	return 0;
}
