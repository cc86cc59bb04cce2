/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A far store behind cache+: reads of cached data and of the near folder alone, reads of other data
 * and of the far store alone, syncs of small changes, and the hit rate for a skewed distribution,
 * compared with a simulation of the same policy. The compared methods alternate.
 */
#include <dirent.h>
#include <getopt.h>

#include "kit/data.h"
#include "kit/zipf.h"
#include "ummap-driver.h"
#include "ummap.h"

#define ZIPF_BLOCKS 65536u
#define ZIPF_READS 1000000u

static const char help[] =
"usage: cache --far FOLDER --near FOLDER [OPTION ...]\n"
"Measures cache+ over files of FAR, with its cache in NEAR; CSV on stdout.\n"
"  --size SIZE   of what is read (256M)\n"
"  --reps N      pairs (5)\n"
"  --help\n";

static struct options {
	const char *far, *near;
	size_t size;
	unsigned reps;
} o = { .size = 256 * MIB, .reps = 5 };

static char far_file[400], near_file[400], cache_file[400];

static void make_store(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	char *buf = malloc(MIB);

	if (fd < 0)
		die("%s: %s", path, strerror(errno));
	for (size_t off = 0; off < o.size; off += MIB) {
		fill_words(buf, MIB, off, FILE_SALT);
		if (pwrite(fd, buf, MIB, (off_t)off) != (ssize_t)MIB)
			die("%s: %s", path, strerror(errno));
	}
	if (fsync(fd) < 0)
		die("%s: %s", path, strerror(errno));
	close(fd);
	free(buf);
}

struct store {
	struct ummap_driver driver;
	struct ummap_geom geom;
	void *h;
};

static struct store open_store(const char *uri)
{
	struct store s = { .driver.struct_size = sizeof(s.driver) };

	if (ummap_driver_open(uri, UMMAP_O_WRITE, &s.driver, &s.h, &s.geom) < 0)
		die("%s", umerrormsg());
	return s;
}

static void close_store(struct store *s)
{
	int err = s->driver.close(s->h);

	if (err)
		die("closing: %s", strerror(-err));
}

static const char *cached_uri(void)
{
	static char uri[1200];

	snprintf(uri, sizeof(uri), "cache+posix:%s?cache.path=%s&cache.size=%zu", far_file,
		 cache_file, o.size + o.size / 8);
	return uri;
}

static const char *plain_uri(const char *path)
{
	static char uri[500];

	snprintf(uri, sizeof(uri), "posix:%s", path);
	return uri;
}

/* Returns the bytes per second of n reads in random order. Checks what was read. */
static double read_rate(struct store *s, size_t len, size_t n, uint64_t seed)
{
	size_t places = o.size / len;
	uint32_t *order = malloc(places * sizeof(*order));
	char *buf = huge_memory(2 * MIB);
	uint64_t start, ns;

	for (size_t i = 0; i < places; i++)
		order[i] = (uint32_t)i;
	shuffle(order, places, seed);
	start = now_ns();
	for (size_t i = 0; i < n; i++) {
		size_t off = order[i % places] * len;
		int err = s->driver.read(s->h, buf, len, off);

		if (err)
			die("reading: %s", strerror(-err));
		if (*(uint64_t *)buf != FILE_SALT + off / 8 * STRIDE)
			die("wrong bytes at %zu", off);
	}
	ns = now_ns() - start;
	munmap(buf, 2 * MIB);
	free(order);
	return (double)n * (double)len * 1e9 / (double)ns;
}

static void report(unsigned rep, const char *what, size_t len, double alone, double cached)
{
	printf("%u,%s,%zu,%.4g,%.4g,%.3f\n", rep, what, len, alone, cached, cached / alone);
	fflush(stdout);
}

static const size_t sizes[] = { 4 * KIB, 64 * KIB, 2 * MIB };

/* Compares reads of cached data with reads from the near folder. */
static void measure_hits(unsigned rep)
{
	struct store cached = open_store(cached_uri()), near = open_store(plain_uri(near_file));

	read_rate(&cached, 2 * MIB, o.size / (2 * MIB), 1);
	read_rate(&near, 2 * MIB, o.size / (2 * MIB), 1);
	for (int i = 0; i < 3; i++) {
		size_t n = 2 * GIB / sizes[i] < 50000 ? 2 * GIB / sizes[i] : 50000;
		double alone = read_rate(&near, sizes[i], n, rep);

		report(rep, "hit", sizes[i], alone, read_rate(&cached, sizes[i], n, rep));
	}
	close_store(&near);
	close_store(&cached);
}

static void measure_misses(unsigned rep)
{
	for (int i = 0; i < 3; i++) {
		size_t n = o.size / sizes[i] < 1000 ? o.size / sizes[i] : 1000;
		struct store cached, far;
		double alone;

		unlink(cache_file);
		cached = open_store(cached_uri());
		far = open_store(plain_uri(far_file));
		alone = read_rate(&far, sizes[i], n, rep);
		report(rep, "miss", sizes[i], alone, read_rate(&cached, sizes[i], n, rep));
		close_store(&far);
		close_store(&cached);
	}
}

/* Returns the syncs per second, each of 1000 changed segments of 4 KiB. */
static double sync_rate(const char *uri, uint64_t seed)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	size_t pages = o.size / (4 * KIB);
	uint64_t start, ns;
	void *addr;

	attr.seg_size = 4 * KIB;
	if (ummap_open(uri, o.size, 0, PROT_READ | PROT_WRITE, &attr, &addr) < 0)
		die("%s", umerrormsg());
	for (int i = 0; i < 1000; i++)
		((uint64_t *)addr)[next_random(&seed) % pages * 512 + 1] ^= 1;
	start = now_ns();
	if (umsync(addr, 0) < 0)
		die("%s", umerrormsg());
	ns = now_ns() - start;
	if (umunmap(addr, 0) < 0)
		die("%s", umerrormsg());
	return 1e9 / (double)ns;
}

/* ---- Hits with a skewed distribution ---- */

/* S3-FIFO as its authors describe it: rings of blocks; each block has a place and a count of reads.
 * */
struct fifo {
	uint32_t *ring;
	uint64_t first, last;
};

enum { ABSENT, SMALL, MAIN };

static struct {
	struct fifo small, main, ghost;
	uint8_t *where, *freq;
	uint64_t *ghost_at;            /* position in the ring of ghosts plus 1; 0: none */
	uint32_t slots;
} sim;

static uint64_t fifo_count(const struct fifo *f)
{
	return f->last - f->first;
}

static void fifo_push(struct fifo *f, uint32_t block)
{
	f->ring[f->last++ % ZIPF_BLOCKS] = block;
}

static uint32_t fifo_pop(struct fifo *f)
{
	return f->ring[f->first++ % ZIPF_BLOCKS];
}

static void sim_evict_main(void)
{
	for (;;) {
		uint32_t block = fifo_pop(&sim.main);

		if (!sim.freq[block]) {
			sim.where[block] = ABSENT;
			return;
		}
		sim.freq[block]--;
		fifo_push(&sim.main, block);
	}
}

static void sim_evict(void)
{
	while (fifo_count(&sim.small) > 0 && fifo_count(&sim.small) >= sim.slots / 10) {
		uint32_t block = fifo_pop(&sim.small);

		if (sim.freq[block] > 1) {
			sim.freq[block] = 0;
			sim.where[block] = MAIN;
			fifo_push(&sim.main, block);
			continue;
		}
		sim.where[block] = ABSENT;
		fifo_push(&sim.ghost, block);
		sim.ghost_at[block] = sim.ghost.last;
		return;
	}
	sim_evict_main();
}

static double sim_hits(const uint32_t *reads, uint32_t slots)
{
	uint64_t hits = 0;

	memset(&sim, 0, sizeof(sim));
	sim.slots = slots;
	sim.small.ring = malloc(ZIPF_BLOCKS * sizeof(uint32_t));
	sim.main.ring = malloc(ZIPF_BLOCKS * sizeof(uint32_t));
	sim.ghost.ring = malloc(ZIPF_BLOCKS * sizeof(uint32_t));
	sim.where = calloc(ZIPF_BLOCKS, 1);
	sim.freq = calloc(ZIPF_BLOCKS, 1);
	sim.ghost_at = calloc(ZIPF_BLOCKS, sizeof(*sim.ghost_at));
	for (uint32_t k = 0; k < ZIPF_READS; k++) {
		uint32_t block = reads[k];
		bool ghost;

		if (sim.where[block] != ABSENT) {
			hits++;
			sim.freq[block] += sim.freq[block] < 3;
			continue;
		}
		if (fifo_count(&sim.small) + fifo_count(&sim.main) == slots)
			sim_evict();
		ghost = sim.ghost_at[block] &&
			sim.ghost.last - sim.ghost_at[block] < slots - slots / 10;
		sim.ghost_at[block] = 0;
		sim.freq[block] = 0;
		sim.where[block] = ghost ? MAIN : SMALL;
		fifo_push(ghost ? &sim.main : &sim.small, block);
	}
	free(sim.small.ring);
	free(sim.main.ring);
	free(sim.ghost.ring);
	free(sim.where);
	free(sim.freq);
	free(sim.ghost_at);
	return (double)hits / ZIPF_READS;
}

/* A filter that counts the requests to the far store. */
static _Atomic uint64_t far_reads;

static int count_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	(void)uri;
	*h = &far_reads;
	geom->size = (uint64_t)ZIPF_BLOCKS * 4 * KIB;
	geom->align = 1;
	geom->caps = UMMAP_CAP_PARALLEL | (oflags & UMMAP_O_WRITE ? UMMAP_CAP_WRITE : 0);
	return 0;
}

static int count_close(void *h)
{
	(void)h;
	return 0;
}

/* Reads with the delay of a disk. */
static int count_read(void *h, void *buf, size_t len, uint64_t off)
{
	(void)h, (void)off;
	far_reads++;
	memset(buf, 1, len);
	return 0;
}

static int count_write(void *h, const void *buf, size_t len, uint64_t off)
{
	(void)h, (void)buf, (void)len, (void)off;
	return 0;
}

static const struct ummap_driver count_driver = {
	.struct_size = sizeof(count_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "count",
	.help = "count:NAME  counts reads",
	.open = count_open,
	.close = count_close,
	.read = count_read,
	.write = count_write,
};

static void measure_zipf(unsigned rep)
{
	uint32_t *reads = zipf_draws(ZIPF_BLOCKS, ZIPF_READS, rep, rep), slots = ZIPF_BLOCKS / 8;
	struct store s;
	char uri[600], buf[4096];

	unlink(cache_file);
	/* The size of blocks, records and header. */
	snprintf(uri, sizeof(uri), "cache+count:x?cache.path=%s&cache.block=4K&cache.size=%zu",
		 cache_file, (size_t)slots * (4096 + 128) + 4 * 4096);
	s = open_store(uri);
	far_reads = 0;
	for (uint32_t k = 0; k < ZIPF_READS; k++)
		if (s.driver.read(s.h, buf, sizeof(buf), (uint64_t)reads[k] * 4096))
			die("reading");
	report(rep, "zipf", 4096, sim_hits(reads, slots), 1 - (double)far_reads / ZIPF_READS);
	close_store(&s);
	unlink(cache_file);
	free(reads);
}

static void parse(int argc, char **argv)
{
	static const struct option known[] = {
		{ "far", 1, 0, 'f' },  { "near", 1, 0, 'n' }, { "size", 1, 0, 's' },
		{ "reps", 1, 0, 'r' }, { "help", 0, 0, 'h' }, { 0, 0, 0, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 'f': o.far = optarg; break;
		case 'n': o.near = optarg; break;
		case 's': o.size = parse_size("size", optarg); break;
		case 'r': o.reps = parse_count("reps", optarg, 1000); break;
		case 'h': fputs(help, stdout); exit(0);
		default: die("see --help");
		}
	}
	if (optind < argc || !o.far || !o.near || o.size % (2 * MIB))
		die("--far and --near must be folders, --size a multiple of 2M; see --help");
}

int main(int argc, char **argv)
{
	parse(argc, argv);
	snprintf(far_file, sizeof(far_file), "%s/cache-bench", o.far);
	snprintf(near_file, sizeof(near_file), "%s/cache-bench.near", o.near);
	snprintf(cache_file, sizeof(cache_file), "%s/cache-bench.cache", o.near);
	if (ummap_driver_register(&count_driver) < 0)
		die("%s", umerrormsg());
	make_store(far_file);
	make_store(near_file);
	puts("rep,what,bytes,alone,cached,ratio");
	for (unsigned rep = 1; rep <= o.reps; rep++) {
		double alone;

		measure_misses(rep);
		measure_hits(rep);
		/* The store is filled without the cache. */
		unlink(cache_file);
		alone = sync_rate(plain_uri(far_file), rep);
		report(rep, "sync", 4096, alone, sync_rate(cached_uri(), rep));
		unlink(cache_file);
		measure_zipf(rep);
	}
	unlink(far_file);
	unlink(near_file);
	unlink(cache_file);
	return 0;
}
