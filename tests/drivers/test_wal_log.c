/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_wal_log.c - logs that somebody has made by hand: their sums fit, but what they say cannot be. They are refused, or
 * end before such a record, and stay as they are.
 */
#include <criterion/criterion.h>

#include "drivers/wal.h"
#include "common.h"

#define EPOCH 40   /* of the store */

static char store[300], path[310];

struct record {
	uint32_t kind, blocks;
	uint64_t where, data;
};

static const struct wal_head good = {
	.salt = 7, .tail = WAL_START, .chain = 9, .home = EPOCH, .acked = EPOCH, .floor = EPOCH, .name = "store",
};

/* One record after the other; the blocks are zeros. */
static void make_log(const struct wal_head *head, const struct record *records, size_t n)
{
	static const char zeros[WAL_BLOCK];
	struct header slots = side_header(WAL_HEAD_MAGIC);
	struct ummap_geom geom = { .size = 0 };
	uint64_t at = WAL_START, prev = head->chain, epoch = head->home + 1;
	struct side file;

	snprintf(store, sizeof(store), "%s/store", temp_dir());
	snprintf(path, sizeof(path), "%s" WAL_SUFFIX, store);
	close(open(store, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	check(truncate(store, WAL_BLOCK) == 0);
	check(side_open(&file, path, UMMAP_O_WRITE | UMMAP_O_CREATE, 0600, UMMAP_LOCK_EXCLUSIVE, &geom) == 0, "%s", geom.why);
	check(side_resize(&file, 0) == 0 && header_write_both(&slots, &file, head, sizeof(*head)) == 0);
	for (size_t i = 0; i < n; i++) {
		struct wal_record r = { .magic = WAL_RECORD_MAGIC, .kind = records[i].kind, .blocks = records[i].blocks, .epoch = epoch,
					.place = at, .where = records[i].where, .data = records[i].data, .prev = prev };

		check(r.blocks <= 1);
		if (r.blocks)
			r.data = checksum(zeros, WAL_BLOCK, head->salt);
		r.sum = checksum(&r, offsetof(struct wal_record, sum), head->salt);
		check(side_write(&file, &r, sizeof(r), at) == 0);
		check(side_write(&file, zeros, r.blocks * WAL_BLOCK, at + sizeof(r)) == 0);
		at += sizeof(r) + r.blocks * WAL_BLOCK;
		prev = r.sum;
		epoch += r.kind == WAL_COMMIT;
	}
	side_close(&file);
}

static off_t log_length(void)
{
	struct stat st;

	check(stat(path, &st) == 0);
	return st.st_size;
}

static int use(int oflags, const char *keys)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct ummap_geom geom;
	char uri[400];
	void *h;

	snprintf(uri, sizeof(uri), "wal+posix:%s%s", store, keys);
	if (ummap_driver_open(uri, oflags, &driver, &h, &geom) < 0)
		return -errno;
	check(driver.close(h) == 0);
	return 0;
}

/* What is right is taken, or all else here would mean nothing. */
Test(wal_log, right_ones_are_taken)
{
	static const struct record records[] = { { WAL_DATA, 1, 3, 0 }, { WAL_COMMIT, 0, 4 * WAL_BLOCK, EPOCH + 1 } };
	struct stat st;

	make_log(&good, records, 2);
	check(wal_has_commits(path) == 1);
	check(use(UMMAP_O_WRITE, "") == 0);
	check(stat(store, &st) == 0 && st.st_size == 4 * WAL_BLOCK);
	check(access(path, F_OK) < 0, "it came home");
}

Test(wal_log, heads_that_cannot_be_are_refused)
{
	static const struct { size_t field; uint64_t value; } bad[] = {
		{ offsetof(struct wal_head, tail), 0 }, { offsetof(struct wal_head, tail), WAL_START + 1 },
		{ offsetof(struct wal_head, tail), UINT64_MAX - 63 }, { offsetof(struct wal_head, floor), EPOCH - 1 },
		{ offsetof(struct wal_head, floor), EPOCH + 1 }, { offsetof(struct wal_head, home), UINT64_MAX },
		{ offsetof(struct wal_head, acked), UINT64_MAX },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct wal_head head = good;

		memcpy((char *)&head + bad[i].field, &bad[i].value, sizeof(uint64_t));
		make_log(&head, NULL, 0);
		check(use(UMMAP_O_WRITE, "") == -EUCLEAN, "%zu", i);
		check(strstr(umerrormsg(), "is no log of wal+"));
		check(log_length() == HEADER_BYTES);
	}
}

/* The log ends before them: with nothing acknowledged behind, that is an end like any other. */
Test(wal_log, records_that_cannot_be_are_its_end)
{
	static const struct record bad[] = {
		{ WAL_DATA, 1, UINT64_MAX, 0 },                   /* the store's last block, and one behind all numbers */
		{ WAL_DATA, 1, INT64_MAX / WAL_BLOCK, 0 },        /* a block behind all files */
		{ WAL_COMMIT, 0, (uint64_t)INT64_MAX + 1, EPOCH + 1 },
		{ WAL_COMMIT, 0, WAL_BLOCK, EPOCH + 2 },          /* a floor above the epoch, ... */
		{ WAL_COMMIT, 0, WAL_BLOCK, EPOCH + 1 - WAL_KEEP_MAX }, /* ... and one that none keeps */
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct record records[] = { bad[i], { WAL_COMMIT, 0, WAL_BLOCK, EPOCH + 1 } };

		make_log(&good, records, bad[i].kind == WAL_DATA ? 2 : 1);
		check(wal_has_commits(path) == 0, "%zu", i);
		check(use(0, "") == 0, "%zu: %s", i, umerrormsg());
		check(use(UMMAP_O_WRITE, "") == 0, "%zu: %s", i, umerrormsg());
	}
}

/* Requests of this thread to read anything; -1: the kernel does not count them. */
static long count_reads(void)
{
	FILE *f = fopen("/proc/thread-self/io", "re");
	char line[100];
	long n = -1;

	while (f && n < 0 && fgets(line, sizeof(line), f))
		sscanf(line, "syscr: %ld", &n);
	if (f)
		fclose(f);
	return n;
}

/* Opening reads a log once, in large requests, and not each record by itself. What it has found of the epochs that are wished
 * for is right. */
Test(wal_log, opening_reads_it_once)
{
	enum { N = 1000 };
	static struct record records[2 * N];
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct ummap_geom geom;
	char uri[400], block[WAL_BLOCK];
	long before;
	void *h;
	int fd;

	/* Ones in the store, zeros in the log: two epochs, and what belongs to none. */
	for (uint64_t i = 0; i < 2 * N; i++)
		records[i] = (struct record){ WAL_DATA, 1, i, 0 };
	records[N / 2] = records[N] = (struct record){ WAL_COMMIT, 0, 2 * N * WAL_BLOCK, EPOCH };
	make_log(&good, records, 2 * N);
	memset(block, 1, sizeof(block));
	fd = open(store, O_WRONLY | O_CLOEXEC);
	for (int i = 0; i < 2 * N; i++)
		check(write(fd, block, sizeof(block)) == sizeof(block));
	close(fd);
	for (uint64_t epoch = EPOCH; epoch <= EPOCH + 2; epoch++) {
		uint64_t end = (epoch - EPOCH) * N / 2;

		snprintf(uri, sizeof(uri), "wal+posix:%s?wal.commit=%ju", store, (uintmax_t)epoch);
		before = count_reads();
		check(ummap_driver_open(uri, 0, &driver, &h, &geom) == 0, "%s", umerrormsg());
		if (before >= 0)
			check(count_reads() - before < N / 2, "%ld reads", count_reads() - before);
		for (uint64_t i = 0; i < 2 * N; i++) {
			check(driver.read(h, block, sizeof(block), i * WAL_BLOCK) == 0);
			check(block[0] == (i >= end || i == N / 2), "block %ju in epoch %ju", (uintmax_t)i, (uintmax_t)epoch);
		}
		check(driver.close(h) == 0);
	}
}

static void cover(const struct ummap_driver *driver, void *h, uint64_t first, size_t blocks, int value)
{
	char bytes[2 * WAL_BLOCK];

	memset(bytes, value, sizeof(bytes));
	check(driver->write(h, bytes, blocks * WAL_BLOCK, first * WAL_BLOCK) == 0 && driver->flush(h, 0, UINT64_MAX) == 0);
}

/* What becomes of a log after it was opened: nothing of a record in which a byte is another one goes home, whether this byte would
 * or not. The rest stays in the log, too. */
Test(wal_log, what_is_damaged_later_does_not_go_home)
{
	static const char zero;

	for (uint64_t damaged = 0; damaged < 3; damaged++) {
		struct ummap_driver driver = { .struct_size = sizeof(driver) };
		struct ummap_geom geom;
		char uri[400], byte;
		void *h;
		int fd;

		make_log(&good, NULL, 0);
		/* None of it goes home before the end. */
		snprintf(uri, sizeof(uri), "wal+posix:%s?wal.keep=16", store);
		check(ummap_driver_open(uri, UMMAP_O_WRITE, &driver, &h, &geom) == 0, "%s", umerrormsg());
		cover(&driver, h, 0, 2, 1);
		cover(&driver, h, 0, 1, 2);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		/* The block that was written again, the one that was not, and none. */
		if (damaged < 2)
			check(pwrite(fd, &zero, 1, WAL_START + sizeof(struct wal_record) + (off_t)(damaged * WAL_BLOCK) + 9) == 1);
		close(fd);
		check(driver.close(h) == (damaged < 2 ? -EBADMSG : 0));
		check((access(path, F_OK) == 0) == (damaged < 2));
		fd = open(store, O_RDONLY | O_CLOEXEC);
		check(pread(fd, &byte, 1, WAL_BLOCK + 9) == (damaged == 2) && (damaged < 2 || byte == 1));
		close(fd);
	}
}

static void write_all_blocks(const struct ummap_driver *driver, void *h, size_t blocks, int value)
{
	static char bytes[100 * WAL_BLOCK];

	memset(bytes, value, sizeof(bytes));
	check(blocks <= 100 && driver->write(h, bytes, blocks * WAL_BLOCK, 0) == 0);
}

static void check_bytes_of_store(size_t blocks, int value)
{
	static char bytes[WAL_BLOCK];
	int fd = open(store, O_RDONLY | O_CLOEXEC);

	for (size_t i = 0; i < blocks; i++)
		check(read(fd, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes) &&
		      bytes[0] == value && bytes[WAL_BLOCK - 1] == value);
	close(fd);
}

/* Which records there are, and where, is seen by who opens the store now, as after a kill. */
static void check_epoch(uint64_t epoch, size_t blocks, int value)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct ummap_geom geom;
	static char bytes[WAL_BLOCK];
	char from[350], uri[800];
	void *h;
	int log = open(path, O_RDONLY | O_CLOEXEC),
	    copy = open((snprintf(from, sizeof(from), "%s.copy", path), from),
			O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	check(log >= 0 && copy >= 0);
	for (ssize_t n; (n = read(log, bytes, sizeof(bytes))) > 0;)
		check(write(copy, bytes, (size_t)n) == n);
	close(log);
	close(copy);
	snprintf(uri, sizeof(uri), "wal+posix:%s?wal.path=%s&wal.commit=%" PRIu64, store, from,
		 epoch);
	check(ummap_driver_open(uri, 0, &driver, &h, &geom) == 0, "%s", umerrormsg());
	for (size_t i = 0; i < blocks; i++) {
		check(driver.read(h, bytes, sizeof(bytes), i * WAL_BLOCK) == 0);
		check(bytes[0] == value && memcmp(bytes, bytes + 1, sizeof(bytes) - 1) == 0,
		      "block %zu of epoch %" PRIu64, i, epoch);
	}
	check(driver.close(h) == 0);
}

/* However many syncs there are, and whichever of them are kept, the file of the log stays within
 * its bound. */
Test(wal_log, stays_within_its_bound)
{
	static const struct {
		unsigned keep;
		size_t blocks;
	} kinds[] = { { 1, 100 }, { 2, 100 }, { 3, 7 } };

	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		struct ummap_driver driver = { .struct_size = sizeof(driver) };
		struct ummap_geom geom;
		uint64_t oldest, newest;
		char uri[400];
		void *h;
		int value = 0;

		make_log(&good, NULL, 0);
		check(truncate(store, (off_t)(kinds[k].blocks * WAL_BLOCK)) == 0);
		wal_fixed_bound = kinds[k].blocks * WAL_BLOCK * 10;
		snprintf(uri, sizeof(uri), "wal+posix:%s?wal.keep=%u", store, kinds[k].keep);
		check(ummap_driver_open(uri, UMMAP_O_WRITE, &driver, &h, &geom) == 0, "%s",
		      umerrormsg());
		for (int i = 0; i < 60; i++) {
			value = i % 100 + 1;
			write_all_blocks(&driver, h, kinds[k].blocks, value);
			check(driver.flush(h, 0, UINT64_MAX) == 0);
			check(log_length() <=
				      (off_t)(wal_fixed_bound + kinds[k].blocks * WAL_BLOCK + 4096),
			      "%ju bytes after %d syncs", (uintmax_t)log_length(), i);
		}
		check(driver.commits(h, &oldest, &newest) == 0 && newest == EPOCH + 60 &&
		      oldest == newest - kinds[k].keep + 1);
		check(driver.close(h) == 0);
		wal_fixed_bound = 0;
		check_bytes_of_store(kinds[k].blocks, value);
	}
}

/* Every commit that is kept is there after records have moved, and what is not committed is not. */
Test(wal_log, keeps_its_commits_when_records_move)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct ummap_geom geom;
	static char bytes[WAL_BLOCK];
	char uri[400];
	void *h;

	make_log(&good, NULL, 0);
	check(truncate(store, 50 * WAL_BLOCK) == 0);
	wal_fixed_bound = 500 * WAL_BLOCK;
	snprintf(uri, sizeof(uri), "wal+posix:%s?wal.keep=3", store);
	check(ummap_driver_open(uri, UMMAP_O_WRITE, &driver, &h, &geom) == 0, "%s", umerrormsg());
	for (int i = 1; i <= 12; i++) {
		write_all_blocks(&driver, h, 50, i);
		check(driver.flush(h, 0, UINT64_MAX) == 0);
	}
	write_all_blocks(&driver, h, 50, 99);
	/* Passes until the thread finds nothing to do: then it does not touch the files. */
	while (wal_make_room(h))
		;
	check(log_length() < 200 * (off_t)WAL_BLOCK + 10000, "%ju bytes", (uintmax_t)log_length());
	for (uint64_t epoch = 10; epoch <= 12; epoch++)
		check_epoch(EPOCH + epoch, 50, (int)epoch);
	for (uint64_t i = 0; i < 50; i++) {
		check(driver.read(h, bytes, sizeof(bytes), i * WAL_BLOCK) == 0 && bytes[0] == 99);
	}
	check(driver.flush(h, 0, UINT64_MAX) == 0);
	wal_make_room(h);
	check_epoch(EPOCH + 12, 50, 12);
	check_epoch(EPOCH + 13, 50, 99);
	check(driver.close(h) == 0);
	wal_fixed_bound = 0;
	check_bytes_of_store(50, 99);
}
