/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Locks of writable mappings: no two mappings, of one process or of two, can store to the same
 * byte, whatever happens to the mappings and the processes. Stores without locks work, too.
 */
#include <criterion/criterion.h>
#include <ummap-driver.h>

#include "common.h"

#define SEG (16 * KIB)
#define SIZE (8 * SEG)
#define OLD 1
#define NEW 2

TestSuite(lock, .init = set_group);

static int try_map(int fd, size_t size, off_t offset, int prot, void **addr)
{
	return ummap(size, SEG, prot, fd, offset, -1, 1, UMMAP_PTYPE_FIFO, addr);
}

static void check_refused(int fd, size_t size, off_t offset)
{
	void *addr;

	check_fails(try_map(fd, size, offset, READ_WRITE, &addr), EBUSY);
}

static void check_free(int fd, size_t size, off_t offset)
{
	check(umunmap(map_file(fd, size, SEG, READ_WRITE, offset), 0) == 0);
}

static bool says(const char *text)
{
	return strstr(umerrormsg(), text) != NULL;
}

/* ---- In one process ---- */

Test(lock, of_a_range)
{
	int fd = filled_file(SIZE, OLD);
	uint8_t *m = map_file(fd, SIZE / 2, SEG, READ_WRITE, SIZE / 4);

	check_refused(fd, SIZE, 0);
	check(says("this process") && says("read-only"), "%s", umerrormsg());
	check_refused(fd, SIZE / 4 + 1, 0);
	check_refused(fd, 1, SIZE / 2);
	check_refused(fd, SIZE, 3 * SIZE / 4 - 1);
	check_free(fd, SIZE / 4, 0);
	check_free(fd, SIZE, 3 * SIZE / 4);
	check(umunmap(m, 0) == 0);
	check_free(fd, SIZE, 0);
}

Test(lock, readers_go_with_all)
{
	int fd = filled_file(SIZE, OLD);
	uint8_t *first = map_file(fd, SIZE, SEG, PROT_READ, 0);
	uint8_t *m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	uint8_t *last = map_file(fd, SIZE, SEG, PROT_READ, 0);

	check(umunmap(m, 0) == 0);
	check_free(fd, SIZE, 0);
	check_bytes(first, SIZE, 0, OLD);
	check_bytes(last, SIZE, 0, OLD);
}

/* Locks belong to the mapping. The program's own locks and descriptors do not affect them. */
Test(lock, programs_have_their_own)
{
	struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char path[320];
	int fd = temp_named("own", SIZE, path), other = open(path, O_RDWR | O_CLOEXEC);
	uint8_t *m = map_file(fd, SIZE, SEG, READ_WRITE, 0);

	close(open(path, O_RDWR | O_CLOEXEC));
	check_refused(other, SIZE, 0);
	close(fd);
	check_refused(other, SIZE, 0);
	check(umunmap(m, 0) == 0);
	check(fcntl(other, F_OFD_SETLK, &all) == 0);
	check_refused(other, SIZE, 0);
	check(says("process"), "%s", umerrormsg());
	all.l_type = F_UNLCK;
	check(fcntl(other, F_OFD_SETLK, &all) == 0);
	check_free(other, SIZE, 0);
}

Test(lock, by_any_driver)
{
	static const char *const drivers[] = { "posix", "trace+posix", "error+posix" };
	char path[320], uri[800];
	int fd = temp_named("driver", SIZE, path);
	void *m, *other;

	for (unsigned i = 0; i < 3; i++) {
		snprintf(uri, sizeof(uri), "%s:%s%s", drivers[i], path,
			 i == 1 ? "?trace.file=/dev/null" :
			 i == 2 ? "?error.nth=1000" :
				  "");
		check(ummap_open(uri, SIZE, 0, READ_WRITE, NULL, &m) == 0, "%s", uri);
		check_refused(fd, SIZE, 0);
		check_fails(ummap_open(uri, SIZE, 0, READ_WRITE, NULL, &other), EBUSY);
		check(umunmap(m, 0) == 0);
	}
}

/* A store that its driver identifies, and for which the driver has no locks. */
Test(lock, of_memory)
{
	void *m, *other;

	check(ummap_open("mem:1M?name=lock", SIZE, 0, READ_WRITE, NULL, &m) == 0);
	check_fails(ummap_open("mem:1M?name=lock", SIZE, SIZE - 1, READ_WRITE, NULL, &other),
		    EBUSY);
	check(ummap_open("mem:1M?name=lock", SIZE, SIZE, READ_WRITE, NULL, &other) == 0);
}

Test(lock, of_a_device)
{
	int file = temp_file(SIZE), device = loop_attach(file);
	char path[64];
	uint8_t *m;

	if (device < 0)
		cr_skip_test("there are no loop devices here");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", device);
	m = map_file(device, SIZE, SEG, READ_WRITE, 0);
	check_refused(open(path, O_RDWR | O_CLOEXEC), SIZE, 0);
	check(umunmap(m, 0) == 0);
	check_free(device, SIZE, 0);
}

/* ---- Between processes ---- */

struct holder {
	pid_t pid;
	int ready[2];
};

static void say_ready(const struct holder *h)
{
	check(write(h->ready[1], "x", 1) == 1);
}

static void await_ready(const struct holder *h)
{
	char c;

	check(read(h->ready[0], &c, 1) == 1);
}

static int shared_fd;

static void hold(void *holder)
{
	map_file(shared_fd, SIZE / 2, SEG, READ_WRITE, 0);
	say_ready(holder);
	pause();
}

Test(lock, of_another_process)
{
	struct holder h;
	char who[64];

	shared_fd = filled_file(SIZE, OLD);
	check(pipe2(h.ready, O_CLOEXEC) == 0);
	h.pid = start_child(hold, &h);
	await_ready(&h);
	check_refused(shared_fd, SIZE, SIZE / 4);
	snprintf(who, sizeof(who), "process %d (test_lock)", (int)h.pid);
	check(says(who), "not \"%s\": %s", who, umerrormsg());
	check_free(shared_fd, SIZE / 2, SIZE / 2);
	check(umunmap(map_file(shared_fd, SIZE, SEG, PROT_READ, 0), 0) == 0);
	check(kill(h.pid, SIGKILL) == 0);
	check_killed(wait_child(h.pid), SIGKILL);
	check_free(shared_fd, SIZE, 0);
}

/* A child inherits descriptors of its parent, but not its mappings. */
static void stay(void *holder)
{
	prctl(PR_SET_PDEATHSIG, 0);
	check_refused(shared_fd, SIZE / 2, 0);
	say_ready(holder);
	pause();
}

static void hold_with_child(void *holder)
{
	struct holder *h = holder;
	uint8_t *m = map_file(shared_fd, SIZE / 2, SEG, READ_WRITE, 0);
	pid_t child = start_child(stay, h);

	await_ready(h);
	/* The child has closed the descriptors of the mapping, and the lock remains. */
	check_refused(shared_fd, SIZE / 2, 0);
	m[0] = NEW;
	check(write(h->ready[1], &child, sizeof(child)) == sizeof(child));
	_exit(0);
}

Test(lock, ends_with_its_process)
{
	struct holder h;
	pid_t child;

	shared_fd = filled_file(SIZE, OLD);
	check(pipe2(h.ready, O_CLOEXEC) == 0);
	check_exits(run_child(hold_with_child, &h), 0);
	check(read(h.ready[0], &child, sizeof(child)) == sizeof(child));
	check(kill(child, 0) == 0, "the child of the former owner lives");
	check_free(shared_fd, SIZE, 0);
	check(kill(child, SIGKILL) == 0);
}

/* ---- umremap ---- */

static uint8_t *remap(uint8_t *m, size_t size, int fd, off_t offset, int sync)
{
	void *base = NULL;

	check(umremap(m, size, fd, offset, sync, &base) == 0);
	return base;
}

Test(lock, grows_with_its_mapping)
{
	int fd = filled_file(SIZE, OLD);
	uint8_t *m = map_file(fd, SIZE / 4, SEG, READ_WRITE, 0),
		*other = map_file(fd, SIZE / 4, SEG, READ_WRITE, SIZE / 2);
	void *base = NULL;

	fill(m, SEG, 0, NEW);
	check_fails(umremap(m, SIZE / 2 + 1, -1, -1, 0, &base), EBUSY);
	check(says("this process"), "%s", umerrormsg());
	/* A call that failed has changed nothing. */
	check_bytes(m, SEG, 0, NEW);
	check_bytes(m + SEG, SIZE / 4 - SEG, SEG, OLD);
	check_free(fd, SIZE / 4, SIZE / 4);
	m = remap(m, SIZE / 2, -1, -1, 0);
	check_refused(fd, 1, SIZE / 4);
	check(umunmap(other, 0) == 0);
	m = remap(m, SIZE, -1, -1, 0);
	check_refused(fd, 1, SIZE - 1);
	m = remap(m, SEG, -1, -1, 0);
	check_free(fd, SIZE, SEG);
	check_refused(fd, 1, SEG - 1);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SEG, 0, NEW);
}

/* A mapping moves to a range that overlaps its old one. Its own lock does not block it. */
Test(lock, moves_with_its_mapping)
{
	int fd = filled_file(2 * SIZE, OLD), again = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	uint8_t *m = map_file(fd, SIZE, SEG, READ_WRITE, 0);

	m = remap(m, 0, again, SIZE / 2, UMMAP_SWITCH);
	check_refused(fd, SIZE / 2 + 1, 0);
	check_refused(fd, 1, SIZE + SIZE / 2 - 1);
	check_free(fd, SIZE / 2, 0);
	check_free(fd, SIZE / 2, SIZE + SIZE / 2);
	m = remap(m, 0, -1, 0, UMMAP_SYNC);
	check_refused(fd, 1, 0);
	check_refused(fd, 1, SIZE - 1);
	check_free(fd, SIZE, SIZE);
	check(umunmap(m, 0) == 0);
	check_free(fd, 2 * SIZE, 0);
}

/* The old range stays locked while the migration may still write there. */
Test(lock, carries)
{
	int fd = filled_file(SIZE, OLD), to = filled_file(SIZE, OLD);
	uint8_t *m = map_file(fd, SIZE, SEG, READ_WRITE, 0),
		*other = map_file(to, SEG, SEG, READ_WRITE, SIZE - SEG);
	void *base = NULL;

	check_fails(umremap(m, 0, to, 0, 0, &base), EBUSY);
	check_refused(fd, SIZE, 0);
	check(umunmap(other, 0) == 0);
	m = remap(m, 0, to, 0, 0);
	check_refused(to, SIZE, 0);
	check(umsync(m, 0) == 0);
	check_free(fd, SIZE, 0);
	check_refused(to, SIZE, 0);
	check(umunmap(m, 0) == 0);
	check_free(to, SIZE, 0);
	check_file(to, 0, SIZE, 0, OLD);
}

/* ---- No locks ---- */

static void map_twice(void *unused)
{
	int fd = filled_file(SIZE, OLD);

	(void)unused;
	map_file(fd, SIZE, SEG, READ_WRITE, 0);
	check_free(fd, SIZE, 0);
}

static void be_refused(void *unused)
{
	void *addr;

	(void)unused;
	check_fails(try_map(filled_file(SIZE, OLD), SIZE, 0, READ_WRITE, &addr), EINVAL);
	check(says("UMMAP_LOCK is \"never\"") && says("yes or no"), "%s", umerrormsg());
}

Test(lock, left_out)
{
	set_env("UMMAP_LOCK", "no");
	check_exits(run_child(map_twice, NULL), 0);
	set_env("UMMAP_LOCK", "never");
	check_exits(run_child(be_refused, NULL), 0);
	set_env("UMMAP_LOCK", "yes");
	map_file(shared_fd = filled_file(SIZE, OLD), SIZE, SEG, READ_WRITE, 0);
	check_refused(shared_fd, SIZE, 0);
}

/* A file system without locks: the driver posix without its lock function. */
static struct ummap_driver lockless;

static int no_lock(void *h, uint64_t off, uint64_t len, int how, char why[160])
{
	(void)h, (void)off, (void)len, (void)how, (void)why;
	return -ENOLCK;
}

static int lockless_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	extern const struct ummap_driver ummap_driver_posix;
	int err = ummap_driver_posix.open(uri, oflags, h, geom);

	geom->id[0] = 0; /* the store cannot be identified either */
	return err;
}

static void map_without_locks(void *path)
{
	extern const struct ummap_driver ummap_driver_posix;
	uint8_t *m[3];
	char uri[400];

	lockless = ummap_driver_posix;
	lockless.scheme = "lockless";
	lockless.open = lockless_open;
	lockless.lock = no_lock;
	check(ummap_driver_register(&lockless) == 0);
	snprintf(uri, sizeof(uri), "lockless:%s", (const char *)path);
	for (unsigned i = 0; i < 3; i++) {
		check(ummap_open(uri, SEG, (off_t)(i * SEG), READ_WRITE, NULL, (void **)&m[i]) ==
		      0);
		fill(m[i], SEG, i * SEG, NEW);
	}
	for (unsigned i = 0; i < 3; i++)
		check(umunmap(m[i], 1) == 0);
}

static void log_to_file(void *path)
{
	char log[400];
	int fd;

	snprintf(log, sizeof(log), "%s.log", (const char *)path);
	fd = open(log, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	check(fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
	map_without_locks(path);
}

Test(lock, where_there_are_none)
{
	char path[320], log[400], text[4096];
	int fd = temp_named("store", SIZE, path);
	const char *warning;
	FILE *f;

	set_env("UMMAP_LOG", "warn");
	check_exits(run_child(log_to_file, path), 0);
	check_file(fd, 0, 3 * SEG, 0, NEW);
	snprintf(log, sizeof(log), "%s.log", path);
	f = fopen(log, "re");
	check(f);
	text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
	warning = strstr(text, "cannot lock a range");
	check(warning, "\"%s\"", text);
	check(!strstr(warning + 1, "cannot lock a range"), "the warning appears once: \"%s\"",
	      text);
	fclose(f);
}
