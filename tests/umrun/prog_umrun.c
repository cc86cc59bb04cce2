/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_umrun - operations of a program on its file mappings, by itself and under umrun. The same
 * checks hold for both. Under umrun, the library must have taken the mappings. `prog_umrun TEXT`
 * runs the parts with TEXT in their names.
 */
#include "common.h"
#include "loop.h"
#include "small_fs.h"

#include <aio.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define PAGE ((size_t)4096)
#define SIZE (16 * MIB + 5000)  /* the file ends within a page */
#define OLD 1
#define NEW 2
#define NOBODY 65534

static char data[320];  /* the file */

static int open_data(int flags)
{
	int fd = open(data, flags);

	check(fd >= 0, "%s", data);
	return fd;
}

static uint8_t *map_data(size_t len, int prot, int flags, off_t off)
{
	int fd = open_data(prot & PROT_WRITE ? O_RDWR : O_RDONLY);
	void *m = mmap(NULL, len, prot, flags, fd, off);

	check(m != MAP_FAILED);
	close(fd);
	return m;
}

/* Whether a load of the byte raises the signal. */
static sigjmp_buf jump;

static void on_signal(int sig)
{
	siglongjmp(jump, sig);
}

static int signal_of(volatile uint8_t *at, bool store)
{
	int sig;

	signal(SIGBUS, on_signal);
	signal(SIGSEGV, on_signal);
	sig = sigsetjmp(jump, 1);
	if (sig == 0) {
		uint8_t was = *at;

		if (store)
			*at = was;
	}
	signal(SIGBUS, SIG_DFL);
	signal(SIGSEGV, SIG_DFL);
	return sig;
}

static size_t count_areas(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	size_t lines = 0;
	int c;

	while ((c = getc(maps)) != EOF)
		lines += c == '\n';
	fclose(maps);
	return lines;
}

/* ---- Parts. The file contains the pattern OLD when a part begins. ---- */

static void loads(void)
{
	uint8_t *shared = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
	uint8_t *private = map_data(8 * MIB, PROT_READ, MAP_PRIVATE, 2 * MIB);

	for (int round = 0; round < 2; round++) {
		check_bytes(shared, SIZE, 0, OLD);
		check_bytes(private, 8 * MIB, 2 * MIB, OLD);
	}
	check_zeros(shared + SIZE, PAGE - SIZE % PAGE);
	check(signal_of(shared, true) == SIGSEGV);
	check(madvise(shared, SIZE, MADV_RANDOM) == 0 && madvise(shared, SIZE, MADV_WILLNEED) == 0);
	check(madvise(shared + MIB, MIB, MADV_DONTNEED) == 0);
	check(posix_madvise(shared, SIZE, POSIX_MADV_SEQUENTIAL) == 0);
	check_bytes(shared, SIZE, 0, OLD);
	check(munmap(shared, SIZE) == 0 && munmap(private, 8 * MIB) == 0);
	check(signal_of(shared, false) == SIGSEGV);
}

static void stores(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	int fd = open_data(O_RDWR);

	fill(m, SIZE, 0, NEW);
	check(msync(m, MIB, MS_ASYNC) == 0 && msync(m, SIZE, MS_SYNC) == 0);
	check_file(fd, 0, SIZE, 0, NEW);
	/* A call that reads the file finds stores without msync(2). */
	fill(m + 3 * MIB, 2 * MIB, 0, 3);
	check_file(fd, 3 * MIB, 2 * MIB, 0, 3);
	check(lseek(fd, 4 * MIB, SEEK_SET) == 4 * MIB);
	fill(m + 4 * MIB, 100, 0, 4);
	{
		uint8_t buf[100];

		check(read(fd, buf, 100) == 100);
		check_bytes(buf, 100, 0, 4);
	}
	fill(m, SIZE, 0, NEW);
	check(munmap(m, SIZE) == 0);
	check_file(fd, 0, SIZE, 0, NEW);
	close(fd);
}

/* Writes a mapped file by write(2). */
static void written_meanwhile(int prot)
{
	uint8_t *m = map_data(SIZE, prot, MAP_SHARED, 0);
	int fd = open_data(O_RDWR);
	uint8_t buf[5000];
	struct iovec iov[2] = { { buf, 1000 }, { buf + 1000, 4000 } };

	check_bytes(m, SIZE, 0, OLD);
	for (off_t at = 777; at < (off_t)SIZE - 5000; at += 1234567) {
		fill(buf, 5000, 0, (uint64_t)at);
		if (at % 3 == 0)
			check(pwritev(fd, iov, 2, at) == 5000);
		else if (at % 3 == 1)
			check(lseek(fd, at, SEEK_SET) == at && write(fd, buf, 5000) == 5000);
		else
			check(pwrite(fd, buf, 5000, at) == 5000);
		check_bytes(m + at, 5000, 0, (uint64_t)at);
		check(m[at - 1] == pattern((uint64_t)at - 1, OLD));
		check(m[at + 5000] == pattern((uint64_t)at + 5000, OLD));
	}
	check(munmap(m, SIZE) == 0);
	close(fd);
}

static void written_while_loaded(void)
{
	written_meanwhile(PROT_READ);
}

static void written_while_stored(void)
{
	written_meanwhile(READ_WRITE);
}

/* Calls that move bytes between descriptors, from and to a file with a writable mapping. */
static void copies(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	int fd = open_data(O_RDWR), other = temp_file(0), ends[2];
	off_t from, to;

	fill(m, SIZE, 0, NEW);
	for (from = to = 0; from < (off_t)SIZE;)
		check(copy_file_range(fd, &from, other, &to, SIZE, 0) > 0);
	check_file(other, 0, SIZE, 0, NEW);
	fill(m, SIZE, 0, 3);
	check(lseek(other, 0, SEEK_SET) == 0);
	for (from = 0; from < (off_t)SIZE;)
		check(sendfile(other, fd, &from, SIZE) > 0);
	check_file(other, 0, SIZE, 0, 3);
	fill(m, SIZE, 0, 4);
	from = 5 * MIB;
	to = 0;
	check(pipe(ends) == 0 && splice(fd, &from, ends[1], NULL, 4096, 0) == 4096);
	check(splice(ends[0], NULL, other, &to, 4096, 0) == 4096);
	check_file(other, 0, 4096, 5 * MIB, 4);

	/* A copy into the file replaces stores in its range, and no others. */
	file_fill(other, 0, SIZE, 0, NEW);
	fill(m, SIZE, 0, 5);
	from = to = 1000;
	while (to < (off_t)(3 * MIB))
		check(copy_file_range(other, &from, fd, &to, 3 * MIB - (size_t)to, 0) > 0);
	check_bytes(m + 1000, 3 * MIB - 1000, 1000, NEW);
	check_bytes(m + 3 * MIB, SIZE - 3 * MIB, 3 * MIB, 5);
	from = 4 * MIB;
	check(lseek(fd, from, SEEK_SET) == from && sendfile(fd, other, &from, MIB) == (ssize_t)MIB);
	check_bytes(m + 4 * MIB, MIB, 4 * MIB, NEW);
	check(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 7 * MIB + 100, MIB) == 0 ||
	      errno == EOPNOTSUPP);
	if (m[7 * MIB + 200] != pattern(7 * MIB + 200, 5)) {
		for (size_t i = 0; i < MIB; i++)
			check(m[7 * MIB + 100 + i] == 0);
	}
	check(munmap(m, SIZE) == 0);
	check_file(fd, 1000, 3 * MIB - 1000, 1000, NEW);
	check_file(fd, 4 * MIB, MIB, 4 * MIB, NEW);
	close(ends[0]);
	close(ends[1]);
	close(other);
	close(fd);
}

/* Checks the file by system calls that umrun does not take. */
static void check_stored(int fd, uint64_t seed)
{
	static uint8_t buf[SIZE];
	size_t at = 0;
	long n;

	while (at < SIZE && (n = syscall(SYS_pread64, fd, buf + at, SIZE - at, at)) > 0)
		at += (size_t)n;
	check(at == SIZE);
	check_bytes(buf, SIZE, 0, seed);
}

static void made_durable(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	int fd = open_data(O_RDWR);

	fill(m, SIZE, 0, 3);
	check(fsync(fd) == 0);
	check_stored(fd, 3);
	fill(m, SIZE, 0, NEW);
	check(fdatasync(fd) == 0);
	check_stored(fd, NEW);
	close(fd);
}

/* Two mappings of a file show each other's stores at once. */
static void twice(void)
{
	uint8_t *a = map_data(SIZE, PROT_READ, MAP_SHARED, 0), *b, *c;

	check_bytes(a, MIB, 0, OLD);
	b = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	fill(b, SIZE, 0, NEW);
	check_bytes(a, SIZE, 0, NEW);
	c = map_data(4 * MIB, READ_WRITE, MAP_SHARED, 4 * MIB);
	fill(c, 4 * MIB, 0, 3);
	check_bytes(a + 4 * MIB, 4 * MIB, 0, 3);
	check_bytes(b + 4 * MIB, 4 * MIB, 0, 3);
	check(munmap(a, SIZE) == 0 && munmap(b, SIZE) == 0 && munmap(c, 4 * MIB) == 0);
}

/* The first mapping has stores that are not in the file when the second one is made. */
static void twice_with_changes(void)
{
	uint8_t *a = map_data(SIZE, READ_WRITE, MAP_SHARED, 0), *b;

	fill(a, SIZE, 0, NEW);
	b = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
	check_bytes(b, SIZE, 0, NEW);
	fill(a + 100, 100, 0, 3);
	check_bytes(b + 100, 100, 0, 3);
	check(munmap(b, SIZE) == 0);
	check_bytes(a + 100, 100, 0, 3);
	check(munmap(a, SIZE) == 0);
}

static void parts(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);

	fill(m, SIZE, 0, NEW);
	check(munmap(m + 2 * MIB, 3 * MIB) == 0);
	check(signal_of(m + 3 * MIB, false) == SIGSEGV);
	check_bytes(m, 2 * MIB, 0, NEW);
	check_bytes(m + 5 * MIB, SIZE - 5 * MIB, 5 * MIB, NEW);
	check(munmap(m, SIZE) == 0);

	m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	fill(m, SIZE, 0, 3);
	check(mprotect(m + MIB, MIB, PROT_READ) == 0);
	check(signal_of(m + MIB, true) == SIGSEGV && signal_of(m, true) == 0);
	check(signal_of(m + 2 * MIB, true) == 0);
	check_bytes(m, SIZE, 0, 3);
	check(munmap(m, SIZE) == 0);

	m = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
	check_bytes(m, SIZE, 0, 3);
	check(mmap(m + 4 * MIB, MIB, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      m + 4 * MIB);
	check_zeros(m + 4 * MIB, MIB);
	check_bytes(m, 4 * MIB, 0, 3);
	check_bytes(m + 5 * MIB, SIZE - 5 * MIB, 5 * MIB, 3);
	check(munmap(m, SIZE) == 0);
}

/* A private mapping becomes writable. */
static void becomes_private(void)
{
	uint8_t *m = map_data(SIZE, PROT_READ, MAP_PRIVATE, 0);
	int fd = open_data(O_RDONLY);

	check_bytes(m, SIZE, 0, OLD);
	check(mprotect(m, SIZE, READ_WRITE) == 0);
	fill(m, SIZE, 0, NEW);
	check_bytes(m, SIZE, 0, NEW);
	check_file(fd, 0, SIZE, 0, OLD);
	check(munmap(m, SIZE) == 0);
	close(fd);
}

static uint8_t *map_privately(void)
{
	int fd = open_data(O_RDONLY);
	void *m = mmap(NULL, SIZE, READ_WRITE, MAP_PRIVATE | MAP_POPULATE, fd, 0);

	check(m != MAP_FAILED);
	close(fd);
	return m;
}

static void *store_quarter(void *at)
{
	fill(at, 4 * MIB, 0, NEW);
	return NULL;
}

/* Threads store to a private mapping, at the same time: no store is lost, and none reaches the
 * file. A child has the stores, and its own stay with it. */
static void stores_privately(void)
{
	uint8_t *m = map_privately();
	pthread_t thread[4];
	int fd = open_data(O_RDONLY);
	pid_t child;

	check_bytes(m, SIZE, 0, OLD);
	for (int i = 0; i < 4; i++)
		check(pthread_create(&thread[i], NULL, store_quarter, m + i * 4 * MIB) == 0);
	for (int i = 0; i < 4; i++)
		check(pthread_join(thread[i], NULL) == 0);
	for (int i = 0; i < 4; i++)
		check_bytes(m + i * 4 * MIB, 4 * MIB, 0, NEW);
	child = fork();
	if (child == 0) {
		check_bytes(m, 4 * MIB, 0, NEW);
		check_bytes(m + 16 * MIB, SIZE - 16 * MIB, 16 * MIB, OLD);
		fill(m, MIB, 0, 3);
		_exit(0);
	}
	check_exits(wait_child(child), 0);
	check_bytes(m, 4 * MIB, 0, NEW);
	check_file(fd, 0, SIZE, 0, OLD);
	check(munmap(m, SIZE) == 0);
	close(fd);
}

/* System calls store to private mappings: each to one that has no stores yet. */
static void calls_that_store_privately(void)
{
	uint8_t *m = map_privately();
	int fd = open_data(O_RDONLY), pair[2];
	struct iovec part;
	struct msghdr msg = { .msg_iov = &part, .msg_iovlen = 1 };

	check(pread(fd, m + MIB, 2 * MIB, 3 * MIB) == 2 * MIB);
	check_bytes(m + MIB, 2 * MIB, 3 * MIB, OLD);
	check_bytes(m + 3 * MIB, MIB, 3 * MIB, OLD);
	check(munmap(m, SIZE) == 0);
	m = map_privately();
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && send(pair[0], "abc", 4, 0) == 4);
	part = (struct iovec){ m + 5 * MIB, 4 };
	check(recvmsg(pair[1], &msg, 0) == 4 && strcmp((char *)m + 5 * MIB, "abc") == 0);
	check_bytes(m + 6 * MIB, MIB, 6 * MIB, OLD);
	check(munmap(m, SIZE) == 0);
	m = map_privately();
	check(fstat(fd, (struct stat *)(m + MIB)) == 0);
	check(((struct stat *)(m + MIB))->st_size == SIZE);
	check_file(fd, 0, SIZE, 0, OLD);
	check(munmap(m, SIZE) == 0);
	close(pair[0]);
	close(pair[1]);
	close(fd);
}

/* A program that has read the header of a file, and needs no more of the end, unmaps both. */
static void ends_of_mapping(void)
{
	uint8_t *m = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
	uint8_t *w;
	int fd = open_data(O_RDONLY);
	pid_t child;

	check(munmap(m, MIB) == 0 && munmap(m + 15 * MIB, SIZE - 15 * MIB) == 0);
	check(munmap(m, MIB) == 0 && munmap(m + MIB, PAGE) == 0);
	check(madvise(m + 2 * MIB, MIB, MADV_POPULATE_READ) == 0);
	check_bytes(m + MIB + PAGE, 14 * MIB - PAGE, MIB + PAGE, OLD);
	child = fork();
	if (child == 0) {
		check_bytes(m + MIB + PAGE, 14 * MIB - PAGE, MIB + PAGE, OLD);
		_exit(0);
	}
	check_exits(wait_child(child), 0);
	check(munmap(m + MIB + PAGE, 14 * MIB - PAGE) == 0);
	check(signal_of(m + 5 * MIB, false) == SIGSEGV);
	w = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	fill(w, SIZE, 0, NEW);
	check(munmap(w, 4 * MIB) == 0);
	check_file(fd, 0, 4 * MIB, 0, NEW);
	check_bytes(w + 4 * MIB, SIZE - 4 * MIB, 4 * MIB, NEW);
	check(munmap(w + 4 * MIB, SIZE - 4 * MIB) == 0);
	check_file(fd, 0, SIZE, 0, NEW);
	close(fd);
}

static void moves(void)
{
	uint8_t *m = map_data(4 * MIB, PROT_READ, MAP_SHARED, MIB), *w;

	check_bytes(m, 4 * MIB, MIB, OLD);
	m = mremap(m, 4 * MIB, 10 * MIB, MREMAP_MAYMOVE);
	check(m != MAP_FAILED);
	check_bytes(m, 10 * MIB, MIB, OLD);
	m = mremap(m, 10 * MIB, 2 * MIB, 0);
	check(m != MAP_FAILED);
	check_bytes(m, 2 * MIB, MIB, OLD);
	check(munmap(m, 2 * MIB) == 0);
	w = map_data(4 * MIB, READ_WRITE, MAP_SHARED, 0);
	fill(w, 4 * MIB, 0, NEW);
	w = mremap(w, 4 * MIB, 8 * MIB, MREMAP_MAYMOVE);
	check(w != MAP_FAILED);
	check_bytes(w, 4 * MIB, 0, NEW);
	check_bytes(w + 4 * MIB, 4 * MIB, 4 * MIB, OLD);
	check(munmap(w, 8 * MIB) == 0);
}

/* Mappings longer than a file that grows and shrinks. */
static void file_ends(void)
{
	size_t len = SIZE + 4 * MIB, end = (SIZE + PAGE - 1) & ~(PAGE - 1);
	uint8_t *m = map_data(len, READ_WRITE, MAP_SHARED, 0);
	int fd = open_data(O_RDWR);

	fill(m, SIZE, 0, NEW);
	check(signal_of(m + end, false) == SIGBUS && signal_of(m + end - 1, false) == 0);
	check(ftruncate(fd, (off_t)len) == 0);
	check_zeros(m + SIZE, len - SIZE);
	fill(m + SIZE, len - SIZE, SIZE, NEW);
	check_file(fd, 0, len, 0, NEW);
	check(ftruncate(fd, 3 * MIB) == 0);
	check_bytes(m, 3 * MIB, 0, NEW);
	check(signal_of(m + 3 * MIB, false) == SIGBUS && signal_of(m + SIZE, false) == SIGBUS);
	check(munmap(m, len) == 0);
	close(fd);
}

static void forks(void)
{
	uint8_t *r = map_data(4 * MIB, PROT_READ, MAP_PRIVATE, 0);
	uint8_t *m = map_data(8 * MIB, READ_WRITE, MAP_SHARED, 8 * MIB);
	int status;
	pid_t child;

	check_bytes(r, 4 * MIB, 0, OLD);
	check(munmap(r, 4 * MIB) == 0);
	fill(m, 8 * MIB, 0, NEW);
	child = fork();
	check(child >= 0);
	if (child == 0) {
		check_bytes(m, 8 * MIB, 0, NEW);
		fill(m + MIB, MIB, 0, 3);
		_exit(0);
	}
	check(waitpid(child, &status, 0) == child);
	check_exits(status, 0);
	check_bytes(m + MIB, MIB, 0, 3);
	check_bytes(m, MIB, 0, NEW);
	fill(m, 8 * MIB, 0, 5);
	check(munmap(m, 8 * MIB) == 0);
}

/* A program with a read-only mapping forks. */
static void forks_and_loads(void)
{
	uint8_t *m = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
	int status;
	pid_t child;

	check_bytes(m, MIB, 0, OLD);
	child = fork();
	check(child >= 0);
	if (child == 0) {
		check_bytes(m, SIZE, 0, OLD);
		check(munmap(m, SIZE) == 0);
		m = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
		check_bytes(m, SIZE, 0, OLD);
		_exit(0);
	}
	check_bytes(m, SIZE, 0, OLD);
	check(waitpid(child, &status, 0) == child);
	check_exits(status, 0);
	check(munmap(m, SIZE) == 0);
}

/* System calls get addresses of absent segments. */
static void calls(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	int out = temp_file(0), pair[2];
	size_t at = 0;
	ssize_t n;
	FILE *file;

	while (at < SIZE && (n = write(out, m + at, SIZE - at)) > 0)
		at += (size_t)n;
	check(at == SIZE);
	check_file(out, 0, SIZE, 0, OLD);
	file_fill(out, 0, SIZE, 0, NEW);
	check(pread(out, m, SIZE, 0) == (ssize_t)SIZE);
	check_bytes(m, SIZE, 0, NEW);
	{
		struct iovec iov[3] = { { m + 9 * MIB, 1000 }, { m, 3 * MIB }, { m + 5 * MIB, 7 } };

		check(pwritev(out, iov, 3, 0) == (ssize_t)(3 * MIB + 1007));
		check_file(out, 1000, 3 * MIB, 0, NEW);
		check(lseek(out, 1000, SEEK_SET) == 1000);
		check(readv(out, iov + 1, 1) == (ssize_t)(3 * MIB));
		check_bytes(m, 3 * MIB, 0, NEW);
	}
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	check(send(pair[0], m + 11 * MIB, 5000, 0) == 5000);
	check(recv(pair[1], m + 1 * MIB, 5000, MSG_WAITALL) == 5000);
	check_bytes(m + MIB, 5000, 11 * MIB, NEW);
	fill(m + MIB, 5000, MIB, NEW);
	file = fdopen(dup(out), "r+");
	rewind(file);
	check(fwrite(m, 1, SIZE, file) == SIZE && fflush(file) == 0);
	rewind(file);
	check(fread(m, 1000, SIZE / 1000, file) == SIZE / 1000);
	fclose(file);
	check_bytes(m, SIZE, 0, NEW);
	check(mlock(m + MIB, 100000) == 0 || errno == ENOMEM);
	check(munlock(m + MIB, 100000) == 0);
	close(pair[0]);
	close(pair[1]);
	close(out);
	check(munmap(m, SIZE) == 0);
}

static struct msghdr one_part(struct iovec *iov, void *at, size_t len)
{
	*iov = (struct iovec){ at, len };
	return (struct msghdr){ .msg_iov = iov, .msg_iovlen = 1 };
}

int __poll_chk(struct pollfd *all, nfds_t count, int ms, size_t room);
int __ppoll_chk(struct pollfd *all, nfds_t count, const struct timespec *timeout,
		const sigset_t *mask, size_t room);
ssize_t __readlink_chk(const char *path, char *buf, size_t len, size_t room);
ssize_t __readlinkat_chk(int folder, const char *path, char *buf, size_t len, size_t room);
char *__getcwd_chk(char *buf, size_t len, size_t room);

/* Calls that a compiler makes to check the size of a buffer (_FORTIFY_SOURCE). fd is readable. */
static void call_checked(uint8_t *m, int fd)
{
	struct pollfd *one = (struct pollfd *)(void *)(m + 6 * MIB);
	char *there = (char *)m + 9 * MIB, folder[PATH_MAX];

	*one = (struct pollfd){ .fd = fd, .events = POLLIN };
	check(madvise(m, SIZE, MADV_DONTNEED) == 0 && __poll_chk(one, 1, 0, sizeof(*one)) == 1);
	check(one->revents == POLLIN);
	one->revents = 0;
	check(madvise(m, SIZE, MADV_DONTNEED) == 0);
	check(__ppoll_chk(one, 1, NULL, NULL, sizeof(*one)) == 1 && one->revents == POLLIN);
	check(__readlink_chk("/proc/self/exe", there, 1000, 1000) > 0);
	check(madvise(m, SIZE, MADV_DONTNEED) == 0);
	check(__readlinkat_chk(AT_FDCWD, "/proc/self/exe", there, 1000, 1000) > 0);
	check(madvise(m, SIZE, MADV_DONTNEED) == 0);
	check(__getcwd_chk(there, PATH_MAX, PATH_MAX) == there);
	check(getcwd(folder, sizeof(folder)) && strcmp(folder, there) == 0);
}

/* Messages and structures in absent segments. */
static void messages(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	int pair[2], waiting = 0, streams[2];
	struct iovec iov[4];
	struct mmsghdr many[2] = { { .msg_len = 0 } };
	struct msghdr msg;
	struct stat st, *held = (struct stat *)(void *)(m + 7 * MIB);
	FILE *file;

	check(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, streams) == 0);
	msg = one_part(iov, m + 11 * MIB, 5000);
	check(sendmsg(pair[0], &msg, 0) == 5000);
	msg = one_part(iov, m + 1 * MIB, 6000);
	check(recvmsg(pair[1], &msg, 0) == 5000);
	check_bytes(m + MIB, 5000, 11 * MIB, OLD);
	check(sendto(pair[0], m + 12 * MIB, 4000, 0, NULL, 0) == 4000);
	check(recvfrom(pair[1], m + 2 * MIB, 9000, 0, NULL, NULL) == 4000);
	check_bytes(m + 2 * MIB, 4000, 12 * MIB, OLD);
	many[0].msg_hdr = one_part(iov, m + 13 * MIB, 3000);
	many[1].msg_hdr = one_part(iov + 1, m + 14 * MIB, 2000);
	check(sendmmsg(pair[0], many, 2, 0) == 2 && many[0].msg_len == 3000);
	check(many[1].msg_len == 2000);
	many[0].msg_hdr = one_part(iov, m + 3 * MIB, 3000);
	many[1].msg_hdr = one_part(iov + 1, m + 4 * MIB, 3000);
	check(recvmmsg(pair[1], many, 2, 0, NULL) == 2 && many[0].msg_len == 3000);
	check(many[1].msg_len == 2000);
	check_bytes(m + 3 * MIB, 3000, 13 * MIB, OLD);
	check_bytes(m + 4 * MIB, 2000, 14 * MIB, OLD);
	check(write(streams[0], "12345", 5) == 5);
	check(ioctl(streams[1], FIONREAD, m + 5 * MIB) == 0);
	memcpy(&waiting, m + 5 * MIB, sizeof(waiting));
	check(waiting == 5);
	check(stat(data, &st) == 0 && stat(data, held) == 0 && memcmp(&st, held, sizeof(st)) == 0);
	check(getrandom(m + 8 * MIB, 3 * MIB, 0) > 0);
	check(readlink("/proc/self/exe", (char *)m + 9 * MIB, 1000) > 0);
	call_checked(m, streams[1]);
	memset(m + 10 * MIB, 'x', 100000);
	m[10 * MIB + 100000] = 0;
	file = tmpfile();
	check(madvise(m, SIZE, MADV_DONTNEED) == 0 && fputs((char *)m + 10 * MIB, file) >= 0);
	check(fflush(file) == 0);
	check(fstat(fileno(file), &st) == 0 && st.st_size == 100000);
	fclose(file);
	check(munmap(m, SIZE) == 0);
}

/* Files also become shorter by calls on their paths. */

/* Wrong addresses, flags and advice are refused with and without the library. */
static void refusals(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	unsigned char in_memory[2];
	int fd = open_data(O_RDWR);

	errno = 0;
	check(msync(m, PAGE, MS_SYNC | MS_ASYNC) == -1 && errno == EINVAL);
	check(msync(m, PAGE, 64) == -1 && msync(m + 1, PAGE, MS_SYNC) == -1 && errno == EINVAL);
	check(madvise(m, PAGE, 1234) == -1 && errno == EINVAL);
	check(madvise(m + 1, PAGE, MADV_RANDOM) == -1 && errno == EINVAL);
	check(posix_madvise(m, PAGE, 1234) == EINVAL);
	check(mprotect(m + 1, PAGE, READ_WRITE) == -1 && errno == EINVAL);
	check(mincore(m + 1, PAGE, in_memory) == -1 && errno == EINVAL);
	check(mlock2(m, PAGE, 64) == -1 && errno == EINVAL);
	check(mmap(NULL, MIB, PROT_READ, 0, fd, 0) == MAP_FAILED && errno == EINVAL);
	check_bytes(m, SIZE, 0, OLD);
	check(munmap(m, SIZE) == 0);
	close(fd);
}

/* A free address that the program asks for is the address of the mapping. */
static void wishes(void)
{
	const size_t align = 2 * MIB;  /* as the kernel may align it, for huge pages */
	int fd = open_data(O_RDONLY);
	uint8_t *m, *room = mmap(NULL, SIZE + 2 * align, PROT_NONE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *wished = (uint8_t *)(((uintptr_t)room + align - 1) / align * align);

	check(room != MAP_FAILED && munmap(room, SIZE + 2 * align) == 0);
	m = mmap(wished, SIZE, PROT_READ, MAP_SHARED, fd, 0);
	check(m == wished, "%p, and not %p", (void *)m, (void *)wished);
	check_bytes(m, SIZE, 0, OLD);
	check(munmap(m, SIZE) == 0);
	close(fd);
}

static void locks(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);

	check(mlock2(m + MIB, 10 * PAGE, 0) == 0);
	check(mlock2(m + 3 * MIB, 4 * MIB, MLOCK_ONFAULT) == 0);
	check_bytes(m, SIZE, 0, OLD);
	fill(m, SIZE, 0, NEW);
	check(munlock(m, SIZE) == 0);
	check_bytes(m, SIZE, 0, NEW);
	check(munmap(m, SIZE) == 0);
}

/* The kernel has a small read-only mapping of the file, which is older than the writable one. */
static void small_one_before(void)
{
	uint8_t *small = map_data(10 * PAGE, PROT_READ, MAP_SHARED, 0);
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);

	fill(m, 10 * PAGE, 0, NEW);
	check_bytes(small, 10 * PAGE, 0, NEW);
	fill(m, SIZE, 0, NEW);
	check(munmap(m, SIZE) == 0 && munmap(small, 10 * PAGE) == 0);
}

/* A small mapping, which the kernel has, becomes writable later. */
static void small_one_changed(void)
{
	uint8_t *m = map_data(SIZE, PROT_READ, MAP_SHARED, 0), *small;
	int fd = open_data(O_RDWR);

	check_bytes(m, SIZE, 0, OLD);
	small = mmap(NULL, 10 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
	check(small != MAP_FAILED && mprotect(small, 10 * PAGE, READ_WRITE) == 0);
	check_bytes(m, 10 * PAGE, 0, OLD);
	fill(small, 10 * PAGE, 0, NEW);
	check_bytes(m, 10 * PAGE, 0, NEW);
	check_bytes(m + 10 * PAGE, SIZE - 10 * PAGE, 10 * PAGE, OLD);
	check(munmap(m, SIZE) == 0 && munmap(small, 10 * PAGE) == 0);
	close(fd);
}

/* A region whose part has got other rights belongs to the kernel. */
static void handed_back_before(void)
{
	uint8_t *n = map_data(SIZE, PROT_READ, MAP_SHARED, 0), *m;

	check(mprotect(n + 5 * MIB, MIB, PROT_NONE) == 0);
	m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	fill(m, 5 * MIB, 0, NEW);
	check_bytes(n, 5 * MIB, 0, NEW);
	check(munmap(m, SIZE) == 0 && munmap(n, SIZE) == 0);
}

/* Memory areas of a region end with it, except those that the program has mapped behind it. */
static void areas(void)
{
	int fd = open_data(O_RDONLY);
	uint8_t *m, *behind;
	size_t before = 0;

	for (int i = 0; i < 400; i++) {
		m = map_data(2 * MIB, PROT_READ, MAP_SHARED, 0);
		check(mprotect(m + MIB, PAGE, PROT_NONE) == 0 && munmap(m, 2 * MIB) == 0);
		before = i == 100 ? count_areas() : before;
	}
	check(count_areas() < before + 50, "%zu memory areas, and %zu before", count_areas(),
	      before);
	m = map_data(2 * MIB, PROT_READ, MAP_SHARED, 0);
	behind = mmap(m + 2 * MIB, PAGE, READ_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (behind == MAP_FAILED && errno == EEXIST)
		behind = mmap(m + 2 * MIB, PAGE, READ_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	check(behind == m + 2 * MIB);
	fill(behind, PAGE, 0, 3);
	check_bytes(m, 2 * MIB, 0, OLD);
	check(munmap(m, 2 * MIB) == 0);
	check_bytes(behind, PAGE, 0, 3);
	check(munmap(behind, PAGE) == 0);
	close(fd);
}

/* One thread stores next to the bytes that another one writes. */
static atomic_bool writing;

static void *store_beside(void *arg)
{
	volatile uint8_t *m = arg;
	uint8_t value = 0;

	for (; writing; value++) {
		for (size_t at = 0; at < 64 * PAGE; at += PAGE)
			m[at] = value;
	}
	return NULL;
}

static void written_beside_stores(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0), wrote[64];
	int fd = open_data(O_RDWR);
	pthread_t thread;

	writing = true;
	check(pthread_create(&thread, NULL, store_beside, m) == 0);
	for (size_t i = 0; i < 2000; i++) {
		size_t at = i % 64 * PAGE + 100;

		fill(wrote, sizeof(wrote), 0, i);
		check(pwrite(fd, wrote, sizeof(wrote), (off_t)at) == (ssize_t)sizeof(wrote));
		check_bytes(m + at, sizeof(wrote), 0, i);
	}
	writing = false;
	check(pthread_join(thread, NULL) == 0);
	for (size_t i = 2000 - 64; i < 2000; i++)
		check_bytes(m + i % 64 * PAGE + 100, sizeof(wrote), 0, i);
	check(munmap(m, SIZE) == 0);
	for (size_t i = 2000 - 64; i < 2000; i++)
		check_file(fd, (off_t)(i % 64 * PAGE + 100), sizeof(wrote), 0, i);
	close(fd);
}

/* Writes a file from a mapping of itself: the kernel waits for memory while it locks the file. */
static void calls_of_itself(void)
{
	uint8_t *m = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
	int fd = open_data(O_RDWR);

	alarm(60);
	check(pwrite(fd, m + 8 * MIB + 100, 3 * MIB, 4 * MIB) == (ssize_t)(3 * MIB));
	check_file(fd, 4 * MIB, 3 * MIB, 8 * MIB + 100, OLD);
	check_bytes(m + 4 * MIB, 3 * MIB, 8 * MIB + 100, OLD);
	check(munmap(m, SIZE) == 0);
	m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	fill(m, 4 * MIB, 0, NEW);
	check(pwrite(fd, m + 100, MIB, 9 * MIB) == (ssize_t)MIB);
	check_bytes(m + 9 * MIB, MIB, 100, NEW);
	alarm(0);
	check(munmap(m, SIZE) == 0);
	close(fd);
}

/* The parts of a message stay one message, and a call does not wait for more than a pipe has. */
static void calls_on_sockets(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0), there[3000];
	size_t whole = SIZE / PAGE * PAGE;
	struct iovec parts[2] = { { m + MIB, 1000 }, { m + 5 * MIB, 2000 } };
	struct iovec in[2] = { { m + 2 * MIB, 1000 }, { there, 2000 } };
	int pair[2], ends[2];

	alarm(60);
	check(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && pipe(ends) == 0);
	check(writev(pair[0], parts, 2) == 3000);
	check(recv(pair[1], there, 3000, MSG_DONTWAIT) == 3000);
	check_bytes(there, 1000, MIB, OLD);
	check_bytes(there + 1000, 2000, 5 * MIB, OLD);
	/* Memory across the end of the region, behind which the kernel maps the rest. */
	check(write(pair[0], m + whole - 500, 900) == 900);
	check(recv(pair[1], there, 3000, MSG_DONTWAIT) == 900);
	check_bytes(there, 900, whole - 500, OLD);
	check(sendto(pair[0], m + whole - 700, 900, 0, NULL, 0) == 900);
	check(recv(pair[1], m + whole - 100, 900, MSG_DONTWAIT) == 900);
	check_bytes(m + whole - 100, 900, whole - 700, OLD);
	fill(there, 3000, 0, 3);
	check(write(pair[0], there, 3000) == 3000 && readv(pair[1], in, 2) == 3000);
	check_bytes(m + 2 * MIB, 1000, 0, 3);
	check_bytes(there, 2000, 1000, 3);
	check(write(ends[1], there, 1000) == 1000 && readv(ends[0], in, 2) == 1000);
	check_bytes(m + 2 * MIB, 1000, 1000, 3);
	alarm(0);
	close(pair[0]);
	close(pair[1]);
	close(ends[0]);
	close(ends[1]);
	check(munmap(m, SIZE) == 0);
}

/* A locked region is handed over within a second, while a thread of the library runs. */
static void forks_with_locks(void)
{
	alarm(60);
	for (int i = 0; i < 2; i++) {
		pid_t child = fork();
		int status;

		check(child >= 0);
		if (child == 0) {
			uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);

			alarm(30);
			check(mlock(m + MIB, PAGE) == 0);
			check(fork() >= 0);
			check_bytes(m, 2 * MIB, 0, OLD);
			_exit(0);
		}
		check(waitpid(child, &status, 0) == child);
		check_exits(status, 0);
	}
	alarm(0);
}

static void shorten_by(int way)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	int fd = -1;
	FILE *file = NULL;

	fill(m, SIZE, 0, NEW);
	switch (way) {
	case 0: check(truncate(data, MIB) == 0); break;
	case 1: fd = open(data, O_RDWR | O_TRUNC); break;
	case 2: fd = creat(data, 0600); break;
	case 3: fd = openat(AT_FDCWD, data, O_WRONLY | O_TRUNC | O_CREAT, 0600); break;
	case 4: file = fopen(data, "w"); break;
	}
	check(way == 0 || fd >= 0 || file);
	if (way == 0)
		check_bytes(m, MIB, 0, NEW);
	check(signal_of(m + 2 * MIB, false) == SIGBUS);
	check(signal_of(m + (way ? 0 : MIB), false) == SIGBUS);
	check(munmap(m, SIZE) == 0);
	if (file)
		fclose(file);
	fd = open_data(O_RDWR);
	file_fill(fd, 0, SIZE, 0, OLD);
	close(fd);
}

static void truncations(void)
{
	for (int way = 0; way < 5; way++) {
		printf("way %d\n", way);
		shorten_by(way);
	}
}

static uint8_t *common_map;
static int other_file;

#define COUNTERS 4
#define COUNTS ((size_t)64)

/* A counter of a thread; counters of all threads lie all over the mapping. */
static _Atomic bool counted_enough;

static uint64_t *counter(size_t thread, size_t n)
{
	return (uint64_t *)(void *)(common_map + n * (SIZE / COUNTS / PAGE * PAGE)) + thread;
}

static void *count_in_thread(void *arg)
{
	size_t me = (size_t)(uintptr_t)arg;
	uint64_t done = 0;

	do {
		done++;
		for (size_t n = 0; n < COUNTS; n++) {
			volatile uint64_t *at = counter(me, n);

			check(*at == done - 1, "%" PRIu64 " where %" PRIu64 " were counted", *at,
			      done - 1);
			*at = done;
		}
	} while (!counted_enough);
	return (void *)(uintptr_t)done;
}

/* A region is handed to the kernel while threads load and store. */
static void handed_back_in_use(void)
{
	for (int round = 0; round < 10; round++) {
		pthread_t thread[COUNTERS];
		void *counts[COUNTERS];

		common_map = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
		for (size_t n = 0; n < COUNTS; n++)
			memset(counter(0, n), 0, COUNTERS * sizeof(uint64_t));
		counted_enough = false;
		for (size_t i = 0; i < COUNTERS; i++)
			check(pthread_create(&thread[i], NULL, count_in_thread,
					     (void *)(uintptr_t)i) == 0);
		usleep(1000u * (unsigned)round);
		check(mprotect(common_map + SIZE / PAGE * PAGE, PAGE, PROT_READ) == 0);
		usleep(1000);
		counted_enough = true;
		for (size_t i = 0; i < COUNTERS; i++)
			check(pthread_join(thread[i], &counts[i]) == 0);
		for (size_t n = 0; n < COUNTS; n++) {
			for (size_t i = 0; i < COUNTERS; i++)
				check(*counter(i, n) == (uintptr_t)counts[i]);
		}
		check(munmap(common_map, SIZE) == 0);
	}
}

static void *use_mapping(void *arg)
{
	uint64_t random = (uintptr_t)arg;

	for (int i = 0; i < 300; i++) {
		size_t place = next_random(&random) % (SIZE / (4 * PAGE) - 1);
		size_t at = (place * 4 + (size_t)(uintptr_t)arg) * PAGE;

		if (at + PAGE > SIZE)
			continue;
		fill(common_map + at, PAGE, at, NEW);
		check_bytes(common_map + at, PAGE, at, NEW);
		if (i % 50 == 0) {
			uint8_t *own = mmap(NULL, 2 * MIB, PROT_READ, MAP_PRIVATE, other_file, 0);

			(void)*(volatile uint8_t *)(own + MIB);
			check(munmap(own, 2 * MIB) == 0);
		}
	}
	return NULL;
}

static void threads(void)
{
	pthread_t thread[4];

	other_file = temp_file(4 * MIB);
	common_map = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	for (size_t i = 0; i < 4; i++)
		check(pthread_create(&thread[i], NULL, use_mapping, (void *)(uintptr_t)i) == 0);
	for (size_t i = 0; i < 4; i++)
		check(pthread_join(thread[i], NULL) == 0);
	check(munmap(common_map, SIZE) == 0);
	close(other_file);
}

/* Stores are in the file after each kind of end of the program. */
static void ends_by_return(void)
{
	fill(map_data(SIZE, READ_WRITE, MAP_SHARED, 0), SIZE, 0, NEW);
}

static void ends_at_once(void)
{
	ends_by_return();
	_exit(0);
}

static void ends_by_exec(void)
{
	ends_by_return();
	execl("/bin/true", "true", (char *)NULL);
	check(false, "execl");
}

static void ends_by_execv(void)
{
	char *args[] = { (char *)"true", NULL };

	ends_by_return();
	execv("/bin/true", args);
	check(false, "execv");
}

static void ends_by_execvpe(void)
{
	char *args[] = { (char *)"true", NULL };

	ends_by_return();
	execvpe("true", args, args + 1);
	check(false, "execvpe");
}

static void ends_by_fexecve(void)
{
	char *args[] = { (char *)"true", NULL };
	int fd = open("/bin/true", O_RDONLY);

	ends_by_return();
	fexecve(fd, args, args + 1);
	check(false, "fexecve");
}

static void ends_quickly(void)
{
	ends_by_return();
	quick_exit(0);
}

/* ---- Programs with a heap, whose allocations may be larger than memory ---- */

#define LARGE (12 * MIB)

/* Across the border, both ways. */
/* A program chooses numbers of descriptors itself, as shells do. */
static void descriptors(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0), *p = malloc(LARGE);
	int null = open("/dev/null", O_RDWR);

	alarm(60);
	fill(p, LARGE, 0, 1);
	for (int fd = 3; fd < 200; fd++)
		check(fd == null || dup2(null, fd) == fd);
	check_bytes(p, LARGE, 0, 1);
	fill(p, LARGE, 0, 2);
	fill(m, SIZE, 0, NEW);
	check_bytes(p, LARGE, 0, 2);
	check_bytes(m, SIZE, 0, NEW);
	alarm(0);
	free(p);
	check(munmap(m, SIZE) == 0);
}

/* Makes close_range(2) fail from now on, as it does before Linux 5.9. */
static void forbid_close_range(void)
{
	struct sock_filter steps[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(steps) / sizeof(*steps), steps };

	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
	check(close_range(3, ~0u, 0) == -1 && errno == ENOSYS);
}

/*
 * A daemon closes all descriptors. Afterwards every number up to 2000 leads to another file. The
 * files must not change: the library must not write to the numbers of its former descriptors.
 */
static void closes_all(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0), byte = 0;
	char path[320];
	struct stat st;
	int other;

	alarm(60);
	for (int way = 0; way < 4; way++) {
		fill(m, SIZE / 4, (uint64_t)way * (SIZE / 4), NEW);
		if (way == 0)
			check(close_range(3, ~0u, 0) == 0);
		if (way == 3)
			forbid_close_range();
		if (way == 1 || way == 3)
			closefrom(3);
		for (int fd = 3; fd < 3000 && way == 2; fd++)
			close(fd);
		other = temp_named("other", 1, path);
		for (int fd = 0; fd >= 0 && fd < 2000; fd = dup(other))
			;
		for (int fd = 700; fd < 720; fd++)
			check(dup2(other, fd) == fd || errno == EBUSY);
		fill(m, SIZE / 2, 0, NEW);
		check(msync(m, SIZE, MS_SYNC) == 0);
		check(pread(other, &byte, 1, 0) == 1 && byte == 0 && fstat(other, &st) == 0);
		check(st.st_size == 1);
	}
	fill(m, SIZE, 0, NEW);
	check(munmap(m, SIZE) == 0);
	alarm(0);
}

static void allocates(void)
{
	volatile size_t huge = SIZE_MAX / 4;
	uint8_t *p = malloc(1000), *q;

	fill(p, 1000, 0, 1);
	for (size_t size = 2000; size <= LARGE; size = size * 3 + 5) {
		p = realloc(p, size);
		check(p && malloc_usable_size(p) >= size);
		check_bytes(p, 1000, 0, 1);
	}
	p = realloc(p, LARGE);
	fill(p, 8 * MIB, 0, 2);
	for (size_t size = 8 * MIB; size > 1000; size /= 3) {
		p = reallocarray(p, size, 1);
		check(p && malloc_usable_size(p) >= size);
		check_bytes(p, size, 0, 2);
	}
	free(p);
	for (size_t size = 100; size <= LARGE; size *= 6) {
		for (size_t alignment = 8; alignment <= MIB; alignment *= 4) {
			check(posix_memalign((void **)&p, alignment, size) == 0);
			check((uintptr_t)p % alignment == 0);
			q = aligned_alloc(alignment, size);
			check(q && (uintptr_t)q % alignment == 0);
			fill(p, size, 0, 1);
			fill(q, size, 0, 2);
			check_bytes(p, size, 0, 1);
			check_bytes(q, size, 0, 2);
			free(p);
			q = realloc(q, 0);
			check(!q);
		}
	}
	check(posix_memalign((void **)&p, 24, MIB) == EINVAL);
	errno = 0;
	check(!malloc(huge) && errno == ENOMEM);
	check(!calloc(huge, 8) && !reallocarray(NULL, huge, 8));
	p = valloc(100000);
	q = memalign(4096, 200000);
	check((uintptr_t)p % PAGE == 0 && (uintptr_t)q % PAGE == 0);
	free(p);
	free(q);
}

/* Whatever was there before. */
static void allocates_zeros(void)
{
	for (int round = 0; round < 3; round++) {
		uint8_t *p[6];

		for (size_t i = 0; i < 6; i++) {
			p[i] = calloc(i + 1, 700001);
			check_zeros(p[i], (i + 1) * 700001);
			fill(p[i], (i + 1) * 700001, 0, i + 1);
		}
		for (size_t i = 0; i < 6; i++) {
			check_bytes(p[i], (i + 1) * 700001, 0, i + 1);
			free(p[i]);
		}
	}
}

static void *_Atomic passed[4];

static void *pass_on(void *arg)
{
	size_t i = (size_t)(uintptr_t)arg;

	for (size_t round = 0; round < 40; round++) {
		size_t size = round % 2 ? 100000 + 100000 * i : 1000;
		uint8_t *p = malloc(size), *old;

		fill(p, 1000, 0, 7);
		fill(p + size - 1000, 1000, 0, 7);
		old = atomic_exchange(&passed[(i + round) % 4], p);
		if (old)
			check_bytes(old, 1000, 0, 7);
		free(old);
	}
	return NULL;
}

/* A thread frees memory that another one has allocated. */
static void allocates_in_threads(void)
{
	pthread_t thread[4];

	for (size_t i = 0; i < 4; i++)
		check(pthread_create(&thread[i], NULL, pass_on, (void *)(uintptr_t)i) == 0);
	for (size_t i = 0; i < 4; i++)
		check(pthread_join(thread[i], NULL) == 0);
	for (size_t i = 0; i < 4; i++)
		free(passed[i]);
}

/* System calls get memory of the heap, most of which is absent. */
static void allocates_for_calls(void)
{
	uint8_t *p = malloc(LARGE), *q = malloc(LARGE);
	int fd = temp_file(0), pair[2];
	struct iovec iov[2] = { { q + 100, MIB }, { p, MIB } };
	FILE *file;

	fill(p, LARGE, 0, 1);
	fill(q, LARGE, 0, 2);
	check(pwrite(fd, p, LARGE, 0) == (ssize_t)LARGE);
	check_file(fd, 0, LARGE, 0, 1);
	check(pread(fd, q, LARGE, 0) == (ssize_t)LARGE);
	check_bytes(q, LARGE, 0, 1);
	fill(p, LARGE, 0, 3);
	check(pwritev(fd, iov, 2, 0) == (ssize_t)(2 * MIB));
	check_file(fd, 0, MIB, 100, 1);
	check_file(fd, MIB, MIB, 0, 3);
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	check(send(pair[0], p + 10 * MIB, 5000, 0) == 5000);
	check(recv(pair[1], q, 5000, MSG_WAITALL) == 5000);
	check_bytes(q, 5000, 10 * MIB, 3);
	file = fdopen(fd, "r+");
	check(fwrite(p, 1, LARGE, file) == LARGE);
	rewind(file);
	check(fread(q, 1, LARGE, file) == LARGE);
	check_bytes(q, LARGE, 0, 3);
	fclose(file);
	close(pair[0]);
	close(pair[1]);
	free(p);
	free(q);
}

/* A child discards memory that its parent has mapped. */
static void gives_up_and_forks(void)
{
	uint8_t *m = mmap(NULL, LARGE, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pid_t child;
	int status;

	check(m != MAP_FAILED);
	fill(m, LARGE, 0, 1);
	child = fork();
	check(child >= 0);
	if (child == 0) {
		check(madvise(m + MIB, 2 * MIB, MADV_DONTNEED) == 0);
		check_zeros(m + MIB, 2 * MIB);
		check_bytes(m, MIB, 0, 1);
		check_bytes(m + 3 * MIB, LARGE - 3 * MIB, 3 * MIB, 1);
		fill(m + MIB, MIB, 0, 2);
		check_bytes(m + MIB, MIB, 0, 2);
		m = mremap(m, LARGE, 2 * LARGE, MREMAP_MAYMOVE);
		check(m != MAP_FAILED);
		check_bytes(m, MIB, 0, 1);
		check_bytes(m + 3 * MIB, LARGE - 3 * MIB, 3 * MIB, 1);
		check_zeros(m + LARGE, LARGE);
		_exit(0);
	}
	check(waitpid(child, &status, 0) == child);
	check_exits(status, 0);
	check_bytes(m, LARGE, 0, 1);
	check(munmap(m, LARGE) == 0);
}

/* A child has the contents of its parent's heap, and the two change independently. */
static void allocates_and_forks(void)
{
	uint8_t *p = malloc(LARGE), *zeros = calloc(1, 3 * MIB), *more;
	int status;
	pid_t child;

	fill(p, LARGE, 0, 1);
	child = fork();
	check(child >= 0);
	if (child == 0) {
		check_bytes(p, LARGE, 0, 1);
		check_zeros(zeros, 3 * MIB);
		fill(p + MIB, MIB, 0, 2);
		more = malloc(LARGE);
		fill(more, LARGE, 0, 3);
		p = realloc(p, LARGE + MIB);
		check_bytes(p, MIB, 0, 1);
		check_bytes(p + MIB, MIB, 0, 2);
		check_bytes(p + 2 * MIB, LARGE - 2 * MIB, 2 * MIB, 1);
		child = fork();
		if (child == 0) {
			check_bytes(more, LARGE, 0, 3);
			check_bytes(p + MIB, MIB, 0, 2);
			check_zeros(zeros, 3 * MIB);
			_exit(0);
		}
		check(waitpid(child, &status, 0) == child);
		check_exits(status, 0);
		check_bytes(more, LARGE, 0, 3);
		free(more);
		free(p);
		free(zeros);
		_exit(0);
	}
	fill(p, MIB, 0, 4);
	check(waitpid(child, &status, 0) == child);
	check_exits(status, 0);
	check_bytes(p, MIB, 0, 4);
	check_bytes(p + MIB, LARGE - MIB, MIB, 1);
	check_zeros(zeros, 3 * MIB);
	free(p);
	free(zeros);
}

static uint8_t *map_memory(size_t len)
{
	uint8_t *m = mmap(NULL, len, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(m != MAP_FAILED && (uintptr_t)m % PAGE == 0);
	check_zeros(m, len);
	return m;
}

/* Allocators map more than they need, and unmap the ranges in front and behind. */
static void maps_memory(void)
{
	for (int round = 0; round < 3; round++) {
		uint8_t *m = map_memory(LARGE), *n = map_memory(MIB);

		fill(m, LARGE, 0, 1);
		fill(n, MIB, 0, 2);
		check(munmap(m, 300000) == 0 && munmap(m + 11 * MIB, LARGE - 11 * MIB) == 0);
		check_bytes(m + 300000 / PAGE * PAGE + PAGE, 10 * MIB, 300000 / PAGE * PAGE + PAGE,
			    1);
		check(munmap(m, 300000) == 0);
		check_bytes(n, MIB, 0, 2);
		check(madvise(m + 5 * MIB, MIB, MADV_DONTNEED) == 0);
		check_zeros(m + 5 * MIB, MIB);
		check_bytes(m + 4 * MIB, MIB, 4 * MIB, 1);
		check_bytes(m + 6 * MIB, 5 * MIB, 6 * MIB, 1);
		n = mremap(n, MIB, 5 * MIB, MREMAP_MAYMOVE);
		check(n != MAP_FAILED);
		check_bytes(n, MIB, 0, 2);
		check_zeros(n + MIB, 4 * MIB);
		check(mremap(n, 5 * MIB, 2 * MIB, 0) == n);
		check_bytes(n, MIB, 0, 2);
		check(mprotect(n, MIB, PROT_READ) == 0 && mprotect(n, MIB, READ_WRITE) == 0);
		check(munmap(n, 2 * MIB) == 0 && munmap(m + 300000 / PAGE * PAGE, 11 * MIB) == 0);
	}
}

/* The heap is older than the mapping, and stays. */
static void forks_with_both(void)
{
	uint8_t *memory = malloc(LARGE), *m;

	fill(memory, LARGE, 0, 5);
	m = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
	for (int i = 0; i < 3; i++) {
		pid_t child = fork();
		int status;

		if (child == 0) {
			check_bytes(memory, LARGE, 0, 5);
			check_bytes(m, SIZE, 0, OLD);
			_exit(0);
		}
		check(child > 0 && waitpid(child, &status, 0) == child && status == 0);
		check_bytes(m, SIZE, 0, OLD);
	}
	free(memory);
}

/* ---- Calls that wait, and calls whose memory the kernel keeps ---- */

#define WRITERS 24

struct writer {
	pthread_t id;
	int pipe[2];
	uint8_t *from;
	bool by_vector;
};

static void *write_to_pipe(void *arg)
{
	struct writer *w = arg;
	struct iovec iov[2] = { { w->from, MIB / 2 }, { w->from + MIB / 2, MIB / 2 } };
	size_t done = 0;
	ssize_t n;

	if (!w->by_vector) {
		check(write(w->pipe[1], w->from, MIB) == (ssize_t)MIB);
		return NULL;
	}
	for (; done < MIB; done += (size_t)n) {
		n = done < MIB / 2 ? writev(w->pipe[1], iov, 2) :
		    write(w->pipe[1], w->from + done, MIB - done);
		check(n > 0);
		iov[0].iov_base = w->from + done + n;
		iov[0].iov_len = done + (size_t)n < MIB / 2 ? MIB / 2 - done - (size_t)n : 0;
	}
	return NULL;
}

static void start_writer(struct writer *w, uint8_t *from)
{
	w->from = from;
	check(pipe(w->pipe) == 0 && pthread_create(&w->id, NULL, write_to_pipe, w) == 0);
}

static void end_writer(struct writer *w, uint64_t off, uint64_t what)
{
	uint8_t buf[65536];
	ssize_t n;

	for (size_t done = 0; done < MIB; done += (size_t)n) {
		n = read(w->pipe[0], buf, sizeof(buf));
		check(n > 0);
		if (what)
			check_bytes(buf, (size_t)n, off + done, what);
	}
	check(pthread_join(w->id, NULL) == 0 && close(w->pipe[0]) == 0 && close(w->pipe[1]) == 0);
}

/* Waiting calls with more memory than can be pinned. */
static void waiting_calls(void)
{
	uint8_t *m = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
	static struct writer writers[WRITERS];

	for (size_t i = 0; i < WRITERS; i++) {
		writers[i].by_vector = i % 2;
		start_writer(&writers[i], m + i % 16 * MIB);
	}
	usleep(100000);
	check_bytes(m, SIZE, 0, OLD);
	for (size_t i = 0; i < WRITERS; i++)
		end_writer(&writers[i], i % 16 * MIB, OLD);
}

/* The contents of a pipe stay when the memory behind them gets other contents. */
static void calls_that_keep(void)
{
	uint8_t *m, buf[PAGE];
	int fd = open_data(O_RDWR);

	/* The kernel does not copy pages in its page cache, so they are dropped first. */
	check(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	check(close(fd) == 0);
	m = map_data(SIZE, PROT_READ, MAP_SHARED, 0);

	for (size_t at = 0; at < 16 * MIB; at += 151 * PAGE) {
		struct iovec iov = { m + at, PAGE };
		int fds[2];

		check(pipe(fds) == 0 && m[at] == pattern(at, OLD));
		check(vmsplice(fds[1], &iov, 1, 0) == (ssize_t)PAGE);
		for (size_t other = 0; other < 16 * MIB; other += 32 * PAGE)
			check(m[other] == pattern(other, OLD));
		check(read(fds[0], buf, PAGE) == (ssize_t)PAGE);
		check_bytes(buf, PAGE, at, OLD);
		close(fds[0]);
		close(fds[1]);
	}
}

/* The file is written while a call pins its region, which cannot be read again. */
static void written_in_calls(void)
{
	uint8_t *m = map_data(SIZE, PROT_READ, MAP_SHARED, 0), *buf = malloc(SIZE);
	int fd = open_data(O_RDWR);
	struct writer w = { .by_vector = false };

	check_bytes(m, SIZE, 0, OLD);
	start_writer(&w, m + 3 * MIB);
	usleep(100000);
	fill(buf, SIZE, 0, NEW);
	check(pwrite(fd, buf, SIZE, 0) == (ssize_t)SIZE);
	check_bytes(m, SIZE, 0, NEW);
	end_writer(&w, 0, 0);
	check_bytes(m, SIZE, 0, NEW);
	check(munmap(m, SIZE) == 0);
	m = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
	check(mlock(m + MIB, MIB / 2) == 0);
	fill(buf, SIZE, 0, OLD);
	check(pwrite(fd, buf, SIZE, 0) == (ssize_t)SIZE);
	check_bytes(m, SIZE, 0, OLD);
	free(buf);
	close(fd);
}

/* ---- Programs that block all signals ---- */

static uint8_t *loaded;

static void load_all(int sig)
{
	(void)sig;
	check_bytes(loaded, SIZE, 0, OLD);
}

static void *load_in_thread(void *arg)
{
	load_all(0);
	return arg;
}

static void all_blocked(void)
{
	struct sigaction act = { .sa_handler = load_all };
	sigset_t set, old, others;
	pthread_t thread;

	sigfillset(&set);
	check(sigprocmask(SIG_SETMASK, &set, &old) == 0 && !sigismember(&old, SIGBUS));
	check(!sigismember(&old, SIGSEGV));
	loaded = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
	load_all(0);
	check(pthread_sigmask(SIG_BLOCK, &set, &old) == 0 && sigismember(&old, SIGBUS));
	check(sigismember(&old, SIGUSR1));
	check(pthread_create(&thread, NULL, load_in_thread, NULL) == 0);
	check(pthread_join(thread, NULL) == 0);
	/* A handler, during which all are blocked, and of a call that blocks all others. */
	sigfillset(&act.sa_mask);
	check(sigaction(SIGUSR1, &act, NULL) == 0 && raise(SIGUSR1) == 0);
	sigfillset(&others);
	sigdelset(&others, SIGUSR1);
	check(sigsuspend(&others) == -1 && errno == EINTR);
	sigemptyset(&others);
	sigaddset(&others, SIGBUS);
	check(sigprocmask(SIG_UNBLOCK, &others, NULL) == 0);
	check(sigprocmask(SIG_BLOCK, NULL, &old) == 0);
	check(!sigismember(&old, SIGBUS) && sigismember(&old, SIGSEGV));
	check(sigismember(&old, SIGUSR1));
	load_all(0);
}

/* ---- Other processes that use the file ---- */

/* A helper process without mappings, forked before the program maps. It opens the file by its path
 * for each request. */
struct request {
	enum { WRITE_BYTE, READ_BYTE, TRUNCATE, WRITE_INHERITED, STORE_BYTE } what;
	size_t at;
	uint8_t value;
};

static struct { int requests[2], answers[2], inherited, received[2]; } helper;

static uint8_t serve(const struct request *r)
{
	int fd = r->what == WRITE_INHERITED ? helper.inherited :
		 open(data, r->what == READ_BYTE ? O_RDONLY : O_RDWR);
	uint8_t value = r->value, *m;

	switch (r->what) {
	case WRITE_BYTE:
	case WRITE_INHERITED:
		check(pwrite(fd, &value, 1, (off_t)r->at) == 1);
		break;
	case READ_BYTE:
		check(pread(fd, &value, 1, (off_t)r->at) == 1);
		break;
	case TRUNCATE:
		check(ftruncate(fd, (off_t)r->at) == 0);
		break;
	case STORE_BYTE:
		m = mmap(NULL, SIZE, READ_WRITE, MAP_SHARED, fd, 0);
		check(m != MAP_FAILED);
		m[r->at] = value;
		check(munmap(m, SIZE) == 0);
		break;
	}
	if (fd != helper.inherited)
		close(fd);
	return value;
}

static void begin_helper(void)
{
	struct request r;
	uint8_t answer;

	check(pipe(helper.requests) == 0 && pipe(helper.answers) == 0);
	if (fork() != 0)
		return;
	close(helper.requests[1]);
	while (read(helper.requests[0], &r, sizeof(r)) == sizeof(r)) {
		answer = serve(&r);
		check(write(helper.answers[1], &answer, 1) == 1);
	}
	_exit(0);
}

static uint8_t ask_helper(int what, size_t at, uint8_t value)
{
	struct request r = { what, at, value };
	uint8_t answer;

	check(write(helper.requests[1], &r, sizeof(r)) == sizeof(r));
	check(read(helper.answers[0], &answer, 1) == 1);
	return answer;
}

/* Another process writes bytes in resident and in absent segments. */
static void others_write(void)
{
	uint8_t *m;

	begin_helper();
	m = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
	check_bytes(m, SIZE, 0, OLD);
	for (size_t at = 5; at < SIZE; at += MIB + 1) {
		ask_helper(WRITE_BYTE, at, (uint8_t)(m[at] + 1));
		check(m[at] == (uint8_t)(pattern(at, OLD) + 1));
	}
	check(munmap(m, SIZE) == 0);
	/* No process has the file open for writing any more. */
	m = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
	check(m[5] == (uint8_t)(pattern(5, OLD) + 1));
}

static void others_read(void)
{
	uint8_t *m;

	begin_helper();
	m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	fill(m, SIZE, 0, NEW);
	for (size_t at = 7; at < SIZE; at += MIB + 1)
		check(ask_helper(READ_BYTE, at, 0) == pattern(at, NEW));
	m[100] = 77;
	check(ask_helper(READ_BYTE, 100, 0) == 77);
	m[100] = pattern(100, NEW);
	check(munmap(m, SIZE) == 0);
}

static void others_store(void)
{
	uint8_t *m;

	begin_helper();
	m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	fill(m, SIZE, 0, NEW);
	for (size_t at = 9; at < SIZE; at += MIB) {
		m[at] = 1;
		ask_helper(STORE_BYTE, at + 1, 2);
		m[at + 2] = 3;
		check(m[at] == 1 && m[at + 1] == 2 && m[at + 2] == 3);
	}
	check(munmap(m, SIZE) == 0);
	for (size_t at = 9; at < SIZE; at += MIB)
		check(ask_helper(READ_BYTE, at, 0) == 1 && ask_helper(READ_BYTE, at + 1, 0) == 2 &&
		      ask_helper(READ_BYTE, at + 2, 0) == 3);
}

static void others_truncate(void)
{
	uint8_t *m;

	begin_helper();
	m = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
	check_bytes(m, SIZE, 0, OLD);
	ask_helper(TRUNCATE, 4 * MIB, 0);
	check(signal_of(m + 4 * MIB, false) == SIGBUS && signal_of(m + SIZE - 1, false) == SIGBUS);
	check_bytes(m, 4 * MIB, 0, OLD);
}

/* The helper has inherited the open file description. */
static void others_inherit(void)
{
	int fd = open_data(O_RDWR);
	uint8_t *m;

	helper.inherited = fd;
	begin_helper();
	m = mmap(NULL, SIZE, READ_WRITE, MAP_SHARED, fd, 0);
	check(m != MAP_FAILED);
	fill(m, SIZE, 0, NEW);
	/* An absent segment would be read from the file. */
	check(m[3 * MIB] == pattern(3 * MIB, NEW));
	ask_helper(WRITE_INHERITED, 3 * MIB, 77);
	check(m[3 * MIB] == 77);
	check(munmap(m, SIZE) == 0);
}

static pid_t write_after_vfork(int fd, char *const argv[])
{
	pid_t pid = vfork();

	if (pid == 0) {
		dup2(fd, 1);
		execvp("sh", argv);
		_exit(1);
	}
	return pid;
}

/* A child that inherits the description of a mapped file, by each call that starts one. */
static void children_write(void)
{
	int fd = open_data(O_RDWR), status;
	posix_spawn_file_actions_t actions;
	char *const argv[] = { "sh", "-c", "printf x", NULL };
	char command[64];
	uint8_t *m;
	pid_t pid;

	for (int way = 0; way < 3; way++) {
		off_t at = (way + 1) * (off_t)MIB;

		m = mmap(NULL, SIZE, READ_WRITE, MAP_SHARED, fd, 0);
		check(m != MAP_FAILED);
		fill(m, SIZE, 0, NEW);
		check(lseek(fd, at, SEEK_SET) == at);
		switch (way) {
		case 0:
			snprintf(command, sizeof(command), "printf x >&%d", fd);
			check(system(command) == 0);
			break;
		case 1:
			check(posix_spawn_file_actions_init(&actions) == 0);
			check(posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0);
			check(posix_spawnp(&pid, "sh", &actions, NULL, argv, environ) == 0);
			posix_spawn_file_actions_destroy(&actions);
			check(waitpid(pid, &status, 0) == pid && status == 0);
			break;
		case 2:
			pid = write_after_vfork(fd, argv);
			check(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
			break;
		}
		check(m[at] == 'x' && m[at + 1] == pattern((uint64_t)at + 1, NEW));
		check(munmap(m, SIZE) == 0);
		close(fd);
		fd = open_data(O_RDWR);
	}
}

/* A descriptor that the helper gets in a message after the file was mapped. */
static void others_receive(void)
{
	int pair[2], fd, status;
	union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr header; } control =
		{ .bytes = { 0 } };
	char byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	uint8_t *m;
	pid_t child;

	check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	child = fork();
	if (child == 0) {
		check(recvmsg(pair[1], &msg, 0) == 1);
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
		check(pwrite(fd, "x", 1, 5 * MIB) == 1);
		_exit(0);
	}
	/* The file is opened after the fork: a child may have an earlier description. */
	fd = open_data(O_RDWR);
	m = mmap(NULL, SIZE, READ_WRITE, MAP_SHARED, fd, 0);
	check(m != MAP_FAILED);
	fill(m, SIZE, 0, NEW);
	control.header = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	check(sendmsg(pair[0], &msg, 0) == 1);
	check(waitpid(child, &status, 0) == child && status == 0);
	check(m[5 * MIB] == 'x');
	check(munmap(m, SIZE) == 0);
}

/* ---- Transfers inside the C library, and descriptions that change ---- */

/* A stream opened before the mapping, after it, or on its descriptor. Each way has a file of its
 * own: the kernel maps a file for good once a region of it has been handed over. */
static void streams(void)
{
	for (int way = 0; way < 3; way++) {
		char path[340];
		FILE *file;
		uint8_t *m;
		int fd;

		snprintf(path, sizeof(path), "%s.%d", data, way);
		fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
		check(fd >= 0);
		file_fill(fd, 0, SIZE, 0, OLD);
		file = way == 0 ? fopen(path, "r+") : NULL;
		m = mmap(NULL, SIZE, READ_WRITE, MAP_SHARED, fd, 0);
		check(m != MAP_FAILED);
		m[0] = 'a';
		if (way)
			file = way == 1 ? fopen(path, "r+") : fdopen(fd, "r+");
		check(file && getc(file) == 'a');
		m[0] = 'b';
		check(fflush(file) == 0 && fseek(file, 0, SEEK_SET) == 0 && getc(file) == 'b');
		check(fseek(file, 2 * MIB, SEEK_SET) == 0);
		m[2 * MIB] = 'c';
		check(getc(file) == 'c');
		check(fseek(file, 3 * MIB, SEEK_SET) == 0 && fprintf(file, "%s", "hello") == 5);
		check(fflush(file) == 0);
		check(memcmp(m + 3 * MIB, "hello", 5) == 0);
		check(munmap(m, SIZE) == 0 && fclose(file) == 0);
		if (way < 2)
			close(fd);
	}
}

/* A mapping of a file that is open as a stream stays with the kernel. */
static void map_file_of_stream(void)
{
	FILE *file = fopen(data, "r+");
	int fd = open_data(O_RDWR);
	uint8_t *m = mmap(NULL, SIZE, READ_WRITE, MAP_SHARED, fd, 0);

	check(file && m != MAP_FAILED && munmap(m, SIZE) == 0);
	close(fd);
	check(fclose(file) == 0);
}

static void asynchronous(void)
{
	uint8_t byte = 0, *m;
	int fd = open_data(O_RDWR);
	struct aiocb block = { .aio_fildes = fd, .aio_offset = MIB, .aio_buf = &byte,
			       .aio_nbytes = 1 };
	const struct aiocb *list[] = { &block };

	m = mmap(NULL, SIZE, READ_WRITE, MAP_SHARED, fd, 0);
	check(m != MAP_FAILED);
	fill(m, SIZE, 0, NEW);
	for (int round = 0; round < 4; round++) {
		m[MIB] = (uint8_t)round;
		check(aio_read(&block) == 0);
		while (aio_error(&block) == EINPROGRESS)
			aio_suspend(list, 1, NULL);
		check(aio_return(&block) == 1 && byte == round);
		byte = 100;
		check(aio_write(&block) == 0);
		while (aio_error(&block) == EINPROGRESS)
			aio_suspend(list, 1, NULL);
		check(aio_return(&block) == 1 && m[MIB] == 100);
	}
	check(munmap(m, SIZE) == 0);
}

static void appends(void)
{
	uint8_t *m;
	int fd = open_data(O_RDWR);
	struct stat st;

	m = mmap(NULL, SIZE, READ_WRITE, MAP_SHARED, fd, 0);
	check(m != MAP_FAILED);
	fill(m, SIZE / 2, 0, NEW);
	check(fcntl(fd, F_SETFL, O_APPEND) == 0);
	fill(m, SIZE, 0, NEW);
	check(munmap(m, SIZE) == 0);
	check(fstat(fd, &st) == 0 && st.st_size == SIZE);
	check_file(fd, 0, SIZE, 0, NEW);
}

/* Reads absent segments from the memory of the process as a file. */
static void calls_on_memory(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0), buf[5000];
	int fd;

	fill(m, SIZE, 0, NEW);
	fd = open("/proc/self/mem", O_RDWR);
	check(fd >= 0);
	for (size_t at = 0; at < SIZE - sizeof(buf); at += MIB) {
		check(pread(fd, buf, sizeof(buf), (off_t)(uintptr_t)(m + at)) ==
		      (ssize_t)sizeof(buf));
		check_bytes(buf, sizeof(buf), at, NEW);
	}
	check(munmap(m, SIZE) == 0);
}

/* The file system is full: the status of the program is 0. */
static void fills_up(void)
{
	int fd = open_data(O_RDWR);
	uint8_t *m;

	check(ftruncate(fd, 2 * MIB) == 0);
	m = mmap(NULL, 2 * MIB, READ_WRITE, MAP_SHARED, fd, 0);
	check(m != MAP_FAILED);
	memset(m, 1, 2 * MIB);
}

/* The C library writes to a descriptor that the program has replaced, and formats to one. */
static void standard_streams(void)
{
	int fd = open_data(O_RDWR), out = dup(STDOUT_FILENO);
	uint8_t *m = mmap(NULL, SIZE, READ_WRITE, MAP_SHARED, fd, 0);

	check(m != MAP_FAILED && out >= 0);
	fill(m, SIZE, 0, NEW);
	check(lseek(fd, MIB, SEEK_SET) == MIB && dprintf(fd, "%s", "formatted") == 9);
	check(memcmp(m + MIB, "formatted", 9) == 0);
	check(lseek(fd, 2 * MIB, SEEK_SET) == 2 * MIB && dup2(fd, STDOUT_FILENO) == STDOUT_FILENO);
	check(puts("printed") >= 0 && fflush(stdout) == 0);
	check(memcmp(m + 2 * MIB, "printed\n", 8) == 0);
	check(munmap(m, SIZE) == 0 && dup2(out, STDOUT_FILENO) == STDOUT_FILENO);
	check_file(fd, 3 * MIB, MIB, 3 * MIB, NEW);
}

/* Children that map: their stores are in the file after each kind of end. */
static void children_map(void)
{
	for (int way = 0; way < 3; way++) {
		int status, fd;
		pid_t child = fork();

		check(child >= 0);
		if (child == 0) {
			uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);

			fill(m, SIZE, 0, (uint64_t)way + 10);
			if (way == 0)
				_exit(0);
			if (way == 1)
				execlp("true", "true", (char *)NULL);
			exit(0);
		}
		check(waitpid(child, &status, 0) == child);
		check_exits(status, 0);
		fd = open_data(O_RDONLY);
		check_file(fd, 0, SIZE, 0, (uint64_t)way + 10);
		close(fd);
	}
}

/* A child can fork again: it does not inherit the lock that the handler of fork takes. */
static void child_forks(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	pid_t child;
	int status;

	*m = *m;
	check(munmap(m, SIZE) == 0);
	child = fork();
	if (child == 0) {
		alarm(20);
		child = fork();
		if (child == 0)
			_exit(EXIT_SUCCESS);
		_exit(child < 0 || waitpid(child, &status, 0) != child || status != 0);
	}
	check(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* Children that run no handlers of fork(2). */
static uint8_t *inherited;

static int store_in_child(void *unused)
{
	(void)unused;
	if (inherited[0] != pattern(0, NEW))
		_exit(1);
	inherited[1] = 77;
	_exit(0);
}

static void bare_children(void)
{
	static char stack[65536];

	inherited = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	for (int way = 0; way < 2; way++) {
		pid_t child;
		int status;

		fill(inherited, SIZE, 0, NEW);
		child = way ? clone(store_in_child, stack + sizeof(stack), SIGCHLD, NULL) : _Fork();
		if (child == 0)
			store_in_child(NULL);
		check(child > 0 && waitpid(child, &status, 0) == child);
		check_exits(status, 0);
		check(inherited[1] == 77);
	}
}

/* Stores into a hole are data for lseek(2). */
static void holes(void)
{
	int fd = open_data(O_RDWR);
	uint8_t *m;
	off_t at;

	check(ftruncate(fd, 0) == 0 && ftruncate(fd, SIZE) == 0);
	m = mmap(NULL, SIZE, READ_WRITE, MAP_SHARED, fd, 0);
	check(m != MAP_FAILED);
	m[4 * MIB] = 1;
	at = lseek(fd, 0, SEEK_DATA);
	check(at >= 0 && at <= (off_t)(4 * MIB));
	check(munmap(m, SIZE) == 0);
}

/* A program that is executed inherits the description: others open the file at once. */
static void leaves_no_lease(void)
{
	int fd = open_data(O_RDWR);
	const char *again = "exec 9< \"$0\"";
	uint8_t *m = mmap(NULL, SIZE, READ_WRITE, MAP_SHARED, fd, 0);

	check(m != MAP_FAILED);
	fill(m, SIZE, 0, NEW);
	/* Much less than the time after which the kernel ends a lease. */
	alarm(20);
	execlp("sh", "sh", "-c", again, data, (char *)NULL);
	check(false);
}

/* Record locks of the process stay when a mapping of the file ends. */
static void keeps_locks(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = 1 };
	int fd = open_data(O_RDWR), status;
	uint8_t *m = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
	pid_t child;

	check(m != MAP_FAILED);
	check_bytes(m, MIB, 0, OLD);
	check(fcntl(fd, F_SETLK, &lock) == 0);
	check(munmap(m, SIZE) == 0);
	child = fork();
	if (child == 0) {
		check(fcntl(fd, F_GETLK, &lock) == 0);
		_exit(lock.l_type == F_WRLCK && lock.l_pid == getppid() ? 0 : 1);
	}
	check(waitpid(child, &status, 0) == child);
	check_exits(status, 0);
}

static void reads_part(void)
{
	uint8_t *m = map_data(2 * MIB, PROT_READ, MAP_SHARED, 0);

	check_bytes(m, 2 * MIB, 0, OLD);
	check(munmap(m, 2 * MIB) == 0);
}

static void starts_readers(void)
{
	uint8_t *m = map_data(2 * MIB, PROT_READ, MAP_SHARED, 0);
	char self_path[512] = "", command[1000];

	check(readlink("/proc/self/exe", self_path, sizeof(self_path) - 1) > 0);
	check_bytes(m, 2 * MIB, 0, OLD);
	snprintf(command, sizeof(command), "'%s' 'reads a part' '%s'", self_path, data);
	for (int i = 0; i < 3; i++)
		check(system(command) == 0);
	check(munmap(m, 2 * MIB) == 0);
}

/* The programs that it starts read the file while this one has it. */
static void reads_and_starts(void)
{
	uint8_t *m = map_data(2 * MIB, PROT_READ, MAP_SHARED, 0);
	char self_path[512] = "", command[1000];

	check(readlink("/proc/self/exe", self_path, sizeof(self_path) - 1) > 0);
	check_bytes(m, 2 * MIB, 0, OLD);
	snprintf(command, sizeof(command), "'%s' 'starts readers' '%s'", self_path, data);
	check(system(command) == 0);
	check(munmap(m, 2 * MIB) == 0);
}

/* ---- Running the parts ---- */

static const struct part {
	const char *name;
	void (*run)(void);
	bool ends;       /* the file must contain the pattern NEW afterwards */
	bool stats;      /* the program prints statistics at its end */
	bool heap;       /* the program has a heap */
	bool all_large;  /* all allocations come from the heap */
	bool others;     /* other processes use the file, so --exclusive is not allowed */
} all[] = {
	{ "loads", loads, false, true, false, false, false },
	{ "stores", stores, true, true, false, false, false },
	{ "written while loaded", written_while_loaded, false, true, false, false, false },
	{ "written while stored", written_while_stored, false, true, false, false, false },
	{ "copies", copies, false, true, false, false, false },
	{ "made durable", made_durable, true, true, false, false, false },
	{ "twice", twice, false, true, false, false, false },
	{ "twice with changes", twice_with_changes, false, true, false, false, false },
	{ "parts", parts, false, true, false, false, false },
	{ "becomes private", becomes_private, false, true, false, false, false },
	{ "stores privately", stores_privately, false, true, false, false, false },
	{ "calls that store privately", calls_that_store_privately, false, true, false, false,
	  false },
	{ "ends of a mapping", ends_of_mapping, true, true, false, false, false },
	{ "moves", moves, false, true, false, false, false },
	{ "file ends", file_ends, false, true, false, false, false },
	{ "forks", forks, false, true, false, false, false },
	{ "forks and loads", forks_and_loads, false, true, false, false, false },
	{ "calls", calls, false, true, false, false, false },
	{ "messages", messages, false, true, false, false, false },
	{ "truncations", truncations, false, true, false, false, false },
	{ "refusals", refusals, false, true, false, false, false },
	{ "wishes", wishes, false, false, false, false, false },
	{ "locks", locks, true, true, false, false, false },
	{ "small one before", small_one_before, true, false, false, false, false },
	{ "small one changed", small_one_changed, false, true, false, false, false },
	{ "handed back before", handed_back_before, false, true, false, false, false },
	{ "areas", areas, false, true, false, false, false },
	{ "written beside stores", written_beside_stores, false, true, false, false, false },
	{ "calls that write a file from itself", calls_of_itself, false, true, false, false,
	  false },
	{ "calls on sockets", calls_on_sockets, false, true, false, false, false },
	{ "calls that wait", waiting_calls, false, true, false, false, false },
	{ "calls that keep what they are given", calls_that_keep, false, true, false, false,
	  false },
	{ "calls while the file is written", written_in_calls, false, true, false, false, false },
	{ "calls that block all signals", all_blocked, false, true, false, false, false },
	{ "calls of the library while it forks", forks_with_locks, false, false, false, false,
	  false },
	{ "threads", threads, false, true, false, false, false },
	{ "handed back in use", handed_back_in_use, false, true, false, false, false },
	{ "descriptors", descriptors, true, true, true, false, false },
	{ "closes all descriptors", closes_all, true, true, false, false, false },
	{ "allocates", allocates, false, true, true, false, false },
	{ "allocates zeros", allocates_zeros, false, true, true, false, false },
	{ "allocates in threads", allocates_in_threads, false, true, true, false, false },
	{ "allocates for calls", allocates_for_calls, false, true, true, false, false },
	{ "allocates and forks", allocates_and_forks, false, true, true, false, false },
	{ "allocates beside a mapping, and forks", forks_with_both, false, true, true, false,
	  false },
	{ "all is large, and it forks", allocates_and_forks, false, true, true, true, false },
	{ "gives up and forks", gives_up_and_forks, false, true, true, false, false },
	{ "maps memory", maps_memory, false, true, true, false, false },
	{ "ends by return", ends_by_return, true, true, false, false, false },
	{ "ends at once", ends_at_once, true, false, false, false, false },
	{ "ends by exec", ends_by_exec, true, false, false, false, false },
	{ "ends by execv", ends_by_execv, true, false, false, false, false },
	{ "ends by execvpe", ends_by_execvpe, true, false, false, false, false },
	{ "ends by fexecve", ends_by_fexecve, true, false, false, false, false },
	{ "ends quickly", ends_quickly, true, false, false, false, false },
	{ "others write", others_write, false, true, false, false, true },
	{ "others read", others_read, true, true, false, false, true },
	{ "others store", others_store, false, true, false, false, true },
	{ "others truncate", others_truncate, false, true, false, false, true },
	{ "others inherit", others_inherit, false, false, false, false, true },
	{ "children write", children_write, false, true, false, false, true },
	{ "others receive", others_receive, false, true, false, false, true },
	{ "streams", streams, false, true, false, false, false },
	{ "asynchronous", asynchronous, false, true, false, false, false },
	{ "appends", appends, true, true, false, false, false },
	{ "standard streams", standard_streams, false, true, false, false, false },
	{ "child forks", child_forks, false, false, false, false, false },
	{ "children map", children_map, false, false, false, false, false },
	{ "bare children", bare_children, false, true, false, false, false },
	{ "holes", holes, false, true, false, false, false },
	{ "leaves no lease", leaves_no_lease, true, false, false, false, false },
	{ "calls on the program's memory", calls_on_memory, true, true, false, false, false },
	{ "keeps locks", keeps_locks, false, true, false, false, false },
};

/* Parts whose messages are checked: see lose_stores, print_kernel_mappings and share_copies. */
static const struct part special[] = {
	{ "fills up", fills_up, false, false, false, false, false },
	{ "file of a stream", map_file_of_stream, false, false, false, false, false },
	{ "reads a part", reads_part, false, false, false, false, false },
	{ "starts readers", starts_readers, false, false, false, false, false },
	{ "reads and starts", reads_and_starts, false, false, false, false, false },
};

static const struct part *find_part(const char *name)
{
	for (size_t i = 0; i < sizeof(special) / sizeof(*special); i++) {
		if (strcmp(special[i].name, name) == 0)
			return &special[i];
	}
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		if (strcmp(all[i].name, name) == 0)
			return &all[i];
	}
	check(false, "%s", name);
	return NULL;
}

static char umrun[512], self[512], log_name[320];

/* Ways to run a part in another process. */
enum how { AS_IT_IS, UNDER, EXCLUSIVE, AS_NOBODY, BY_SIGBUS, BY_SEGV, BY_COPIES };

static void execute(const struct part *part, enum how how)
{
	const char *args[20] = { umrun, "--limit", "4M", "--segment", "128K", "--stats" };
	unsigned n = how == AS_IT_IS ? 0 : 6;

	if (how >= EXCLUSIVE)
		args[n++] = "--exclusive";

	if (n && part->heap) {
		args[n++] = "--heap";
		args[n++] = temp_dir();
	}
	if (n && part->all_large) {
		args[n++] = "--heap-min";
		args[n++] = "1";
	}
	if (how == BY_SIGBUS || how == BY_SEGV) {
		args[n++] = "--engine";
		args[n++] = how == BY_SEGV ? "segv" : "sigbus";
	}
	if (how == BY_COPIES)
		args[n++] = "--node-cache";
	args[n++] = self;
	args[n++] = part->name;
	args[n++] = data;
	args[n] = NULL;
	execv(args[0], (char **)(uintptr_t)args);
}

static void run_part(const struct part *part, enum how how)
{
	static const char *const suffixes[] = { "", ", under umrun", ", under umrun --exclusive",
						", without rights", ", by sigbus", ", by segv",
						", by node copies" };
	int fd = open(data, O_RDWR | O_CREAT | O_TRUNC, 0600), status;
	pid_t child;

	printf("%s%s\n", part->name, suffixes[how]);
	fflush(stdout);
	file_fill(fd, 0, SIZE, 0, OLD);
	check(how != AS_NOBODY || fchown(fd, NOBODY, NOBODY) == 0);
	/* The file is open in the program only. */
	close(fd);
	child = fork();
	check(child >= 0);
	if (child == 0) {
		int out = open(log_name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

		dup2(out, STDERR_FILENO);
		if (how == AS_NOBODY) {
			check(chown(temp_dir(), NOBODY, NOBODY) == 0);
			check(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0);
			check(setuid(NOBODY) == 0);
			if (access(umrun, X_OK) < 0)
				_exit(77);
		}
		execute(part, how);
		_exit(100);
	}
	check(waitpid(child, &status, 0) == child);
	if (status) {
		char line[2000];
		FILE *log = fopen(log_name, "r");

		while (log && fgets(line, sizeof(line), log))
			fputs(line, stderr);
	}
	if (how == AS_NOBODY && WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		printf("... who may not run it\n");
		return;
	}
	check(status == 0, "%s: wait status %#x", part->name, status);
	fd = open(data, O_RDONLY);
	if (part->ends)
		check_file(fd, 0, SIZE, 0, NEW);
	close(fd);
}

/* Checks that the library has taken mappings, or allocations of the heap. */
static void check_taken(const struct part *part)
{
	FILE *log = fopen(log_name, "r");
	unsigned long taken = 0;
	char line[2000];
	int end = 0;

	while (fgets(line, sizeof(line), log)) {
		const char *at = strstr(line, ": ");

		at = at ? strstr(at + 2, ": ") : NULL;
		if (at && sscanf(at, part->heap ? ": the heap had %lu allocations%n" :
				 ": %lu mappings of%n", &taken, &end) == 1 && end)
			break;
		taken = 0;
	}
	check(taken > 0, "%s: %s", part->name, line);
	fclose(log);
}

static bool is_refused(const char *option, const char *value)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		freopen("/dev/null", "w", stderr);
		execl(umrun, "umrun", option, value, "true", (char *)NULL);
		_exit(100);
	}
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
	       WEXITSTATUS(status) == 125;
}

/* A driver accepts keys. The trace file contains the program's requests, not those of umrun's
 * check. */
static void run_driver_with_keys(void)
{
	char driver[700], trace[600], line[200];
	int fd = open(data, O_RDWR | O_CREAT | O_TRUNC, 0600), status, reads = 0;
	pid_t child;
	FILE *file;

	puts("a driver with keys");
	fflush(stdout);
	file_fill(fd, 0, SIZE, 0, OLD);
	close(fd);
	snprintf(trace, sizeof(trace), "%s/trace.csv", temp_dir());
	snprintf(driver, sizeof(driver), "trace+posix:?trace.file=%s&direct=never", trace);
	child = fork();
	check(child >= 0);
	if (child == 0) {
		execl(umrun, "umrun", "--driver", driver, "--only", "*/data", self, "loads", data,
		      (char *)NULL);
		_exit(100);
	}
	check(waitpid(child, &status, 0) == child && status == 0, "wait status %#x", status);
	file = fopen(trace, "r");
	check(file, "%s", trace);
	while (fgets(line, sizeof(line), file))
		reads += strstr(line, ",read,") != NULL;
	check(reads > 0);
	fclose(file);
}

/* Runs umrun with the options, and returns its exit status; its messages are in the log. */
static int run_umrun(const char *const options[], unsigned count)
{
	const char *args[12] = { umrun };
	int status;
	pid_t child = fork();

	check(child >= 0 && count < 10);
	if (child == 0) {
		int out = open(log_name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

		dup2(out, STDERR_FILENO);
		memcpy(args + 1, options, count * sizeof(*args));
		args[count + 1] = NULL;
		execv(umrun, (char **)(uintptr_t)args);
		_exit(100);
	}
	check(waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static bool log_has(const char *text)
{
	FILE *log = fopen(log_name, "r");
	char line[2000];
	bool has = false;

	while (log && !has && fgets(line, sizeof(line), log))
		has = strstr(line, text) != NULL;
	if (log)
		fclose(log);
	return has;
}

static void lose_stores(void)
{
	int root = small_file_system(), fd;
	char block[4096] = { 1 }, path[64];

	if (root < 0)
		return;
	puts("stores that are lost");
	fflush(stdout);
	close(create(root, "data"));
	fd = create(root, "filler");
	while (write(fd, block, sizeof(block)) > 0)
		;
	close(fd);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d/data", (int)getpid(), root);
	fd = run_umrun((const char *[]){ "--min", "64K", "--stats", "--verbose", self, "fills up",
					 path }, 7);
	check(fd == 1, "status %d", fd);
	check(log_has("are lost") && log_has("No space left"));
	close(root);
}

/* A program into which the library cannot be loaded runs as it is, with a warning. */
static void run_static_program(void)
{
	static const char source[] = "int main(void) { return 7; }";
	char file[512], command[1200];
	FILE *c;

	puts("a static program");
	fflush(stdout);
	snprintf(file, sizeof(file), "%s/static.c", temp_dir());
	c = fopen(file, "w");
	check(c && fputs(source, c) >= 0 && fclose(c) == 0);
	snprintf(command, sizeof(command), "gcc -static -o '%s/static' '%s'", temp_dir(), file);
	check(system(command) == 0);
	snprintf(file, sizeof(file), "%s/static", temp_dir());
	check(run_umrun((const char *[]){ file }, 1) == 7 && log_has("statically linked"));
	check(run_umrun((const char *[]){ "--stats", "true" }, 2) == 0);
	check(log_has("mapped no file") && !log_has("statically"));
}

/* The bytes that the programs of the log have read. */
static unsigned long long count_read(void)
{
	FILE *log = fopen(log_name, "r");
	unsigned long long sum = 0, n;
	char line[2000];

	while (log && fgets(line, sizeof(line), log)) {
		const char *at = strstr(line, " bytes read in ");

		while (at && at > line && at[-1] != ' ')
			at--;
		sum += at && sscanf(at, "%llu", &n) == 1 ? n : 0;
	}
	if (log)
		fclose(log);
	return sum;
}

/* Programs that only read a file read it once together. */
static void share_copies(void)
{
	int fd = open(data, O_RDWR | O_CREAT | O_TRUNC, 0600);

	puts("programs that share a copy");
	fflush(stdout);
	file_fill(fd, 0, SIZE, 0, OLD);
	close(fd);
	check(run_umrun((const char *[]){ "--limit", "8M", "--stats", "--node-cache", "--engine",
					  "sigbus", self, "starts readers", data }, 9) == 0);
	check(count_read() == 2 * MIB, "%llu", count_read());
	/* Without the option, the first program has memory of its own, the second one begins a
	 * copy, and the others share it. */
	fd = open(data, O_RDWR);
	check(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	close(fd);
	check(run_umrun((const char *[]){ "--limit", "32M", "--stats", "--engine", "sigbus", self,
					  "reads and starts", data }, 8) == 0);
	check(count_read() == 4 * MIB, "%llu", count_read());
	set_env("UMMAP_NODE_CACHE", "0");
	check(run_umrun((const char *[]){ "--limit", "32M", "--stats", "--engine", "sigbus", self,
					  "reads and starts", data }, 8) == 0);
	check(count_read() >= 10 * MIB, "%llu", count_read());
	unsetenv("UMMAP_NODE_CACHE");
}

/* The messages about mappings that stay with the kernel or return to it. */
static void print_kernel_mappings(void)
{
	static const char advice[] = "If no other process uses these files, try --exclusive.";
	char line[700];
	int fd = open(data, O_RDWR | O_CREAT | O_TRUNC, 0600);

	puts("mappings that stay with the kernel");
	fflush(stdout);
	file_fill(fd, 0, SIZE, 0, OLD);
	/* The file is open for writing here. */
	check(run_umrun((const char *[]){ "--verbose", self, "loads", data }, 4) == 0);
	check(log_has("2 because the file is open more than once") && log_has(advice));
	snprintf(line, sizeof(line), "umrun: the kernel maps '%s': the file is open more", data);
	check(log_has(line));
	check(run_umrun((const char *[]){ "--quiet", self, "loads", data }, 4) == 0);
	check(!log_has("umrun:"));
	check(run_umrun((const char *[]){ "--exclusive", self, "loads", data }, 4) == 0);
	check(!log_has("umrun:"));
	close(fd);
	check(run_umrun((const char *[]){ self, "file of a stream", data }, 3) == 0);
	check(log_has("1 because the file is open as a stream (fopen).") && !log_has(advice));
	check(run_umrun((const char *[]){ "--verbose", self, "becomes private", data }, 4) == 0);
	snprintf(line, sizeof(line),
		 "umrun: the kernel maps '%s' from now on: the program calls mprotect", data);
	check(log_has(line));
}

int main(int argc, char **argv)
{
	const char *only = argc == 2 ? argv[1] : "";
	char library[600];

	if (argc == 3) {
		snprintf(data, sizeof(data), "%s", argv[2]);
		find_part(argv[1])->run();
		return 0;
	}
	check(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	snprintf(umrun, sizeof(umrun), "%.*s/../umrun", (int)(strrchr(self, '/') - self), self);
	snprintf(data, sizeof(data), "%s/data", temp_dir());
	snprintf(log_name, sizeof(log_name), "%s/log", temp_dir());
	snprintf(library, sizeof(library), "%.*s/../libumrun-heap.so.0",
		 (int)(strrchr(self, '/') - self), self);
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		/* libumrun-heap is not built without jemalloc. */
		if ((all[i].heap && access(library, R_OK) < 0) || !strstr(all[i].name, only))
			continue;
		run_part(&all[i], AS_IT_IS);
		run_part(&all[i], UNDER);
		if (all[i].stats)
			check_taken(&all[i]);
		/* No other process can open the file of a heap. */
		if (all[i].others || all[i].heap)
			continue;
		run_part(&all[i], EXCLUSIVE);
		if (all[i].stats)
			check_taken(&all[i]);
		run_part(&all[i], BY_COPIES);
		/* These ways do not serve the kernel's own accesses. */
		if (strstr(all[i].name, "calls") || all[i].run == messages ||
		    all[i].run == allocates_and_forks) {
			if (geteuid() == 0)
				run_part(&all[i], AS_NOBODY);
			run_part(&all[i], BY_SIGBUS);
			run_part(&all[i], BY_SEGV);
		}
	}
	if (*only)
		return 0;
	run_driver_with_keys();
	lose_stores();
	run_static_program();
	share_copies();
	print_kernel_mappings();
	check(is_refused("--driver", "posix?direct=nver"));
	check(is_refused("--limit", "7Q") && is_refused("--policy", "nonsense"));
	check(is_refused("--driver", "nonsense"));
	check(is_refused("--engine", "nonsense"));
	check(is_refused("--segment", "5000") && is_refused("--limit", "1"));
	check(is_refused("--nonsense", "1") && is_refused("--min", "-1"));
	check(is_refused("--min", " -5") && is_refused("--heap-min", ""));
	check(is_refused("--limit", "+4M"));
	check(is_refused("--heap", "/dev/null/nowhere") && is_refused("--heap", self));
	check(is_refused("--heap-min", "x"));
	return 0;
}
