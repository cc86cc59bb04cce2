/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_sum.c - the filter sum+ over files: damaged blocks, writes without the filter, parts of
 * blocks, threads, handing over, damaged files of checksums, and calls that fail.
 */
#include <criterion/criterion.h>

#include <pthread.h>

#include "drivers/sum.h"
#include "faults.h"

#define SIZE (3 * SUM_WINDOW + 700)

static struct handle {
	struct ummap_driver driver;
	void *sum;
	struct ummap_geom geom;
} h;

static char store[320], sums[330];
static uint8_t *model, *got;
static char notice[512]; /* last notice */

static void keep_notice(void *unused, const char *message)
{
	(void)unused;
	snprintf(notice, sizeof(notice), "%s", message);
}

static int try_open(int oflags, const char *keys)
{
	char uri[500];

	snprintf(uri, sizeof(uri), "sum+posix:%s%s", store, keys);
	memset(&h, 0, sizeof(h));
	h.driver.struct_size = sizeof(h.driver);
	if (ummap_driver_open(uri, oflags, &h.driver, &h.sum, &h.geom) < 0)
		return -errno;
	h.driver.set_notice(h.sum, keep_notice, NULL);
	return 0;
}

static void open_store(int oflags, const char *keys)
{
	check(try_open(oflags, keys) == 0, "%s", umerrormsg());
}

static void close_store(void)
{
	check(h.driver.close(h.sum) == 0);
}

static void make_store(void)
{
	int fd = temp_named("store", 0, store);

	setenv("UMMAP_LOG", "error", 1);
	set_group();
	seed = (uint64_t)time(NULL);
	printf("seed %" PRIu64 "\n", seed);
	snprintf(sums, sizeof(sums), "%s.sum", store);
	model = malloc(SIZE + SUM_BLOCK);
	got = malloc(SIZE + SUM_BLOCK);
	fill(model, SIZE, 0, 7);
	check(write(fd, model, SIZE) == (ssize_t)SIZE);
	close(fd);
}

/* Turns a bit of a file, and keeps the time of its last write. */
static void damage(const char *path, uint64_t at)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct timespec times[2];
	struct stat st;
	uint8_t byte;

	check(fd >= 0 && fstat(fd, &st) == 0);
	check(pread(fd, &byte, 1, (off_t)at) == 1);
	byte ^= 4;
	check(pwrite(fd, &byte, 1, (off_t)at) == 1);
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	check(futimens(fd, times) == 0);
	close(fd);
}

static int read_at(uint64_t off, uint64_t len)
{
	int err = h.driver.read(h.sum, got, len, off);

	check(err || memcmp(got, model + off, len) == 0, "%" PRIu64 " bytes at %" PRIu64, len, off);
	return err;
}

Test(sum, finds_damage)
{
	const uint64_t at = SUM_WINDOW + 5 * SUM_BLOCK + 17, last = SIZE - 3;

	make_store();
	check(try_open(0, "") == -ENOENT && strstr(umerrormsg(), "ummap sum make"));
	open_store(UMMAP_O_WRITE, "");
	check(read_at(0, SIZE) == 0);
	close_store();
	damage(store, at);
	damage(store, last);
	open_store(0, "");
	check(read_at(0, SUM_WINDOW + 5 * SUM_BLOCK) == 0);
	check(read_at(0, SIZE) == -EIO);
	check(read_at(at - 17, SUM_BLOCK) == -EIO);
	check(strstr(notice, "block 261 (4 KiB at byte 1069056)") && strstr(notice, store) &&
	      strstr(notice, sums), "%s", notice);
	check(read_at(at - 10, 3) == -EIO, "a part of the block");
	check(read_at(last, 2) == -EIO);
	check(read_at(at - 17 + SUM_BLOCK, 2 * SUM_BLOCK) == 0);
	close_store();
	/* A part of the block cannot be written, the whole block can. */
	open_store(UMMAP_O_WRITE, "");
	check(h.driver.write(h.sum, model + at, 1, at) == -EIO);
	check(h.driver.write(h.sum, model + at - 17, SUM_BLOCK, at - 17) == 0);
	check(read_at(at - 17, SUM_BLOCK) == 0);
	close_store();
	damage(store, last);
	open_store(0, "");
	check(read_at(0, SIZE) == 0);
	close_store();
}

static void write_without_filter(uint64_t at)
{
	int fd = open(store, O_WRONLY | O_CLOEXEC);

	check(pwrite(fd, "new", 3, (off_t)at) == 3);
	close(fd);
	memcpy(model + at, "new", 3);
}

Test(sum, written_without_the_filter)
{
	make_store();
	open_store(UMMAP_O_WRITE, "");
	close_store();
	pause_ms(20);
	write_without_filter(9000);
	check(try_open(UMMAP_O_WRITE, "") == -ESTALE && strstr(umerrormsg(), "sum.changed=renew"));
	check(try_open(0, "?sum.changed=renew") == -ESTALE);
	open_store(0, "?sum.changed=check");
	check(read_at(9000, 3) == -EIO && read_at(0, SUM_BLOCK) == 0);
	close_store();
	check(try_open(0, "") == -ESTALE);
	open_store(UMMAP_O_WRITE, "?sum.changed=renew");
	check(read_at(0, SIZE) == 0);
	close_store();
	/* The old checksums stay, and the properties are recorded. */
	pause_ms(20);
	write_without_filter(9000);
	open_store(UMMAP_O_WRITE, "?sum.changed=check");
	close_store();
	open_store(0, "");
	check(read_at(0, SIZE) == 0);
	close_store();
	check(truncate(store, SIZE - 5000) == 0);
	check(try_open(0, "") == -ESTALE);
}

static void die_after_write(void *off)
{
	open_store(UMMAP_O_WRITE, "");
	fill(model, 5000, *(uint64_t *)off, 9);
	check(h.driver.write(h.sum, model, 5000, *(uint64_t *)off) == 0);
	check(h.driver.resize(h.sum, 3 * SIZE) == 0);
	kill(getpid(), SIGKILL);
}

/* After a kill, a reader does not compare the region, and the next writer accepts it. */
Test(sum, killed)
{
	uint64_t off = SUM_WINDOW - 100;

	make_store();
	open_store(UMMAP_O_WRITE, "");
	close_store();
	check_killed(run_child(die_after_write, &off), SIGKILL);
	fill(model + off, 5000, off, 9);
	damage(store, 5);
	model[5] ^= 4;
	open_store(0, "");
	check(read_at(0, SIZE) == 0);
	close_store();
	open_store(UMMAP_O_WRITE, "");
	check(strstr(h.geom.why, "1 blocks near its writes differed"), "%s", h.geom.why);
	check(read_at(0, SIZE) == 0);
	close_store();
	damage(store, 5);
	open_store(UMMAP_O_WRITE, "");
	check(h.driver.read(h.sum, got, 10, 0) == -EIO);
	close_store();
}

static void die_after_resize(void *unused)
{
	(void)unused;
	open_store(UMMAP_O_WRITE, "");
	check(h.driver.resize(h.sum, 2 * SIZE) == 0);
	kill(getpid(), SIGKILL);
}

/* The new length does not count as a write without the filter. */
Test(sum, killed_longer)
{
	make_store();
	open_store(UMMAP_O_WRITE, "");
	close_store();
	check_killed(run_child(die_after_resize, NULL), SIGKILL);
	open_store(UMMAP_O_WRITE, "");
	check(read_at(0, SIZE) == 0);
	close_store();
}

/* ---- Threads ---- */

#define THREADS 6
#define STRIPE 700

/* Each thread writes stripes of its own, which share blocks with those of other threads, and reads
 * everything. */
static void *write_stripes(void *number)
{
	uint8_t *bytes = malloc(4 * SUM_WINDOW);
	uint64_t own = (uint64_t)(uintptr_t)number;

	for (unsigned round = 0; round < 40; round++) {
		for (uint64_t k = own; k < 500; k += THREADS) {
			fill(bytes, STRIPE, k * STRIPE, round);
			check(h.driver.write(h.sum, bytes, STRIPE, k * STRIPE) == 0);
		}
		check(h.driver.read(h.sum, bytes, 100 * SUM_BLOCK, 0) == 0, "%s", notice);
		check(h.driver.read(h.sum, bytes, 2 * SUM_WINDOW, 0) == 0, "%s", notice);
		check(h.driver.flush(h.sum, 0, UINT64_MAX) == 0);
	}
	free(bytes);
	return NULL;
}

Test(sum, threads)
{
	pthread_t threads[THREADS];

	make_store();
	open_store(UMMAP_O_WRITE, "");
	for (uintptr_t i = 0; i < THREADS; i++)
		check(pthread_create(&threads[i], NULL, write_stripes, (void *)i) == 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	close_store();
	open_store(0, "");
	for (uint64_t k = 0; k < 500; k++) {
		fill(model + k * STRIPE, STRIPE, k * STRIPE, 39);
		check(read_at(k * STRIPE, STRIPE) == 0);
	}
	close_store();
}

/* ---- Damaged files of checksums ---- */

/* With any bytes in the file of checksums, a call returns the bytes of the store or fails. */
Test(sum, damaged_sums)
{
	struct stat st;

	make_store();
	open_store(UMMAP_O_WRITE, "");
	close_store();
	check(stat(sums, &st) == 0);
	for (unsigned i = 0; i < by_time(300, 3000); i++) {
		uint64_t length = (uint64_t)st.st_size;
		uint64_t at = next_random(&seed) % (next_random(&seed) % 2 ? length : 8192);
		int err;

		if (i % 10 == 9)
			check(truncate(sums, (off_t)(next_random(&seed) % length)) == 0);
		else
			damage(sums, at);
		err = try_open(i % 3 ? 0 : UMMAP_O_WRITE, "");
		check(!err || ((err == -EUCLEAN || err == -ESTALE || err == -ENOENT) &&
			       *umerrormsg()), "%d: %s", err, umerrormsg());
		if (!err) {
			for (uint64_t off = 0; off < SIZE; off += SUM_WINDOW / 2)
				read_at(off, off + 5000 < SIZE ? 5000 : SIZE - off);
			close_store();
		}
		if (err || i % 10 == 9) {
			check(unlink(sums) == 0);
			open_store(UMMAP_O_WRITE, "");
			check(read_at(0, SIZE) == 0);
			close_store();
		}
	}
}

/* ---- Handing over ---- */

/* The filter comes and goes while a mapping stays. */
Test(sum, handed_over)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char with[500], without[400];
	uint64_t *words, *moved = NULL;

	make_store();
	snprintf(with, sizeof(with), "sum+posix:%s", store);
	snprintf(without, sizeof(without), "posix:%s", store);
	check(ummap_open(with, SUM_WINDOW, 0, READ_WRITE, &attr, (void **)&words) == 0, "%s",
	      umerrormsg());
	words[1000] = 5;
	check(umremap_open(words, without, 0, -1, 0, (void **)&moved) == 0, "%s", umerrormsg());
	words = moved ? moved : words;
	words[1001] = 6;
	check_fails(umremap_open(words, with, 0, -1, 0, (void **)&moved), ESTALE);
	snprintf(with, sizeof(with), "sum+posix:%s?sum.changed=renew", store);
	check(umremap_open(words, with, 0, -1, 0, (void **)&moved) == 0, "%s", umerrormsg());
	words = moved ? moved : words;
	snprintf(with, sizeof(with), "error+sum+posix:%s?error.nth=1000000000", store);
	words[1002] = 7;
	check(umremap_open(words, with, 0, -1, 0, (void **)&moved) == 0, "%s", umerrormsg());
	words = moved ? moved : words;
	check(words[1000] == 5 && words[1001] == 6 && words[1002] == 7);
	check_fails(umremap_open(words, "sum+posix:/nowhere/file", 0, -1, 0, (void **)&moved),
		    ENOENT);
	words[1003] = 8;
	check(umunmap(words, 1) == 0, "%s", umerrormsg());
	memcpy(model + 8000, (uint64_t[]){ 5, 6, 7, 8 }, 32);
	open_store(0, "");
	check(read_at(0, SIZE) == 0);
	close_store();
}

/* ---- Calls that fail ---- */

#define SMALL (40 * SUM_BLOCK)
#define NO_ERRORS "&error.nth=1000000000"

static int open_power(const char *keys)
{
	char uri[200];

	snprintf(uri, sizeof(uri), "sum+error+power:store?sum.path=sums%s", keys);
	memset(&h, 0, sizeof(h));
	h.driver.struct_size = sizeof(h.driver);
	return ummap_driver_open(uri, UMMAP_O_WRITE, &h.driver, &h.sum, &h.geom);
}

static int write_at(uint64_t off, uint64_t len)
{
	return h.driver.write(h.sum, model + off, len, off);
}

static int flush_at(uint64_t off, uint64_t len)
{
	return h.driver.flush(h.sum, off, len);
}

/* Repeats a call that fails, as the library does. */
static void insist(int (*call)(uint64_t, uint64_t), uint64_t off, uint64_t len)
{
	uint64_t tries = 0;

	while (call(off, len) != 0)
		check(++tries <= 12, "a call fails for good");
}

static void do_some(void)
{
	uint64_t off = next_random(&seed) % (SMALL - 1), len = 1 + next_random(&seed) % 9000;

	len = len < SMALL - off ? len : SMALL - off;
	switch (next_random(&seed) % 6) {
	case 0:
	case 1:
		fill(model + off, len, off, next_random(&seed) % 1000);
		insist(write_at, off, len);
		break;
	case 2: insist(flush_at, 0, UINT64_MAX); break;
	default: insist(read_at, off, len);
	}
}

/* Fails calls on the file of checksums, or on the store by keys of the filter error. */
static void run_with_fault(unsigned op, uint64_t nth, uint64_t times, const char *keys)
{
	struct ummap_geom geom;
	uint64_t tries = 0;
	void *disk = NULL;

	fail_side(0, 1, 1);
	power_erase();
	fill(model, SMALL, 0, 7);
	check(power_open(&(struct ummap_uri){ .path = "store" }, UMMAP_O_CREATE, &disk, &geom) ==
	      0);
	check(power_write(disk, model, SMALL, 0) == 0);
	fail_side(op, nth, times);
	/* The filter error counts anew in each handle. */
	while (open_power(tries ? NO_ERRORS : keys) < 0)
		check(*umerrormsg() && ++tries <= 8, "%s", umerrormsg());
	for (int i = 0; i < 40; i++)
		do_some();
	insist(flush_at, 0, UINT64_MAX);
	for (int i = 0; i < SUM_CLEAR_FLUSHES; i++)
		h.driver.flush(h.sum, 0, UINT64_MAX);
	insist(read_at, 0, SMALL);
	h.driver.close(h.sum);
	fail_side(0, 1, 1);
	/* The store is good, so it can be read. */
	check(open_power(NO_ERRORS) == 0, "%s", umerrormsg());
	check(read_at(0, SMALL) == 0);
	close_store();
}

static void begin_faults(void)
{
	check(chdir(temp_dir()) == 0);
	close(open("store", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	setenv("UMMAP_LOG", "error", 1);
	faults_begin();
	model = malloc(SIZE);
	got = malloc(SIZE);
}

static void each_in_turn(unsigned op)
{
	begin_faults();
	for (uint64_t nth = 1, times = 1; nth < 400; nth += 1 + nth / 16) {
		run_with_fault(op, nth, times, NO_ERRORS);
		times = 1 + times % 3;
	}
}

Test(sum_faults, every_read)
{
	each_in_turn(READS);
}

Test(sum_faults, every_write)
{
	each_in_turn(WRITES);
}

Test(sum_faults, every_flush)
{
	each_in_turn(FLUSHES);
}

Test(sum_faults, calls_on_the_store)
{
	static const char *const ops[] = { "read", "write", "flush" };
	char keys[100];

	begin_faults();
	for (unsigned i = 0; i < 3; i++) {
		for (uint64_t nth = 1; nth < 60; nth++) {
			snprintf(keys, sizeof(keys),
				 "&error.op=%s&error.nth=%u&error.times=%u&error.short=%u", ops[i],
				 (unsigned)nth, (unsigned)(1 + nth % 3), (unsigned)(nth * 700));
			run_with_fault(0, 1, 1, keys);
		}
	}
}
