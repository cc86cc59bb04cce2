/* SPDX-License-Identifier: BSD-3-Clause */
/* Pieces: neighbours that move as one huge page, and the pool that has huge pages whole for them. Engine segv. */
#include "common.h"
#include "frame.h"
#include "map.h"
#include "seg.h"

#include <ummap-driver.h>

#include <criterion/criterion.h>
#include <sys/resource.h>

#define SEG (256 * KIB)
#define PIECE (2 * MIB / SEG)
#define SIZE (256 * MIB)
#define BUDGET (64 * MIB)

/* Bytes of [addr, addr + len) that are on huge pages, and mapped so. */
static size_t huge_bytes(const uint8_t *addr, size_t len)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long from, to, kib;
	size_t sum = 0;
	bool inside = false;
	char line[256];

	cr_assert_not_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = from >= (uintptr_t)addr && to <= (uintptr_t)addr + len;
		else if (inside && sscanf(line, "AnonHugePages: %lu kB", &kib) == 1)
			sum += kib * KIB;
	}
	fclose(f);
	return sum;
}

static bool has_huge_pages(void)
{
	FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
	char line[64] = "";
	bool has;

	if (!f)
		return false;
	has = fgets(line, sizeof(line), f) && !strstr(line, "[never]");
	fclose(f);
	return has;
}

static uint8_t *map_in(size_t seg, int fd, int prot)
{
	set_env("UMMAP_ENGINE", "segv");
	set_budget(BUDGET);
	return map_file(fd, SIZE, seg, prot, 0);
}

static uint8_t *map_some(int fd, int prot)
{
	return map_in(SEG, fd, prot);
}

static void read_all(const uint8_t *m)
{
	for (size_t off = 0; off < SIZE; off += SEG) {
		for (size_t at = off; at < off + SEG; at += 32 * KIB)
			cr_assert_eq(m[at], pattern(at, 3), "byte %zu", at);
	}
}

#define PASSES 3

static bool is_mostly_huge(const uint8_t *m)
{
	return !has_huge_pages() || huge_bytes(m, SIZE) >= stat_of(m).resident_bytes / 4 * 3;
}

/* Most of what a scan has in memory is on huge pages. Where a processor was away in the middle of it, some is not; then
 * the next scan has to make up for that. */
static void expect_huge(const uint8_t *m)
{
	for (int pass = 0; pass < PASSES && !is_mostly_huge(m); pass++)
		read_all(m);
	cr_expect_geq(stat_of(m).resident_bytes, BUDGET / 2);
	cr_expect(is_mostly_huge(m), "%zu of %lu", huge_bytes(m, SIZE), (unsigned long)stat_of(m).resident_bytes);
}

static long minor_faults(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_minflt;
}

static void scan(size_t seg)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *m = map_in(seg, fd, PROT_READ);
	long before;

	read_all(m);
	before = minor_faults();
	for (int pass = 0; pass < PASSES; pass++)
		read_all(m);
	/* Huge pages that had to be mended. */
	cr_expect_lt(minor_faults() - before, PASSES * SIZE / (2 * MIB) / 3, "%ld", minor_faults() - before);
	expect_huge(m);
	cr_assert_eq(umunmap(m, 0), 0);
}

Test(pieces, of_a_scan)
{
	scan(SEG);
}

Test(pieces, of_a_scan_in_small_segments)
{
	scan(64 * KIB);
}

Test(pieces, of_a_scan_in_large_segments)
{
	scan(MIB);
}

/* What was stored to came and left by itself, which breaks huge pages up, and in an order of its own. */
Test(pieces, after_stores)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *m = map_some(fd, READ_WRITE);
	uint64_t seed = 5;

	for (int k = 0; k < 1000; k++) {
		size_t off = next_random(&seed) % SIZE;

		m[off] = pattern(off, 3);
	}
	cr_assert_eq(umunmap(m, 0), 0);
	m = map_some(fd, PROT_READ);
	read_all(m);
	expect_huge(m);
	cr_assert_eq(umunmap(m, 0), 0);
}

/* Faults in no order mix up the frames of huge pages; scans sort them. */
Test(pieces, after_jumps)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *m = map_some(fd, PROT_READ);
	uint64_t seed = 5;

	read_all(m);
	for (int pass = 0; pass < PASSES; pass++) {
		for (int k = 0; k < 300; k++) {
			size_t off = next_random(&seed) % SIZE;

			cr_assert_eq(m[off], pattern(off, 3));
		}
		read_all(m);
		expect_huge(m);
	}
	cr_assert_eq(umunmap(m, 0), 0);
}

/* Somebody else has one frame of a huge page; the rest of it stays aside. */
Test(pieces, beside_one)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *other = map_some(fd, PROT_READ), *m = map_some(fd, PROT_READ);

	cr_assert_eq(other[0], pattern(0, 3));
	read_all(m);
	expect_huge(m);
	cr_assert_eq(umunmap(m, 0), 0);
	cr_assert_eq(umunmap(other, 0), 0);
}

/* In no order that is known, a piece is as good as gone; but nothing is mixed up. */
Test(pieces, among_others)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *m = map_some(fd, READ_WRITE);
	uint64_t seed = 7;

	for (int pass = 0; pass < 2; pass++) {
		for (int k = 0; k < 600; k++) {
			size_t off = next_random(&seed) % SIZE;

			cr_assert_eq(m[off], pattern(off, 3), "byte %zu", off);
			if (k % 3 == 0)
				m[off] = pattern(off, 3);
		}
		read_all(m);
	}
	cr_assert_eq(umunmap(m, 0), 0);
	check_file(fd, 0, SIZE, 0, 3);
}

/* Whoever overtakes what is read ahead brings in a piece, not a hole in one. */
Test(pieces, overtaken)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *m = map_some(fd, PROT_READ);

	read_all(m);
	cr_expect_leq(SIZE / SEG - stat_of(m).ahead_loads, PIECE, "%lu", (unsigned long)stat_of(m).ahead_loads);
	cr_assert_eq(umunmap(m, 0), 0);
}

/* A scan that is known to be one keeps the piece that it is in, the one before it, and what comes next. */
static void scan_keeping_little(const uint8_t *m)
{
	for (size_t off = 0; off < SIZE; off += SEG) {
		cr_assert_eq(m[off], pattern(off, 3));
		cr_expect_leq(stat_of(m).resident_bytes, 5 * PIECE * SEG, "at %zu", off / SEG);
	}
}

Test(pieces, left_behind)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *m = map_some(fd, PROT_READ);
	bool huge = false;

	cr_assert_eq(umadvise(m, SIZE, UMMAP_ADV_SEQUENTIAL), 0);
	for (int pass = 0; pass < PASSES && !huge; pass++) {
		scan_keeping_little(m);
		huge = huge_bytes(m, SIZE) >= PIECE * SEG || !has_huge_pages();
	}
	cr_expect(huge);
	cr_assert_eq(umunmap(m, 0), 0);
}

/* The last segments of a file are no whole piece. */
Test(pieces, short_end)
{
	const size_t size = 40 * MIB + 3 * SEG + 100;
	int fd = filled_file(size, 3);
	uint8_t *m;

	set_env("UMMAP_ENGINE", "segv");
	set_budget(BUDGET);
	m = map_file(fd, size, SEG, READ_WRITE, 0);
	for (int pass = 0; pass < 2; pass++) {
		check_bytes(m, size, 0, 3);
		cr_assert_eq(umsync(m, 1), 0);
	}
	cr_assert_eq(umunmap(m, 0), 0);
	check_file(fd, 0, size, 0, 3);
}

/* A group's budget holds for pieces, too. */
Test(pieces, in_a_group)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char path[320], uri[330];
	int fd = temp_named("scan", 0, path);
	void *m = NULL;

	file_fill(fd, 0, SIZE, 0, 3);
	snprintf(uri, sizeof(uri), "posix:%s", path);
	set_env("UMMAP_ENGINE", "segv");
	set_budget(4 * BUDGET);
	attr.seg_size = SEG;
	attr.group = "scan";
	attr.budget = BUDGET / 2;
	check(ummap_open(uri, SIZE, 0, PROT_READ, &attr, &m) == 0, "%s", umerrormsg());
	for (int pass = 0; pass < 2; pass++) {
		read_all(m);
		cr_expect_leq(stat_of(m).resident_bytes + stat_of(m).standby_bytes, BUDGET / 2);
	}
	cr_assert_eq(umunmap(m, 0), 0);
}

/* ---- Storage that fails ---- */

#define KEPT (4 * MIB) /* what is written there is kept: at once, and for good from a flush on */

static uint8_t accepted[KEPT], durable[KEPT];
static size_t bad = SIZE;       /* nothing that has this byte can be read or written */
static _Atomic bool flush_fails;

static int shaky_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	(void)oflags;
	*h = durable;
	geom->size = SIZE;
	geom->align = 1;
	geom->caps = UMMAP_CAP_WRITE | UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE;
	if (strcmp(uri->scheme, "shakya") == 0)
		geom->caps |= UMMAP_CAP_ASYNC;
	fill(durable, KEPT, 0, 3);
	memcpy(accepted, durable, KEPT);
	return 0;
}

static int shaky_close(void *h)
{
	(void)h;
	return 0;
}

static int shaky_read(void *h, void *buf, size_t len, uint64_t off)
{
	(void)h;
	if (off <= bad && bad < off + len)
		return -EIO;
	if (off < KEPT)
		memcpy(buf, accepted + off, len);
	else
		fill(buf, len, off, 3);
	return 0;
}

static int shaky_write(void *h, const void *buf, size_t len, uint64_t off)
{
	(void)h;
	if (off <= bad && bad < off + len)
		return -EIO;
	memcpy(accepted + off, buf, len);
	return 0;
}

/* All of it, or none. */
static int shaky_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	int err = 0;

	for (int i = 0; i < n && !err; off += iov[i++].iov_len)
		err = shaky_read(h, iov[i].iov_base, iov[i].iov_len, off);
	return err;
}

static int shaky_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	uint64_t end = off;

	for (int i = 0; i < n; i++)
		end += iov[i].iov_len;
	if (off <= bad && bad < end)
		return -EIO;
	for (int i = 0; i < n; off += iov[i++].iov_len)
		shaky_write(h, iov[i].iov_base, iov[i].iov_len, off);
	return 0;
}

#define AT_A_TIME 64

static _Thread_local struct ummap_io *submitted[AT_A_TIME];
static _Thread_local unsigned pending;

static int shaky_submit(void *h, struct ummap_io **io, unsigned n)
{
	unsigned i;

	(void)h;
	for (i = 0; i < n && pending < AT_A_TIME; i++)
		submitted[pending++] = io[i];
	return (int)i;
}

static int shaky_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	unsigned n;

	cr_assert_leq(min, pending);
	for (n = 0; n < max && pending > 0; n++) {
		struct ummap_io *io = done[n] = submitted[--pending];

		io->res = io->op == UMMAP_IO_READ ? shaky_read(h, io->buf, io->len, io->off) :
						    shaky_write(h, io->buf, io->len, io->off);
	}
	return (int)n;
}

/* One that fails loses what it was to keep. */
static int shaky_flush(void *h, uint64_t off, uint64_t len)
{
	(void)h;
	(void)off;
	(void)len;
	memcpy(flush_fails ? accepted : durable, flush_fails ? durable : accepted, KEPT);
	return flush_fails ? -EIO : 0;
}

/* How it takes several requests. */
enum shaky_kind { ONE_BY_ONE, VECTORS, ASYNC, SHAKY_KINDS };

static uint8_t *map_shaky(int prot, enum shaky_kind kind)
{
	static const char *const schemes[] = { "shaky", "shakyv", "shakya" };
	struct ummap_driver driver = {
		.struct_size = sizeof(driver), .abi = UMMAP_DRIVER_ABI, .scheme = schemes[kind], .open = shaky_open,
		.close = shaky_close, .read = shaky_read, .write = shaky_write, .flush = shaky_flush,
	};
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[16];
	void *m = NULL;

	if (kind == VECTORS) {
		driver.readv = shaky_readv;
		driver.writev = shaky_writev;
	} else if (kind == ASYNC) {
		driver.submit = shaky_submit;
		driver.reap = shaky_reap;
	}
	set_env("UMMAP_ENGINE", "segv");
	set_budget(BUDGET);
	attr.seg_size = SEG;
	cr_assert_eq(ummap_driver_register(&driver), 0);
	snprintf(uri, sizeof(uri), "%s:any", schemes[kind]);
	check(ummap_open(uri, SIZE, 0, prot, &attr, &m) == 0, "%s", umerrormsg());
	return m;
}

/* Says whether that byte could be had. */
static bool can_load(const volatile uint8_t *at)
{
	if (sigsetjmp(bus_jump, 1) != 0)
		return false;
	(void)*at;
	return true;
}

static bool has_all(const uint8_t *m, size_t first, size_t n)
{
	struct map *map = map_get(m);
	bool all = true;

	for (size_t i = first; i < first + n; i++)
		all = all && seg_has(set_seg(&map->set, i), SEG_VALID);
	set_put(&map->set);
	return all;
}

/* One bad block spoils its segment, not its piece. */
static void read_past_a_bad_one(enum shaky_kind kind)
{
	uint8_t *m = map_shaky(PROT_READ, kind);

	bad = 64 * MIB + 3 * SEG + 5;
	catch_sigbus();
	for (size_t off = 0; off < SIZE; off += SEG) {
		cr_assert_eq(can_load(m + off), off != bad - 5, "segment %zu", off / SEG);
		if (off == bad - 5 - SEG)
			cr_expect(has_all(m, off / SEG + 2, PIECE - 4));
		if (off != bad - 5)
			cr_assert_eq(m[off], pattern(off, 3));
	}
	bad = SIZE;
	cr_assert_eq(umunmap(m, 0), 0);
}

Test(pieces, with_a_bad_segment)
{
	for (enum shaky_kind kind = 0; kind < SHAKY_KINDS; kind++)
		read_past_a_bad_one(kind);
}

static void write_past_a_bad_one(enum shaky_kind kind)
{
	uint8_t *m = map_shaky(READ_WRITE, kind);

	for (size_t i = 0; i < KEPT; i += SEG)
		m[i + 5] = 200;
	bad = 11 * SEG + 5;
	cr_assert_eq(umsync(m, 0), -1);
	cr_expect_eq(errno, EIO);
	for (size_t i = 0; i < KEPT; i += SEG)
		cr_expect_eq(accepted[i + 5], i + 5 == bad ? pattern(i + 5, 3) : 200, "%zu", i / SEG);
	bad = SIZE;
	cr_assert_eq(umsync(m, 0), 0);
	cr_expect_eq(durable[11 * SEG + 5], 200);
	cr_assert_eq(umunmap(m, 0), 0);
}

Test(pieces, to_a_bad_place)
{
	for (enum shaky_kind kind = 0; kind < SHAKY_KINDS; kind++)
		write_past_a_bad_one(kind);
}

/* The first n segments go to standby. */
static void send_off(const uint8_t *m, size_t n)
{
	struct map *map = map_get(m);

	cr_assert_eq(seg_retract(&map->set, 0, n), 0);
	set_put(&map->set);
}

/* What a failed flush has made uncertain counts as changed, and does not leave with what is as it was loaded. */
Test(pieces, in_doubt)
{
	uint8_t *m;

	/* They come back one by one. */
	set_env("UMMAP_READAHEAD", "0");
	m = map_shaky(READ_WRITE, ONE_BY_ONE);
	for (size_t i = 0; i < KEPT; i += SEG)
		m[i] = 200;
	cr_assert_eq(umsync_range(m, KEPT, UMMAP_NOFLUSH), 0);
	send_off(m, KEPT / SEG);
	for (size_t i = 0; i < KEPT; i += SEG)
		cr_assert_eq(m[i], 200);
	flush_fails = true;
	cr_assert_eq(umsync(m, 0), -1);
	flush_fails = false;
	for (int pass = 0; pass < 2; pass++) {
		for (size_t off = KEPT; off < SIZE; off += SEG)
			cr_assert_eq(m[off], pattern(off, 3));
	}
	cr_assert_eq(umsync(m, 0), 0);
	for (size_t i = 0; i < KEPT; i += SEG) {
		cr_expect_eq(m[i], 200);
		cr_expect_eq(durable[i], 200);
	}
	cr_assert_eq(umunmap(m, 0), 0);
}

/* ---- The pool by itself ---- */

#define BLOCKS 8
#define FRAMES (BLOCKS * PIECE)

static void take_all(uint32_t *frames)
{
	frame_start(1 << 20);
	for (size_t i = 0; i < FRAMES; i++) {
		frames[i] = frame_take(FRAME_MAPPED, SEG, BUDGET);
		cr_assert_neq(frames[i], FRAME_NONE);
	}
}

static void give_shuffled(uint32_t *frames, size_t n)
{
	uint64_t seed = 11;

	for (size_t left = n; left > 0; left--) {
		size_t i = next_random(&seed) % left;
		uint32_t frame = frames[i];

		frames[i] = frames[left - 1];
		frame_give(frame);
	}
}

/* The next frames to be taken are a huge page: its first. */
static uint32_t take_block(void)
{
	uint32_t first = frame_take(FRAME_MAPPED, SEG, BUDGET);

	cr_assert_eq(first % PIECE, 0, "%u", first);
	for (uint32_t i = 1; i < PIECE; i++)
		cr_assert_eq(frame_take(FRAME_MAPPED, SEG, BUDGET), first + i);
	return first;
}

Test(pool, whole_again)
{
	uint32_t frames[FRAMES];
	bool seen[BLOCKS] = { false };

	take_all(frames);
	give_shuffled(frames, FRAMES);
	for (size_t b = 0; b < BLOCKS; b++) {
		uint32_t first = take_block();

		cr_assert_lt(first / PIECE, BLOCKS);
		cr_assert(!seen[first / PIECE], "%u twice", first);
		seen[first / PIECE] = true;
	}
	cr_expect_eq(frame_used(), FRAMES);
}

/* What is left of a huge page goes first, and a huge page is whole once the last one of it is back. */
Test(pool, breaks_few)
{
	uint32_t frames[FRAMES], first, other;

	take_all(frames);
	give_shuffled(frames, FRAMES);
	first = take_block();
	other = take_block();
	frame_give(first + 3);
	frame_give(other + 1);
	cr_expect_eq(frame_take(FRAME_MAPPED, SEG, BUDGET), other + 1);
	cr_expect_eq(frame_take(FRAME_MAPPED, SEG, BUDGET), first + 3);
	for (uint32_t i = 0; i < PIECE - 1; i++)
		frame_give(first + (i * 3) % PIECE);
	cr_expect_eq(frame_take(FRAME_MAPPED, SEG, BUDGET) / PIECE, first / PIECE, "it lacks one");
	frame_give(first + (PIECE - 2) * 3 % PIECE);
	frame_give(first + (PIECE - 1) * 3 % PIECE);
	frame_give(other + 2);
	cr_expect_eq(frame_take(FRAME_MAPPED, SEG, BUDGET), other + 2, "what is whole comes last");
	cr_expect_eq(take_block(), first);
}

/* Frames that nobody needed go, and what comes in their place is whole. */
Test(pool, ages)
{
	uint32_t frames[FRAMES];

	take_all(frames);
	give_shuffled(frames, FRAMES);
	frame_age();
	frame_age();
	cr_expect_eq(frame_held(), 0);
	for (size_t b = 0; b < BLOCKS; b++)
		take_block();
	cr_expect_eq(frame_held(), FRAMES * SEG);
}

/* What has moved in parts is on a huge page again when it is mended, and may be written. */
Test(pool, mends)
{
	uint32_t frames[FRAMES], first;
	size_t huge;

	take_all(frames);
	give_shuffled(frames, FRAMES);
	first = take_block();
	cr_expect(!frame_is_split(first));
	cr_assert_eq(mprotect(frame_home(first) + SEG, SEG, PROT_READ), 0);
	frame_set_writable(first + 1, 1, false);
	cr_expect(frame_is_split(first));
	huge = huge_bytes((uint8_t *)frame_home(first) - GIB, 2 * GIB);
	frame_mend(first, PIECE);
	cr_expect(!frame_is_split(first));
	if (has_huge_pages())
		cr_expect_eq(huge_bytes((uint8_t *)frame_home(first) - GIB, 2 * GIB), huge + 2 * MIB);
	for (uint32_t i = 0; i < PIECE; i++)
		cr_expect(frame_writable(first + i));
	memset(frame_home(first), 2, PIECE * SEG);
}
