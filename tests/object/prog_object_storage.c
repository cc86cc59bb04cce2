/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_object_storage - errors of storage and of the system: failed flushes, no room at any step of
 * a put, limits of file sizes and descriptors, and a child that is forked during a commit. The
 * program replaces the calls of the C library that flush files.
 */
#include "object.h"
#include "../small_fs.h"

#include <dirent.h>
#include <grp.h>
#include <liburing.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ummap.h>

static const struct umobject_shape shape = { .type = UMOBJECT_UINT8, .rank = 1,
	.dims = { 64 * KIB }, .chunk = { 16 * KIB } };
static uint8_t data[64 * KIB], got[64 * KIB];

/* ---- The library's flushes ---- */

static int fail_flushes;
static bool make_children;
static pid_t children[64];
static unsigned nchildren;

/* Without io_uring, all files are flushed by fsync. */
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

/* The file of this name cannot be opened. */
static const char *no_descriptor_for;
/* Called once before the first file is opened after a commit. A commit ends when its lock is
 * released. Any thread of the library may be the first to open a file, readahead included. The
 * other threads wait in openat() until the call has returned. */
static void (*behind_commit)(void);
static atomic_bool committed;

/* Order of events in lets_the_collector_meet_a_commit(): the collector's thread sets `collects`,
 * the thread of the commit sets `keeps_old`. */
static _Thread_local bool collects, keeps_old;
static atomic_bool refused_lock;
static sem_t version_refused, link_made, collected;

static pthread_mutex_t opening = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

__attribute__((visibility("default")))
int flock(int fd, int what)
{
	int result = (int)syscall(SYS_flock, fd, what);

	committed = behind_commit && what == LOCK_UN;
	if (collects && result < 0 && what == (LOCK_EX | LOCK_NB) &&
	    !atomic_exchange(&refused_lock, true)) {
		sem_post(&version_refused);
		sem_wait(&link_made);
	}
	return result;
}

/* A commit links the old version under a temporary name, then renames the link. */
__attribute__((visibility("default")))
int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
	if (keeps_old && *from == '.' && strncmp(to, "a.", 2) == 0) {
		keeps_old = false;
		sem_post(&link_made);
		sem_wait(&collected);
	}
	return (int)syscall(SYS_renameat, from_folder, from, to_folder, to);
}

static void go_behind_commit(void)
{
	void (*call)(void) = behind_commit;

	behind_commit = NULL;
	committed = false;
	call();
}

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
	if (collects && refused_lock)
		sem_post(&collected);
	pthread_mutex_lock(&opening);
	if (committed && !(flags & O_CREAT))
		go_behind_commit();
	pthread_mutex_unlock(&opening);
	return (int)syscall(SYS_openat, folder, path, flags, mode);
}

static void text_of_id(const struct umobject_id *id, char *text)
{
	for (unsigned i = 0; i < sizeof(id->bytes); i++)
		text += sprintf(text, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
				id->bytes[i]);
}

/* Called while a folder whose names have this length is listed. The list then lacks the names that
 * have been replaced in the meantime, as with tmpfs. */
static void (*while_listed)(void);
static size_t listed_length;
static char left_out[40];

__attribute__((visibility("default")))
struct dirent *readdir(DIR *d)
{
	static struct dirent *(*next)(DIR *d);
	void (*call)(void) = while_listed;
	struct dirent *e;

	if (!next)
		next = (struct dirent *(*)(DIR *))dlsym(RTLD_NEXT, "readdir");
	e = next(d);
	if (call && e && *e->d_name != '.' && strlen(e->d_name) == listed_length) {
		while_listed = NULL;
		call();
	}
	while (e && *left_out && strcmp(e->d_name, left_out) == 0)
		e = next(d);
	if (!e && !while_listed)
		*left_out = '\0';
	return e;
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
	check(count_stored(VERSIONS) == versions && count_stored(CHUNKS) == 4 * versions &&
	      count_stored(VIEWS) == versions, "%u versions, %u chunks, %u views",
	      count_stored(VERSIONS), count_stored(CHUNKS), count_stored(VIEWS));
}

/* The chunks of one put displace those of another put, and their flush fails. The other put reports
 * the error. */
static void test_error_of_flush(void *unused)
{
	struct umobject_shape many = { .type = UMOBJECT_UINT8, .rank = 1, .dims = { 300 },
		.chunk = { 1 } };
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

/* The put whose flush failed is still open when another put, whose chunks are durable, commits. */
static void test_private_error(void *unused)
{
	struct umobject_shape many = { .type = UMOBJECT_UINT8, .rank = 1, .dims = { 300 },
		.chunk = { 1 } };
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

/* Each flush of a put fails in turn. The name has the old version, or the new one if only the flush
 * of the name has failed. */
static void test_failing_flushes(void *unused)
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

/* Chunks of a replaced version stay if the program cannot tell whether a kept version needs
 * them. */
static void test_removal_in_doubt(void *unused)
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

static void *collect(void *container)
{
	collects = true;
	good(umobject_gc(container, NULL));
	sem_post(&collected);
	return NULL;
}

/*
 * The collector opens the file of the version that a put is making and cannot lock it. The put then
 * replaces the file and links the old version. The collector must not take the file that it has
 * open for that of a version without an owner.
 */
static void test_collection_at_commit(void *unused)
{
	umobject_container *c = new_box(2), *other = open_box(box(), 0, 2);
	pthread_t collector;
	umobject_put *p;

	(void)unused;
	put_seed(c, "a", 1);
	fill(data, sizeof(data), 0, 2);
	good(umobject_begin(c, "a", &shape, &p, NULL));
	for (unsigned i = 0; i < 4; i++)
		good(umobject_put_chunk(p, i, data + i * 16 * KIB));
	check(sem_init(&version_refused, 0, 0) == 0 && sem_init(&link_made, 0, 0) == 0 &&
	      sem_init(&collected, 0, 0) == 0);
	check(pthread_create(&collector, NULL, collect, other) == 0);
	sem_wait(&version_refused);
	keeps_old = true;
	good(umobject_commit(p, 0, NULL));
	check(!keeps_old);
	check(pthread_join(collector, NULL) == 0);
	expect_seed(c, "a", 2);
	umobject_close(other);
	umobject_close(c);
}

/* A forked child of another thread has all files open that are open here. */
static void test_forked_children(void *unused)
{
	umobject_container *c = new_box(1);

	(void)unused;
	make_children = true;
	put_seed(c, "a", 1);
	make_children = false;
	check(nchildren > 2);
	/* An inherited lock would keep the name locked until all children have ended. */
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

/* ---- Somebody else's commits ---- */

static umobject_container *elsewhere;

static void replace(void)
{
	put_seed(elsewhere, "a", 77);
	good(umobject_gc(elsewhere, NULL));
}

/* A version that is replaced and removed right after its commit is held by its maker: a sync of a
 * mapping succeeds, and the next sync makes a version of everything in the mapping. */
static void test_mapping_of_replaced_version(void *unused)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	umobject_container *c = new_box(1);
	umobject_version *v;
	char uri[600];
	uint8_t *m;
	umobject_put *p;

	(void)unused;
	elsewhere = open_box(box(), 0, 0);
	put_seed(c, "a", 1);
	snprintf(uri, sizeof(uri), "object:%s/a", box());
	attr.seg_size = 4096;
	check(ummap_open(uri, sizeof(data), 0, PROT_READ | PROT_WRITE, &attr, (void **)&m) == 0,
	      "%s", umerrormsg());
	for (size_t at = 0; at < sizeof(data); at += 20 * KIB) {
		m[at] ^= 1;
		behind_commit = replace;
		check(umsync(m, 0) == 0, "%s", umerrormsg());
		expect_seed(c, "a", 77);
		check(!behind_commit);
	}
	m[1] ^= 1;
	check(umsync(m, 0) == 0, "%s", umerrormsg());
	good(umobject_get(c, "a", NULL, NULL, got));
	check(memcmp(got, m, sizeof(got)) == 0);
	check(umunmap(m, 0) == 0, "%s", umerrormsg());
	/* A put without a mapping can hold its version, too. */
	put_seed(c, "a", 1);
	fill(data, sizeof(data), 0, 2);
	good(umobject_begin(c, "a", &shape, &p, NULL));
	for (unsigned i = 0; i < 4; i++)
		good(umobject_put_chunk(p, i, data + i * 16 * KIB));
	behind_commit = replace;
	good(umobject_commit_hold(p, 0, &v));
	expect_seed(c, "a", 77);
	good(umobject_read(v, NULL, NULL, got));
	check_bytes(got, sizeof(got), 0, 2);
	check(stat_held(v).version == 12);
	umobject_release(v);
	count_empty(c, 1);
	umobject_close(elsewhere);
	umobject_close(c);
}

/* ---- The collector ---- */

static umobject_put *under_way;

static void commit_meanwhile(void)
{
	good(umobject_commit(under_way, 0, NULL));
}

/* A version is committed while the collector lists versions, and replaces the version whose chunks
 * it has. The first list lacks the new version, and the old one is garbage. */
static void test_collection_during_commits(void *unused)
{
	umobject_container *c = new_box(1);
	struct umobject_id id;
	umobject_version *v;

	(void)unused;
	put_seed(c, "a", 1);
	for (int round = 0; round < 8; round++) {
		good(umobject_hold(c, "a", 0, &v));
		good(umobject_begin_from(v, &under_way, &id));
		umobject_release(v);
		text_of_id(&id, left_out);
		listed_length = strlen(left_out);
		while_listed = commit_meanwhile;
		good(umobject_gc(c, NULL));
		check(!while_listed && !*left_out);
		expect_seed(c, "a", 1);
	}
	good(umobject_gc(c, NULL));
	check(count_stored(VERSIONS) == 1 && count_stored(CHUNKS) == 4);
	umobject_close(c);
}

static void put_during_call(void)
{
	put_seed(elsewhere, "a", 2);
}

static int count_names(void *arg, const char *name)
{
	check(strcmp(name, "a") == 0 || strcmp(name, "b") == 0);
	++*(unsigned *)arg;
	return 0;
}

/* A name that gets a new version while names are listed is listed once. */
static void test_lists_during_commits(void *unused)
{
	umobject_container *c = new_box(1);

	(void)unused;
	elsewhere = open_box(box(), 0, 0);
	put_seed(c, "a", 1);
	put_seed(c, "b", 1);
	for (int round = 0; round < 8; round++) {
		unsigned names = 0;

		strcpy(left_out, "a");
		listed_length = 1;
		while_listed = put_during_call;
		good(umobject_list(c, count_names, &names));
		check(!while_listed && !*left_out && names == 2, "%u names", names);
	}
	umobject_close(elsewhere);
	umobject_close(c);
}

/* ---- Limits ---- */

static void limit(int what, rlim_t most)
{
	check(setrlimit(what, &(struct rlimit){ most, most }) == 0);
}

static void test_number_of_descriptors(void *unused)
{
	struct umobject_shape many = { .type = UMOBJECT_UINT8, .rank = 1, .dims = { 400 },
		.chunk = { 1 } };
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
	/* The array has more chunks than the process may open. */
	count_empty(c, 0);
	umobject_close(c);
}

/* Held versions keep chunks open. All of them together leave some descriptors for the program. */
static void test_closed_descriptors(void *unused)
{
	struct umobject_shape many = { .type = UMOBJECT_UINT8, .rank = 1, .dims = { 70 },
		.chunk = { 1 } };
	umobject_container *c;
	umobject_version *held[30];

	(void)unused;
	limit(RLIMIT_NOFILE, 256);
	c = new_box(1);
	fill(data, sizeof(data), 0, 1);
	good(umobject_put_array(c, "many", &many, data));
	for (int i = 0; i < 30; i++) {
		good(umobject_hold(c, "many", 0, &held[i]));
		good(umobject_read(held[i], NULL, NULL, got));
		check(memcmp(got, data, 70) == 0);
	}
	for (int i = 0; i < 60; i++)
		check(dup(0) >= 0);
	for (int i = 0; i < 30; i++) {
		good(umobject_read(held[i], NULL, NULL, got));
		check(memcmp(got, data, 70) == 0);
		umobject_release(held[i]);
	}
	umobject_close(c);
}

static void test_file_size_limit(void *unused)
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

/* Makes a version of some MiB, with attributes. */
static void put_large(void *c)
{
	umobject_version *v;
	umobject_put *p;
	char name[8];

	put_seed(c, "a", 1);
	good(umobject_hold(c, "a", 0, &v));
	good(umobject_begin_from(v, &p, NULL));
	umobject_release(v);
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "%d", i);
		good(umobject_put_attribute(p, name, data, 60000));
	}
	good(umobject_commit(p, 0, NULL));
}

/* Without memory, a version is not reported as damaged. */
static void test_lack_of_memory(void *unused)
{
	umobject_container *c = new_box(1);
	bool held = false, refused = false;
	umobject_version *v;
	size_t most;

	(void)unused;
	if (SANITIZED)
		return;
	/* A process of its own, because memory that it frees would be enough. */
	check_exits(run_child(put_large, c), 0);
	most = status_bytes("VmSize");
	for (size_t more = 0; !held; more += MIB) {
		check(more < 256 * MIB);
		check(setrlimit(RLIMIT_AS, &(struct rlimit){ most + more, RLIM_INFINITY }) == 0);
		held = umobject_hold(c, "a", 0, &v) == 0;
		check(held || errno == ENOMEM, "%s", umobject_errormsg());
		refused |= !held;
	}
	check(refused);
	umobject_release(v);
	umobject_close(c);
}

/* ---- No room ---- */

static unsigned count_in(int root, const char *folder)
{
	char command[128];

	snprintf(command, sizeof(command), "find /proc/%d/fd/%d/box/%s -type f | wc -l", getpid(),
		 root, folder);
	return (unsigned)atoi(output_of("%s%s", command, ""));
}

/* Leaves so many bytes of the file system free. */
static void leave_space(int root, size_t room)
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

/* With a page more each time, one more step of a put has room. */
static void test_full_storage(int root, umobject_container *c)
{
	uint64_t seed = 1;
	unsigned failed = 0, room;

	put_seed(c, "a", seed);
	for (room = 0; failed == 0 || room < 64; room++) {
		leave_space(root, room * 4 * KIB);
		fill(data, sizeof(data), 0, seed + 1);
		if (umobject_put_array(c, "a", &shape, data) == 0) {
			seed++;
		} else {
			failed++;
			check(errno == ENOSPC, "%u: %s", room, umobject_errormsg());
		}
		expect_seed(c, "a", seed);
		good(umobject_gc(c, NULL));
		check(count_in(root, "live") == (seed > 1 ? 2 : 1) &&
		      count_in(root, "data") == (seed > 1 ? 8 : 4), "%u: %u versions, %u chunks",
		      room, count_in(root, "live"), count_in(root, "data"));
		make_space(root);
		check(room < 1000);
	}
	check(failed > 3 && seed > 2, "%u failed, %" PRIu64 " did not", failed, seed);
	good(umobject_delete(c, "a"));
	good(umobject_gc(c, NULL));
	check(count_in(root, "live") == 0 && count_in(root, "data") == 0 &&
	      count_in(root, "versions") == 0);
}

static void test_no_space(void *unused)
{
	int root = small_file_system();
	umobject_container *c;
	char path[64];

	(void)unused;
	if (root < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d/box", root);
	c = open_box(path, UMOBJECT_CREATE, 2);
	test_full_storage(root, c);
	umobject_close(c);
	close(root);
}

/* A missing device, here the first one, does not keep garbage on the others. */
static void test_partial_collection(void *unused)
{
	struct umobject_attr attr = UMOBJECT_ATTR_INIT;
	struct umobject_shape small = shape;
	umobject_container *c;
	char path[PATH_MAX];

	(void)unused;
	attr.flags = UMOBJECT_CREATE;
	attr.devices = (const char *[]){ "first", "second" };
	attr.ndevices = 2;
	small.chunk[0] = 1 * KIB;
	good(umobject_open(box(), &attr, &c));
	good(umobject_put_array(c, "a", &small, data));
	check(count_stored("first") && count_stored("second"));
	umobject_close(c);
	snprintf(path, sizeof(path), "%s/first", box());
	check(rename(path, in_dir("away")) == 0);
	c = open_box(box(), 0, 0);
	good(umobject_delete(c, "a"));
	refused(umobject_gc(c, NULL), ENODEV, "could not be opened");
	check(!count_stored("second"));
	umobject_close(c);
	check(rename(in_dir("away"), path) == 0);
	c = open_box(box(), 0, 0);
	good(umobject_gc(c, NULL));
	check(!count_stored("first"));
	umobject_close(c);
}

/* ---- Several users ---- */

#define GROUP 65532

struct member {
	uid_t uid;
	void (*act)(umobject_container *c);
};

/* The umask forbids access to others. */
static void be_member(void *arg)
{
	const struct member *m = arg;
	gid_t group = GROUP;
	umobject_container *c;

	umask(077);
	check(setgroups(1, &group) == 0 && setresgid(m->uid, m->uid, m->uid) == 0 &&
	      setresuid(m->uid, m->uid, m->uid) == 0);
	c = open_box("box", 0, 0);
	m->act(c);
	umobject_close(c);
}

static void test_two_puts(umobject_container *c)
{
	data[0] = 1;
	good(umobject_put_array(c, "a", &shape, data));
	good(umobject_put_array(c, "b", &shape, data));
}

static void test_concurrent_puts(umobject_container *c)
{
	good(umobject_get(c, "a", NULL, NULL, got));
	check(got[0] == 1);
	data[0] = 2;
	good(umobject_put_array(c, "a", &shape, data));
	good(umobject_put_array(c, "a", &shape, data));
	good(umobject_delete(c, "b"));
	good(umobject_gc(c, NULL));
}

static void test_removal(umobject_container *c)
{
	good(umobject_get(c, "a", NULL, NULL, got));
	check(got[0] == 2);
	good(umobject_delete(c, "a"));
	good(umobject_gc(c, NULL));
}

#define PUTS 300

static void test_many_puts(umobject_container *c)
{
	const struct umobject_shape one = { .type = UMOBJECT_UINT8, .rank = 1, .dims = { 1 } };

	for (unsigned i = 0; i < PUTS; i++)
		good(umobject_put_array(c, i < PUTS - 1 ? "many" : "last", &one, data));
}

static void test_concurrent_collection(umobject_container *c)
{
	umobject_version *last;

	while (umobject_hold(c, "last", 0, &last) < 0)
		good(umobject_gc(c, NULL));
	umobject_release(last);
	good(umobject_delete(c, "last"));
	good(umobject_delete(c, "many"));
}

/* The mode of a folder of the group. The test stays in it, because other users cannot open its
 * path. */
static void enter(const char *name, mode_t mode)
{
	const char *path = in_dir(name);

	check(mkdir(path, 0700) == 0 && chown(path, (uid_t)-1, GROUP) == 0 &&
	      chmod(path, mode) == 0 && chdir(path) == 0);
}

static void test_group(void *unused)
{
	struct member first = { 65533, test_two_puts }, second = { 65534, test_concurrent_puts };
	pid_t pid;

	(void)unused;
	if (geteuid() != 0)
		return;
	enter("group", 02770);
	umask(007);
	umobject_close(open_box("box", UMOBJECT_CREATE, 2));
	check_exits(run_child(be_member, &first), 0);
	check_exits(run_child(be_member, &second), 0);
	first.act = test_many_puts;
	second.act = test_concurrent_collection;
	pid = start_child(be_member, &first);
	check_exits(run_child(be_member, &second), 0);
	check_exits(wait_child(pid), 0);
	first.act = test_removal;
	check_exits(run_child(be_member, &first), 0);
	check(!*output_of("find box/live box/names box/versions box/data box/views -type f", "",
			  ""));
}

static void test_death_in_put(void *unused)
{
	umobject_container *c = open_box("box", 0, 0);
	umobject_put *put;

	(void)unused;
	good(umobject_begin(c, "a", &shape, &put, NULL));
	_exit(0);
}

static void test_read_only(umobject_container *c)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	good(umobject_get(c, "a", NULL, NULL, got));
	check(memcmp(got, data, sizeof(got)) == 0);
	refused(umobject_put_array(c, "a", &shape, data), EACCES, "box/live");
	refused(umobject_delete(c, "a"), EACCES, "cannot delete the object 'a'");
	refused(umobject_gc(c, NULL), EACCES, "cannot remove");
	good(umobject_get(c, "a", NULL, NULL, got));
	check(ummap_open("object:box/a", sizeof(data), 0, PROT_READ, &attr, &addr) == 0, "%s",
	      umerrormsg());
	check(memcmp(addr, data, sizeof(data)) == 0);
	check(umunmap(addr, 0) == 0);
	check(ummap_open("object:box/a", sizeof(data), 0, PROT_READ | PROT_WRITE, &attr,
			 &addr) == -1 && errno == EACCES);
	check(strstr(umerrormsg(), "box/live"), "%s", umerrormsg());
	attr.flags = UMMAP_CREATE;
	check(ummap_open("object:box/new", sizeof(data), 0, PROT_READ | PROT_WRITE, &attr,
			 &addr) == -1 && errno == EACCES);
}

static void test_readers(void *unused)
{
	struct member reader = { 65534, test_read_only };
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	umobject_container *c;
	void *addr;

	(void)unused;
	if (geteuid() != 0)
		return;
	enter("readers", 0755);
	umask(022);
	c = open_box("box", UMOBJECT_CREATE, 1);
	fill(data, sizeof(data), 0, 1);
	good(umobject_put_array(c, "a", &shape, data));
	good(umobject_gc(c, NULL));
	/* Load the driver now, because the reader may not open its folder. */
	check(ummap_open("object:box/a", sizeof(data), 0, PROT_READ, &attr, &addr) == 0 &&
	      umunmap(addr, 0) == 0, "%s", umerrormsg());
	check_exits(run_child(test_death_in_put, NULL), 0);
	check_exits(run_child(be_member, &reader), 0);
	good(umobject_gc(c, NULL));
	check(strcmp(output_of("find box/live -type f | wc -l", "", ""), "1") == 0);
	umobject_close(c);
}

int main(void)
{
	static void (*const all[])(void *) = {
		test_error_of_flush, test_private_error, test_failing_flushes,
			test_removal_in_doubt,
		test_collection_at_commit, test_mapping_of_replaced_version,
		test_collection_during_commits, test_lists_during_commits, test_forked_children,
			test_number_of_descriptors, test_closed_descriptors, test_file_size_limit,
		test_lack_of_memory, test_no_space, test_partial_collection,
			test_group, test_readers,
	};

	if (!getenv("UMMAP_DRIVER_PATH"))
		set_env("UMMAP_DRIVER_PATH", OBJECT_PLUGINS);
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++, box_number++)
		check_exits(run_child(all[i], NULL), 0);
	return 0;
}
