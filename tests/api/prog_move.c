/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umremap and a model. One mapping grows, shrinks and moves within two stores; old and new place
 * may overlap; contents are migrated or switched. Meanwhile the mapping is changed, most of it is
 * not in memory, and reads and writes fail, completely or after a part, several times. The mapping
 * always shows the stored data. A sync that returns 0 has written all of it to the current place.
 * No byte changes where the mapping has not been since the last sync. The stores are arrays of this
 * program.
 *
 *	prog_move [SEED [ROUNDS]]
 */
#include <ummap-driver.h>

/* TSan does not know that a store to the mapping happens before the segment is written to the
 * array, because the kernel carries the fault to the library. */
#define TSAN_MORE_SUPPRESSIONS "race:write_store\n"
#include "access.h"
#include "common.h"

#define SEG (4 * KIB)
#define STORE_SIZE (96 * SEG)
#define MAX_SIZE (24 * SEG)
#define BUDGET (6 * SEG)

/* Stores now, and after the last sync. */
static uint8_t store[2][STORE_SIZE], before[2][STORE_SIZE];
static bool touched[2][STORE_SIZE];    /* the mapping has been there since that sync */
static uint8_t view[MAX_SIZE], *m;     /* expected contents, and the mapping */
static size_t size, offset;                       /* of the mapping */
static unsigned in;                               /* index of its store */
static int fds[2];
static uint64_t state, step;
static unsigned failures; /* number of calls that failed */
static unsigned shrunk;   /* number of these that had shrunk the mapping */
static unsigned both;     /* number of times that a sync failed after that */

/* ---- The stores ---- */

static _Atomic long until;            /* number of calls that succeed first */
static _Atomic long failing;          /* number of calls that fail then */
static _Atomic bool writes_fail, halfway;

static int open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h,
		   struct ummap_geom *geom)
{
	unsigned i = fd == fds[1];

	(void)uri, (void)oflags;
	*h = store[i];
	geom->size = STORE_SIZE;
	geom->align = 1;
	geom->id[0] = 1 + i;
	geom->caps = UMMAP_CAP_WRITE | UMMAP_CAP_FAULTSAFE | UMMAP_CAP_PARALLEL;
	return 0;
}

static int open_uri(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	return open_fd(uri, -1, oflags, h, geom);
}

static int close_store(void *h)
{
	(void)h;
	return 0;
}

static bool fails(bool writing)
{
	return writing == writes_fail && failing > 0 && until-- <= 0 && failing-- > 0;
}

static int read_store(void *h, void *buf, size_t len, uint64_t off)
{
	if (fails(false))
		return -EIO;
	check(off + len <= STORE_SIZE);
	memcpy(buf, (uint8_t *)h + off, len);
	return 0;
}

static int write_store(void *h, const void *buf, size_t len, uint64_t off)
{
	bool bad = fails(true);

	check(off + len <= STORE_SIZE);
	memcpy((uint8_t *)h + off, buf, !bad ? len : halfway ? len / 2 : 0);
	return bad ? -EIO : 0;
}

static int writev_store(void *h, const struct iovec *iov, int n, uint64_t off)
{
	int err = 0;

	for (int i = 0; i < n && !err; off += iov[i++].iov_len)
		err = write_store(h, iov[i].iov_base, iov[i].iov_len, off);
	return err;
}

static const struct ummap_driver arrays = {
	.struct_size = sizeof(arrays),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "arrays",
	.help = "two arrays",
	.open = open_uri,
	.open_fd = open_fd,
	.close = close_store,
	.read = read_store,
	.write = write_store,
	.writev = writev_store,
};

static uint64_t below(uint64_t n)
{
	return next_random(&state) % n;
}

static void arm(void)
{
	writes_fail = below(3) != 0;
	halfway = below(2);
	until = (long)below(below(2) ? 12 : 60);
	failing = (long)(below(3) ? 1 + below(6) : below(100));
}

static void disarm(void)
{
	failing = 0;
}

/* ---- The model ---- */

static void note_place(unsigned i, size_t off, size_t len)
{
	memset(&touched[i][off], true, len);
}

static void check_view(void)
{
	static uint8_t found[MAX_SIZE];

	access_load(found, m, size);
	check(memcmp(found, view, size) == 0, "step %" PRIu64, step);
}

static void check_stores(void)
{
	check(memcmp(store[in] + offset, view, size) == 0, "step %" PRIu64, step);
	for (unsigned i = 0; i < 2; i++)
		for (size_t at = 0; at < STORE_SIZE; at++)
			check(touched[i][at] || store[i][at] == before[i][at],
			      "step %" PRIu64 ": byte %zu of store %u", step, at, i);
	memcpy(before, store, sizeof(store));
	memset(touched, 0, sizeof(touched));
	note_place(in, offset, size);
}

static void change(void)
{
	for (uint64_t n = below(6); n > 0; n--) {
		size_t at = below(size), len = 1 + below(below(2) ? 64 : 3 * SEG);

		len = len < size - at ? len : size - at;
		memset(view + at, (int)step, len);
		access_store(m + at, view + at, len);
	}
}

static void sync_some(void)
{
	int what = (int)below(5);

	if (what == 0)
		umsync_range(m + below(size), 1, UMMAP_NOFLUSH);
	else if (what == 1)
		umadvise(m, size, UMMAP_ADV_DONTNEED);
	else if (what == 2 && umsync(m, (int)below(2)) == 0)
		check_stores();
}

/* Syncs with stores that work. */
static void sync_all(void)
{
	disarm();
	if (umsync(m, (int)below(2)) != 0)  /* an earlier error, which is reported once */
		check(umsync(m, 0) == 0, "step %" PRIu64, step);
	check_stores();
}

/* A call that failed may have shrunk the mapping. */
static void find_size(size_t wanted)
{
	if (wanted >= size || umsync_range(m + wanted, 1, UMMAP_NOFLUSH) == 0 || errno != ENOMEM)
		return;
	size = wanted;
	shrunk++;
}

static size_t near(size_t at, size_t most)
{
	size_t off = below(3) ? at + below(8 * SEG) - 4 * SEG : below(STORE_SIZE);

	if (below(2))
		off = off / SEG * SEG;
	return off <= most ? off : below(most + 1);
}

static void remap(void)
{
	size_t larger = below(3) ? size : 1 + below(MAX_SIZE),
	       off = near(offset, STORE_SIZE - larger);
	unsigned to = below(3) ? in : !in;
	int sync = (below(3) ? 0 : UMMAP_SYNC) | (below(5) ? 0 : UMMAP_SWITCH), res;
	bool stays = to == in && below(4) == 0 && offset + larger <= STORE_SIZE;
	static uint8_t there[STORE_SIZE];
	void *base = m;

	off = stays ? offset : off;
	memcpy(there, store[to], STORE_SIZE);
	if (to == in)
		memcpy(there + offset, view, size);
	note_place(to, off, larger);
	res = umremap(m, larger, to == in ? -1 : fds[to], stays ? -1 : (off_t)off, sync, &base);
	if (res != 0) {
		check(errno == EIO, "step %" PRIu64, step);
		failures++;
		find_size(larger);
		return;
	}
	m = base;
	if (sync & UMMAP_SWITCH)
		memcpy(view, store[to] + off, larger);
	else if (larger > size)
		memcpy(view + size, there + off + size, larger - size);
	in = to;
	offset = off;
	size = larger;
}

static void play(void *rounds)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	set_budget(BUDGET);
	set_env("UMMAP_DRIVER", "arrays");
	if (DEFAULT_ENGINE)
		set_env("UMMAP_ENGINE", DEFAULT_ENGINE);
	check(ummap_driver_register(&arrays) == 0);
	for (unsigned i = 0; i < 2; i++) {
		fds[i] = temp_file(1);
		fill(store[i], STORE_SIZE, 0, i + 1);
	}
	memcpy(before, store, sizeof(store));
	attr.seg_size = SEG;
	attr.ptype = (int)below(UMMAP_PTYPE_FIFO + 1);
	size = 1 + below(MAX_SIZE);
	offset = below(STORE_SIZE - size);
	check(ummap_open("arrays:x", size, (off_t)offset, READ_WRITE, &attr, &addr) == 0, "%s",
	      umerrormsg());
	m = addr;
	check(!DEFAULT_ENGINE || stat_of(m).engine == UMMAP_ENGINE_SIMULATED);
	memcpy(view, store[0] + offset, size);
	note_place(0, offset, size);
	for (step = 1; step <= *(unsigned *)rounds; step++) {
		change();
		if (below(2))
			arm();
		remap();
		if (failing > 0 && below(2) && umsync(m, 0) != 0)
			both++;
		/* Writes may go on failing during the next steps. */
		if (writes_fail && below(2))
			change();
		disarm();
		check_view();
		sync_some();
		if (below(3) == 0)
			sync_all();
	}
	sync_all();
	check_view();
	check(umunmap(m, 1) == 0);
	printf("%u calls failed, %u of them had shrunk the mapping, and then %u syncs failed\n",
	       failures, shrunk, both);
	check(*(unsigned *)rounds < 200 || (failures > 0 && both > 0));
}

int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1,
		 last = argc > 1 || SANITIZED ? first : by_time(4, 12);
	unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 400;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (uint64_t seed = first; seed <= last; seed++) {
		state = seed;
		printf("seed %" PRIu64 "\n", seed);
		check_exits(run_child(play, &rounds), 0);
	}
	return 0;
}
