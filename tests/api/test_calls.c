/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rules for the arguments of each call, its errors, and that a failure leaves nothing behind.
 * Effects on files are in test_files.c, umremap is in test_remap.c, and pins are in test_pin.c.
 */
#include <criterion/criterion.h>
#include <sys/socket.h>

#include "common.h"

#define SEG (64 * KIB)
#define OLD 1
#define NEW 2

/* The arguments of ummap; the defaults are valid. */
struct args {
	size_t size, seg_size;
	int prot, fd;
	off_t offset;
	int interval, read_file, ptype;
};

static struct args good_args(int fd)
{
	struct args a = { 4 * SEG, SEG, READ_WRITE, fd, 0, -1, 1, UMMAP_PTYPE_FIFO };

	return a;
}

static int map_args(const struct args *a, void **addr)
{
	return ummap(a->size, a->seg_size, a->prot, a->fd, a->offset, a->interval, a->read_file,
		     a->ptype, addr);
}

/* Makes and ends a mapping, so that the library has its permanent memory before the test counts. */
static void warm_up(void)
{
	int fd = temp_file(4 * SEG);
	uint8_t *m = map_file(fd, 4 * SEG, SEG, READ_WRITE, 0);

	m[0] = 1;
	check(umsync(m, 0) == 0);
	check(umunmap(m, 0) == 0);
	close(fd);
}

/*
 * Whether a call leaves nothing behind. If it did, it would do so each time, but threads of the
 * library take their own memory once, at any moment.
 */
static bool leaves_nothing(void (*call)(const void *arg), const void *arg)
{
	for (int i = 0; i < 20; i++) {
		int fds = count_fds(), maps = count_maps();

		call(arg);
		if (count_fds() == fds && count_maps() == maps)
			return true;
	}
	return false;
}

struct refusal {
	struct args args;
	int error;
};

static void refuse_once(const void *arg)
{
	const struct refusal *r = arg;
	void *addr = NULL;

	check_fails(map_args(&r->args, &addr), r->error);
	check(stat_of(NULL).mappings == 0);
}

static void refuse(struct args a, int error)
{
	struct refusal r = { a, error };

	check(leaves_nothing(refuse_once, &r), "each call leaves descriptors or VMAs");
}

Test(ummap, refuses_bad_numbers)
{
	int fd = temp_file(4 * SEG);
	struct args a;

	warm_up();
	a = good_args(fd), a.size = 0, refuse(a, EINVAL);
	for (size_t bad = 2; bad < (size_t)sysconf(_SC_PAGESIZE); bad *= 2)
		a = good_args(fd), a.seg_size = bad, refuse(a, EINVAL);
	a = good_args(fd), a.seg_size = SEG + 1, refuse(a, EINVAL);
	a = good_args(fd), a.seg_size = SEG * 3, refuse(a, EINVAL);
	a = good_args(fd), a.seg_size = SIZE_MAX, refuse(a, EINVAL);
	a = good_args(fd), a.prot = PROT_NONE, refuse(a, EINVAL);
	a = good_args(fd), a.prot = PROT_WRITE, refuse(a, EINVAL);
	a = good_args(fd), a.prot = PROT_READ | PROT_EXEC, refuse(a, EINVAL);
	a = good_args(fd), a.prot = ~0, refuse(a, EINVAL);
	a = good_args(fd), a.offset = -1, refuse(a, EINVAL);
	a = good_args(fd), a.ptype = -1, refuse(a, EINVAL);
	a = good_args(fd), a.ptype = UMMAP_PTYPE_FIFO + 1, refuse(a, EINVAL);
	a = good_args(fd), a.offset = INT64_MAX - 10, a.size = 100, refuse(a, EOVERFLOW);
	a = good_args(fd), a.size = SIZE_MAX, refuse(a, EOVERFLOW);
	a = good_args(fd), a.size = (size_t)1 << 60, refuse(a, ENOMEM);
	close(fd);
}

Test(ummap, refuses_null_address)
{
	int fd = temp_file(4 * SEG);
	struct args a = good_args(fd);

	check_fails(map_args(&a, NULL), EINVAL);
	close(fd);
}

Test(ummap, refuses_bad_descriptors)
{
	static const char *const not_files[] = { "/dev/null", "/dev/zero", "/" };
	int fd = temp_file(4 * SEG), pipes[2], sockets[2], other;
	char path[320], again[64];

	warm_up();
	refuse(good_args(-1), EBADF);
	refuse(good_args(1000), EBADF);
	check(pipe(pipes) == 0);
	refuse(good_args(pipes[0]), ENODEV);
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	refuse(good_args(sockets[0]), ENODEV);
	for (size_t i = 0; i < sizeof(not_files) / sizeof(not_files[0]); i++) {
		struct args a = good_args(open(not_files[i], O_RDONLY));

		a.prot = PROT_READ;
		check(a.fd >= 0);
		refuse(a, ENODEV);
		close(a.fd);
	}
	snprintf(again, sizeof(again), "/proc/self/fd/%d", fd);
	refuse(good_args(other = open(again, O_RDONLY)), EACCES);
	close(other);
	refuse(good_args(other = open(again, O_WRONLY)), EACCES);
	close(other);
	refuse(good_args(other = open(again, O_PATH)), EBADF);
	close(other);
	other = temp_named("closed", 4 * SEG, path);
	close(other);
	refuse(good_args(other), EBADF);
}

Test(ummap, takes_every_policy_segment_size_and_interval)
{
	int fd = temp_file(4 * SEG);
	void *addr;

	for (int ptype = 0; ptype <= UMMAP_PTYPE_FIFO; ptype++) {
		struct args a = good_args(fd);

		a.ptype = ptype, a.interval = ptype - 1;
		check(map_args(&a, &addr) == 0, "policy %d", ptype);
		check(umunmap(addr, 1) == 0);
	}
	for (size_t seg = sysconf(_SC_PAGESIZE); seg <= 64 * MIB; seg *= 2) {
		struct args a = good_args(fd);

		a.seg_size = seg;
		check(map_args(&a, &addr) == 0, "segments of %zu", seg);
		check(*(volatile char *)addr == 0);
		check(umunmap(addr, 1) == 0);
	}
	close(fd);
}

/* Checks each call that takes the address of a mapping with an invalid address. */
static void refuse_base(void *addr)
{
	void *out = NULL;

	check_fails(umsync(addr, 0), EINVAL);
	check_fails(umsync(addr, 1), EINVAL);
	check_fails(umunmap(addr, 0), EINVAL);
	check_fails(umunmap(addr, 1), EINVAL);
	check_fails(umremap(addr, 0, -1, -1, 0, &out), EINVAL);
}

static void refuse_any_byte(void *addr)
{
	struct umstat st = { .struct_size = sizeof(st) };

	check_fails(umsync_range(addr, 1, 0), EINVAL);
	check_fails(umadvise(addr, 1, UMMAP_ADV_NORMAL), EINVAL);
	check_fails(umadvise(addr, 1, UMMAP_ADV_DONTNEED), EINVAL);
	check_fails(umpin(addr, 1, PROT_READ), EINVAL);
	check_fails(umunpin(addr, 1), EINVAL);
	if (addr)
		check_fails(umstat(addr, &st), EINVAL);
}

Test(calls, refuse_addresses_without_a_mapping)
{
	int fd = temp_file(4 * SEG), on_stack;
	uint8_t *m;

	refuse_base(NULL);
	refuse_any_byte(NULL);
	m = map_file(fd, 4 * SEG, SEG, READ_WRITE, 0);
	refuse_base(&on_stack);
	refuse_any_byte(&on_stack);
	refuse_base(m + 1);
	refuse_base(m + SEG);
	refuse_base(m - 1);
	refuse_any_byte(m - 1);
	refuse_any_byte(m + 4 * SEG);
	check(umunmap(m, 0) == 0);
	refuse_base(m);
	refuse_any_byte(m);
	close(fd);
}

Test(calls, refuse_ranges_that_leave_the_mapping)
{
	const size_t size = 3 * SEG + 100;
	int fd = temp_file(size);
	uint8_t *m = map_file(fd, size, SEG, READ_WRITE, 0);

	check_fails(umsync_range(m, size + 1, 0), ENOMEM);
	check_fails(umsync_range(m + 100, size, 0), ENOMEM);
	check_fails(umsync_range(m + 100, SIZE_MAX, 0), ENOMEM);
	check_fails(umadvise(m, size + 1, UMMAP_ADV_WILLNEED), ENOMEM);
	check_fails(umadvise(m + 100, SIZE_MAX, UMMAP_ADV_DONTNEED), ENOMEM);
	check_fails(umpin(m, size + 1, PROT_READ), ENOMEM);
	check_fails(umpin(m + 100, SIZE_MAX, PROT_READ), ENOMEM);
	check(umsync_range(m, size, 0) == 0);
	check(umsync_range(m + size - 1, 1, UMMAP_EVICT) == 0);
	check(umadvise(m, size, UMMAP_ADV_DONTNEED) == 0);
	check(umpin(m, size, PROT_READ) == 0);
	check(umunpin(m, size) == 0);
	check(umunmap(m, 0) == 0);
	close(fd);
}

Test(calls, refuse_bad_flags)
{
	int fd = temp_file(4 * SEG);
	uint8_t *m = map_file(fd, 4 * SEG, SEG, PROT_READ, 0);

	check_fails(umsync_range(m, SEG, 8), EINVAL);
	check_fails(umsync_range(m, SEG, -1), EINVAL);
	check_fails(umadvise(m, SEG, -1), EINVAL);
	check_fails(umadvise(m, SEG, UMMAP_ADV_DISCARD + 1), EINVAL);
	check_fails(umpin(m, SEG, PROT_NONE), EINVAL);
	check_fails(umpin(m, SEG, PROT_WRITE), EINVAL);
	check_fails(umpin(m, SEG, PROT_READ | PROT_EXEC), EINVAL);
	check_fails(umpin(m, SEG, READ_WRITE), EACCES);
	check_fails(umunpin(m, SEG), EINVAL);
	check(umunmap(m, 0) == 0);
	close(fd);
}

/* umstat stores as many fields as a caller with an older header has room for. */
Test(umstat, fills_what_the_caller_knows)
{
	int fd = temp_file(4 * SEG);
	uint8_t *m = map_file(fd, 4 * SEG, SEG, READ_WRITE, 0);
	struct umstat st;

	memset(&st, 0xaa, sizeof(st));
	st.struct_size = offsetof(struct umstat, upgrade_faults);
	m[0] = 1;
	check(umstat(m + SEG, &st) == 0);
	check(st.write_faults == 1 && st.read_faults == 0);
	check(st.upgrade_faults == 0xaaaaaaaaaaaaaaaau);
	check_fails(umstat(m, NULL), EINVAL);
	st.struct_size = 0;
	check_fails(umstat(m, &st), EINVAL);
	check(umunmap(m, 0) == 0);
	close(fd);
}

/* umstat reports the engine, and whether a system call can access absent segments. */
Test(umstat, says_what_serves)
{
	static const int engines[] = { UMMAP_ENGINE_SEGV, UMMAP_ENGINE_UFFD, UMMAP_ENGINE_SIGBUS };
	int pipes[2];

	check(pipe2(pipes, O_CLOEXEC) == 0);
	check(stat_of(NULL).engine == 0 && stat_of(NULL).kernel == 0);
	for (size_t i = 0; i < sizeof(engines) / sizeof(*engines); i++) {
		struct ummap_attr attr = UMMAP_ATTR_INIT;
		void *m;

		attr.engine = engines[i];
		if (ummap_open("null:1M", MIB, 0, PROT_READ, &attr, &m) < 0)
			continue;
		check(stat_of(m).engine == (uint64_t)engines[i], "%" PRIu64 ", not %d",
		      stat_of(m).engine, engines[i]);
		check((write(pipes[1], (char *)m + 4096, 1) == 1) == stat_of(m).kernel, "engine %d",
		      engines[i]);
		check(umunmap(m, 0) == 0);
	}
	close(pipes[0]);
	close(pipes[1]);
}

Test(umstat, counts_what_happens)
{
	int fd = temp_file(4 * SEG);
	uint8_t *m = map_file(fd, 4 * SEG, SEG, READ_WRITE, 0);
	struct umstat st = stat_of(m);

	check(st.resident_bytes == 0 && st.dirty_bytes == 0 && st.read_bytes == 0 &&
	      st.write_bytes == 0);
	check(umadvise(m, 4 * SEG, UMMAP_ADV_RANDOM) == 0);
	check(*(volatile uint8_t *)(m + 3 * SEG) == 0);
	m[SEG] = 1;
	m[3 * SEG] = 1;
	st = stat_of(m);
	check(st.read_faults == 1 && st.write_faults == 1 && st.upgrade_faults == 1);
	check(st.resident_bytes == 2 * SEG, "%" PRIu64, st.resident_bytes);
	check(st.dirty_bytes == 2 * SEG, "%" PRIu64, st.dirty_bytes);
	check(umsync(m, 0) == 0);
	st = stat_of(m);
	check(st.dirty_bytes == 0 && st.write_bytes == 2 * SEG);
	/* Whether they are resident or inactive depends on the engine. */
	check(st.resident_bytes + st.inactive_bytes == 2 * SEG);
	check(st.write_requests >= 1 && st.flushes >= 1);
	check(stat_of(NULL).mappings == 1 && stat_of(NULL).write_bytes >= 2 * SEG);
	check(umsync(m, 1) == 0);
	check(stat_of(m).resident_bytes == 0 && stat_of(m).evictions == 2);
	check(umunmap(m, 0) == 0);
	check(stat_of(NULL).mappings == 0);
	close(fd);
}

/* Opens a URI made of an existing file's path and the text before and after it. */
static int open_uri(const char *before, const char *after, const struct ummap_attr *attr)
{
	char path[320], uri[512];
	void *addr = NULL;

	close(temp_named("uri", 4 * SEG, path));
	snprintf(uri, sizeof(uri), "%s%s%s", before, path, after);
	return ummap_open(uri, 4 * SEG, 0, READ_WRITE, attr, &addr);
}

/* parts: the text before and after the path. */
static void refuse_uri(const void *parts)
{
	const char *const *p = parts;

	errno = 0;
	check(open_uri(p[0], p[1], NULL) == -1 && errno == EINVAL, "%s PATH %s", p[0], p[1]);
	check_sentence(EINVAL, p[0], __FILE__, __LINE__);
}

Test(ummap_open, refuses_bad_uris)
{
	static const char *const bad[][2] = {
		{ "", "" },
		{ ":", "" },
		{ "nosuch:", "" },
		{ "POSIX", "" },
		{ "posix", "" },
		{ "posix:", "?nonsense=1" },
		{ "posix:", "?direct=maybe" },
		{ "posix:", "?error.nth=1" },
		{ "fault:", "" },
		{ "error+:", "" },
		{ "+posix:", "" },
		{ "error+nosuch:", "" },
		{ "posix+fault:", "" },
		{ "error+posix:", "?error.nth=few" },
		{ "error+posix:", "?error.op=chew" },
		{ "error+posix:", "?error.errno=EWRONG" },
		{ "error+posix:", "?error.nonsense=1" },
		{ "posix:", "%zz" },
	};
	void *addr = NULL;

	warm_up();
	open_uri("posix:", "", NULL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		check(leaves_nothing(refuse_uri, bad[i]), "%s PATH %s", bad[i][0], bad[i][1]);
	check_fails(ummap_open(NULL, SEG, 0, PROT_READ, NULL, &addr), EINVAL);
	check_fails(ummap_open("posix:/", SEG, 0, PROT_READ, NULL, &addr), ENODEV);
	check_fails(open_uri("posix:", "-missing", NULL), ENOENT);
	check(strstr(umerrormsg(), "-missing"), "the message names the file: %s", umerrormsg());
	check_fails(open_uri("posix:", "?nonsense=1", NULL), EINVAL);
	check(strstr(umerrormsg(), "nonsense"), "the message names the key: %s", umerrormsg());
	check_fails(open_uri("nosuch:", "", NULL), EINVAL);
	check(strstr(umerrormsg(), "nosuch"), "the message names the scheme: %s", umerrormsg());
}

Test(ummap_open, refuses_bad_attributes)
{
	struct ummap_attr good = UMMAP_ATTR_INIT, a;

	warm_up();
	a = good, a.struct_size = 0;
	check_fails(open_uri("posix:", "", &a), EINVAL);
	a = good, a.seg_size = 12345;
	check_fails(open_uri("posix:", "", &a), EINVAL);
	a = good, a.flush_interval = -1;
	check_fails(open_uri("posix:", "", &a), EINVAL);
	check(strstr(umerrormsg(), "never"), "the message has the valid values: %s", umerrormsg());
	a = good, a.ptype = 99;
	check_fails(open_uri("posix:", "", &a), EINVAL);
	a = good, a.flags = 1u << 31;
	check_fails(open_uri("posix:", "", &a), EINVAL);
	a = good, a.policy = "nonsense";
	check_fails(open_uri("posix:", "", &a), EINVAL);
	check(strstr(umerrormsg(), "nonsense"), "the message names the policy: %s", umerrormsg());
	a = good, a.policy = "prnd:seed=many";
	check_fails(open_uri("posix:", "", &a), EINVAL);
	check(stat_of(NULL).mappings == 0);
}

/* With attributes that are zeros except for the size, a mapping shows its file and writes only on
 * request. */
Test(ummap_open, zeros_do_no_harm)
{
	static const struct ummap_attr init = UMMAP_ATTR_INIT,
				       zeros = { .struct_size = sizeof(zeros) };
	struct ummap_attr attr = { .struct_size = sizeof(attr), .seg_size = SEG };
	int fds[2];
	uint8_t *m[2];

	for (int i = 0; i < 2; i++) {
		char path[320], uri[512];
		void *addr;

		fds[i] = temp_named(i ? "flushed" : "zeros", 0, path);
		file_fill(fds[i], 0, 4 * SEG, 0, OLD);
		snprintf(uri, sizeof(uri), "posix:%s", path);
		check(ummap_open(uri, 4 * SEG, 0, READ_WRITE, &attr, &addr) == 0, "%s",
		      umerrormsg());
		m[i] = addr;
		attr.flush_interval = 1;
	}
	m[0][SEG + 7] = pattern(SEG + 7, NEW);
	/* After two writes of the other mapping, the background thread has checked both mappings.
	 * */
	for (uint64_t n = 1; n <= 2; n++) {
		m[1][n] ^= 1;
		while (stat_of(m[1]).flushes < n)
			pause_ms(10);
	}
	check(stat_of(m[0]).write_bytes == 0 && stat_of(m[0]).flushes == 0);
	check_bytes(m[0], SEG + 7, 0, OLD);
	check(umunmap(m[0], 1) == 0 && umunmap(m[1], 1) == 0);
	check_file(fds[0], 0, SEG + 7, 0, OLD);
	check_file(fds[0], SEG + 7, 1, SEG + 7, NEW);
	check_file(fds[0], SEG + 8, 3 * SEG - 8, SEG + 8, OLD);
	check(memcmp(&zeros, &init, sizeof(init)) == 0, "UMMAP_ATTR_INIT is zeros with the size");
}

Test(ummap_open, hides_the_store_behind_a_blank_mapping)
{
	struct ummap_attr attr = { .struct_size = sizeof(attr),
				   .seg_size = SEG,
				   .flags = UMMAP_BLANK };
	char path[320], uri[512];
	int fd = temp_named("blank", 0, path);
	uint8_t *m;
	void *addr;

	file_fill(fd, 0, 4 * SEG, 0, OLD);
	snprintf(uri, sizeof(uri), "posix:%s", path);
	check(ummap_open(uri, 4 * SEG, 0, READ_WRITE, &attr, &addr) == 0, "%s", umerrormsg());
	m = addr;
	check_zeros(m, 2 * SEG);
	fill(m + SEG, 10, SEG, NEW);
	check(umsync(m, 1) == 0);
	check_bytes(m + SEG, 10, SEG, NEW);
	check(stat_of(m).read_bytes == SEG, "the mapping reads a segment that it has written");
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SEG, 0, OLD);
	check_file_zeros(fd, SEG + 10, SEG - 10);
	check_file(fd, 2 * SEG, 2 * SEG, 2 * SEG, OLD);
}

/* Fields of a later release are accepted if they are 0, and refused otherwise. */
Test(ummap_open, refuses_attributes_of_later_releases)
{
	struct { struct ummap_attr attr; long more; } later = { UMMAP_ATTR_INIT, 0 };

	later.attr.struct_size = sizeof(later);
	check(open_uri("posix:", "", &later.attr) == 0, "%s", umerrormsg());
	later.more = 1;
	check_fails(open_uri("posix:", "", &later.attr), EINVAL);
}

Test(ummap_open, refuses_bad_numbers)
{
	char path[320], uri[512];
	void *addr = NULL;

	close(temp_named("numbers", 4 * SEG, path));
	snprintf(uri, sizeof(uri), "posix:%s", path);
	check_fails(ummap_open(uri, 0, 0, PROT_READ, NULL, &addr), EINVAL);
	check_fails(ummap_open(uri, SEG, -1, PROT_READ, NULL, &addr), EINVAL);
	check_fails(ummap_open(uri, SEG, 0, PROT_WRITE, NULL, &addr), EINVAL);
	check_fails(ummap_open(uri, SEG, 0, PROT_READ, NULL, NULL), EINVAL);
	check_fails(ummap_open(uri, 100, INT64_MAX - 10, PROT_READ, NULL, &addr), EOVERFLOW);
	check_fails(ummap_open(uri, (size_t)1 << 60, 0, PROT_READ, NULL, &addr), ENOMEM);
}

Test(ummap_open, takes_policies_by_name_and_creates)
{
	static const char *const names[] = { "fifo",        "lifo",   "plru",  "prnd",
					     "prnd:seed=7", "wiro-f", "wiro-l" };
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[512];
	struct stat st;
	void *addr;

	attr.flags = UMMAP_CREATE;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		attr.policy = names[i];
		/* The path after the colon is percent-decoded: the file's name is "a?b". */
		snprintf(uri, sizeof(uri), "posix:%s/a%%3Fb%zu", temp_dir(), i);
		check(ummap_open(uri, SEG, 0, READ_WRITE, &attr, &addr) == 0, "%s", names[i]);
		((uint8_t *)addr)[99] = 1;
		check(umunmap(addr, 1) == 0);
		snprintf(uri, sizeof(uri), "%s/a?b%zu", temp_dir(), i);
		check(stat(uri, &st) == 0 && st.st_size == SEG && (size_t)st.st_blocks * 512 <= SEG,
		      "%s", uri);
	}
}

/* A file gets the requested length, as a hole, and never becomes shorter; or it grows by writes. */
Test(ummap_open, creates_with_the_length_that_is_asked_for)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char path[320], uri[512];
	int fd = temp_named("length", 0, path);
	struct stat st;
	void *addr;

	attr.seg_size = SEG;
	snprintf(uri, sizeof(uri), "posix:%s", path);
	check(ummap_open(uri, 4 * SEG + 5, 7, READ_WRITE, &attr, &addr) == 0 &&
	      umunmap(addr, 1) == 0);
	check(file_size(fd) == 0, "without UMMAP_CREATE, the length stays");
	attr.flags = UMMAP_CREATE;
	check(ummap_open(uri, 4 * SEG + 5, 7, PROT_READ, &attr, &addr) == 0 &&
	      umunmap(addr, 1) == 0);
	check(file_size(fd) == 0, "a read-only mapping does not change the length");
	attr.flags = UMMAP_CREATE | UMMAP_GROWS;
	check(ummap_open(uri, 4 * SEG + 5, 7, READ_WRITE, &attr, &addr) == 0);
	((uint8_t *)addr)[99] = 1;
	check(umunmap(addr, 1) == 0);
	check(file_size(fd) == 7 + 100, "%" PRIu64, file_size(fd));
	attr.flags = UMMAP_CREATE;
	check(ummap_open(uri, 4 * SEG + 5, 7, READ_WRITE, &attr, &addr) == 0);
	check(((uint8_t *)addr)[99] == 1 && umunmap(addr, 1) == 0);
	check(file_size(fd) == 4 * SEG + 12, "%" PRIu64, file_size(fd));
	check(fstat(fd, &st) == 0 && (size_t)st.st_blocks * 512 <= SEG, "the rest is a hole");
	check(ummap_open(uri, SEG, 0, READ_WRITE, &attr, &addr) == 0 && umunmap(addr, 1) == 0);
	check(file_size(fd) == 4 * SEG + 12);
}

struct part {
	const char *uri;
	int i;
};

static void *open_part(void *arg)
{
	const struct part *p = arg;
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.flags = UMMAP_CREATE;
	check(ummap_open(p->uri, SEG, p->i * SEG, READ_WRITE, &attr, &addr) == 0, "%s",
	      umerrormsg());
	return addr;
}

Test(ummap_open, of_several_at_a_time_makes_a_file_as_long_as_the_last_one_needs)
{
	enum { THREADS = 8, ROUNDS = 20 };

	for (int round = 0; round < ROUNDS; round++) {
		char path[320], uri[512];
		struct part parts[THREADS];
		pthread_t thread[THREADS];
		int fd = temp_named("parts", 0, path);
		void *addr;

		snprintf(uri, sizeof(uri), "posix:%s", path);
		for (int i = 0; i < THREADS; i++) {
			parts[i] = (struct part){ uri, i };
			check(pthread_create(&thread[i], NULL, open_part, &parts[i]) == 0);
		}
		for (int i = 0; i < THREADS; i++)
			check(pthread_join(thread[i], &addr) == 0 && umunmap(addr, 1) == 0);
		check(file_size(fd) == THREADS * SEG, "%" PRIu64, file_size(fd));
		close(fd);
	}
}

static void *fail_elsewhere(void *unused)
{
	(void)unused;
	check(umerrormsg() != NULL);
	check_fails(umadvise(NULL, 1, 0), EINVAL);
	return NULL;
}

Test(umerrormsg, is_each_threads_own)
{
	char before[512];
	pthread_t other;
	void *addr;

	check(umerrormsg() != NULL);
	check_fails(ummap(0, 0, PROT_READ, 0, 0, -1, 1, 0, &addr), EINVAL);
	snprintf(before, sizeof(before), "%s", umerrormsg());
	check(pthread_create(&other, NULL, fail_elsewhere, NULL) == 0);
	check(pthread_join(other, NULL) == 0);
	check(strcmp(before, umerrormsg()) == 0, "was: %s", before);
}

static void fail_once(void)
{
	check_fails(umsync(NULL, 0), EINVAL);
	check(*umerrormsg());
}

/* A call that cannot fail also clears the message of an earlier call. */
Test(umerrormsg, is_empty_after_success)
{
	struct umstat st = { .struct_size = sizeof(st) };

	fail_once();
	check(umstat(NULL, &st) == 0 && !*umerrormsg());
	fail_once();
	check(umonerror(NULL) == 0 && !*umerrormsg());
	fail_once();
	check(!ummapped(&st, 1) && !*umerrormsg());
	fail_once();
	umimport_close(NULL);
	check(!*umerrormsg());
}
