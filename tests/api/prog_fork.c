/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mappings and fork, exec and exit. The child has none of its parent's mappings, can make its own,
 * and ends cleanly. The parent's mappings work as before. No data are written that the program did
 * not sync, and no process hangs.
 */
#include <spawn.h>

#include "common.h"
#include "ummap-driver.h"

#define SEG (16 * KIB)
#define SIZE (64 * SEG)
#define BUDGET (SIZE / 4)
#define OLD 1
#define NEW 2
#define CHILDS 3
#define THREADS 4

extern char **environ;

static uint8_t *live;  /* the parent's mapping, whose first half is dirty */
static int live_fd;
static int fds_unused; /* number of descriptors of a process whose library has started */

static void make_live(void)
{
	live_fd = filled_file(SIZE, OLD);
	check(umunmap(map_file(live_fd, SIZE, SEG, READ_WRITE, 0), 0) == 0);
	fds_unused = count_fds();
	live = map_file(live_fd, SIZE, SEG, READ_WRITE, 0);
	fill(live, SIZE / 2, 0, NEW);
}

static void check_live(void)
{
	check_bytes(live, SIZE / 2, 0, NEW);
	check_bytes(live + SIZE / 2, SIZE / 2, SIZE / 2, OLD);
}

/* ---- fork ---- */

static void touch_parents(void *at)
{
	(void)*(volatile uint8_t *)at;
}

static void store_into_parents(void *at)
{
	*(volatile uint8_t *)at = 1;
}

static void use_own_mapping(void)
{
	int fd = temp_file(0);
	uint8_t *m = map_file(fd, SIZE, SEG, READ_WRITE, 77);

	fill(m, SIZE, 0, CHILDS);
	check_bytes(m, SIZE, 0, CHILDS);
	check(umsync(m, 1) == 0);
	check_bytes(m, SIZE, 0, CHILDS);
	check(umunmap(m, 1) == 0);
	check_file(fd, 77, SIZE, 0, CHILDS);
	close(fd);
}

static void be_a_child(void *arg)
{
	void *base = NULL;

	check(stat_of(NULL).mappings == 0);
	check_fails(umsync(live, 0), EINVAL);
	check_fails(umunmap(live, 1), EINVAL);
	check_fails(umpin(live, 1, PROT_READ), EINVAL);
	check_fails(umremap(live, 0, -1, -1, 0, &base), EINVAL);
	use_own_mapping();
	check(count_fds() == fds_unused, "%d, the parent without a mapping has %d", count_fds(),
	      fds_unused);
	if (arg)
		exit(0);
}

static void be_a_grandparent(void *unused)
{
	(void)unused;
	check_exits(run_child(be_a_child, NULL), 0);
	use_own_mapping();
}

static void leave_by_underscore_exit(void *unused)
{
	(void)unused;
}

static void leave_by_exit(void *unused)
{
	(void)unused;
	exit(0);
}

static void test_fork(void *unused)
{
	(void)unused;
	make_live();
	check_killed(run_child(touch_parents, live), SIGSEGV);
	check_killed(run_child(touch_parents, live + SIZE - 1), SIGSEGV);
	check_killed(run_child(store_into_parents, live), SIGSEGV);
	check_exits(run_child(be_a_child, NULL), 0);
	check_exits(run_child(be_a_child, live), 0);
	check_exits(run_child(be_a_grandparent, NULL), 0);
	check_exits(run_child(leave_by_underscore_exit, NULL), 0);
	check_exits(run_child(leave_by_exit, NULL), 0);
	check_live();
	check(umunmap(live, 1) == 0);
	check_file(live_fd, 0, SIZE / 2, 0, NEW);
	check_file(live_fd, SIZE / 2, SIZE / 2, SIZE / 2, OLD);
	close(live_fd);
}

/* ---- fork while another thread lengthens a store ---- */

static int resizes[2], goes_on[2]; /* pipes: resize has begun; resize may end */
static bool waits_in_resize;
static uint8_t stored[SIZE];

static int slow_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	(void)uri, (void)oflags;
	*h = stored;
	geom->size = SEG;
	geom->align = 1;
	geom->caps = UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE | UMMAP_CAP_WRITE | UMMAP_CAP_GROW;
	return 0;
}

static int slow_close(void *h)
{
	(void)h;
	return 0;
}

static int slow_read(void *h, void *buf, size_t len, uint64_t off)
{
	memcpy(buf, (uint8_t *)h + off, len);
	return 0;
}

static int slow_write(void *h, const void *buf, size_t len, uint64_t off)
{
	memcpy((uint8_t *)h + off, buf, len);
	return 0;
}

static int slow_resize(void *h, uint64_t size)
{
	char byte = 0;

	(void)h, (void)size;
	if (!waits_in_resize)
		return 0;
	check(write(resizes[1], &byte, 1) == 1);
	check(read(goes_on[0], &byte, 1) == 1);
	return 0;
}

static void map_slow(void *unused)
{
	static const struct ummap_driver slow = {
		.struct_size = sizeof(slow),
		.abi = UMMAP_DRIVER_ABI,
		.scheme = "slow",
		.help = "grows slowly",
		.open = slow_open,
		.close = slow_close,
		.read = slow_read,
		.write = slow_write,
		.resize = slow_resize,
	};
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *m;

	(void)unused;
	check(ummap_driver_register(&slow) == 0 || errno == EEXIST);
	attr.seg_size = SEG;
	attr.flags = UMMAP_CREATE;
	check(ummap_open("slow:x", SIZE, 0, READ_WRITE, &attr, &m) == 0, "%s", umerrormsg());
	check(umunmap(m, 0) == 0);
}

static void *map_slow_in_thread(void *unused)
{
	map_slow(unused);
	return NULL;
}

static void map_without_waiting(void *unused)
{
	waits_in_resize = false;
	map_slow(unused);
}

static void test_fork_while_a_store_grows(void *unused)
{
	pthread_t thread;
	char byte = 0;

	(void)unused;
	check(pipe(resizes) == 0 && pipe(goes_on) == 0);
	map_slow(NULL);
	waits_in_resize = true;
	check(pthread_create(&thread, NULL, map_slow_in_thread, NULL) == 0);
	check(read(resizes[0], &byte, 1) == 1);
	check_exits(run_child(map_without_waiting, NULL), 0);
	check(write(goes_on[1], &byte, 1) == 1);
	check(pthread_join(thread, NULL) == 0);
}

/* ---- fork while other threads fault ---- */

static atomic_bool stop;
static uint32_t versions[THREADS][SIZE / 8];  /* versions of each thread's words: every fourth */

static void *work(void *arg)
{
	size_t number = (uintptr_t)arg;
	uint64_t random = number + 1, *words = (uint64_t *)live;

	while (!atomic_load(&stop)) {
		size_t at = next_random(&random) % (SIZE / 8) / THREADS * THREADS + number;

		check(words[at] == mix(at + ((uint64_t)versions[number][at] << 32)), "word %zu",
		      at);
		versions[number][at]++;
		words[at] = mix(at + ((uint64_t)versions[number][at] << 32));
	}
	return NULL;
}

static void check_words(const uint64_t *words)
{
	for (size_t at = 0; at < SIZE / 8; at++)
		check(words[at] == mix(at + ((uint64_t)versions[at % THREADS][at] << 32)),
		      "word %zu", at);
}

static void own_mapping_and_exit(void *by_exit)
{
	use_own_mapping();
	if (by_exit)
		exit(0);
}

static void test_fork_among_threads(void *unused)
{
	pthread_t threads[THREADS];
	void *words;

	(void)unused;
	make_live();
	for (size_t at = 0; at < SIZE / 8; at++)
		((uint64_t *)live)[at] = mix(at);
	for (uintptr_t i = 0; i < THREADS; i++)
		check(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
	for (unsigned i = 0; i < by_time(10, 40); i++)
		check_exits(run_child(own_mapping_and_exit, i % 2 ? live : NULL), 0);
	check_killed(run_child(touch_parents, live), SIGSEGV);
	atomic_store(&stop, true);
	for (int i = 0; i < THREADS; i++)
		check(pthread_join(threads[i], NULL) == 0);
	check_words((uint64_t *)live);
	check(umunmap(live, 1) == 0);
	words = file_read(live_fd, 0, SIZE, __FILE__, __LINE__);
	check_words(words);
	free(words);
	close(live_fd);
}

/* ---- exec ---- */

static void become_another(void *unused)
{
	char inherited[16];
	int n = 0;

	(void)unused;
	for (int fd = 0; fd < 1024; fd++) {
		int flags = fcntl(fd, F_GETFD);

		n += flags >= 0 && !(flags & FD_CLOEXEC);
	}
	snprintf(inherited, sizeof(inherited), "%d", n);
	make_live();
	execl("/proc/self/exe", "prog_fork", "--after-exec", inherited, (char *)NULL);
	check(false, "execl");
}

/* The program that runs after exec has inherited no descriptor of the library. */
static int after_exec(int inherited)
{
	check(count_fds() == inherited, "%d descriptors, not %d", count_fds(), inherited);
	use_own_mapping();
	return 0;
}

static void spawn_true(void)
{
	char *const args[] = { "true", NULL };
	pid_t pid;

	check(posix_spawnp(&pid, "true", NULL, NULL, args, environ) == 0);
	check_exits(wait_child(pid), 0);
}

static void test_exec(void *unused)
{
	(void)unused;
	check_exits(run_child(become_another, NULL), 0);
	make_live();
	for (int i = 0; i < 5; i++) {
		spawn_true();
		check_exits(system("true"), 0);
		check_live();
	}
	check(umunmap(live, 0) == 0);
	close(live_fd);
}

/* ---- exit with live mappings ---- */

enum way { BY_EXIT, BY_EXIT_OF_A_THREAD, BY_UNDERSCORE_EXIT, BY_SIGNAL, AMONG_THREADS, WAYS };

struct ending {
	enum way way;
	int fd;  /* of the file that must stay as it is */
};

static void *exit_here(void *unused)
{
	(void)unused;
	exit(0);
}

static void *load_for_ever(void *unused)
{
	volatile const uint8_t *bytes = live;

	(void)unused;
	for (size_t at = 0;; at = (at + 7 * KIB) % SIZE)
		(void)bytes[at];
	return NULL;
}

static void end_with_live_mapping(void *arg)
{
	struct ending *e = arg;
	pthread_t thread;

	set_budget(2 * SIZE);  /* large enough that no eviction writes */
	live = map_file(e->fd, SIZE, SEG, READ_WRITE, 0);
	fill(live, SIZE, 0, NEW);
	switch (e->way) {
	case BY_EXIT_OF_A_THREAD:
		check(pthread_create(&thread, NULL, exit_here, NULL) == 0);
		pthread_join(thread, NULL);
		break;
	case BY_SIGNAL:
		raise(SIGTERM);
		break;
	case BY_UNDERSCORE_EXIT:
		_exit(0);
	case AMONG_THREADS:
		for (int i = 0; i < THREADS; i++)
			check(pthread_create(&thread, NULL, load_for_ever, NULL) == 0);
		check(umsync_range(live, 1, UMMAP_ASYNC) == 0);
		exit(0);
	default:
		exit(0);
	}
}

static void test_exit(void *unused)
{
	(void)unused;
	for (int way = BY_EXIT; way < WAYS; way++) {
		struct ending e = { way, temp_file(0) };
		double start = now();
		int status;

		file_fill(e.fd, 0, SIZE, 0, OLD);
		status = run_child(end_with_live_mapping, &e);
		if (way == BY_SIGNAL)
			check_killed(status, SIGTERM);
		else
			check_exits(status, 0);
		check(now() - start < 60, "way %d took %.1f s", way, now() - start);
		/* With AMONG_THREADS, the first segment may have been written: an async sync. */
		check_file(e.fd, way == AMONG_THREADS ? SEG : 0,
			   SIZE - (way == AMONG_THREADS ? SEG : 0), way == AMONG_THREADS ? SEG : 0,
			   OLD);
		close(e.fd);
	}
}

/* Runs each test in its own process, so that no test inherits resources of another. */
static void in_child(void (*test)(void *), const char *name)
{
	double start = now();

	check_exits(run_child(test, NULL), 0);
	printf("%s: %.1f s\n", name, now() - start);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "--after-exec") == 0)
		return after_exec(atoi(argv[2]));
	set_budget(BUDGET);
	in_child(test_fork, "fork");
	in_child(test_fork_while_a_store_grows, "fork while a store grows");
	if (!SANITIZED)  /* a child may wait forever for a lock of the sanitizer's allocator */
		in_child(test_fork_among_threads, "fork among threads");
	in_child(test_exec, "exec");
	in_child(test_exit, "exit");
	return 0;
}
