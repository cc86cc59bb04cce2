/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bfs - a breadth-first search of a graph in a file, in less memory than the graph takes.
 *
 * The edges are in a mapping with segments of 4 KiB; the data of the nodes are in memory. The
 * search knows the next nodes before it needs their edges. umprefetch loads the edges of many nodes
 * together, while the program visits other nodes. At the end, the program reads all edges once more
 * to check that the levels are the shortest distances.
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

#define GRAPH_MAGIC 0x31302d7366622d75ull
#define UNREACHED UINT32_MAX /* level of a node that the search has not reached */
#define SEGMENT_BYTES 4096
#define MAX_GROUP_NODES 65536
#define MAX_MEAN_DEGREE 65536

/* Header of a graph file. nodes + 1 numbers of 8 bytes follow: the index of each node's first edge,
 * and the number of edges. The target node of each edge follows, in 4 bytes. */
struct header {
	uint64_t magic, nodes, edges;
};

struct graph {
	uint64_t nodes, edges;
	uint64_t *first_edge;   /* index of each node's first edge, then the number of edges */
	void *base;             /* mapping of the file */
	size_t size;            /* bytes of the mapping */
	const uint32_t *target; /* target node of each edge, in the mapping */
};

struct options {
	const char *file;
	uint64_t make;        /* nodes of a new graph; 0: search */
	uint64_t degree;      /* mean number of edges per node of a new graph */
	uint64_t seed;        /* seed of a new graph */
	uint64_t start;       /* node at which the search starts */
	uint64_t group;       /* nodes whose edges one call prefetches */
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

static void *allocate(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p)
		die("cannot allocate %zu times %zu bytes", n, size);
	return p;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- Creating a graph ---- */

static uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static void write_bytes(FILE *f, const void *bytes, size_t len, const char *name)
{
	if (fwrite(bytes, 1, len, f) != len)
		die("cannot write '%s': %s", name, strerror(errno));
}

/* Each node gets 0 to 2 * degree edges to random nodes. */
static void make_graph(const struct options *o)
{
	struct header h = { GRAPH_MAGIC, o->make, 0 };
	uint64_t *first = allocate(o->make + 1, sizeof(*first)), seed = o->seed;
	FILE *f = fopen(o->file, "wbx");

	if (!f)
		die("cannot create '%s': %s", o->file, strerror(errno));
	for (uint64_t i = 0; i < o->make; i++)
		first[i + 1] = first[i] + next_random(&seed) % (2 * o->degree + 1);
	h.edges = first[o->make];
	write_bytes(f, &h, sizeof(h), o->file);
	write_bytes(f, first, (o->make + 1) * sizeof(*first), o->file);
	for (uint64_t e = 0; e < h.edges; e++) {
		uint32_t target = (uint32_t)(next_random(&seed) % o->make);

		write_bytes(f, &target, sizeof(target), o->file);
	}
	if (fflush(f) || fsync(fileno(f)) || fclose(f))
		die("cannot write '%s': %s", o->file, strerror(errno));
	free(first);
	printf("%s: %" PRIu64 " nodes, %" PRIu64 " edges\n", o->file, o->make, h.edges);
}

/* ---- Searching ---- */

/* The file may come from an untrusted source, so all numbers in it are checked. */
static void open_graph(struct graph *g, const char *name)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	struct header h;
	struct stat st;
	uint64_t space;
	size_t index;

	if (fd < 0 || fstat(fd, &st) < 0)
		die("cannot open '%s': %s", name, strerror(errno));
	if (pread(fd, &h, sizeof(h), 0) != sizeof(h) || h.magic != GRAPH_MAGIC)
		die("cannot read '%s': it is not a graph. Try --make, which creates one", name);
	space = ((uint64_t)st.st_size - sizeof(h)) / sizeof(uint32_t);
	if (h.nodes == 0 || h.nodes >= UNREACHED || h.nodes > space / 2 ||
	    2 * (h.nodes + 1) > space || h.edges != space - 2 * (h.nodes + 1))
		die("cannot read '%s': its size does not fit its nodes and edges", name);
	index = (h.nodes + 1) * sizeof(uint64_t);
	*g = (struct graph){ .nodes = h.nodes, .edges = h.edges, .size = (size_t)st.st_size };
	if (ummap(g->size, SEGMENT_BYTES, PROT_READ, fd, 0, -1, 1, UMMAP_PTYPE_FIFO, &g->base) < 0)
		die("cannot map '%s': %s", name, umerrormsg());
	close(fd);
	g->first_edge = allocate(h.nodes + 1, sizeof(uint64_t));
	memcpy(g->first_edge, (char *)g->base + sizeof(h), index);
	g->target = (const uint32_t *)((char *)g->base + sizeof(h) + index);
	for (uint64_t i = 0; i < g->nodes; i++) {
		if (g->first_edge[i] > g->first_edge[i + 1] || g->first_edge[i + 1] > g->edges)
			die("cannot read '%s': the edges of node %" PRIu64 " are not in the file",
			    name, i);
	}
	if (umadvise(g->base, g->size, UMMAP_ADV_RANDOM) < 0)
		die("cannot set advice for '%s': %s", name, umerrormsg());
}

static void prefetch_edges(const struct graph *g, const uint32_t *nodes, size_t n)
{
	static struct iovec ranges[MAX_GROUP_NODES];
	int used = 0;

	for (size_t k = 0; k < n; k++) {
		uint64_t first = g->first_edge[nodes[k]];
		uint64_t count = g->first_edge[nodes[k] + 1] - first;

		if (count)
			ranges[used++] = (struct iovec){ (void *)&g->target[first],
							 count * sizeof(*g->target) };
	}
	if (umprefetch(ranges, used) < 0)
		die("cannot prefetch edges: %s", umerrormsg());
}

/* Appends the unreached neighbors of a node to the queue, which ends at `end`. Returns the new
 * end. */
static size_t visit_node(const struct graph *g, uint32_t node, uint32_t *level, uint32_t *queue,
			 size_t end)
{
	for (uint64_t e = g->first_edge[node]; e < g->first_edge[node + 1]; e++) {
		uint32_t target = g->target[e];

		if (target >= g->nodes)
			die("cannot follow edge %" PRIu64 ": there is no node %" PRIu32, e, target);
		if (level[target] == UNREACHED) {
			level[target] = level[node] + 1;
			queue[end++] = target;
		}
	}
	return end;
}

/* Visits nodes in the order in which they were reached, and prefetches the edges of the next group
 * of nodes in advance. Returns the number of reached nodes. */
static size_t search_graph(const struct graph *g, const struct options *o, uint32_t *level)
{
	uint32_t *queue = allocate(g->nodes, sizeof(*queue));
	size_t end = 1, prefetched = 0;

	for (uint64_t i = 0; i < g->nodes; i++)
		level[i] = UNREACHED;
	level[o->start] = 0;
	queue[0] = (uint32_t)o->start;
	for (size_t at = 0; at < end; at++) {
		size_t ahead = prefetched - at, known = end - prefetched;

		if (o->prefetch && ahead <= o->group && known > 0 &&
		    (known >= o->group || ahead == 0)) {
			size_t n = known < o->group ? known : o->group;

			prefetch_edges(g, queue + prefetched, n);
			prefetched += n;
		}
		end = visit_node(g, queue[at], level, queue, end);
	}
	free(queue);
	return end;
}

/* Checks that the levels are the shortest distances: no edge leads more than one level down, and an
 * edge from the level above leads to each reached node except the first. */
static void check_levels(const struct graph *g, const struct options *o, const uint32_t *level)
{
	bool *reached = allocate(g->nodes, sizeof(*reached));

	if (umadvise(g->base, g->size, UMMAP_ADV_SEQUENTIAL) < 0)
		die("cannot set advice: %s", umerrormsg());
	reached[o->start] = true;
	for (uint64_t i = 0; i < g->nodes; i++) {
		if (level[i] == UNREACHED)
			continue;
		for (uint64_t e = g->first_edge[i]; e < g->first_edge[i + 1]; e++) {
			uint32_t target = g->target[e];

			if (level[target] == UNREACHED || level[target] > level[i] + 1)
				die("wrong result: node %" PRIu64 " leads to node %" PRIu32
				    ", whose level is too large", i, target);
			if (level[target] == level[i] + 1)
				reached[target] = true;
		}
	}
	for (uint64_t i = 0; i < g->nodes; i++) {
		if (level[i] != UNREACHED && !reached[i])
			die("wrong result: no edge from the level above leads to node %" PRIu64,
			    i);
	}
	free(reached);
}

static void search_file(const struct options *o)
{
	struct umstat st = { .struct_size = sizeof(st) };
	uint32_t *level, farthest = 0;
	struct graph g;
	double start, seconds;
	size_t reached;

	open_graph(&g, o->file);
	if (o->start >= g.nodes)
		die("cannot start at node %" PRIu64 ": the last node is %" PRIu64, o->start,
		    g.nodes - 1);
	level = allocate(g.nodes, sizeof(*level));
	start = now();
	reached = search_graph(&g, o, level);
	seconds = now() - start;
	if (umstat(g.base, &st) < 0)
		die("cannot read the counters: %s", umerrormsg());
	check_levels(&g, o, level);
	for (uint64_t i = 0; i < g.nodes; i++)
		farthest = level[i] != UNREACHED && level[i] > farthest ? level[i] : farthest;
	printf("%zu of %" PRIu64 " nodes reached, the farthest in %" PRIu32 " steps: checked\n",
	       reached, g.nodes, farthest);
	printf("%.3f s; %.1f MiB read, %" PRIu64 " segments loaded ahead, %" PRIu64
	       " of them used\n", seconds, (double)st.read_bytes / (1 << 20), st.readahead_loads,
	       st.readahead_hits);
	if (umunmap(g.base, 0) < 0)
		die("cannot end the mapping: %s", umerrormsg());
	free(level);
	free(g.first_edge);
}

/* ---- Options ---- */

static void print_usage(FILE *to)
{
	fputs("usage: bfs [OPTION ...] FILE\n"
	      "Searches the graph in FILE breadth-first, and checks the result.\n\n"
	      "  --start=N       node at which the search starts (0)\n"
	      "  --group=N       nodes whose edges one call prefetches, up to 65536 (1024)\n"
	      "  --no-prefetch   prefetch no edges\n"
	      "  --make=NODES    create FILE, a graph of so many nodes, instead of searching\n"
	      "  --degree=N      mean number of edges per node of a new graph, up to 65536 (16)\n"
	      "  --seed=N        seed of the random numbers for a new graph (1)\n"
	      "  --help          print this text\n\n"
	      "UMMAP_MEM_LIMIT=16M limits the memory of the graph; see ummap-environment(7).\n"
	      "Exit status: 0; 2 on error.\n", to);
}

static uint64_t parse_number(const char *option, const char *text, uint64_t min, uint64_t max)
{
	char *end;
	uint64_t n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || n < min || n > max)
		die("cannot use --%s '%s': it must be a number from %" PRIu64 " to %" PRIu64,
		    option, text, min, max);
	return n;
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "start", required_argument, NULL, 's' },
		{ "group", required_argument, NULL, 'g' },
		{ "no-prefetch", no_argument, NULL, 'n' },
		{ "make", required_argument, NULL, 'm' },
		{ "degree", required_argument, NULL, 'd' },
		{ "seed", required_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' }, { 0 },
	};
	struct options o = { .degree = 16, .seed = 1, .group = 1024, .prefetch = true };
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 's': o.start = parse_number("start", optarg, 0, UNREACHED - 2); break;
		case 'g': o.group = parse_number("group", optarg, 1, MAX_GROUP_NODES); break;
		case 'n': o.prefetch = false; break;
		case 'm': o.make = parse_number("make", optarg, 1, UNREACHED - 1); break;
		case 'd': o.degree = parse_number("degree", optarg, 1, MAX_MEAN_DEGREE); break;
		case 'r': o.seed = parse_number("seed", optarg, 0, UINT64_MAX); break;
		case 'h': print_usage(stdout); return 0;
		default: print_usage(stderr); return 2;
		}
	}
	if (optind != argc - 1) {
		print_usage(stderr);
		return 2;
	}
	o.file = argv[optind];
	if (o.make)
		make_graph(&o);
	else
		search_file(&o);
	return 0;
}
