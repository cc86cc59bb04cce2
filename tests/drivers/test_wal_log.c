/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_wal_log.c - logs that somebody has made by hand: their sums fit, but what they say cannot be. They are refused, or
 * end before such a record, and stay as they are.
 */
#include <criterion/criterion.h>

#include "drivers/wal_log.h"
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
	struct side_head slots = { .magic = WAL_HEAD_MAGIC };
	struct ummap_geom geom = { .size = 0 };
	uint64_t at = WAL_START, prev = head->chain, epoch = head->home + 1;
	struct side file;

	snprintf(store, sizeof(store), "%s/store", temp_dir());
	snprintf(path, sizeof(path), "%s" WAL_SUFFIX, store);
	close(open(store, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	check(truncate(store, WAL_BLOCK) == 0);
	check(side_open(&file, path, UMMAP_O_WRITE | UMMAP_O_CREATE, 0600, UMMAP_LOCK_EXCLUSIVE, &geom) == 0, "%s", geom.why);
	check(side_resize(&file, 0) == 0 && side_head_settle(&file, &slots, head, sizeof(*head)) == 0);
	for (size_t i = 0; i < n; i++) {
		struct wal_record r = { .magic = WAL_RECORD_MAGIC, .kind = records[i].kind, .blocks = records[i].blocks, .epoch = epoch,
					.place = at, .where = records[i].where, .data = records[i].data, .prev = prev };

		check(r.blocks <= 1);
		if (r.blocks)
			r.data = side_sum(zeros, WAL_BLOCK, head->salt);
		r.sum = side_sum(&r, offsetof(struct wal_record, sum), head->salt);
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
		check(log_length() == SIDE_HEAD);
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
