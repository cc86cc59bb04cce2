/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file system that is full: umsync reports ENOSPC, all data stay readable in memory, and after
 * space was freed the same umsync succeeds. Memory is bounded: a store waits for space. Needs root,
 * for a loop mount.
 */
#include "small_fs.h"

#define SEG (64 * KIB)
#define NEW 2
#define LATER 3

struct job {
	int root;
	const char *driver;
	size_t budget;
	size_t seg_size;  /* 0: the library finds it */
};

static void write_too_much(void *arg)
{
	struct job *j = arg;
	size_t available = space(j->root), filler = available / 2;
	size_t size = (available - filler / 2) / SEG * SEG;
	size_t least = j->seg_size ? j->seg_size : 4 * KIB;
	uint8_t *m;
	int fd;

	set_env("UMMAP_DRIVER", j->driver);
	set_budget(j->budget);
	set_env("UMMAP_OVER_BUDGET", "64M");
	fill_up(j->root, filler);
	fd = create(j->root, "data");
	m = map_file(fd, size, j->seg_size, READ_WRITE, 0);
	fill(m, size, 0, NEW);
	check_fails(umsync(m, 1), ENOSPC);
	/* Each write to a full file system takes long. So a sync tries all segments of a few MiB,
	 * and then one of each huge page. */
	if (j->budget > size)
		check(stat_of(m).write_errors <= 4 * (2 * MIB) / least, "%" PRIu64,
		      stat_of(m).write_errors);
	check_bytes(m, size, 0, NEW);  /* data that could not be written are still in memory */
	check_fails(umsync(m, 0), ENOSPC);
	fill(m + size / 2, SEG, size / 2, LATER);
	check_fails(umunmap(m, 1), ENOSPC);
	check_bytes(m, size / 2, 0, NEW);
	check(stat_of(m).write_errors > 0 && stat_of(m).dirty_bytes > 0);
	if (j->budget < size)
		check(stat_of(NULL).over_budget_peak > 0,
		      "rather over the budget than lose a byte");
	make_space(j->root);
	if (umsync(m, 1) != 0)  /* may report the error of an eviction, once */
		check(errno == ENOSPC && umsync(m, 1) == 0);
	check(stat_of(m).dirty_bytes == 0);
	check(umunmap(m, 1) == 0);
	check(file_size(fd) == size);
	check_file(fd, 0, size / 2, 0, NEW);
	check_file(fd, size / 2, SEG, size / 2, LATER);
	check_file(fd, size / 2 + SEG, size - size / 2 - SEG, size / 2 + SEG, NEW);
	close(fd);
	check(unlinkat(j->root, "data", 0) == 0);
	check(syncfs(j->root) == 0);
}

struct storing {
	uint8_t *m;
	size_t size;
	_Atomic size_t done;
};

static void *store(void *arg)
{
	struct storing *s = arg;

	for (; s->done < s->size; s->done += SEG)
		fill(s->m + s->done, SEG, s->done, NEW);
	return NULL;
}

static void wait_for_space(void *arg)
{
	struct job *j = arg;
	size_t available = space(j->root), filler = available / 2;
	struct storing s = { .size = (available - filler / 4) / SEG * SEG };
	pthread_t thread;
	size_t before;
	int fd;

	set_env("UMMAP_DRIVER", j->driver);
	set_budget(j->budget);
	fill_up(j->root, filler);
	fd = create(j->root, "data");
	s.m = map_file(fd, s.size, SEG, READ_WRITE, 0);
	check(pthread_create(&thread, NULL, store, &s) == 0);
	/* The thread waits when no more data can be written and the bound is reached. */
	for (before = 1; before != s.done || stat_of(s.m).waiting_bytes < 2 * j->budget - 4 * SEG;
	     pause_ms(200))
		before = s.done;
	check(s.done < s.size);
	check(stat_of(NULL).over_budget_peak <= j->budget + 4 * SEG, "%" PRIu64,
	      stat_of(NULL).over_budget_peak);
	check_bytes(s.m, s.done, 0, NEW);
	check_fails(umsync(s.m, 0), ENOSPC);
	make_space(j->root);
	check(pthread_join(thread, NULL) == 0);
	check(umsync(s.m, 0) == 0 || umsync(s.m, 0) == 0);
	check(umunmap(s.m, 1) == 0);
	check_file(fd, 0, s.size, 0, NEW);
	close(fd);
	check(unlinkat(j->root, "data", 0) == 0);
	check(syncfs(j->root) == 0);
}

int main(void)
{
	static const char *const drivers[] = { "posix", "uring" };
	int root = small_file_system();

	if (root < 0) {
		printf("needs root, mkfs.ext4 and a loop device\n");
		return 77;
	}
	for (int i = 0; i < 2; i++) {
		struct job plenty = { root, drivers[i], 64 * MIB, SEG },
			   little = { root, drivers[i], 2 * MIB, SEG },
			   pages = { root, drivers[i], 64 * MIB, 0 };

		if (!has_driver(drivers[i]))
			continue;
		check_exits(run_child(write_too_much, &plenty), 0);
		check_exits(run_child(write_too_much, &pages), 0);
		check_exits(run_child(write_too_much, &little), 0);
		check_exits(run_child(wait_for_space, &little), 0);
	}
	return 0;
}
