/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files that wal+ and cow+ keep beside a store, on a full file system and for a block device.
 * If the file system is full, umsync reports ENOSPC, all data stay readable in memory, a killed
 * process leaves the durable state, and after space was freed the same umsync succeeds. For a
 * device, the log or the changes are in a file that has to be named; a killed process leaves the
 * durable state, and at the end the device has all changes or none. Needs root, for loop devices.
 */
#include <linux/fs.h>

#include "small_fs.h"

#define SEG (64 * KIB)
#define SIZE (4 * MIB)
#define LEFT (3 * MIB / 2)    /* bytes that the file system has left */

enum { OLD = 1, NEW = 2, LATER = 3 };

struct job {
	int root;
	bool wal;
	const char *driver;
	size_t budget;
	bool dies;
};

static char store[320], keys[500];

static uint8_t *map(const struct job *j)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[1000];
	void *addr;

	attr.seg_size = SEG;
	snprintf(uri, sizeof(uri), "%s+%s:%s%s", j->wal ? "wal" : "cow", j->driver, store, keys);
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0, "%s", uri);
	return addr;
}

static void begin(const struct job *j)
{
	set_budget(j->budget);
}

/* ---- A full file system ---- */

static void write_too_much(void *arg)
{
	const struct job *j = arg;
	uint8_t *m;

	/* The stores of this test exceed the default bound. */
	set_env("UMMAP_OVER_BUDGET", "64M");
	begin(j);
	m = map(j);
	fill_up(j->root, space(j->root) - LEFT);
	fill(m, SIZE, 0, NEW);
	check_fails(umsync(m, 0), ENOSPC);
	check_bytes(m, SIZE, 0, NEW);
	check_fails(umsync(m, 0), ENOSPC);
	fill(m + SIZE / 2, SEG, SIZE / 2, LATER);
	if (j->dies)
		kill(getpid(), SIGKILL);
	make_space(j->root);
	if (umsync(m, 0) != 0)  /* may report the error of an eviction, once */
		check(errno == ENOSPC && umsync(m, 0) == 0);
	check(stat_of(m).dirty_bytes == 0);
	check(umunmap(m, 0) == 0);
}

static void find(void *arg)
{
	const struct job *j = arg;
	uint8_t *m;

	begin(j);
	m = map(j);
	if (j->dies && j->wal) {
		check_bytes(m, SIZE, 0, OLD);
	} else if (j->dies) {
		/* Nothing was durable, but each byte has one of the stored values. */
		for (size_t i = 0; i < SIZE; i++)
			check(m[i] == pattern(i, OLD) || m[i] == pattern(i, NEW) ||
				      m[i] == pattern(i, LATER),
			      "byte %zu", i);
	} else {
		check_bytes(m, SIZE / 2, 0, NEW);
		check_bytes(m + SIZE / 2, SEG, SIZE / 2, LATER);
		check_bytes(m + SIZE / 2 + SEG, SIZE / 2 - SEG, SIZE / 2 + SEG, NEW);
	}
	check(umunmap(m, 0) == 0);
}

static void check_full(struct job *j)
{
	int fd = create(j->root, "data");

	file_fill(fd, 0, SIZE, 0, OLD);
	check(fsync(fd) == 0);
	snprintf(store, sizeof(store), "/proc/self/fd/%d/data", j->root);
	*keys = '\0';
	if (j->dies) {
		check_killed(run_child(write_too_much, j), SIGKILL);
		make_space(j->root);
	} else {
		check_exits(run_child(write_too_much, j), 0);
	}
	check_exits(run_child(find, j), 0);
	if (j->wal && !j->dies)
		check_file(fd, 0, SIZE / 2, 0, NEW);
	else
		check_file(fd, 0, SIZE, 0, OLD);
	if (j->wal)
		check(unlinkat(j->root, "data.wal", 0) < 0 && errno == ENOENT);
	else
		check(unlinkat(j->root, "data.cow", 0) == 0);
	close(fd);
	check(unlinkat(j->root, "data", 0) == 0);
	check(syncfs(j->root) == 0);
}

/* ---- A block device ---- */

static void write_twice(void *arg)
{
	const struct job *j = arg;
	uint8_t *m;

	begin(j);
	m = map(j);
	fill(m, SIZE, 0, NEW);
	check(umsync(m, 0) == 0);
	fill(m, SIZE, 0, LATER);
	kill(getpid(), SIGKILL);
}

static void find_first(void *arg)
{
	const struct job *j = arg;
	uint8_t *m;

	begin(j);
	m = map(j);
	for (size_t i = 0; i < SIZE; i++)
		check(m[i] == pattern(i, NEW) || (!j->wal && m[i] == pattern(i, LATER)), "byte %zu",
		      i);
	fill(m, SIZE, 0, NEW);
	check(umsync(m, 0) == 0 && umunmap(m, 0) == 0);
}

static void map_without_path(void *arg)
{
	const struct job *j = arg;
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[400];
	void *addr;

	begin(j);
	snprintf(uri, sizeof(uri), "%s+%s:%s", j->wal ? "wal" : "cow", j->driver, store);
	check_fails(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr), EINVAL);
	check(strstr(umerrormsg(), j->wal ? "by wal.path" : "by cow.path"), "%s", umerrormsg());
}

static void check_device(struct job *j)
{
	char path[320];
	int file = temp_file(SIZE), device = loop_attach(file);

	check(device >= 0);
	check(loop_name(device, store, sizeof(store)));
	file_fill(device, 0, SIZE, 0, OLD);
	close(temp_named("beside", 0, path));
	check(unlink(path) == 0);
	snprintf(keys, sizeof(keys), "?%s.path=%s", j->wal ? "wal" : "cow", path);
	check_exits(run_child(map_without_path, j), 0);
	check_killed(run_child(write_twice, j), SIGKILL);
	check_exits(run_child(find_first, j), 0);
	check(fsync(device) == 0 && ioctl(device, BLKFLSBUF, 0) == 0);
	check_file(device, 0, SIZE, 0, j->wal ? NEW : OLD);
	check((access(path, F_OK) == 0) == !j->wal);
	close(device);
	close(file);
}

int main(void)
{
	static const char *const drivers[] = { "posix", "uring" };
	int root = small_file_system();

	if (root < 0) {
		printf("needs root, mkfs.ext4 and a loop device\n");
		return 77;
	}
	for (int i = 0; i < 16; i++) {
		struct job j = { root, i & 1, drivers[i >> 3], i & 2 ? 4 * SIZE : SIZE / 4, i & 4 };

		/* In a short run, each second case uses io_uring. */
		if (i >> 3 != (i & 1) && !by_time(0, 1))
			continue;
		if (!has_driver(j.driver))
			continue;
		check_full(&j);
		if (j.dies)
			check_device(&j);
	}
	return 0;
}
