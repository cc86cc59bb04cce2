/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_wal_log.c - logs of wal+ that were written by hand: their sums are right, but some of their
 * contents are impossible. The filter refuses them, or ignores a commit that may be torn. Other
 * tests damage logs, and check the length of logs.
 */
#include <criterion/criterion.h>
#include <pthread.h>

#include "drivers/overlay/background.h"
#include "overlay_file.h"
#include "common.h"

#define BASE 40 /* number of the commit with which the logs begin */

static char store[300], path[310];

static struct overlay_head good_head(void)
{
	struct overlay_head head = {
		.salt = 7,
		.policy = OVERLAY_WAL,
		.block = OVERLAY_BLOCK,
		.base = BASE,
		.base_size = OVERLAY_BLOCK,
		.home = BASE,
		.floor = BASE,
		.way = "posix",
	};

	strcpy(head.store.name, "store");
	return head;
}

/* Makes a store of one block, and begins its log. */
static void begin_log(struct overlay_file *log, const struct overlay_head *head)
{
	snprintf(store, sizeof(store), "%s/store", temp_dir());
	snprintf(path, sizeof(path), "%s.wal", store);
	close(open(store, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	check(truncate(store, OVERLAY_BLOCK) == 0);
	check(file_begin(log, path, head) == 0);
}

static void make_log(const struct overlay_head *head)
{
	struct overlay_file log;

	begin_log(&log, head);
	check(file_end(&log) == 0);
}

static void add_commit(struct overlay_file *log, uint64_t size, uint64_t floor)
{
	struct overlay_commit c = file_commit(log, size, floor);

	file_add_commit(log, &c);
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

static int open_without_log(void)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct ummap_geom geom;
	char uri[400];
	void *h;

	snprintf(uri, sizeof(uri), "posix:%s", store);
	if (ummap_driver_open(uri, 0, &driver, &h, &geom) < 0)
		return -errno;
	check(driver.close(h) == 0);
	return 0;
}

/* If a correct log were refused, the other tests would mean nothing. */
Test(wal_log, correct_logs_are_used)
{
	struct overlay_head head = good_head();
	struct overlay_file log;
	struct stat st;

	begin_log(&log, &head);
	file_add_block(&log, 3, 1);
	add_commit(&log, 4 * OVERLAY_BLOCK, BASE + 1);
	check(file_end(&log) == 0);
	check(open_without_log() == -EUCLEAN);
	check(use(UMMAP_O_WRITE, "") == 0, "%s", umerrormsg());
	check(stat(store, &st) == 0 && st.st_size == 4 * OVERLAY_BLOCK);
	check(access(path, F_OK) < 0, "the commit was applied");
}

Test(wal_log, impossible_headers_are_refused)
{
	static const struct {
		size_t field;
		uint64_t value;
	} bad[] = {
		{ offsetof(struct overlay_head, policy), OVERLAY_COW },
		{ offsetof(struct overlay_head, policy), 9 },
		{ offsetof(struct overlay_head, block), 0 },
		{ offsetof(struct overlay_head, block), 3 * OVERLAY_BLOCK },
		{ offsetof(struct overlay_head, base), UINT64_MAX },
		{ offsetof(struct overlay_head, base), BASE + 1 },
		{ offsetof(struct overlay_head, floor), BASE - 1 },
		{ offsetof(struct overlay_head, home), UINT64_MAX },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct overlay_head head = good_head();
		off_t length;

		memcpy((char *)&head + bad[i].field, &bad[i].value, sizeof(uint64_t));
		make_log(&head);
		length = log_length();
		check(use(UMMAP_O_WRITE, "") == -EUCLEAN, "%zu", i);
		check(strstr(umerrormsg(), path), "%s", umerrormsg());
		check(log_length() == length);
	}
}

/* Without an acknowledgment, such a commit counts as torn, and the one before it as the newest. */
Test(wal_log, impossible_commits_are_ignored)
{
	static const struct {
		uint64_t block, size, floor;
	} bad[] = {
		{ UINT64_MAX - 1, OVERLAY_BLOCK, BASE + 1 }, /* a block beyond all files */
		{ INT64_MAX / OVERLAY_BLOCK, OVERLAY_BLOCK, BASE + 1 },
		{ 0, (uint64_t)INT64_MAX + 1, BASE + 1 },          /* a size beyond all files */
		{ 0, OVERLAY_BLOCK, BASE + 2 },                    /* a floor above the commit */
		{ 0, OVERLAY_BLOCK, BASE + 1 - OVERLAY_KEEP_MAX }, /* a floor that none keeps */
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct overlay_head head = good_head();
		struct overlay_file log;

		begin_log(&log, &head);
		file_add_block(&log, bad[i].block, 1);
		add_commit(&log, bad[i].size, bad[i].floor);
		check(file_end(&log) == 0);
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

/* Opening reads a log in large requests, and each part of it a few times at most. The contents of
 * every commit are right. */
Test(wal_log, opening_reads_it_in_large_requests)
{
	enum { N = 1000 };
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct overlay_head head = good_head();
	struct overlay_file log;
	struct ummap_geom geom;
	char uri[400], block[OVERLAY_BLOCK];
	long before;
	void *h;
	int fd;

	/* The store has ones, and the log zeros: two commits, and blocks of no commit. */
	begin_log(&log, &head);
	for (uint64_t i = 0; i < 2 * N; i++) {
		file_add_block(&log, i, 0);
		if (i == N / 2 - 1 || i == N - 1)
			add_commit(&log, 2 * N * OVERLAY_BLOCK, BASE);
	}
	check(file_end(&log) == 0);
	memset(block, 1, sizeof(block));
	fd = open(store, O_WRONLY | O_CLOEXEC);
	for (int i = 0; i < 2 * N; i++)
		check(write(fd, block, sizeof(block)) == sizeof(block));
	close(fd);
	for (uint64_t number = BASE; number <= BASE + 2; number++) {
		uint64_t end = (number - BASE) * N / 2;

		snprintf(uri, sizeof(uri), "wal+posix:%s?wal.commit=%ju", store, (uintmax_t)number);
		before = count_reads();
		check(ummap_driver_open(uri, 0, &driver, &h, &geom) == 0, "%s", umerrormsg());
		if (before >= 0)
			check(count_reads() - before < N / 4, "%ld reads", count_reads() - before);
		for (uint64_t i = 0; i < 2 * N; i++) {
			check(driver.read(h, block, sizeof(block), i * OVERLAY_BLOCK) == 0);
			check(block[0] == (i >= end), "block %ju in commit %ju", (uintmax_t)i,
			      (uintmax_t)number);
		}
		check(driver.close(h) == 0);
	}
}

static void write_blocks(const struct ummap_driver *driver, void *h, uint64_t first, size_t blocks,
			 int value)
{
	static char bytes[100 * OVERLAY_BLOCK];

	memset(bytes, value, sizeof(bytes));
	check(blocks <= 100 &&
	      driver->write(h, bytes, blocks * OVERLAY_BLOCK, first * OVERLAY_BLOCK) == 0);
}

static void commit_blocks(const struct ummap_driver *driver, void *h, uint64_t first, size_t blocks,
			  int value)
{
	write_blocks(driver, h, first, blocks, value);
	check(driver->flush(h, 0, UINT64_MAX) == 0);
}

/* The filter must not apply a block that is damaged after the log was opened. The log stays. */
Test(wal_log, later_damage_is_not_applied)
{
	static const char zero;

	for (uint64_t damaged = 0; damaged < 4; damaged++) {
		struct ummap_driver driver = { .struct_size = sizeof(driver) };
		struct overlay_head head = good_head();
		struct ummap_geom geom;
		char uri[400], byte;
		void *h;
		int fd;

		make_log(&head);
		/* No commit is applied before the end. */
		snprintf(uri, sizeof(uri), "wal+posix:%s?wal.keep=16", store);
		check(ummap_driver_open(uri, UMMAP_O_WRITE, &driver, &h, &geom) == 0, "%s",
		      umerrormsg());
		commit_blocks(&driver, h, 0, 2, 1);
		commit_blocks(&driver, h, 0, 1, 2);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		/* Slot 0 is not needed any more, slots 1 and 2 are, and slot 3 was never used. */
		check(pwrite(fd, &zero, 1, (off_t)file_block_at((uint32_t)damaged) + 9) == 1);
		close(fd);
		check(driver.close(h) == (damaged == 1 || damaged == 2 ? -EBADMSG : 0), "%ju",
		      (uintmax_t)damaged);
		check((access(path, F_OK) == 0) == (damaged == 1 || damaged == 2));
		fd = open(store, O_RDONLY | O_CLOEXEC);
		if (damaged == 1 && pread(fd, &byte, 1, OVERLAY_BLOCK + 9) == 1)
			check(byte == 1, "the damaged block is in the store");
		if (damaged == 2 && pread(fd, &byte, 1, 9) == 1)
			check(byte == 2 || byte == 0);
		close(fd);
		if (damaged == 1 || damaged == 2)
			check(use(UMMAP_O_WRITE, "") == -EUCLEAN);
	}
}

/* The slot of a block that no commit needs may have been written over, wherever in the file the
 * slots of later commits are. */
Test(wal_log, blocks_that_no_commit_needs_may_change)
{
	static const unsigned orders[][3] = {
		{ 1, 2, 3 }, { 1, 3, 2 }, { 2, 1, 3 }, { 2, 3, 1 }, { 3, 1, 2 }, { 3, 2, 1 },
	};

	for (size_t k = 0; k < sizeof(orders) / sizeof(*orders); k++) {
		struct overlay_head head = good_head();
		struct overlay_file log;
		char byte = 0;
		int fd;

		begin_log(&log, &head);
		for (unsigned slot = 0; slot < 3; slot++) {
			log.number = BASE + orders[k][slot] - 1;
			file_add_block(&log, 3, (int)orders[k][slot]);
			if (orders[k][slot] == 1)
				file_put(&log, "changed", 8, file_block_at(slot));
		}
		log.number = BASE + 1;
		add_commit(&log, 4 * OVERLAY_BLOCK, BASE + 1);
		add_commit(&log, 4 * OVERLAY_BLOCK, BASE + 2);
		check(file_end(&log) == 0);
		check(use(UMMAP_O_WRITE, "?wal.keep=2") == 0, "order %zu: %s", k, umerrormsg());
		/* Without a change, the log keeps both commits. */
		check(use(UMMAP_O_WRITE, "") == 0, "order %zu: %s", k, umerrormsg());
		fd = open(store, O_RDONLY | O_CLOEXEC);
		check(pread(fd, &byte, 1, 3 * OVERLAY_BLOCK) == 1 && byte == 3);
		close(fd);
	}
}

static void check_bytes_of_store(size_t blocks, int value)
{
	static char bytes[OVERLAY_BLOCK];
	int fd = open(store, O_RDONLY | O_CLOEXEC);

	for (size_t i = 0; i < blocks; i++)
		check(read(fd, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes) &&
		      bytes[0] == value && bytes[OVERLAY_BLOCK - 1] == value);
	close(fd);
}

/* Opens a copy of the log at a commit, as after a kill. The copy is beside another link of the
 * store. */
static void check_commit(uint64_t number, size_t blocks, int value)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct ummap_geom geom;
	static char bytes[OVERLAY_BLOCK];
	char folder[400], link_of_store[800], from[820], uri[900];
	int log, copy;
	void *h;

	snprintf(folder, sizeof(folder), "%s.links", store);
	check(mkdir(folder, 0700) == 0 || errno == EEXIST);
	snprintf(link_of_store, sizeof(link_of_store), "%s%s", folder, strrchr(store, '/'));
	check(link(store, link_of_store) == 0 || errno == EEXIST);
	snprintf(from, sizeof(from), "%s.wal", link_of_store);
	log = open(path, O_RDONLY | O_CLOEXEC);
	copy = open(from, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	check(log >= 0 && copy >= 0);
	for (ssize_t n; (n = read(log, bytes, sizeof(bytes))) > 0;)
		check(write(copy, bytes, (size_t)n) == n);
	close(log);
	close(copy);
	snprintf(uri, sizeof(uri), "wal+posix:%s?wal.commit=%" PRIu64, link_of_store, number);
	check(ummap_driver_open(uri, 0, &driver, &h, &geom) == 0, "%s", umerrormsg());
	for (size_t i = 0; i < blocks; i++) {
		check(driver.read(h, bytes, sizeof(bytes), i * OVERLAY_BLOCK) == 0);
		check(bytes[0] == value && memcmp(bytes, bytes + 1, sizeof(bytes) - 1) == 0,
		      "block %zu of commit %" PRIu64, i, number);
	}
	check(driver.close(h) == 0);
}

/* The file of the log stays within its bound, however many syncs there are, and however many of
 * them stay open. It grows by whole groups of slots. */
Test(wal_log, stays_within_its_bound)
{
	static const struct {
		unsigned keep;
		size_t blocks;
	} kinds[] = { { 1, 100 }, { 2, 100 }, { 3, 7 } };

	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		struct ummap_driver driver = { .struct_size = sizeof(driver) };
		struct overlay_head head = good_head();
		struct ummap_geom geom;
		uint64_t oldest, newest;
		char uri[400];
		void *h;
		int value = 0;

		make_log(&head);
		check(truncate(store, (off_t)(kinds[k].blocks * OVERLAY_BLOCK)) == 0);
		background_fixed_bound = kinds[k].blocks * OVERLAY_BLOCK * 10;
		snprintf(uri, sizeof(uri), "wal+posix:%s?wal.keep=%u", store, kinds[k].keep);
		check(ummap_driver_open(uri, UMMAP_O_WRITE, &driver, &h, &geom) == 0, "%s",
		      umerrormsg());
		for (int i = 0; i < 60; i++) {
			value = i % 100 + 1;
			commit_blocks(&driver, h, 0, kinds[k].blocks, value);
			check(log_length() <= (off_t)(background_fixed_bound + OVERLAY_GROUPS_AT +
						      GROUP_BYTES),
			      "%ju bytes after %d syncs", (uintmax_t)log_length(), i);
		}
		check(driver.commits(h, &oldest, &newest) == 0 && newest == BASE + 60 &&
		      oldest == newest - kinds[k].keep + 1);
		check(driver.close(h) == 0);
		background_fixed_bound = 0;
		check_bytes_of_store(kinds[k].blocks, value);
	}
}

/* Slots are used again and again. Every commit that is kept has its contents meanwhile, and changes
 * that were not committed are in none. */
Test(wal_log, keeps_its_commits)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct overlay_head head = good_head();
	struct ummap_geom geom;
	static char bytes[OVERLAY_BLOCK];
	char uri[400];
	void *h;

	make_log(&head);
	check(truncate(store, 50 * OVERLAY_BLOCK) == 0);
	snprintf(uri, sizeof(uri), "wal+posix:%s?wal.keep=3&wal.size=1200K", store);
	check(ummap_driver_open(uri, UMMAP_O_WRITE, &driver, &h, &geom) == 0, "%s", umerrormsg());
	for (int i = 1; i <= 40; i++) {
		commit_blocks(&driver, h, 0, 50, i);
		check(log_length() <= 1200 * 1024);
	}
	write_blocks(&driver, h, 0, 50, 99);
	/* Passes until the thread finds nothing to do: then it does not touch the files. */
	while (background_make_room(h))
		;
	for (uint64_t number = 38; number <= 40; number++)
		check_commit(BASE + number, 50, (int)number);
	for (uint64_t i = 0; i < 50; i++) {
		check(driver.read(h, bytes, sizeof(bytes), i * OVERLAY_BLOCK) == 0);
		check(bytes[0] == 99);
	}
	check(driver.flush(h, 0, UINT64_MAX) == 0);
	background_make_room(h);
	check_commit(BASE + 40, 50, 40);
	check_commit(BASE + 41, 50, 99);
	check(driver.close(h) == 0);
	check_bytes_of_store(50, 99);
}

static struct overlay *limited;
static unsigned reading;       /* ticket of a reader of `limited` */

static void *leave_when_asked(void *arg)
{
	const struct background *b = &((struct background_handle *)limited)->background;

	(void)arg;
	while (b->asked == 0)
		pause_ms(1);
	overlay_leave(limited, reading);
	return NULL;
}

/* At wal.size, a write waits for readers of blocks that were written again. */
Test(wal_log, waits_for_readers_at_its_limit)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct overlay_head head = good_head();
	struct ummap_geom geom;
	pthread_t thread;
	char uri[400];
	void *h;

	make_log(&head);
	check(truncate(store, 50 * OVERLAY_BLOCK) == 0);
	snprintf(uri, sizeof(uri), "wal+posix:%s?wal.size=300K", store);
	check(ummap_driver_open(uri, UMMAP_O_WRITE, &driver, &h, &geom) == 0, "%s", umerrormsg());
	limited = h;
	reading = overlay_enter(limited);
	check(pthread_create(&thread, NULL, leave_when_asked, NULL) == 0);
	for (int i = 0; i < 200; i++)
		write_blocks(&driver, h, 0, 1, i);
	check(pthread_join(thread, NULL) == 0);
	check(driver.close(h) == 0);
}
