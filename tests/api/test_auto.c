/* SPDX-License-Identifier: BSD-3-Clause */
/* test_auto.c - mappings with UMMAP_SEG_AUTO: a fault brings in as many neighbors as are used. */
#include <criterion/criterion.h>
#include <ummap-driver.h>

#include "common.h"
#include "common/minmax.h"
#include "huge.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define PAGE ((size_t)4096)
#define SIZE (64 * MIB)
#define BUDGET (16 * MIB)

/* Maps a file. The page cache is not mapped, because its pages need no loads. */
static uint8_t *map_with_flags(int fd, int prot, uint64_t flags)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[64];
	void *m;

	attr.seg_size = UMMAP_SEG_AUTO;
	attr.flags = flags;
	attr.engine = prot == PROT_READ && engine_is("uffd") ? UMMAP_ENGINE_UFFD :
							       UMMAP_ENGINE_SIGBUS;
	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d?cached=copy", fd);
	if (ummap_open(uri, file_size(fd), 0, prot, &attr, &m) < 0)
		cr_skip("%s", umerrormsg());
	return m;
}

static uint8_t *map_auto(int fd, int prot)
{
	return map_with_flags(fd, prot, 0);
}

static uint8_t *map_big(int prot)
{
	set_budget(BUDGET);
	return map_auto(filled_file(SIZE, 1), prot);
}

/* Loads a word from each page of n blocks at random. */
static void load_blocks(const uint8_t *m, size_t block, size_t n, uint64_t *random)
{
	for (size_t k = 0; k < n; k++) {
		size_t first = next_random(random) % (SIZE / block) * block;

		for (size_t at = first; at < first + block; at += PAGE)
			check(m[at] == pattern(at, 1));
	}
}

Test(automatic, in_order)
{
	uint8_t *m = map_big(PROT_READ);
	struct umstat st;

	check(stat_of(m).transfer_bytes == 64 * KIB, "%" PRIu64, stat_of(m).transfer_bytes);
	check_bytes(m, SIZE, 0, 1);
	st = stat_of(m);
	check(st.transfer_bytes >= MIB, "%" PRIu64, st.transfer_bytes);
	check(st.read_bytes == SIZE, "%" PRIu64, st.read_bytes);
	check(st.read_requests < 256, "%" PRIu64 " requests", st.read_requests);
	check(st.resident_bytes + st.inactive_bytes <= BUDGET);
}

Test(automatic, blocks)
{
	uint8_t *m = map_big(PROT_READ);
	uint64_t random = 1, read;

	for (size_t block = 16 * KIB; block <= 256 * KIB; block *= 4) {
		load_blocks(m, block, SIZE / block, &random);
		check(stat_of(m).transfer_bytes == block, "%zu: %" PRIu64, block,
		      stat_of(m).transfer_bytes);
		read = stat_of(m).read_bytes;
		load_blocks(m, block, SIZE / 4 / block, &random);
		check(stat_of(m).read_bytes - read <= SIZE / 4, "%zu", block);
	}
}

Test(automatic, single_pages)
{
	uint8_t *m = map_big(PROT_READ);
	uint64_t random = 1;

	load_blocks(m, PAGE, SIZE / PAGE * 3 / 2, &random);
	check(stat_of(m).transfer_bytes <= 2 * PAGE, "%" PRIu64, stat_of(m).transfer_bytes);
	check(stat_of(m).read_bytes < 4 * SIZE, "%" PRIu64, stat_of(m).read_bytes);
}

/* The headers of a mapping that is much longer than its memory do not need as much memory again:
 * its segments are larger. */
Test(automatic, much_longer_than_memory)
{
	int fd = temp_file(8 * GIB);
	uint8_t *m;

	check(pwrite(fd, "end", 4, (off_t)(8 * GIB - 4)) == 4);
	set_budget(BUDGET);
	m = map_auto(fd, PROT_READ);
	check(strcmp((char *)m + 8 * GIB - 4, "end") == 0);
	check(umadvise(m, 8 * GIB, UMMAP_ADV_RANDOM) == 0);
	check(stat_of(m).transfer_bytes == 256 * KIB, "%" PRIu64, stat_of(m).transfer_bytes);
	for (size_t at = 0; at < 8 * GIB; at += 128 * MIB)
		check(m[at] == 0);
	check(stat_of(m).resident_bytes + stat_of(m).inactive_bytes <= BUDGET);
}

/* Long runs of a list are resident before they are accessed; single pages are loaded, too. */
Test(automatic, prefetch)
{
	uint8_t *m = map_big(PROT_READ);
	struct iovec list[24];
	size_t loads = 0, read;

	for (size_t k = 0; k < 24; k++) {
		list[k] = (struct iovec){ m + (k * 2 + 1) * MIB, k % 3 ? 96 * KIB : PAGE };
		loads += list[k].iov_len / PAGE;
	}
	check(umprefetch(list, 24) == 0);
	for (double end = now() + 60; stat_of(m).readahead_loads < loads; pause_ms(1))
		check(now() < end, "%" PRIu64 " of %zu", stat_of(m).readahead_loads, loads);
	read = stat_of(m).read_bytes;
	check(read == loads * PAGE && stat_of(m).read_requests <= 24 + 16);
	for (size_t k = 24; k-- > 0;)
		check_bytes(list[k].iov_base, list[k].iov_len, (k * 2 + 1) * MIB, 1);
	check(stat_of(m).read_bytes == read, "%" PRIu64, stat_of(m).read_bytes);
}

/* Waits until the library has read so many bytes. */
static void await_read(uint8_t *m, uint64_t bytes)
{
	for (int tries = 0; stat_of(m).read_bytes < bytes && tries < 2000; tries++)
		pause_ms(5);
	check(stat_of(m).read_bytes == bytes, "%" PRIu64, stat_of(m).read_bytes);
}

/* Advice decides the size at once, and that the next block is loaded in the background. */
Test(automatic, advice)
{
	uint8_t *m = map_big(PROT_READ);
	uint64_t read, loads;

	check(umadvise(m, SIZE, UMMAP_ADV_RANDOM) == 0);
	check(stat_of(m).transfer_bytes == PAGE);
	for (size_t at = 0; at < 64 * PAGE; at += PAGE)
		check(m[at] == pattern(at, 1));
	check(stat_of(m).read_bytes == 64 * PAGE);
	check(umadvise(m, SIZE, UMMAP_ADV_SEQUENTIAL) == 0);
	check(stat_of(m).transfer_bytes == 2 * MIB);
	check(m[4 * MIB] == pattern(4 * MIB, 1));
	await_read(m, 64 * PAGE + 4 * MIB);
	check(umadvise(m, SIZE, UMMAP_ADV_NORMAL) == 0);
	loads = stat_of(m).readahead_loads + MIB / PAGE;
	check(umadvise(m + 8 * MIB, MIB, UMMAP_ADV_WILLNEED) == 0);
	for (int tries = 0; stat_of(m).readahead_loads < loads && tries < 1000; tries++)
		pause_ms(5);
	read = stat_of(m).read_bytes;
	/* Backward, so that no block after the end is loaded. */
	for (size_t at = 9 * MIB; at > 8 * MIB; at -= PAGE)
		check_bytes(m + at - PAGE, PAGE, at - PAGE, 1);
	check(stat_of(m).read_bytes == read, "%" PRIu64, stat_of(m).read_bytes - read);
}

/* Only pages that the program has stored to are written. */
Test(automatic, stores)
{
	uint8_t *m = map_big(READ_WRITE);
	struct umstat st;

	fill(m + 3 * PAGE, 2 * PAGE, 0, 2);
	st = stat_of(m);
	check(st.write_faults + st.upgrade_faults == 2 && st.read_faults == 0,
	      "%" PRIu64 " %" PRIu64 " %" PRIu64, st.write_faults, st.upgrade_faults,
	      st.read_faults);
	check(st.dirty_bytes >= 2 * PAGE && st.read_bytes == 64 * KIB);
	check(umsync(m, 0) == 0);
	check(stat_of(m).write_bytes == 2 * PAGE);
	check_bytes(m, 3 * PAGE, 0, 1);
	check_bytes(m + 3 * PAGE, 2 * PAGE, 0, 2);
	check_bytes(m + 5 * PAGE, SIZE - 5 * PAGE, 5 * PAGE, 1);
}

/* Stores to one page after another raise few faults, and only these pages are written. */
Test(automatic, dense_stores)
{
	uint8_t *m = map_big(READ_WRITE);
	struct umstat st;

	check(umadvise(m, SIZE, UMMAP_ADV_SEQUENTIAL) == 0);
	fill(m, 14 * PAGE, 0, 2);
	st = stat_of(m);
	check(st.write_faults + st.upgrade_faults <= 4, "%" PRIu64 " %" PRIu64, st.write_faults,
	      st.upgrade_faults);
	check(umsync(m, 0) == 0);
	check(stat_of(m).write_bytes == 14 * PAGE && stat_of(m).dirty_bytes == 0);
	check(umsync(m, 1) == 0);
	check_bytes(m, 14 * PAGE, 0, 2);
	check_bytes(m + 14 * PAGE, MIB, 14 * PAGE, 1);
}

/* A page that became writable before a store keeps what others write to the file. */
Test(automatic, stores_of_others)
{
	int fd = filled_file(MIB, 1);
	uint8_t *m = map_auto(fd, READ_WRITE), other[PAGE];

	check(umadvise(m, MIB, UMMAP_ADV_SEQUENTIAL) == 0);
	fill(m, 2 * PAGE, 0, 2);
	if (stat_of(m).dirty_bytes <= 3 * PAGE)
		cr_skip("no page became writable before a store");
	fill(other, PAGE, 3 * PAGE, 3);
	check(pwrite(fd, other, PAGE, 3 * PAGE) == (ssize_t)PAGE);
	check(umsync(m, 0) == 0);
	check(stat_of(m).write_bytes == 2 * PAGE, "%" PRIu64, stat_of(m).write_bytes);
	check_file(fd, 0, 2 * PAGE, 0, 2);
	check_file(fd, 3 * PAGE, PAGE, 3 * PAGE, 3);
	check(umunmap(m, 0) == 0);
}

/* A page that gets its first contents back after they were overwritten in the file is written. */
Test(automatic, stores_back)
{
	int fd = filled_file(MIB, 1);
	uint8_t *m = map_auto(fd, READ_WRITE);

	check(umadvise(m, MIB, UMMAP_ADV_SEQUENTIAL) == 0);
	fill(m, 3 * PAGE, 0, 2);
	check(umsync(m, 0) == 0);
	check_file(fd, 2 * PAGE, PAGE, 2 * PAGE, 2);
	fill(m + 2 * PAGE, PAGE, 2 * PAGE, 1);
	check(umsync(m, 0) == 0);
	check_file(fd, 2 * PAGE, PAGE, 2 * PAGE, 1);
	check(umunmap(m, 0) == 0);
}

/* Few requests write a stream of stores that goes backward. A writer that comes very early finds
 * few neighbors, so the best of several passes counts. */
Test(automatic, stores_backward)
{
	size_t before, least = SIZE_MAX;
	int fd = filled_file(SIZE, 1);
	uint8_t *m;

	set_budget(10 * MIB);
	m = map_auto(fd, READ_WRITE);
	for (unsigned pass = 2; pass < 7; pass++) {
		before = stat_of(m).write_requests;
		for (size_t at = SIZE; at > 0; at -= PAGE)
			fill(m + at - PAGE, PAGE, at - PAGE, pass);
		check(umsync(m, 0) == 0);
		least = min_size(least, stat_of(m).write_requests - before);
	}
	check(umunmap(m, 1) == 0);
	check(least < SIZE / PAGE / 8, "%zu requests", least);
	check_file(fd, 0, SIZE, 0, 6);
}

/* A page that was written, and became writable again before a store, is written again if the flush
 * fails. */
Test(automatic, stores_and_a_failed_flush)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	int fd = filled_file(MIB, 1);
	uint64_t written;
	char uri[160];
	void *base;
	uint8_t *m;

	attr.seg_size = UMMAP_SEG_AUTO;
	attr.engine = UMMAP_ENGINE_SIGBUS;
	snprintf(uri, sizeof(uri), "error+posix:/proc/self/fd/%d?cached=copy&error.op=flush"
		 "&error.nth=1", fd);
	if (ummap_open(uri, MIB, 0, READ_WRITE, &attr, &base) < 0)
		cr_skip("%s", umerrormsg());
	m = base;
	check(umadvise(m, MIB, UMMAP_ADV_SEQUENTIAL) == 0);
	fill(m + 3 * PAGE, PAGE, 3 * PAGE, 2);
	check(umsync_range(m, MIB, UMMAP_NOFLUSH) == 0);
	fill(m, 2 * PAGE, 0, 2);
	check(umsync_range(m, 2 * PAGE, 0) == -1);
	written = stat_of(m).write_bytes;
	check(umsync(m, 0) == 0);
	check(stat_of(m).write_bytes - written == 3 * PAGE, "%" PRIu64,
	      stat_of(m).write_bytes - written);
	check(umunmap(m, 0) == 0);
}

/* A store to a page that came as a neighbor is noticed. */
Test(automatic, neighbors)
{
	uint8_t *m = map_big(READ_WRITE);

	check(umadvise(m, SIZE, UMMAP_ADV_SEQUENTIAL) == 0);
	check(m[0] == pattern(0, 1));
	fill(m + 5 * PAGE, PAGE, 0, 2);
	/* The second request is for the next block. */
	check(stat_of(m).read_requests <= 2 && stat_of(m).upgrade_faults == 1);
	check(umsync(m, 1) == 0);
	check_bytes(m + 5 * PAGE, PAGE, 0, 2);
}

/* If the neighbors cannot be read, the page is read alone; if it cannot, its access gets the error,
 * and a later one succeeds. */
Test(automatic, errors)
{
	int fd = filled_file(MIB, 1);
	uint64_t value;
	char uri[160];
	void *m;

	catch_sigbus();
	for (unsigned times = 1; times <= 2; times++) {
		struct ummap_attr attr = UMMAP_ATTR_INIT;

		attr.seg_size = UMMAP_SEG_AUTO;
		attr.engine = UMMAP_ENGINE_SIGBUS;
		snprintf(uri, sizeof(uri), "error+posix:/proc/self/fd/%d?cached=copy&error.op=read"
			 "&error.nth=1&error.times=%u", fd, times);
		if (ummap_open(uri, MIB, 0, PROT_READ, &attr, &m) < 0)
			cr_skip("%s", umerrormsg());
		check(try_load(m, &value) == (times == 1));
		check_bytes(m, MIB, 0, 1);
		check(stat_of(m).read_errors == times, "%" PRIu64, stat_of(m).read_errors);
		check(umunmap(m, 0) == 0);
	}
}

/* The last page is part of a run, and its bytes behind the end of the mapping are zeros. */
Test(automatic, short_end)
{
	int fd = filled_file(MIB, 1);
	uint8_t *m;

	check(ftruncate(fd, MIB - 100) == 0);
	m = map_auto(fd, PROT_READ);
	check_bytes(m + MIB - 32 * KIB, 32 * KIB - 100, MIB - 32 * KIB, 1);
	check_zeros(m + MIB - 100, 100);
	check(stat_of(m).read_requests <= 2, "%" PRIu64, stat_of(m).read_requests);
}

/* A mapping that grows adapts to the accesses to its new part, too. */
Test(automatic, grows)
{
	int fd = filled_file(4 * MIB, 1);
	void *m, *moved = NULL;

	check(ummap(MIB, UMMAP_SEG_AUTO, READ_WRITE, fd, 0, 1, 1, UMMAP_PTYPE_FIFO, &m) == 0);
	check_bytes(m, MIB, 0, 1);
	check(umremap(m, 4 * MIB, -1, -1, 0, &moved) == 0);
	check_bytes(moved, 4 * MIB, 0, 1);
	check(stat_of(moved).engine != UMMAP_ENGINE_SIGBUS ||
	      stat_of(moved).transfer_bytes > 64 * KIB, "%" PRIu64, stat_of(moved).transfer_bytes);
	fill(moved, 4 * MIB, 0, 2);
	check(umunmap(moved, 1) == 0);
	check_file(fd, 0, 4 * MIB, 0, 2);
}

/* A segment that was cut is loaded as a whole after the mapping has grown again. Segments are
 * larger than a page, because the mapping is larger than 8 times its memory. */
Test(automatic, cut_and_grown)
{
	int fd = filled_file(SIZE, 1);
	uint8_t *m;
	void *moved;

	set_budget(SIZE / 16);
	m = map_auto(fd, READ_WRITE);
	moved = NULL;
	check(umremap(m, SIZE - 2 * MIB - 3 * PAGE, -1, -1, 0, &moved) == 0);
	moved = NULL;
	check(umremap(m, SIZE, -1, -1, 0, &moved) == 0 && moved == m);
	check_bytes(m, SIZE, 0, 1);
	fill(m, SIZE, 0, 2);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SIZE, 0, 2);
}

/* While the program accesses one block after another, the next one is loaded in the background. */
Test(automatic, next_block)
{
	uint8_t *m = map_big(PROT_READ);
	uint64_t faults, hits;

	check(umadvise(m, SIZE, UMMAP_ADV_SEQUENTIAL) == 0);
	check_bytes(m, 4 * MIB + PAGE, 0, 1);
	await_read(m, 8 * MIB);
	hits = stat_of(m).readahead_hits;
	check_bytes(m + 6 * MIB, PAGE, 6 * MIB, 1);
	check(stat_of(m).readahead_hits == hits + 1, "%" PRIu64, stat_of(m).readahead_hits);
	await_read(m, 10 * MIB);
	faults = stat_of(m).read_faults;
	check_bytes(m + 6 * MIB, 4 * MIB, 6 * MIB, 1);
	check(stat_of(m).read_faults == faults + 1, "%" PRIu64, stat_of(m).read_faults - faults);
}

/* ---- A remote store ---- */

/* A store whose reads wait until `together` of them have been in flight at once. After 20 s, none
 * waits any more. */
static struct {
	_Atomic unsigned together, in_flight, most;
	int latency_ms;
} far;

static int far_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	(void)uri;
	(void)oflags;
	*h = &far;
	geom->size = SIZE;
	geom->caps = UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE | UMMAP_CAP_REMOTE;
	return 0;
}

static int close_nothing(void *h)
{
	(void)h;
	return 0;
}

static int far_read(void *h, void *buf, size_t len, uint64_t off)
{
	unsigned in_flight = ++far.in_flight, most = far.most;

	(void)h;
	fill(buf, len, off, 1);
	if (far.latency_ms)
		pause_ms(far.latency_ms);
	while (in_flight > most && !atomic_compare_exchange_weak(&far.most, &most, in_flight))
		;
	for (double end = now() + 20; far.most < far.together; pause_ms(1)) {
		if (now() > end)
			far.together = 0;
	}
	far.in_flight--;
	return 0;
}

static uint8_t *map_far(void)
{
	static const struct ummap_driver driver = {
		.struct_size = sizeof(driver), .abi = UMMAP_DRIVER_ABI, .scheme = "far",
		.help = "reads that wait for each other", .open = far_open, .close = close_nothing,
		.read = far_read,
	};
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *m;

	attr.seg_size = UMMAP_SEG_AUTO;
	attr.engine = UMMAP_ENGINE_SIGBUS;
	check(ummap_driver_register(&driver) == 0);
	check(ummap_open("far:store", SIZE, 0, PROT_READ, &attr, &m) == 0, "%s", umerrormsg());
	return m;
}

/* A stream in a remote store has the requests for many blocks in flight at once. */
Test(automatic, remote_stream)
{
	uint8_t *m;

	if (!has_huge_pages())
		cr_skip("there are no huge pages");
	set_budget(16 * SIZE);
	m = map_far();
	check(umadvise(m, SIZE, UMMAP_ADV_SEQUENTIAL) == 0);
	far.together = 16;
	check_bytes(m, SIZE, 0, 1);
	check(far.most >= 16, "%u", far.most);
	check(umunmap(m, 0) == 0);
}

/* Where a request takes long, blocks are large although little of them is used. */
Test(automatic, remote_latency)
{
	uint64_t random = 1;
	uint8_t *m;

	set_budget(BUDGET);
	far.latency_ms = 5;
	m = map_far();
	for (unsigned k = 0; k < 100; k++) {
		size_t first = next_random(&random) % (SIZE / (2 * MIB)) * 2 * MIB;

		for (unsigned n = 0; n < 8; n++) {
			size_t at = first + next_random(&random) % (2 * MIB);

			check(m[at] == pattern(at, 1));
		}
	}
	check(stat_of(m).transfer_bytes >= 512 * KIB, "%" PRIu64, stat_of(m).transfer_bytes);
	check(umunmap(m, 0) == 0);
}

/* ---- Engines and settings ---- */

/* Engines that do not copy have segments of the default size. */
Test(automatic, other_engines)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *m;

	attr.seg_size = UMMAP_SEG_AUTO;
	attr.engine = UMMAP_ENGINE_SEGV;
	check(ummap_open("null:64M", 64 * MIB, 0, PROT_READ, &attr, &m) == 0);
	check(stat_of(m).transfer_bytes == 2 * MIB);
	check(((volatile uint8_t *)m)[0] == 0);
	check(stat_of(m).resident_bytes == 2 * MIB);
	check(umunmap(m, 0) == 0);
}

Test(automatic, by_the_environment)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *m;

	set_env("UMMAP_SEG_SIZE", "auto");
	unsetenv("UMMAP_ENGINE");
	check(ummap_open("null:64M", 64 * MIB, 0, PROT_READ, &attr, &m) == 0);
	check(stat_of(m).transfer_bytes == (stat_of(m).engine == UMMAP_ENGINE_SIGBUS ?
						   64 * KIB : 2 * MIB));
	check(umunmap(m, 0) == 0);
}

/* Stores the round to the first word of pages 3 to 35, round after round. */
static _Atomic uint64_t begun, ended;

static void *store_ahead(void *m)
{
	for (uint64_t round = 1; round <= 50; round++) {
		while (begun < round)
			sched_yield();
		for (size_t at = 3 * PAGE; at < 36 * PAGE; at += PAGE)
			*(volatile uint64_t *)((uint8_t *)m + at) = round;
		ended = round;
	}
	return NULL;
}

/* A store of another thread to a page that becomes writable before a store is not lost. */
Test(automatic, stores_of_two_threads)
{
	int fd = filled_file(MIB, 1);
	uint8_t *m = map_auto(fd, READ_WRITE);
	pthread_t thread;
	uint64_t word;

	check(umadvise(m, MIB, UMMAP_ADV_SEQUENTIAL) == 0);
	check(pthread_create(&thread, NULL, store_ahead, m) == 0);
	for (uint64_t round = 1; round <= 50; round++) {
		begun = round;
		for (size_t at = 0; at < 3 * PAGE; at += PAGE)
			*(volatile uint64_t *)(m + at) = round;
		while (ended < round)
			sched_yield();
		check(umsync_range(m, MIB, UMMAP_NOFLUSH) == 0);
		for (size_t at = 0; at < 36 * PAGE; at += PAGE) {
			check(pread(fd, &word, sizeof(word), (off_t)at) == sizeof(word));
			check(word == round, "page %zu: %" PRIu64 " in round %" PRIu64, at / PAGE,
			      word, round);
		}
	}
	check(pthread_join(thread, NULL) == 0);
	check(umunmap(m, 0) == 0);
}

struct part {
	uint8_t *m;
	uint64_t random;
};

/* Adds 1 to the first word of pages at random. */
static void *add_to_pages(void *arg)
{
	struct part *p = arg;

	for (size_t k = 0; k < 20000; k++) {
		size_t at = next_random(&p->random) % (SIZE / PAGE) * PAGE;

		atomic_fetch_add((_Atomic uint64_t *)(p->m + at), 1);
		/* Neighbors come and go with the pages. */
		check(p->m[(at ^ PAGE) + 100] == pattern((at ^ PAGE) + 100, 1));
	}
	return NULL;
}

Test(automatic, threads)
{
	uint8_t *m = map_big(READ_WRITE);
	struct part part[4];
	pthread_t thread[4];
	uint64_t sum = 0;

	for (unsigned k = 0; k < 4; k++) {
		part[k] = (struct part){ m, k + 1 };
		check(pthread_create(&thread[k], NULL, add_to_pages, &part[k]) == 0);
	}
	for (unsigned k = 0; k < 4; k++)
		check(pthread_join(thread[k], NULL) == 0);
	for (size_t at = 0; at < SIZE; at += PAGE)
		sum += *(uint64_t *)(m + at) - pattern_word(at, 1);
	check(sum == 4 * 20000, "%" PRIu64, sum);
}

/* ---- Blocks on huge pages ---- */

/* Maps the file for reading in order, so that blocks of 2 MiB come as a whole. */
static uint8_t *map_in_order(void)
{
	uint8_t *m;

	set_budget(2 * BUDGET);
	m = map_auto(filled_file(SIZE, 1), PROT_READ);
	check(umadvise(m, SIZE, UMMAP_ADV_SEQUENTIAL) == 0);
	return m;
}

/* Whole blocks are on huge pages, within the budget; also after they were evicted. */
Test(automatic, huge_pages)
{
	uint8_t *m = map_in_order();
	struct umstat st;

	check_bytes(m, 2 * MIB, 0, 1);
	if (!huge_bytes(m, SIZE))
		cr_skip("no huge pages, or no UFFDIO_MOVE");
	for (unsigned pass = 0; pass < 3; pass++) {
		check_bytes(m, SIZE, 0, 1);
		check(huge_bytes(m, SIZE) >= 2 * MIB, "%zu", huge_bytes(m, SIZE));
		st = stat_of(m);
		check(st.resident_bytes + st.inactive_bytes <= 2 * BUDGET);
	}
	check(umsync(m, 1) == 0);
	check(stat_of(m).resident_bytes == 0 && huge_bytes(m, SIZE) == 0);
	check_bytes(m, SIZE, 0, 1);
}

/* A mapping of small segments, which are not guessed, may have made the frames. */
Test(automatic, stores_in_older_frames)
{
	int fd = filled_file(SIZE, 1);
	uint8_t *m;

	set_budget(2 * BUDGET);
	m = map_file(temp_file(MIB), MIB, PAGE, READ_WRITE, 0);
	fill(m, MIB, 0, 1);
	check(umunmap(m, 0) == 0);
	m = map_auto(fd, READ_WRITE);
	check(umadvise(m, SIZE, UMMAP_ADV_SEQUENTIAL) == 0);
	fill(m, SIZE, 0, 2);
	check(umsync(m, 0) == 0);
	check(umunmap(m, 0) == 0);
	check_file(fd, 0, SIZE, 0, 2);
}

/* If a program stores to one block after another, the next ones are on huge pages, too. Pages that
 * it has not stored to are not written: they keep what others write to the file. */
Test(automatic, stores_on_huge_pages)
{
	int fd = filled_file(SIZE, 1);
	uint8_t *m, other[PAGE];
	size_t huge = 0;

	set_budget(2 * BUDGET);
	m = map_auto(fd, READ_WRITE);
	check(umadvise(m, SIZE, UMMAP_ADV_SEQUENTIAL) == 0);
	for (size_t at = 0; at < SIZE / 2; at += MIB) {
		fill(m + at, MIB, at, 2);
		huge = huge > huge_bytes(m, SIZE) ? huge : huge_bytes(m, SIZE);
	}
	if (!huge)
		cr_skip("no huge pages, or no UFFDIO_MOVE");
	for (size_t at = SIZE / 2 + 5 * PAGE; at < SIZE; at += MIB) {
		fill(other, PAGE, at, 3);
		check(pwrite(fd, other, PAGE, (off_t)at) == (ssize_t)PAGE);
	}
	check_bytes(m, SIZE / 2, 0, 2);
	check(stat_of(m).resident_bytes + stat_of(m).inactive_bytes <= 2 * BUDGET);
	check(umsync(m, 0) == 0);
	check(stat_of(m).dirty_bytes == 0);
	check(stat_of(m).write_bytes >= SIZE / 2 && stat_of(m).write_bytes < SIZE / 2 + MIB,
	      "%" PRIu64, stat_of(m).write_bytes);
	check(umunmap(m, 0) == 0);
	check_file(fd, 0, SIZE / 2, 0, 2);
	for (size_t at = SIZE / 2; at < SIZE; at += MIB) {
		check_file(fd, (off_t)at, 5 * PAGE, at, 1);
		check_file(fd, (off_t)(at + 5 * PAGE), PAGE, at + 5 * PAGE, 3);
	}
}

/* Zeros are on huge pages, too, and the kernel replaces parts of those by a page that it shares. */
static void store_to_zeros(uint64_t flags)
{
	int fd = temp_file(SIZE);
	uint64_t random = 1;
	uint8_t *m;

	set_budget(2 * BUDGET);
	m = map_with_flags(fd, READ_WRITE, flags);
	for (size_t at = 0; at < SIZE; at += PAGE)
		fill(m + at, PAGE, at, 2);
	check(stat_of(m).write_faults + stat_of(m).upgrade_faults < SIZE / PAGE / 16,
	      "%" PRIu64 " faults", stat_of(m).write_faults + stat_of(m).upgrade_faults);
	for (unsigned k = 0; k < 1000; k++) {
		size_t at = next_random(&random) % (SIZE / PAGE) * PAGE;

		check_bytes(m + at, PAGE, at, 2);
		fill(m + at, 100, at, 2);
	}
	check(umsync(m, 0) == 0);
	check(umunmap(m, 0) == 0);
	check_file(fd, 0, SIZE, 0, 2);
}

Test(automatic, stores_to_holes)
{
	store_to_zeros(0);
}

Test(automatic, stores_to_blank_segments)
{
	store_to_zeros(UMMAP_BLANK);
}

/* Threads store to some pages of blocks of zeros, and read all. */
static uint8_t *zeros;

static void *store_to_some(void *arg)
{
	uint8_t *m = zeros + (uintptr_t)arg * (SIZE / 2);

	for (unsigned turn = 0; turn < 6; turn++) {
		for (size_t at = 0; at < SIZE / 2; at += PAGE) {
			size_t page = at / PAGE;
			bool stored = turn && page % 7;

			check(m[at] == (stored ? (uint8_t)page : 0), "turn %u: page %zu", turn,
			      page);
			if (page % 7)
				m[at] = (uint8_t)page;
		}
	}
	return NULL;
}

Test(automatic, threads_and_zeros)
{
	pthread_t thread;

	set_budget(2 * BUDGET);
	zeros = map_auto(temp_file(SIZE), READ_WRITE);
	check(umadvise(zeros, SIZE, UMMAP_ADV_SEQUENTIAL) == 0);
	check(pthread_create(&thread, NULL, store_to_some, (void *)1) == 0);
	store_to_some(NULL);
	check(pthread_join(thread, NULL) == 0);
}

/* Stores to such a block fail, as to any other read-only memory. */
Test(automatic, huge_pages_are_read_only, .signal = SIGSEGV)
{
	uint8_t *m = map_in_order();

	check_bytes(m, 8 * MIB, 0, 1);
	*(volatile uint8_t *)(m + 4 * MIB) = 1;
}

static int refuse_store(void *addr)
{
	(void)addr;
	return 0;
}

/* Memory on a huge page was writable for a moment: a program that waits for stores has none. */
Test(automatic, no_huge_pages_if_stores_are_handled)
{
	uint8_t *m;

	check(umonstore(refuse_store) == 0);
	m = map_in_order();
	check_bytes(m, SIZE, 0, 1);
	check(huge_bytes(m, SIZE) == 0);
}

/* Segments of a block leave alone, and stay when the rest of it is evicted. */
Test(automatic, parts_of_huge_pages)
{
	uint8_t *m = map_in_order();
	uint64_t read;

	check_bytes(m, 8 * MIB, 0, 1);
	check(umpin(m + 4 * MIB + PAGE, PAGE, PROT_READ) == 0);
	check(umsync_range(m + 2 * MIB + 3 * PAGE, 5 * PAGE, UMMAP_EVICT) == 0);
	check_bytes(m + 2 * MIB, 2 * MIB, 2 * MIB, 1);
	for (unsigned pass = 0; pass < 2; pass++)
		check_bytes(m + 8 * MIB, SIZE - 8 * MIB, 8 * MIB, 1);
	check(umadvise(m, SIZE, UMMAP_ADV_RANDOM) == 0);
	read = stat_of(m).read_bytes;
	check_bytes(m + 4 * MIB + PAGE, PAGE, 4 * MIB + PAGE, 1);
	check(stat_of(m).read_bytes == read);
	check_bytes(m + 4 * MIB, 2 * MIB, 4 * MIB, 1);
	check(umunpin(m + 4 * MIB + PAGE, PAGE) == 0);
	check(umadvise(m, SIZE, UMMAP_ADV_SEQUENTIAL) == 0);
	for (unsigned pass = 0; pass < 2; pass++)
		check_bytes(m, SIZE, 0, 1);
}

/* Loads pages in order or at random, pins and evicts some. */
static void *read_pages(void *arg)
{
	struct part *p = arg;
	size_t at = next_random(&p->random) % (SIZE / PAGE) * PAGE;

	for (size_t k = 0; k < 4 * SIZE / PAGE; k++) {
		at = k % 4096 > 3500 ? next_random(&p->random) % (SIZE / PAGE) * PAGE :
		     (at + PAGE) % SIZE;
		check(p->m[at + k % PAGE] == pattern(at + k % PAGE, 1));
		if (k % 1024 == 0 && umpin(p->m + at, PAGE, PROT_READ) == 0) {
			check_bytes(p->m + at, PAGE, at, 1);
			check(umunpin(p->m + at, PAGE) == 0);
		}
		if (k % 8192 == 7)
			check(umsync_range(p->m + at, PAGE, UMMAP_EVICT) == 0);
		if (k % 16384 == 9)
			check(umadvise(p->m, SIZE, k & 16384 ? UMMAP_ADV_NORMAL :
				       UMMAP_ADV_SEQUENTIAL) == 0);
	}
	return NULL;
}

Test(automatic, threads_and_huge_pages)
{
	uint8_t *m = map_in_order();
	struct part part[4];
	pthread_t thread[4];

	for (unsigned k = 0; k < 4; k++) {
		part[k] = (struct part){ m, k + 1 };
		check(pthread_create(&thread[k], NULL, read_pages, &part[k]) == 0);
	}
	for (unsigned k = 0; k < 4; k++)
		check(pthread_join(thread[k], NULL) == 0);
	check_bytes(m, SIZE, 0, 1);
}

/* A child has no buffers of its parent. */
Test(automatic, huge_pages_and_fork)
{
	uint8_t *m = map_in_order();
	int status;
	pid_t pid;

	check_bytes(m, SIZE, 0, 1);
	/* Single pages take memory of blocks, whose huge pages stay in the buffers. */
	check(umadvise(m, SIZE, UMMAP_ADV_RANDOM) == 0);
	for (size_t at = 0; at < 12 * MIB; at += PAGE)
		check(m[at] == pattern(at, 1));
	pid = fork();
	if (pid == 0) {
		uint8_t *own = map_in_order();

		check_bytes(own, SIZE, 0, 1);
		_exit(0);
	}
	check_bytes(m, SIZE, 0, 1);
	check(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- Writes from one piece of memory ---- */

#define COPIED_SIZE (4 * MIB)

/* A store in memory, whose driver prefers aligned transfers. */
static struct {
	uint8_t data[COPIED_SIZE];
	const uint8_t *range;           /* address of the mapping */
	_Atomic unsigned inside;        /* writes from the mapped range */
	_Atomic unsigned outside;       /* writes from other memory */
	_Atomic unsigned pieces;        /* pieces that did not follow the piece before in memory */
	_Atomic uint64_t bytes;         /* bytes that were written */
	_Atomic size_t bad;             /* offset of a page whose writes fail; 0: none */
} block_store;

static int block_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	(void)uri, (void)oflags;
	fill(block_store.data, COPIED_SIZE, 0, 1);
	*h = &block_store;
	geom->size = COPIED_SIZE;
	geom->align = PAGE;
	geom->caps = UMMAP_CAP_WRITE | UMMAP_CAP_FAULTSAFE | UMMAP_CAP_PARALLEL;
	return 0;
}

static int block_read(void *h, void *buf, size_t len, uint64_t off)
{
	(void)h;
	memcpy(buf, block_store.data + off, len);
	return 0;
}

static int block_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	const uint8_t *end = NULL;
	size_t len = 0;

	(void)h;
	for (int i = 0; i < n; i++)
		len += iov[i].iov_len;
	if (block_store.bad && off <= block_store.bad && block_store.bad < off + len)
		return -EIO;
	for (int i = 0; i < n; off += iov[i++].iov_len) {
		const uint8_t *buf = iov[i].iov_base;
		bool is_inside = buf >= block_store.range && buf < block_store.range + COPIED_SIZE;

		memcpy(block_store.data + off, buf, iov[i].iov_len);
		block_store.bytes += iov[i].iov_len;
		block_store.pieces += buf != end;
		block_store.inside += is_inside;
		block_store.outside += !is_inside;
		end = buf + iov[i].iov_len;
	}
	return 0;
}

static int block_write(void *h, const void *buf, size_t len, uint64_t off)
{
	return block_writev(h, &(struct iovec){ (void *)(uintptr_t)buf, len }, 1, off);
}

static const struct ummap_driver block_driver = {
	.struct_size = sizeof(block_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "block",
	.help = "a store in memory that prefers aligned transfers",
	.open = block_open,
	.close = close_nothing,
	.read = block_read,
	.write = block_write,
	.writev = block_writev,
};

/* Maps the store in segments of a size. The program has stored to the n pages from the second page
 * on. */
static uint8_t *map_block_store(size_t seg_size, size_t n)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	uint8_t *m;
	void *p;

	set_budget(BUDGET);
	check(ummap_driver_register(&block_driver) == 0);
	attr.seg_size = seg_size;
	attr.engine = UMMAP_ENGINE_SIGBUS;
	if (ummap_open("block:x", COPIED_SIZE - 100, 0, READ_WRITE, &attr, &p) < 0)
		cr_skip("%s", umerrormsg());
	m = p;
	block_store.range = m;
	check(umadvise(m, COPIED_SIZE - 100, UMMAP_ADV_RANDOM) == 0);
	fill(m + PAGE, n * PAGE, PAGE, 2);
	return m;
}

/* Checks the store after a sync: the n pages from the second one on were written. */
static void check_block_store(size_t n)
{
	check_bytes(block_store.data, PAGE, 0, 1);
	check_bytes(block_store.data + PAGE, n * PAGE, PAGE, 2);
	check_bytes(block_store.data + (n + 1) * PAGE, COPIED_SIZE - (n + 1) * PAGE, (n + 1) * PAGE,
		    1);
}

/* Segments of 32 KiB or more in all are copied before the write, and the pieces of a request follow
 * one another in memory. */
static void write_copied(size_t seg_size, size_t n)
{
	uint8_t *m = map_block_store(seg_size, n);

	check(umsync(m, 0) == 0);
	check(block_store.inside == 0 && block_store.outside > 0, "%u %u", block_store.inside,
	      block_store.outside);
	check(block_store.pieces <= 1 + n / 32, "%u", block_store.pieces);
	check_block_store(n);
	/* All segments are clean. */
	block_store.bytes = 0;
	check(umsync(m, 0) == 0);
	check(block_store.bytes == 0 && stat_of(m).dirty_bytes == 0);
	check(umunmap(m, 0) == 0);
}

Test(automatic, writes_from_one_piece)
{
	write_copied(UMMAP_SEG_AUTO, 8);
}

Test(automatic, writes_of_fixed_segments_from_one_piece)
{
	write_copied(PAGE, 8);
}

Test(automatic, long_writes_from_one_piece)
{
	write_copied(UMMAP_SEG_AUTO, 300);
}

Test(automatic, long_writes_of_fixed_segments_from_one_piece)
{
	write_copied(PAGE, 300);
}

/* A short write takes as long from small pages, and copies nothing. */
Test(automatic, short_writes_in_place)
{
	uint8_t *m = map_block_store(UMMAP_SEG_AUTO, 7);

	check(umsync(m, 0) == 0);
	check(block_store.outside == 0 && block_store.inside > 0, "%u %u", block_store.inside,
	      block_store.outside);
	check_block_store(7);
	check(umunmap(m, 0) == 0);
}

/* The end of the mapping is not at the end of a page. */
Test(automatic, writes_of_the_end_from_one_piece)
{
	uint8_t *m = map_block_store(UMMAP_SEG_AUTO, 0);
	size_t from = COPIED_SIZE - 10 * PAGE;

	fill(m + from, 10 * PAGE - 100, from, 2);
	check(umsync(m, 0) == 0);
	check(block_store.inside == 0 && block_store.bytes == 10 * PAGE - 100, "%u %" PRIu64,
	      block_store.inside, block_store.bytes);
	check_bytes(block_store.data, from, 0, 1);
	check_bytes(block_store.data + from, 10 * PAGE - 100, from, 2);
	check_bytes(block_store.data + COPIED_SIZE - 100, 100, COPIED_SIZE - 100, 1);
	check(umunmap(m, 0) == 0);
}

/* If one page of many cannot be written, the others are written, and only that one stays dirty. */
Test(automatic, failed_writes_from_one_piece)
{
	uint8_t *m = map_block_store(PAGE, 16);

	block_store.bad = 9 * PAGE;
	check(umsync(m, 0) == -1 && errno == EIO);
	check(stat_of(m).dirty_bytes == PAGE, "%" PRIu64, stat_of(m).dirty_bytes);
	check(block_store.bytes == 15 * PAGE, "%" PRIu64, block_store.bytes);
	check_bytes(block_store.data + 9 * PAGE, PAGE, 9 * PAGE, 1);
	block_store.bad = 0;
	block_store.bytes = 0;
	check(umsync(m, 0) == 0);
	check(block_store.bytes == PAGE && stat_of(m).dirty_bytes == 0);
	check_block_store(16);
	check(umunmap(m, 0) == 0);
}

/* The same for pages of automatic size, which are one request. */
Test(automatic, failed_stretches_from_one_piece)
{
	uint8_t *m = map_block_store(UMMAP_SEG_AUTO, 16);

	block_store.bad = 9 * PAGE;
	check(umsync(m, 0) == -1 && errno == EIO);
	check(stat_of(m).dirty_bytes == PAGE, "%" PRIu64, stat_of(m).dirty_bytes);
	check_bytes(block_store.data + 9 * PAGE, PAGE, 9 * PAGE, 1);
	block_store.bad = 0;
	check(umsync(m, 0) == 0);
	check(stat_of(m).dirty_bytes == 0);
	check_block_store(16);
	check(umunmap(m, 0) == 0);
}
