/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bfs - searches a graph in a file, breadth first, in less memory than the graph takes.
 *
 * The edges are mapped, in segments of 4 KiB; what is kept for each node is in memory. The nodes of the next steps of
 * the search are known before their edges are needed: umprefetch loads these together, while the program looks at
 * others. At the end, each edge is looked at once more, to see that the levels found are the shortest distances.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <ummap.h>

#define MAGIC 0x31302d7366622d75ull
#define UNREACHED UINT32_MAX
#define SEG_SIZE 4096
/* Nodes whose edges are asked for by one call, the most; and edges of a node, on average, the most. */
#define GROUP_MOST 65536
#define DEGREE_MOST 65536

/* The file: this, then for each node the number of its first edge, and the number of edges, then where each edge leads. */
struct header {
	uint64_t magic, nodes, edges;
};

struct graph {
	uint64_t nodes, edges;
	uint64_t *first;         /* nodes + 1 of them, in memory */
	void *base;              /* the mapped file */
	size_t size;
	const uint32_t *to;      /* in the mapping */
};

struct options {
	const char *file;
	uint64_t make, degree, seed, start, group;
	bool prefetch;
};

static void die(const char *format, ...)
{
	va_list args;

	fputs("bfs: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(2);
}

static void *memory(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p)
		die("no memory for %zu times %zu bytes", n, size);
	return p;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- Making a graph. ---- */

static uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static void put(FILE *f, const void *bytes, size_t len, const char *name)
{
	if (fwrite(bytes, 1, len, f) != len)
		die("%s: cannot be written: %s", name, strerror(errno));
}

/* Each node has up to twice as many edges as the average, to nodes of chance. */
static void make_graph(const struct options *o)
{
	struct header h = { MAGIC, o->make, 0 };
	uint64_t *first = memory(o->make + 1, sizeof(*first)), seed = o->seed;
	FILE *f = fopen(o->file, "wbx");

	if (!f)
		die("%s: cannot be made: %s", o->file, strerror(errno));
	for (uint64_t i = 0; i < o->make; i++)
		first[i + 1] = first[i] + next_random(&seed) % (2 * o->degree + 1);
	h.edges = first[o->make];
	put(f, &h, sizeof(h), o->file);
	put(f, first, (o->make + 1) * sizeof(*first), o->file);
	for (uint64_t e = 0; e < h.edges; e++) {
		uint32_t to = (uint32_t)(next_random(&seed) % o->make);

		put(f, &to, sizeof(to), o->file);
	}
	if (fflush(f) || fsync(fileno(f)) || fclose(f))
		die("%s: cannot be written: %s", o->file, strerror(errno));
	free(first);
	printf("%s: %" PRIu64 " nodes, %" PRIu64 " edges\n", o->file, o->make, h.edges);
}

/* ---- Searching. ---- */

/* The file may be of anyone: no number in it is believed. */
static void open_graph(struct graph *g, const char *name)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	struct header h;
	struct stat st;
	uint64_t space;
	size_t index;

	if (fd < 0 || fstat(fd, &st) < 0)
		die("%s: %s", name, strerror(errno));
	if (pread(fd, &h, sizeof(h), 0) != sizeof(h) || h.magic != MAGIC)
		die("%s: is no graph: --make makes one", name);
	space = ((uint64_t)st.st_size - sizeof(h)) / sizeof(uint32_t);
	if (h.nodes == 0 || h.nodes >= UNREACHED || h.nodes > space / 2 || 2 * (h.nodes + 1) > space ||
	    h.edges != space - 2 * (h.nodes + 1))
		die("%s: is not as long as its nodes and edges are", name);
	index = (h.nodes + 1) * sizeof(uint64_t);
	*g = (struct graph){ .nodes = h.nodes, .edges = h.edges, .size = (size_t)st.st_size };
	if (ummap(g->size, SEG_SIZE, PROT_READ, fd, 0, -1, 1, UMMAP_PTYPE_FIFO, &g->base) < 0)
		die("%s: cannot be mapped: %s", name, umerrormsg());
	close(fd);
	g->first = memory(h.nodes + 1, sizeof(uint64_t));
	memcpy(g->first, (char *)g->base + sizeof(h), index);
	g->to = (const uint32_t *)((char *)g->base + sizeof(h) + index);
	for (uint64_t i = 0; i < g->nodes; i++) {
		if (g->first[i] > g->first[i + 1] || g->first[i + 1] > g->edges)
			die("%s: the edges of node %" PRIu64 " are not in the file", name, i);
	}
	if (umadvise(g->base, g->size, UMMAP_ADV_RANDOM) < 0)
		die("%s: %s", name, umerrormsg());
}

static void prefetch_edges(const struct graph *g, const uint32_t *nodes, size_t n)
{
	static struct iovec ranges[GROUP_MOST];
	int used = 0;

	for (size_t k = 0; k < n; k++) {
		uint64_t first = g->first[nodes[k]], count = g->first[nodes[k] + 1] - first;

		if (count)
			ranges[used++] = (struct iovec){ (void *)&g->to[first], count * sizeof(*g->to) };
	}
	if (umprefetch(ranges, used) < 0)
		die("%s", umerrormsg());
}

/* Nodes that one node leads to, and that nobody has reached, join the queue. */
static size_t visit(const struct graph *g, uint32_t node, uint32_t *level, uint32_t *queue, size_t end)
{
	for (uint64_t e = g->first[node]; e < g->first[node + 1]; e++) {
		uint32_t to = g->to[e];

		if (to >= g->nodes)
			die("edge %" PRIu64 " leads to node %" PRIu32 ", which is not there", e, to);
		if (level[to] == UNREACHED) {
			level[to] = level[node] + 1;
			queue[end++] = to;
		}
	}
	return end;
}

/* The nodes wait in the order in which they were reached: those of the next group are prefetched before one is begun.
 * Returns how many were reached. */
static size_t search(const struct graph *g, const struct options *o, uint32_t *level)
{
	uint32_t *queue = memory(g->nodes, sizeof(*queue));
	size_t end = 1, asked = 0;

	for (uint64_t i = 0; i < g->nodes; i++)
		level[i] = UNREACHED;
	level[o->start] = 0;
	queue[0] = (uint32_t)o->start;
	for (size_t at = 0; at < end; at++) {
		size_t ahead = asked - at;

		if (o->prefetch && ahead <= o->group && asked < end && (end - asked >= o->group || ahead == 0)) {
			size_t n = end - asked < o->group ? end - asked : o->group;

			prefetch_edges(g, queue + asked, n);
			asked += n;
		}
		end = visit(g, queue[at], level, queue, end);
	}
	free(queue);
	return end;
}

/* No edge leads more than one level down, and each node but the first is reached by one from the level above it: then
 * the levels are the shortest distances. */
static void check_levels(const struct graph *g, const struct options *o, const uint32_t *level)
{
	bool *reached = memory(g->nodes, sizeof(*reached));

	if (umadvise(g->base, g->size, UMMAP_ADV_SEQUENTIAL) < 0)
		die("%s", umerrormsg());
	reached[o->start] = true;
	for (uint64_t i = 0; i < g->nodes; i++) {
		for (uint64_t e = g->first[i]; level[i] != UNREACHED && e < g->first[i + 1]; e++) {
			uint32_t to = g->to[e];

			if (level[to] == UNREACHED || level[to] > level[i] + 1)
				die("wrong: node %" PRIu64 " leads to node %" PRIu32 ", which is farther away", i, to);
			reached[to] = reached[to] || level[to] == level[i] + 1;
		}
	}
	for (uint64_t i = 0; i < g->nodes; i++) {
		if (level[i] != UNREACHED && !reached[i])
			die("wrong: nothing leads to node %" PRIu64 " at its distance", i);
	}
	free(reached);
}

static void run(const struct options *o)
{
	struct umstat st = { .struct_size = sizeof(st) };
	uint32_t *level, farthest = 0;
	struct graph g;
	double began, took;
	size_t found;

	open_graph(&g, o->file);
	if (o->start >= g.nodes)
		die("--start is %" PRIu64 ", but the last node is %" PRIu64, o->start, g.nodes - 1);
	level = memory(g.nodes, sizeof(*level));
	began = now();
	found = search(&g, o, level);
	took = now() - began;
	if (umstat(g.base, &st) < 0)
		die("%s", umerrormsg());
	check_levels(&g, o, level);
	for (uint64_t i = 0; i < g.nodes; i++)
		farthest = level[i] != UNREACHED && level[i] > farthest ? level[i] : farthest;
	printf("%zu of %" PRIu64 " nodes reached, the farthest in %" PRIu32 " steps: checked\n", found, g.nodes, farthest);
	printf("%.3f s; %.1f MiB read, %" PRIu64 " segments loaded ahead, %" PRIu64 " of them used\n", took,
	       (double)st.read_bytes / (1 << 20), st.readahead_loads, st.readahead_hits);
	if (umunmap(g.base, 0) < 0)
		die("%s", umerrormsg());
	free(level);
	free(g.first);
}

/* ---- Options. ---- */

static void usage(FILE *to)
{
	fputs("usage: bfs [OPTION ...] FILE\n"
	      "Searches the graph in FILE, breadth first, and checks what it has found.\n\n"
	      "  --start=N       the node to begin at (0)\n"
	      "  --group=N       ask for the edges of so many nodes by one call, up to 65536 (1024)\n"
	      "  --no-prefetch   do not ask for them\n"
	      "  --make=NODES    make FILE, a graph of so many nodes, instead\n"
	      "  --degree=N      ... with so many edges of each, on average, up to 65536 (16)\n"
	      "  --seed=N        ... another graph for each N (1)\n"
	      "  --help          this text\n\n"
	      "UMMAP_MEM_LIMIT=16M is the memory that the graph may take; ummap(7) has the other variables.\n"
	      "Exit status: 0, or 2 with a sentence.\n", to);
}

static uint64_t number(const char *option, const char *text, uint64_t least, uint64_t most)
{
	char *end;
	uint64_t n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || n < least || n > most)
		die("--%s is \"%s\": it must be a number from %" PRIu64 " to %" PRIu64, option, text, least, most);
	return n;
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "start", required_argument, NULL, 's' }, { "group", required_argument, NULL, 'g' },
		{ "no-prefetch", no_argument, NULL, 'n' }, { "make", required_argument, NULL, 'm' },
		{ "degree", required_argument, NULL, 'd' }, { "seed", required_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' }, { 0 },
	};
	struct options o = { .degree = 16, .seed = 1, .group = 1024, .prefetch = true };
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 's': o.start = number("start", optarg, 0, UNREACHED - 2); break;
		case 'g': o.group = number("group", optarg, 1, GROUP_MOST); break;
		case 'n': o.prefetch = false; break;
		case 'm': o.make = number("make", optarg, 1, UNREACHED - 1); break;
		case 'd': o.degree = number("degree", optarg, 1, DEGREE_MOST); break;
		case 'r': o.seed = number("seed", optarg, 0, UINT64_MAX); break;
		case 'h': usage(stdout); return 0;
		default: usage(stderr); return 2;
		}
	}
	if (optind != argc - 1) {
		usage(stderr);
		return 2;
	}
	o.file = argv[optind];
	if (o.make)
		make_graph(&o);
	else
		run(&o);
	return 0;
}
