/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_nodecopy - one copy of a store for several processes (UMMAP_NODE). All processes see the
 * bytes of the file, read it once together, and stay in one budget; those that are killed at any
 * moment leave nothing locked, lost or half filled.
 *
 *	prog_nodecopy [ROUNDS [SEED]]
 */
#include "small_fs.h"

#include <glob.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#define SEG (16 * KIB)
#define SIZE (256 * SEG + 100)
#define BUDGET (64 * SEG)
#define PROCESSES 4
#define STEP (8 * SEG)
#define MAX_KILLED 6
#define TABLE_BYTES (16 * KIB) /* the table of the copy */
#define SEED 7

static char path[360]; /* the URI of the file */

static uint8_t *map_path(const char *uri, size_t size, size_t budget)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.seg_size = SEG;
	attr.flags = UMMAP_NODE;
	attr.budget = budget;
	check(ummap_open(uri, size, 0, PROT_READ, &attr, &addr) == 0, "%s", uri);
	return addr;
}

/* Without a copy. */
static uint8_t *map_own(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.seg_size = SEG;
	check(ummap_open(path, SIZE, 0, PROT_READ, &attr, &addr) == 0);
	return addr;
}

/* The number of files of node copies in /dev/shm that this test's process or its children have. */
static size_t count_files(void)
{
	char pattern[128];
	glob_t found;
	size_t n;

	snprintf(pattern, sizeof(pattern), "/dev/shm/ummapcopy-%u-*-%s", (unsigned)geteuid(),
		 getenv("UMMAP_GROUP"));
	n = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
	globfree(&found);
	return n;
}

static void kill_child(pid_t child)
{
	check(kill(child, SIGKILL) == 0);
	check_killed(wait_child(child), SIGKILL);
}

/* ---- Reading ---- */

/* Counters of all processes, in memory that they share. */
struct report {
	_Atomic uint64_t read_bytes, done;
};

static struct report *report;

static void await(uint64_t done)
{
	while (report->done < done)
		usleep(100);
}

/* All processes read eight segments before any of them reads the next ones. */
static void read_in_step(void *arg)
{
	uint8_t *addr = map_path(path, SIZE, BUDGET);

	(void)arg;
	report->done++;
	await(PROCESSES);
	for (size_t i = 0; i * STEP < SIZE; i++) {
		size_t len = SIZE - i * STEP < STEP ? SIZE - i * STEP : STEP;

		check_bytes(addr + i * STEP, len, i * STEP, SEED);
		report->done++;
		await((i + 2) * PROCESSES);
	}
	check(stat_of(addr).resident_bytes <= BUDGET);
	check(stat_of(addr).budget_bytes == BUDGET);
	report->read_bytes += stat_of(addr).read_bytes;
	check(umunmap(addr, 0) == 0);
}

/* Processes that read in order side by side read the file once together. */
static void test_in_order(void)
{
	pid_t children[PROCESSES];

	memset(report, 0, sizeof(*report));
	for (int i = 0; i < PROCESSES; i++)
		children[i] = start_child(read_in_step, NULL);
	for (int i = 0; i < PROCESSES; i++)
		check_exits(wait_child(children[i]), 0);
	check(report->read_bytes == SIZE, "%" PRIu64 " bytes", (uint64_t)report->read_bytes);
}

/* Bytes that fit into the budget are read by the first process only. */
static void read_small(void *arg)
{
	uint8_t *addr = map_path(path, BUDGET, BUDGET);

	(void)arg;
	check_bytes(addr, BUDGET, 0, SEED);
	report->read_bytes += stat_of(addr).read_bytes;
	check(umunmap(addr, 0) == 0);
}

static void test_small(void)
{
	uint8_t *addr = map_path(path, BUDGET, BUDGET);

	memset(report, 0, sizeof(*report));
	check_bytes(addr, BUDGET, 0, SEED);
	check(stat_of(addr).read_bytes == BUDGET);
	check(stat_of(addr).resident_bytes == BUDGET);
	for (int i = 0; i < 3; i++)
		check_exits(run_child(read_small, NULL), 0);
	check(report->read_bytes == 0);
	check(umunmap(addr, 0) == 0);
	check(count_files() == 0);
}

/* ---- A store that changes ---- */

/* Maps a file before and after a change: the new mapping has the new contents. */
static void map_changing(const char *uri, int fd, uint8_t **old, uint8_t **new)
{
	file_fill(fd, 0, 4 * SEG, 0, 1);
	*old = map_path(uri, 4 * SEG, BUDGET);
	check_bytes(*old, 4 * SEG, 0, 1);
	file_fill(fd, 0, 4 * SEG, 0, 2);
	*new = map_path(uri, 4 * SEG, BUDGET);
	check_bytes(*new, 4 * SEG, 0, 2);
}

static void test_change(void)
{
	char file[320], uri[400];
	int fd = temp_named("changing", 0, file);
	uint8_t *old, *new;

	snprintf(uri, sizeof(uri), "posix:%s", file);
	map_changing(uri, fd, &old, &new);
	check_bytes(old, 4 * SEG, 0, 1);
	check(count_files() == 2);
	check(umunmap(old, 0) == 0);
	check(umunmap(new, 0) == 0);
	check(count_files() == 0);
	close(fd);
}

/* Writes that follow one another have the same time stamp if stamps are whole seconds. */
static void test_coarse_stamps(void)
{
	char image[320], uri[64];
	int file = temp_named("coarse", 8 * MIB, image);
	int root = file_system_in(image, file, "-I 128 -O ^has_journal"), fd;
	uint8_t *old, *new;

	if (root < 0) {
		printf("prog_nodecopy: no file system with stamps of whole seconds\n");
		return;
	}
	fd = create(root, "data");
	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", fd);
	map_changing(uri, fd, &old, &new);
	check(umunmap(old, 0) == 0 && umunmap(new, 0) == 0);
	close(fd);
	close(root);
}

/* Pages whose first access by the kernel waits for this program. */
struct slow_pages {
	int uffd;
	uint8_t *at;
};

#define SLOW_BYTES (4 * SEG)

static bool make_slow_pages(struct slow_pages *p)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	p->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (p->uffd < 0)
		return false;
	p->at = mmap(NULL, SLOW_BYTES, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(p->at != MAP_FAILED);
	reg.range.start = (uintptr_t)p->at;
	reg.range.len = SLOW_BYTES;
	check(ioctl(p->uffd, UFFDIO_API, &api) == 0);
	check(ioctl(p->uffd, UFFDIO_REGISTER, &reg) == 0);
	return true;
}

static void await_access(const struct slow_pages *p)
{
	struct uffd_msg event;

	check(read(p->uffd, &event, sizeof(event)) == sizeof(event));
}

static void fill_slow_pages(const struct slow_pages *p)
{
	static uint8_t bytes[SLOW_BYTES] __attribute__((aligned(4096)));
	struct uffdio_copy copy = { .dst = (uintptr_t)p->at, .src = (uintptr_t)bytes,
				    .len = sizeof(bytes) };

	fill(bytes, sizeof(bytes), 0, 2);
	check(ioctl(p->uffd, UFFDIO_COPY, &copy) == 0);
}

static void drop_slow_pages(const struct slow_pages *p)
{
	check(munmap(p->at, SLOW_BYTES) == 0);
	close(p->uffd);
}

/* A write that takes long, because its pages come from this program. */
struct slow_write {
	int fd;
	struct slow_pages pages;
};

static void *write_pages(void *arg)
{
	struct slow_write *w = arg;

	check(pwrite(w->fd, w->pages.at, SLOW_BYTES, 0) == SLOW_BYTES);
	return NULL;
}

static void *give_pages(void *arg)
{
	const struct slow_write *w = arg;

	usleep(200000);
	fill_slow_pages(&w->pages);
	return NULL;
}

/* The time stamp of a file changes when a write begins. A process that opens the file before the
 * write has ended must not keep old bytes for those that open it afterwards. */
static void test_write_in_progress(void)
{
	char file[320], uri[400];
	struct slow_write w = { .fd = temp_named("written", 0, file) };
	pthread_t writer, giver;
	uint8_t *during, *after;

	snprintf(uri, sizeof(uri), "posix:%s", file);
	file_fill(w.fd, 0, SLOW_BYTES, 0, 1);
	if (!make_slow_pages(&w.pages)) {
		printf("prog_nodecopy: no right to userfaultfd, so no write in progress\n");
		return;
	}
	check(pthread_create(&writer, NULL, write_pages, &w) == 0);
	await_access(&w.pages);
	check(pthread_create(&giver, NULL, give_pages, &w) == 0);
	during = map_path(uri, SLOW_BYTES, BUDGET);
	for (size_t s = 0; s < 4; s++)
		(void)*(volatile uint8_t *)(during + s * SEG);
	check(pthread_join(giver, NULL) == 0 && pthread_join(writer, NULL) == 0);
	after = map_path(uri, SLOW_BYTES, BUDGET);
	check_bytes(after, SLOW_BYTES, 0, 2);
	check(umunmap(during, 0) == 0);
	check(umunmap(after, 0) == 0);
	drop_slow_pages(&w.pages);
	close(w.fd);
}

/* ---- Refusals ---- */

static int try_size(size_t size)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.seg_size = SEG;
	attr.flags = UMMAP_NODE;
	return ummap_open(path, size, 0, PROT_READ, &attr, &addr);
}

static int try_open(const char *uri, int prot, unsigned flags, int engine)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.seg_size = SEG;
	attr.flags = UMMAP_NODE | flags;
	attr.engine = engine;
	return ummap_open(uri, SIZE, 0, prot, &attr, &addr);
}

static void test_refusals(void)
{
	char uri[400];
	void *moved = NULL;
	uint8_t *addr;

	check_fails(try_open(path, READ_WRITE, 0, 0), EINVAL);
	check_fails(try_open(path, PROT_READ, UMMAP_KERNEL, 0), EINVAL);
	check_fails(try_open(path, PROT_READ, UMMAP_SHARED, 0), EINVAL);
	check_fails(try_open(path, PROT_READ, 0, UMMAP_ENGINE_SEGV), EINVAL);
	check_fails(try_open("mem:8M", PROT_READ, 0, 0), EOPNOTSUPP);
	snprintf(uri, sizeof(uri), "error+%s", path);
	check_fails(try_open(uri, PROT_READ, 0, 0), EOPNOTSUPP);
	addr = map_path(path, SIZE, BUDGET);
	check_fails(umremap_open(addr, path, SEG, 0, UMMAP_SWITCH, &moved), EOPNOTSUPP);
	check(umsync(addr, 0) == 0);
	check_fails(umadvise(addr, SEG, UMMAP_ADV_DISCARD), EINVAL);
	check(umadvise(addr, SIZE, UMMAP_ADV_RANDOM) == 0);
	check(umprefetch(&(struct iovec){ addr, SIZE }, 1) == 0);
	check_bytes(addr, SIZE, 0, SEED);
	check(umunmap(addr, 0) == 0);
	check(count_files() == 0);
}

/* ---- Prefetching and pins ---- */

static void read_prefetched(void *arg)
{
	uint8_t *addr = map_path(path, SIZE, BUDGET);

	(void)arg;
	check_bytes(addr + 8 * SEG, 16 * SEG, 8 * SEG, SEED);
	check_bytes(addr + 64 * SEG, 2 * SEG, 64 * SEG, SEED);
	check(stat_of(addr).read_faults == 0);
	check(umunmap(addr, 0) == 0);
}

/* One process prefetches, and another one finds the segments in memory. */
static void test_prefetch(void)
{
	uint8_t *addr = map_path(path, SIZE, BUDGET);
	struct iovec ranges[2] = { { addr + 66 * SEG - 1, 1 }, { addr + 64 * SEG, 1 } };

	check(umadvise(addr + 8 * SEG, 16 * SEG, UMMAP_ADV_WILLNEED) == 0);
	check(umprefetch(ranges, 2) == 0);
	while (stat_of(addr).read_bytes < 18 * SEG)
		pause_ms(1);
	check_exits(run_child(read_prefetched, NULL), 0);
	check(umprefetch(&(struct iovec){ addr, SIZE }, 1) == 0);
	check_bytes(addr, SIZE, 0, SEED);
	check(stat_of(addr).resident_bytes <= BUDGET);
	check(umunmap(addr, 0) == 0);
}

static void prefetch_all(void *arg)
{
	bool is_reader = *(bool *)arg;
	uint8_t *addr;

	set_env("UMMAP_MEM_LIMIT", "16M");
	set_env("UMMAP_MEMCONFIG", "dynamic");
	addr = map_path(path, SIZE, 0);
	report->done++;
	await(2);
	while (is_reader && stat_of(addr).resident_bytes < SIZE) {
		check(umprefetch(&(struct iovec){ addr, SIZE }, 1) == 0);
		pause_ms(10);
	}
	report->done++;
	await(4);
	check_bytes(addr, SIZE, 0, SEED);
	check(is_reader || stat_of(addr).read_bytes == 0);
	report->done++;
	await(6);
	check(umunmap(addr, 0) == 0);
}

/* Processes that use little memory have small budgets, which grow for a list of segments. */
static void test_prefetch_growth(void)
{
	bool is_reader = true;
	pid_t other, reader;

	memset(report, 0, sizeof(*report));
	reader = start_child(prefetch_all, &is_reader);
	is_reader = false;
	other = start_child(prefetch_all, &is_reader);
	check_exits(wait_child(reader), 0);
	check_exits(wait_child(other), 0);
}

/* The kernel reads pinned segments. */
static void write_from(const uint8_t *at, size_t len)
{
	uint8_t *copy = malloc(len);
	int ends[2];

	check(copy && pipe(ends) == 0);
	check(write(ends[1], at, len) == (ssize_t)len);
	check(read(ends[0], copy, len) == (ssize_t)len);
	check(memcmp(copy, at, len) == 0);
	close(ends[0]);
	close(ends[1]);
	free(copy);
}

/* Ends without unpinning: the next process can pin as much. */
static void pin_and_die(void *arg)
{
	uint8_t *addr = map_path(path, SIZE, BUDGET);

	(void)arg;
	check(umpin(addr + BUDGET, BUDGET / 2, PROT_READ) == 0);
	check_fails(umpin(addr, SEG, PROT_READ), ENOMEM);
	write_from(addr + BUDGET, SEG);
	raise(SIGKILL);
}

static void test_pins(void)
{
	uint8_t *addr = map_path(path, SIZE, BUDGET);

	for (int i = 0; i < 3; i++)
		check_killed(run_child(pin_and_die, NULL), SIGKILL);
	check(umpin(addr + SEG / 2, 4 * SEG, PROT_READ) == 0);
	check(umpin(addr, SEG, PROT_READ) == 0);
	check(stat_of(addr).pinned_bytes == 5 * SEG);
	for (int i = 0; i < 3; i++)
		check_bytes(addr + 8 * SEG, SIZE - 8 * SEG, 8 * SEG, SEED);
	for (int i = 0; i < 5; i++)
		write_from(addr + i * SEG, SEG);
	check(umunpin(addr + SEG / 2, 4 * SEG) == 0);
	check(umunpin(addr, SEG) == 0);
	check(stat_of(addr).pinned_bytes == 0);
	check_fails(umunpin(addr, SEG), EINVAL);
	check(umpin(addr + BUDGET, BUDGET / 2, PROT_READ) == 0);
	check(umunpin(addr + BUDGET, BUDGET / 2) == 0);
	check(umunmap(addr, 0) == 0);
}

/* ---- A process that is killed while another one reads its memory ---- */

struct slow_read {
	int memory;
	struct slow_pages pages;
};

static void *read_memory(void *arg)
{
	const struct slow_read *r = arg;

	check(pread(r->memory, r->pages.at, 1, (off_t)(uintptr_t)path) == 1);
	return NULL;
}

static void pin_and_wait(void *arg)
{
	uint8_t *addr = map_path(path, SIZE, BUDGET);

	(void)arg;
	check(umpin(addr + BUDGET, BUDGET / 2, PROT_READ) == 0);
	report->done++;
	for (;;)
		pause();
}

/* The kernel frees the memory of the killed process, and the locks of mapped files, only when the
 * read ends. Its pins and its place have no effect even before. */
static void test_memory_in_use(void)
{
	char file[32];
	struct slow_read r;
	pthread_t reader;
	uint8_t *addr;
	pid_t child;

	if (!make_slow_pages(&r.pages)) {
		printf("prog_nodecopy: no right to userfaultfd, so no read of memory\n");
		return;
	}
	memset(report, 0, sizeof(*report));
	child = start_child(pin_and_wait, NULL);
	await(1);
	snprintf(file, sizeof(file), "/proc/%d/mem", (int)child);
	r.memory = open(file, O_RDONLY | O_CLOEXEC);
	check(r.memory >= 0);
	addr = map_path(path, SIZE, BUDGET);
	check(pthread_create(&reader, NULL, read_memory, &r) == 0);
	await_access(&r.pages);
	kill_child(child);
	check(umpin(addr + BUDGET, BUDGET / 2, PROT_READ) == 0);
	check(umunpin(addr + BUDGET, BUDGET / 2) == 0);
	check(umunmap(addr, 0) == 0);
	check(count_files() == 0);
	fill_slow_pages(&r.pages);
	check(pthread_join(reader, NULL) == 0);
	drop_slow_pages(&r.pages);
	close(r.memory);
}

/* ---- The limit of the memory group ---- */

#define LIMIT (32 * SEG)
#define LIMITED 3

static size_t held_bytes(void)
{
	struct umstat st = { .struct_size = sizeof(st) };

	check(umstat(NULL, &st) == 0);
	return st.held_bytes;
}

/* Waits until the parts of all processes together are the copy, which fills the limit. */
static void read_in_limit(void *arg)
{
	uint8_t *addr, *own;

	(void)arg;
	set_env("UMMAP_MEM_LIMIT", "512K");
	addr = map_path(path, SIZE, 0);
	report->done++;
	await(LIMITED);
	for (;;) {
		size_t resident;

		check_bytes(addr, SIZE, 0, SEED);
		resident = stat_of(addr).resident_bytes;
		if (stat_of(addr).budget_bytes <= LIMIT && resident <= LIMIT &&
		    held_bytes() >= resident / LIMITED / 2 &&
		    held_bytes() <= resident / LIMITED + TABLE_BYTES)
			break;
		pause_ms(1);
	}
	report->done++;
	await(2 * LIMITED);
	/* Another mapping gets memory beside the copy. */
	own = map_own();
	for (int i = 0; i < 3; i++)
		check_bytes(own, SIZE, 0, SEED);
	check(umunmap(own, 0) == 0);
	report->done++;
	await(3 * LIMITED);
	check(umunmap(addr, 0) == 0);
}

/* The bytes of a copy count once in the limit of the memory group. */
static void test_limit(void)
{
	pid_t children[LIMITED];

	memset(report, 0, sizeof(*report));
	for (int i = 0; i < LIMITED; i++)
		children[i] = start_child(read_in_limit, NULL);
	for (int i = 0; i < LIMITED; i++)
		check_exits(wait_child(children[i]), 0);
}

/* ---- UMMAP_NODE_CACHE ---- */

static bool shares_memory(const char *uri, int prot)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	size_t files;
	void *addr;

	attr.seg_size = SEG;
	check(ummap_open(uri, SEG, 0, prot, &attr, &addr) == 0, "%s", uri);
	files = count_files();
	check(umunmap(addr, 0) == 0);
	return files > 0;
}

static void use_setting(void *arg)
{
	char uri[400];

	(void)arg;
	set_env("UMMAP_NODE_CACHE", "1");
	snprintf(uri, sizeof(uri), "error+%s", path);
	check(shares_memory(path, PROT_READ));
	check(!shares_memory(path, READ_WRITE));
	check(!shares_memory(uri, PROT_READ));
	check(!shares_memory("mem:1M", PROT_READ));
}

/* The setting applies where it can, and is no error elsewhere. */
static void test_setting(void)
{
	check_exits(run_child(use_setting, NULL), 0);
}

/* ---- Fork ---- */

static void use_in_child(void *arg)
{
	(void)arg;
	check(*(volatile uint8_t *)arg == 0);
}

/* A forked child has no mapping, and keeps no lock: what the parent leaves is removed. */
static void test_fork(void)
{
	uint8_t *addr = map_path(path, SIZE, BUDGET), *again;
	pid_t child;

	check(WIFSIGNALED(run_child(use_in_child, addr)));
	child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	check(umunmap(addr, 0) == 0);
	check(count_files() == 0);
	again = map_path(path, SIZE, BUDGET);
	check_bytes(again, SIZE, 0, SEED);
	check(umunmap(again, 0) == 0);
	kill_child(child);
}

/* ---- Exec ---- */

static void map_and_execute(void *arg)
{
	(void)arg;
	map_path(path, SIZE, BUDGET);
	report->done++;
	execl("/bin/sleep", "sleep", "1000", NULL);
}

/* A program that replaces this one keeps nothing of the copy. */
static void test_exec(void)
{
	pid_t child;

	memset(report, 0, sizeof(*report));
	child = start_child(map_and_execute, NULL);
	await(1);
	while (count_files() != 0) {
		uint8_t *addr = map_path(path, BUDGET, BUDGET);

		check(umunmap(addr, 0) == 0);
	}
	kill_child(child);
}

/* ---- Borders: users, namespaces, a full /dev/shm ---- */

/* Reads the file into a copy of its own. */
static void read_alone(void)
{
	uint8_t *addr = map_path(path, BUDGET, BUDGET);

	check_bytes(addr, BUDGET, 0, SEED);
	check(stat_of(addr).read_bytes == BUDGET);
	check(umunmap(addr, 0) == 0);
}

/* Reads the file from the copy, and stays unless it is the second one. */
static void read_shared(void *arg)
{
	uint8_t *addr = map_path(path, BUDGET, BUDGET);

	(void)arg;
	check_bytes(addr, BUDGET, 0, SEED);
	check(stat_of(addr).read_bytes == 0);
	for (report->done++; report->done == 1; )
		pause_ms(1);
	check(umunmap(addr, 0) == 0);
}

static void read_as_nobody(void *arg)
{
	(void)arg;
	check(setgid(65534) == 0 && setuid(65534) == 0);
	read_alone();
}

/* Another container's copy cannot be joined, but those of this one can. */
static void read_in_container(void *arg)
{
	pid_t child;

	(void)arg;
	check(unshare(CLONE_NEWPID) == 0);
	child = fork();
	check(child >= 0);
	if (child == 0) {
		uint8_t *addr;

		check_fails(try_size(BUDGET), EXDEV);
		check(strstr(umerrormsg(), "namespace"), "%s", umerrormsg());
		addr = map_path(path, 2 * BUDGET, BUDGET);
		check_bytes(addr, 2 * BUDGET, 0, SEED);
		check(umunmap(addr, 0) == 0);
		_exit(0);
	}
	check_exits(wait_child(child), 0);
}

/* A process whose memory may not be opened does not keep others from the copy. */
static void join_as_nobody(void *arg)
{
	uint8_t *first;
	pid_t child;

	(void)arg;
	check(setgid(65534) == 0 && setuid(65534) == 0);
	check(prctl(PR_SET_DUMPABLE, 1) == 0);
	memset(report, 0, sizeof(*report));
	first = map_path(path, BUDGET, BUDGET);
	check_bytes(first, BUDGET, 0, SEED);
	child = start_child(read_shared, NULL);
	await(1);
	check(prctl(PR_SET_DUMPABLE, 0) == 0);
	check_exits(run_child(read_shared, NULL), 0);
	check_exits(wait_child(child), 0);
	check(umunmap(first, 0) == 0);
}

/* The flag fails, and the setting is no error. */
static void read_without_shm(void *arg)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	(void)arg;
	check(unshare(CLONE_NEWNS) == 0);
	check(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	check(mount("none", "/dev/shm", "tmpfs", 0, "size=8k") == 0);
	set_env("UMMAP_NODE_CACHE", "1");
	check_fails(try_open(path, PROT_READ, 0, 0), ENOSPC);
	check(strstr(umerrormsg(), "/dev/shm"), "%s", umerrormsg());
	attr.seg_size = SEG;
	check(ummap_open(path, SIZE, 0, PROT_READ, &attr, &addr) == 0);
	check_bytes(addr, SIZE, 0, SEED);
	check(umunmap(addr, 0) == 0);
}

/* Before this process uses the library. */
static void test_full_shm(void)
{
	if (geteuid() == 0)
		check_exits(run_child(read_without_shm, NULL), 0);
}

static void test_borders(void)
{
	uint8_t *addr;

	if (geteuid() != 0)
		return;
	addr = map_path(path, BUDGET, BUDGET);
	check_bytes(addr, BUDGET, 0, SEED);
	check_exits(run_child(read_as_nobody, NULL), 0);
	check_exits(run_child(join_as_nobody, NULL), 0);
	check_exits(run_child(read_in_container, NULL), 0);
	check(umunmap(addr, 0) == 0);
}

/* The file of holders has its permissions whatever the umask is, and exceeds no limit. */
static void read_with_umask(void *arg)
{
	(void)arg;
	umask(0777);
	read_alone();
	check(count_files() == 0);
	umask(022);
	read_alone();
}

static void read_with_small_files(void *arg)
{
	struct rlimit limit = { 8 * KIB, 8 * KIB };

	(void)arg;
	check(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	check_fails(try_size(BUDGET), EFBIG);
	check(strstr(umerrormsg(), "RLIMIT_FSIZE"), "%s", umerrormsg());
}

static void test_file_rights(void)
{
	check_exits(run_child(read_with_umask, NULL), 0);
	check_exits(run_child(read_with_small_files, NULL), 0);
}

/* ---- More readers than memory ---- */

#define CROWD 6
#define CROWD_READS 12000
/* The least budget of a copy. */
#define CROWD_BUDGET (16 * SEG)

/* Bytes of the memory of the copy, which this process has open. */
static size_t copy_bytes(void)
{
	char link[64], target[64];
	struct stat st;

	for (int fd = 0; fd < 2048; fd++) {
		ssize_t len;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		len = readlink(link, target, sizeof(target) - 1);
		target[len < 0 ? 0 : len] = 0;
		if (strstr(target, "ummap-copy") && fstat(fd, &st) == 0)
			return (size_t)st.st_blocks * 512;
	}
	check(false, "the memory of the copy is not open");
	return 0;
}

static void read_in_crowd(void *arg)
{
	uint64_t random = *(uint64_t *)arg;
	uint8_t *addr = map_path(path, SIZE, CROWD_BUDGET);

	for (int i = 0; i < CROWD_READS; i++) {
		size_t at = next_random(&random) % (SIZE - 8) & ~(size_t)7;

		check_bytes(addr + at, 8, at, SEED);
	}
	check(umunmap(addr, 0) == 0);
}

static void test_crowd(uint64_t random)
{
	uint8_t *addr = map_path(path, SIZE, CROWD_BUDGET);
	pid_t children[CROWD];

	for (int i = 0; i < CROWD; i++) {
		uint64_t seed = next_random(&random);

		children[i] = start_child(read_in_crowd, &seed);
	}
	for (int i = 0; i < CROWD; i++)
		check_exits(wait_child(children[i]), 0);
	check(copy_bytes() <= CROWD_BUDGET + TABLE_BYTES, "%zu bytes", copy_bytes());
	check(umunmap(addr, 0) == 0);
}

/* ---- Kills ---- */

static void read_at_random(void *arg)
{
	uint64_t random = *(uint64_t *)arg;
	uint8_t *addr = map_path(path, SIZE, BUDGET);

	for (;;) {
		size_t at = next_random(&random) % SIZE & ~(size_t)7;
		size_t len = next_random(&random) % (2 * SEG);

		len = len < SIZE - at ? len : SIZE - at;
		/* The pins of all processes are less than half of the budget. */
		if (len && next_random(&random) % 8 == 0) {
			check(umpin(addr + at, len, PROT_READ) == 0);
			write_from(addr + at, len);
			check(umunpin(addr + at, len) == 0);
		}
		check_bytes(addr + at, len, at, SEED);
		report->done++;
	}
}

static void kill_at_random(unsigned rounds, uint64_t random)
{
	pid_t children[MAX_KILLED] = { 0 };
	uint64_t seed = random;
	uint8_t *addr;

	for (unsigned i = 0; i < rounds; i++) {
		/* From 2 to 6 processes, one more after each part of the rounds. */
		unsigned k = i % (2 + i * (MAX_KILLED - 1) / rounds);

		if (children[k])
			kill_child(children[k]);
		seed = next_random(&random);
		children[k] = start_child(read_at_random, &seed);
		/* Some are killed while they join. */
		pause_ms(next_random(&random) % 20);
	}
	memset(report, 0, sizeof(*report));
	while (report->done < 100)
		pause_ms(1);
	addr = map_path(path, SIZE, BUDGET);
	check_bytes(addr, SIZE, 0, SEED);
	check(stat_of(addr).resident_bytes <= BUDGET);
	for (unsigned k = 0; k < MAX_KILLED; k++) {
		if (children[k])
			kill_child(children[k]);
	}
	check_bytes(addr, SIZE, 0, SEED);
	check(umunmap(addr, 0) == 0);
	check(count_files() == 0);
}

/* A process without rights may not open the memory of a process that ends. */
static void kill_as_nobody(void *seed)
{
	check(setgid(65534) == 0 && setuid(65534) == 0);
	check(prctl(PR_SET_DUMPABLE, 1) == 0);
	kill_at_random(100, *(uint64_t *)seed);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : by_time(60, 500);
	char file[320];
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
	int fd = temp_named("store", 0, file);

	snprintf(path, sizeof(path), "posix:%s", file);
	set_group();
	/* Only one engine shares pages, and a mapping with this flag chooses it. */
	unsetenv("UMMAP_ENGINE");
	printf("seed %" PRIu64 "\n", seed);
	fflush(stdout);
	file_fill(fd, 0, SIZE, 0, SEED);
	/* Another user reads it, too. */
	check(fchmod(fd, 0644) == 0 && chmod(temp_dir(), 0711) == 0);
	close(fd);
	report = mmap(NULL, sizeof(*report), READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(report != MAP_FAILED);
	/* These set variables, which the library reads once. */
	test_setting();
	test_limit();
	test_prefetch_growth();
	test_full_shm();
	test_small();
	test_in_order();
	test_change();
	test_coarse_stamps();
	test_write_in_progress();
	test_refusals();
	test_fork();
	test_exec();
	test_borders();
	test_file_rights();
	test_prefetch();
	test_pins();
	test_memory_in_use();
	test_crowd(seed);
	kill_at_random(rounds, seed);
	if (geteuid() == 0)
		check_exits(run_child(kill_as_nobody, &seed), 0);
	printf("prog_nodecopy: %u processes killed\n", rounds);
	return 0;
}
