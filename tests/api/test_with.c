/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The statements of ummap-with(7) about system calls on a mapping, with either engine: which calls
 * succeed, which fail with EFAULT, and how many bytes are transferred before an absent segment.
 */
#include <criterion/criterion.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "common.h"

#define SEG (64 * KIB)
#define SIZE (64 * SEG)
#define PLACE (8 * SEG)  /* the segment whose state is set; the next one is absent */
#define PART 5000        /* bytes of a call that are before the absent segment */
#define LEN 12000
#define OLD 1
#define NEW 2

static uint8_t *map;
static bool by_kernel;   /* the kernel may access absent segments */
static int file, direct, ends[2], sockets[2];
static uint8_t plain[2 * SEG];

static void prepare(unsigned engine)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[64], path[64];
	void *addr;

	set_budget(SIZE);
	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", filled_file(SIZE, OLD));
	attr.seg_size = SEG;
	attr.engine = engine;
	by_kernel = engine == UMMAP_ENGINE_UFFD;
	attr.flags = by_kernel ? UMMAP_KERNEL : 0;
	if (ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) != 0) {
		check(by_kernel && (errno == EPERM || errno == ENOSYS || errno == EOPNOTSUPP));
		cr_skip_test("userfaultfd may not see accesses by the kernel here");
	}
	map = addr;
	file = filled_file(SIZE, NEW);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	direct = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	check(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
	check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets) == 0);
}

/* ---- States at PLACE before the call; all other segments are absent ---- */

static void absent(void)
{
	check(umsync(map, 1) == 0);
}

static void loaded(void)
{
	absent();
	check_bytes(map + PLACE, SEG, PLACE, OLD);
}

static void stored(void)
{
	absent();
	fill(map + PLACE, SEG, PLACE, OLD);
}

static void written(void)
{
	stored();
	check(umsync(map, 0) == 0);
}

/* ---- Calls on len bytes. Loads find OLD, and stores bring NEW. ---- */

static struct iovec *split(uint8_t *at, size_t len, struct iovec iov[2])
{
	iov[0] = (struct iovec){ at, PART };
	iov[1] = (struct iovec){ at + PART, len - PART };
	return iov;
}

static ssize_t do_write(uint8_t *at, size_t len)
{
	check(lseek(file, 0, SEEK_SET) == 0);
	return write(file, at, len);
}

static ssize_t do_pwrite(uint8_t *at, size_t len)
{
	return pwrite(file, at, len, SEG);
}

static ssize_t do_writev(uint8_t *at, size_t len)
{
	struct iovec iov[2];

	check(lseek(file, 0, SEEK_SET) == 0);
	return writev(file, split(at, len, iov), 2);
}

static ssize_t do_read(uint8_t *at, size_t len)
{
	check(lseek(file, at - map, SEEK_SET) == at - map);
	return read(file, at, len);
}

static ssize_t do_pread(uint8_t *at, size_t len)
{
	return pread(file, at, len, at - map);
}

static ssize_t do_readv(uint8_t *at, size_t len)
{
	struct iovec iov[2];

	check(lseek(file, at - map, SEEK_SET) == at - map);
	return readv(file, split(at, len, iov), 2);
}

static ssize_t do_vm_read(uint8_t *at, size_t len)
{
	struct iovec here = { plain, len }, there = { at, len };

	return process_vm_readv(getpid(), &here, 1, &there, 1, 0);
}

static ssize_t do_vm_write(uint8_t *at, size_t len)
{
	struct iovec here = { plain, len }, there = { at, len };

	fill(plain, len, at - map, NEW);
	return process_vm_writev(getpid(), &here, 1, &there, 1, 0);
}

static const struct call {
	const char *name;
	ssize_t (*on)(uint8_t *at, size_t len);
	bool stores;
} calls[] = {
	{ "write", do_write, false },   { "pwrite", do_pwrite, false },
	{ "writev", do_writev, false }, { "process_vm_readv", do_vm_read, false },
	{ "read", do_read, true },      { "pread", do_pread, true },
	{ "readv", do_readv, true },    { "process_vm_writev", do_vm_write, true },
};

/* Restores the file before each test. */
static void restore_file(void)
{
	file_fill(file, 0, SIZE, 0, NEW);
}

/* A call on one segment is done completely, or fails with EFAULT and has changed nothing. */
static void check_in_one(const struct call *c, const char *state, bool works)
{
	uint8_t *at = map + PLACE;
	ssize_t got = c->on(at, SEG);

	if (works) {
		check(got == (ssize_t)SEG, "%s, %s: %zd", c->name, state, got);
		check_bytes(at, SEG, PLACE, c->stores ? NEW : OLD);
	} else {
		check(got == -1 && errno == EFAULT, "%s, %s: %zd", c->name, state, got);
		check_bytes(at, SEG, PLACE, OLD);
	}
	fill(at, SEG, PLACE, OLD);
}

static void check_states(void)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		const struct call *c = &calls[i];

		restore_file();
		absent();
		check_in_one(c, "absent", by_kernel);
		loaded();
		check_in_one(c, "loaded", by_kernel || !c->stores);
		stored();
		check_in_one(c, "stored", true);
		written();
		check_in_one(c, "written", by_kernel || !c->stores);
		absent();
		check(umpin(map + PLACE, SEG, READ_WRITE) == 0);
		check_in_one(c, "pinned", true);
		check(umunpin(map + PLACE, SEG) == 0);
		absent();
		check(umpin(map + PLACE, SEG, PROT_READ) == 0);
		check_in_one(c, "pinned for loads", by_kernel || !c->stores);
		check(umunpin(map + PLACE, SEG) == 0);
	}
}

/* A call begins PART bytes before the end of a stored segment and continues in an absent one. */
static void check_counts(void)
{
	size_t from = PLACE + SEG - PART;

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		const struct call *c = &calls[i];
		ssize_t got, want = by_kernel ? LEN : PART;

		restore_file();
		stored();
		got = c->on(map + from, LEN);
		check(got == want, "%s: %zd of %d", c->name, got, LEN);
		check_bytes(map + from, got, from, c->stores ? NEW : OLD);
		check_bytes(map + from + got, LEN - got, from + got, OLD);
		fill(map + from, LEN, from, OLD);
	}
}

/* With O_DIRECT, a file system transfers all, nothing, or at most the bytes before the absent
 * segment. */
static bool comes_as_said(ssize_t got)
{
	return by_kernel ? got == (ssize_t)(2 * SEG) :
	       got == -1 ? errno == EFAULT :
			   got > 0 && got <= (ssize_t)SEG;
}

static void check_direct(void)
{
	if (direct == -1)
		return;  /* this file system has no direct transfers */
	restore_file();
	stored();
	check(pread(direct, map + PLACE, SEG, PLACE) == (ssize_t)SEG);
	stored();
	check(comes_as_said(pread(direct, map + PLACE, 2 * SEG, PLACE)));
	fill(map + PLACE, 2 * SEG, PLACE, OLD);
	stored();
	check(comes_as_said(pwrite(direct, map + PLACE, 2 * SEG, PLACE)));
}

static size_t drain(int fd)
{
	size_t sum = 0;
	ssize_t got;

	while ((got = read(fd, plain, sizeof(plain))) > 0)
		sum += got;
	return sum;
}

/* Pipes and sockets stop before the absent segment or fail. Only counted bytes are moved. */
static void check_streams(int to, int from)
{
	uint8_t *at = map + PLACE + SEG - PART;
	ssize_t got;

	absent();
	got = write(to, at, LEN);
	check(by_kernel ? got == LEN : got == -1 && errno == EFAULT, "%zd", got);
	check(drain(from) == (by_kernel ? LEN : 0));
	stored();
	got = write(to, at, LEN);
	check(by_kernel ? got == LEN :
	      got == -1 ? errno == EFAULT :
			  got > 0 && got <= PART,
	      "%zd", got);
	check(drain(from) == (got > 0 ? (size_t)got : 0));

	check(write(to, plain, LEN) == LEN);
	absent();
	got = read(from, at, LEN);
	check(by_kernel ? got == LEN : got == -1 && errno == EFAULT, "%zd", got);
	check(drain(from) == (by_kernel ? 0 : LEN));
	check(write(to, plain, LEN) == LEN);
	stored();
	got = read(from, at, LEN);
	check(by_kernel ? got == LEN :
	      got == -1 ? errno == EFAULT :
			  got > 0 && got <= PART,
	      "%zd", got);
	check(drain(from) == LEN - (got > 0 ? (size_t)got : 0));
	fill(map + PLACE, 2 * SEG, PLACE, OLD);
}

static void check_result(int result, int errno_of_it)
{
	check(by_kernel ? result == 0 : result == -1 && errno_of_it == EFAULT, "%d", result);
}

static void check_arguments(void)
{
	struct stat *st = (struct stat *)(map + PLACE);
	char *path = (char *)map + PLACE;
	int got;

	absent();
	got = fstat(file, st);
	check_result(got, errno);
	strcpy(path, "/proc/self/exe");
	got = access(path, R_OK);
	check(got == 0);
	absent();
	got = access(path, R_OK);
	check_result(got, errno);
	fill(map + PLACE, SEG, PLACE, OLD);
}

/* stdio copies small transfers, and passes the buffer of a large one to the system. */
static void check_stdio(void)
{
	char path[320];
	FILE *f;

	close(temp_named("stdio", 0, path));
	f = fopen(path, "we");
	absent();
	for (size_t off = 0; off + 1000 < 4 * SEG; off += 1000)
		check(fwrite(map + PLACE + off, 1, 1000, f) == 1000);
	check(fflush(f) == 0);
	absent();
	check((fwrite(map + PLACE, 1, 4 * SEG, f) == 4 * SEG) == by_kernel);
	check(by_kernel ? !ferror(f) : ferror(f) && errno == EFAULT);
	fclose(f);
	f = fopen(path, "re");
	absent();
	for (size_t off = 0; off + 1000 < 4 * SEG; off += 1000)
		check(fread(map + PLACE + off, 1, 1000, f) == 1000);
	rewind(f);
	absent();
	check((fread(map + PLACE, 1, 3 * SEG, f) == 3 * SEG) == by_kernel &&
	      !ferror(f) == by_kernel);
	fclose(f);
	check_bytes(map + PLACE, 3 * SEG, PLACE, OLD);
}

static void check_all(unsigned engine)
{
	prepare(engine);
	check_states();
	check_counts();
	check_direct();
	check_streams(ends[1], ends[0]);
	check_streams(sockets[0], sockets[1]);
	check_arguments();
	check_stdio();
	check(umunmap(map, 1) == 0);
}

Test(with, segv)
{
	check_all(UMMAP_ENGINE_SEGV);
}

Test(with, uffd)
{
	check_all(UMMAP_ENGINE_UFFD);
}
