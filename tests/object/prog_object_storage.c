/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_object_storage - what storage and the system refuse: flushes that fail, no room at any step of a put, files that may not grow, few
 * descriptors, a child that is made in the middle of a commit. The calls that flush are ours here.
 */
#include "object.h"
#include "../small_fs.h"

#include <liburing.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static const struct umobject_shape shape = { .type = UMOBJECT_UINT8, .rank = 1, .dims = { 64 * KIB }, .chunk = { 16 * KIB } };
static uint8_t data[64 * KIB], got[64 * KIB];

/* ---- The library's flushes ---- */

static int fail_flushes;
static bool make_children;
static pid_t children[64];
static unsigned nchildren;

/* So all files are flushed by fsync. */
__attribute__((visibility("default")))
int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
	(void)entries;
	(void)ring;
	(void)flags;
	return -ENOSYS;
}

__attribute__((visibility("default")))
int fsync(int fd)
{
	pid_t pid;

	if (fail_flushes > 0) {
		fail_flushes--;
		errno = EIO;
		return -1;
	}
	if (make_children && nchildren < 64) {
		pid = fork();
		check(pid >= 0);
		if (pid == 0)
			for (;;)
				pause();
		children[nchildren++] = pid;
	}
	return (int)syscall(SYS_fsync, fd);
}

/* What of this name cannot be opened now. */
static const char *no_descriptor_for;

__attribute__((visibility("default")))
int openat(int folder, const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
	va_end(args);
	if (no_descriptor_for && strcmp(path, no_descriptor_for) == 0) {
		errno = EMFILE;
		return -1;
	}
	return (int)syscall(SYS_openat, folder, path, flags, mode);
}

static void put_seed(umobject_container *c, const char *name, uint64_t seed)
{
	fill(data, sizeof(data), 0, seed);
	good(umobject_put_array(c, name, &shape, data));
}

static void expect_seed(umobject_container *c, const char *name, uint64_t seed)
{
	good(umobject_get(c, name, NULL, NULL, got));
	check_bytes(got, sizeof(got), 0, seed);
}

static void count_empty(umobject_container *c, unsigned versions)
{
	good(umobject_gc(c, NULL));
	check(count_stored(VERSIONS) == versions && count_stored(CHUNKS) == 4 * versions && count_stored(VIEWS) == versions,
	      "%u versions, %u chunks, %u views", count_stored(VERSIONS), count_stored(CHUNKS), count_stored(VIEWS));
}

/* So many chunks of one put push those of another one out, and their flush fails: that is for the one whose they were. */
static void tells_whose_flush_failed(void *unused)
{
	struct umobject_shape many = { .type = UMOBJECT_UINT8, .rank = 1, .dims = { 300 }, .chunk = { 1 } };
	umobject_container *c = new_box(1);
	umobject_put *a, *b;

	(void)unused;
	put_seed(c, "a", 1);
	good(umobject_begin(c, "a", &shape, &a, NULL));
	fill(data, sizeof(data), 0, 2);
	for (unsigned i = 0; i < 4; i++)
		good(umobject_put_chunk(a, i, data + i * 16 * KIB));
	good(umobject_begin(c, "b", &many, &b, NULL));
	fail_flushes = 1;
	for (unsigned i = 0; i < 300; i++)
		good(umobject_put_chunk(b, i, data));
	check(fail_flushes == 0);
	refused(umobject_commit(a, 0, NULL), EIO, "durable");
	expect_seed(c, "a", 1);
	umobject_abandon(b);
	put_seed(c, "a", 3);
	expect_seed(c, "a", 3);
	count_empty(c, 1);
	umobject_close(c);
}

/* A put whose chunks could not be flushed has not ended when those of others are: they are durable. */
static void tells_nobody_else_of_it(void *unused)
{
	struct umobject_shape many = { .type = UMOBJECT_UINT8, .rank = 1, .dims = { 300 }, .chunk = { 1 } };
	umobject_container *c = new_box(1);
	umobject_put *a, *b;

	(void)unused;
	good(umobject_begin(c, "a", &many, &a, NULL));
	fail_flushes = 1;
	for (unsigned i = 0; i < 300; i++)
		good(umobject_put_chunk(a, i, data));
	check(fail_flushes == 0);
	good(umobject_begin(c, "b", &many, &b, NULL));
	for (unsigned i = 0; i < 300; i++)
		good(umobject_put_chunk(b, i, data));
	good(umobject_commit(b, 0, NULL));
	refused(umobject_commit(a, 0, NULL), EIO, "durable");
	umobject_close(c);
}

/* Each flush of a put fails, one after the other: it is the old one, or the new one where only its name was not durable. */
static void survives_flushes_that_fail(void *unused)
{
	umobject_container *c = new_box(2);
	uint64_t seed = 1;
	unsigned failed = 0;

	(void)unused;
	put_seed(c, "a", seed);
	for (int skip = 0;; skip++) {
		umobject_put *p;
		int result;

		fill(data, sizeof(data), 0, seed + 1);
		good(umobject_begin(c, "a", &shape, &p, NULL));
		for (unsigned i = 0; i < 4; i++)
			good(umobject_put_chunk(p, i, data + i * 16 * KIB));
		fail_flushes = skip < 12 ? 1 : 0;
		result = umobject_commit(p, 0, NULL);
		fail_flushes = 0;
		good(umobject_get(c, "a", NULL, NULL, got));
		if (result == 0) {
			check_bytes(got, sizeof(got), 0, ++seed);
			break;
		}
		failed++;
		check(errno == EIO, "%s", umobject_errormsg());
		check_bytes(got, sizeof(got), 0, seed);
		good(umobject_gc(c, NULL));
		check(count_stored(VERSIONS) == 1 && count_stored(CHUNKS) == 4);
	}
	check(failed == 12);
	umobject_close(c);
}

/* Where it cannot be found out whether a version that is kept needs chunks of the one that goes, they stay. */
static void removes_nothing_in_doubt(void *unused)
{
	umobject_container *c = new_box(3);
	umobject_version *v;
	umobject_put *p;

	(void)unused;
	put_seed(c, "a", 1);
	good(umobject_hold(c, "a", 0, &v));
	good(umobject_begin_from(v, &p, NULL));
	good(umobject_commit(p, 0, NULL));
	umobject_release(v);
	put_seed(c, "a", 3);
	no_descriptor_for = "a.00000000000000000002";
	put_seed(c, "a", 4);
	no_descriptor_for = NULL;
	good(umobject_hold(c, "a", 2, &v));
	good(umobject_read(v, NULL, NULL, got));
	check_bytes(got, sizeof(got), 0, 1);
	umobject_release(v);
	good(umobject_delete(c, "a"));
	count_empty(c, 0);
	umobject_close(c);
}

/* Another thread may make a child at any time, which has all that is open here. */
static void lets_children_live(void *unused)
{
	umobject_container *c = new_box(1);

	(void)unused;
	make_children = true;
	put_seed(c, "a", 1);
	make_children = false;
	check(nchildren > 2);
	/* It would wait for the name until all of them have ended. */
	put_seed(c, "a", 2);
	put_seed(c, "a", 3);
	good(umobject_delete(c, "a"));
	good(umobject_gc(c, NULL));
	while (nchildren) {
		check(kill(children[--nchildren], SIGKILL) == 0);
		check(waitpid(children[nchildren], NULL, 0) == children[nchildren]);
	}
	count_empty(c, 0);
	umobject_close(c);
}

/* ---- Limits ---- */

static void limit(int what, rlim_t most)
{
	check(setrlimit(what, &(struct rlimit){ most, most }) == 0);
}

static void needs_few_descriptors(void *unused)
{
	struct umobject_shape many = { .type = UMOBJECT_UINT8, .rank = 1, .dims = { 400 }, .chunk = { 1 } };
	umobject_container *c;
	char name[16];

	(void)unused;
	limit(RLIMIT_NOFILE, 64);
	c = new_box(1);
	good(umobject_put_array(c, "many", &many, data));
	good(umobject_get(c, "many", NULL, NULL, got));
	good(umobject_delete(c, "many"));
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "%d", i);
		put_seed(c, name, 1);
		good(umobject_delete(c, name));
	}
	/* More than can be open at a time. */
	count_empty(c, 0);
	umobject_close(c);
}

static void says_that_files_may_not_grow(void *unused)
{
	umobject_container *c = new_box(1);

	(void)unused;
	signal(SIGXFSZ, SIG_IGN);
	put_seed(c, "a", 1);
	fill(data, sizeof(data), 0, 2);
	for (rlim_t most = 0; most < 256 * KIB; most += most < 16 * KIB ? 700 : 5000) {
		check(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ most, RLIM_INFINITY }) == 0);
		if (umobject_put_array(c, "a", &shape, data) == 0)
			break;
		check(errno == EFBIG, "%lu: %s", (unsigned long)most, umobject_errormsg());
		expect_seed(c, "a", 1);
	}
	expect_seed(c, "a", 2);
	count_empty(c, 1);
	umobject_close(c);
}

/* ---- No room ---- */

static unsigned count_in(int root, const char *folder)
{
	char command[128];

	snprintf(command, sizeof(command), "find /proc/%d/fd/%d/box/%s -type f | wc -l", getpid(), root, folder);
	return (unsigned)atoi(output_of("%s%s", command, ""));
}

/* All but so many bytes are taken. */
static void leave_room(int root, size_t room)
{
	int fd = create(root, "filler");
	off_t size = 0;

	for (off_t step = MIB; step >= 4096;) {
		if (fallocate(fd, 0, size, step) == 0) {
			size += step;
		} else {
			check(errno == ENOSPC);
			step /= 4;
		}
	}
	check(ftruncate(fd, size - (off_t)room) == 0 && fsync(fd) == 0 && close(fd) == 0);
}

/* With a page more each time there is room for one more step of a put. */
static void has_no_room(int root, umobject_container *c)
{
	uint64_t seed = 1;
	unsigned failed = 0, room;

	put_seed(c, "a", seed);
	for (room = 0; failed == 0 || room < 64; room++) {
		leave_room(root, room * 4 * KIB);
		fill(data, sizeof(data), 0, seed + 1);
		if (umobject_put_array(c, "a", &shape, data) == 0) {
			seed++;
		} else {
			failed++;
			check(errno == ENOSPC, "%u: %s", room, umobject_errormsg());
		}
		expect_seed(c, "a", seed);
		good(umobject_gc(c, NULL));
		check(count_in(root, "live") == (seed > 1 ? 2 : 1) && count_in(root, "data") == (seed > 1 ? 8 : 4), "%u: %u versions, %u chunks",
		      room, count_in(root, "live"), count_in(root, "data"));
		make_space(root);
		check(room < 1000);
	}
	check(failed > 3 && seed > 2, "%u failed, %" PRIu64 " did not", failed, seed);
	good(umobject_delete(c, "a"));
	good(umobject_gc(c, NULL));
	check(count_in(root, "live") == 0 && count_in(root, "data") == 0 && count_in(root, "versions") == 0);
}

static void survives_no_room(void *unused)
{
	int root = small_file_system();
	umobject_container *c;
	char path[64];

	(void)unused;
	if (root < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d/box", root);
	c = open_box(path, UMOBJECT_CREATE, 2);
	has_no_room(root, c);
	umobject_close(c);
	close(root);
}

int main(void)
{
	static void (*const all[])(void *) = {
		tells_whose_flush_failed, tells_nobody_else_of_it, survives_flushes_that_fail, removes_nothing_in_doubt, lets_children_live, needs_few_descriptors,
		says_that_files_may_not_grow, survives_no_room,
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++, box_number++)
		check_exits(run_child(all[i], NULL), 0);
	return 0;
}
