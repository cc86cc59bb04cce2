/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver posix without the library: opening, ends of files, limits, direct transfers,
 * errors. */
#include "posix.h"

#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* ---- Opening ---- */

static int of_kind(const char *kind, int flags)
{
	int ends[2] = { -1, -1 };

	if (strcmp(kind, "pipe") != 0)
		return open(kind, flags);
	cr_assert_eq(pipe(ends), 0);
	return ends[0];
}

Test(posix, descriptors_refused)
{
	static const struct { const char *path; int flags, oflags, err; } cases[] = {
		{ "/proc/self/exe", O_RDONLY, UMMAP_O_WRITE, EACCES },
		{ "/proc/self/exe", O_PATH, 0, EBADF },
		{ "/tmp", O_RDONLY | O_DIRECTORY, 0, ENODEV },
		{ "/tmp", O_RDONLY | O_DIRECTORY, UMMAP_O_WRITE, ENODEV },
		{ "/dev/zero", O_RDWR, UMMAP_O_WRITE, ENODEV },
		{ "pipe", 0, 0, ENODEV },
		{ "/nowhere", O_RDONLY, 0, EBADF },
	};
	int fd = temp_file("/var/tmp", 0), half;
	char path[32];
	void *h;

	for (size_t i = 0; i < COUNT(cases); i++)
		cr_expect_eq(
			try_fd(of_kind(cases[i].path, cases[i].flags), cases[i].oflags, NULL, &h),
			-cases[i].err, "%s", cases[i].path);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	half = open(path, O_WRONLY);
	cr_expect_eq(try_fd(half, 0, NULL, &h), -EACCES, "write-only");
	cr_expect_eq(try_fd(half, UMMAP_O_WRITE, NULL, &h), -EACCES, "write-only");
	cr_expect(strstr(geom.why, "reading and writing"), "%s", geom.why);
	close(half);
	cr_expect_eq(try_fd(half, 0, NULL, &h), -EBADF, "closed");
	cr_expect_eq(try_fd(fd, 0, "sometimes", &h), -EINVAL);
	cr_expect(strstr(geom.why, "\"sometimes\""), "%s", geom.why);
	cr_expect_eq(try_fd(fd, 0, "", &h), -EINVAL);
}

Test(posix, paths)
{
	char dir[] = "/var/tmp/test_posix.XXXXXX", path[64];
	struct stat st;
	void *h;

	cr_assert(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/a", dir);
	cr_expect_eq(try_path(path, UMMAP_O_WRITE, NULL, &h), -ENOENT);
	cr_expect_eq(try_path(path, 0, "on", &h), -EINVAL);
	cr_expect_eq(try_path(dir, UMMAP_O_WRITE, NULL, &h), -ENODEV);
	cr_expect_eq(try_path("/dev/zero", 0, NULL, &h), -ENODEV);
	cr_assert_eq(mkfifo(path, 0600), 0);
	cr_expect_eq(try_path(path, 0, NULL, &h), -ENODEV,
		     "a pipe must be refused without a wait for a writer");
	unlink(path);

	umask(022);
	cr_assert_eq(try_path(path, UMMAP_O_WRITE | UMMAP_O_CREATE, NULL, &h), 0);
	cr_expect(stat(path, &st) == 0 && (st.st_mode & 07777) == 0644);
	cr_expect_eq(posix->write(h, "abc", 3, 0), 0);
	cr_expect_eq(posix->close(h), 0);
	cr_assert_eq(try_path(path, 0, NULL, &h), 0);
	cr_expect_eq(geom.size, 3);
	cr_expect_eq(geom.caps & (UMMAP_CAP_WRITE | UMMAP_CAP_GROW), 0);
	cr_expect_eq(posix->write(h, "abc", 3, 0), -EBADF);
	posix->close(h);
	unlink(path);
	rmdir(dir);
}

Test(posix, geometry)
{
	const unsigned always = UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE;
	const unsigned writable = always | UMMAP_CAP_WRITE | UMMAP_CAP_GROW;
	int fd = temp_file("/var/tmp", 12345);

	posix->close(open_fd(fd, 0, "never"));
	cr_expect(geom.caps == always && geom.align == 1 && geom.size == 12345);
	cr_expect_geq(geom.optimal, 256u << 10);
	posix->close(open_fd(fd, UMMAP_O_WRITE, "never"));
	cr_expect(geom.caps == writable && geom.align == 1);
	posix->close(open_fd(fd, UMMAP_O_WRITE, NULL));
	cr_expect_eq(geom.caps, writable | UMMAP_CAP_DIRECT);
	cr_expect(geom.align >= 512 && (geom.align & (geom.align - 1)) == 0);
}

/* Opens a handle, and returns its two descriptors. */
static void *open_with_fds(int fd, const char *direct, int *buffered, int *direct_fd)
{
	void *h;

	/* The library takes the lowest free numbers from 700 on. */
	*buffered = fcntl(fd, F_DUPFD, 700);
	*direct_fd = fcntl(fd, F_DUPFD, 700);
	close(*buffered);
	close(*direct_fd);
	h = open_fd(fd, UMMAP_O_WRITE, direct);
	cr_assert(!(fcntl(*buffered, F_GETFL) & O_DIRECT) && fcntl(*direct_fd, F_GETFL) & O_DIRECT);
	return h;
}

static int first_free(int from)
{
	int fd = fcntl(STDOUT_FILENO, F_DUPFD, from);

	close(fd);
	return fd;
}

static int temp_again(int fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

static bool is_locked(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* The program's own lock of the file outlives the handle, even with other locks on the file. When
 * the lock ends, no descriptor is left. */
Test(posix, keeps_locks)
{
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 10 };
	int fd = temp_file("/var/tmp", 12345), other = temp_again(fd);
	int low = first_free(0), high = first_free(700);

	cr_assert(fcntl(fd, F_SETLK, &lock) == 0 && fcntl(other, F_OFD_SETLK, &lock) == 0);
	for (int i = 0; i < 3; i++)
		posix->close(open_fd(fd, UMMAP_O_WRITE, NULL));
	lock.l_type = F_UNLCK;
	cr_assert(fcntl(other, F_OFD_SETLK, &lock) == 0);
	cr_expect(is_locked(other));
	cr_assert(fcntl(fd, F_SETLK, &lock) == 0);
	posix->close(open_fd(fd, UMMAP_O_WRITE, NULL));
	cr_expect(!is_locked(other) && first_free(0) == low && first_free(700) == high);
}

/* The handle shares nothing with the caller's descriptor, and leaves none behind. */
Test(posix, own_description)
{
	int fd = temp_file("/var/tmp", 0), buffered, direct;
	char text[6] = "";
	void *h;

	cr_assert_eq(fcntl(fd, F_SETFL, O_APPEND), 0);
	cr_assert_eq(write(fd, "01234567", 8), 8);
	h = open_with_fds(fd, NULL, &buffered, &direct);
	cr_expect_eq(posix->write(h, "ab", 2, 1), 0);
	cr_expect_eq(lseek(fd, 0, SEEK_CUR), 8);
	cr_expect(fcntl(fd, F_GETFL) & O_APPEND);
	cr_expect(fcntl(buffered, F_GETFD) & fcntl(direct, F_GETFD) & FD_CLOEXEC);
	cr_expect(!((fcntl(buffered, F_GETFL) | fcntl(direct, F_GETFL)) & O_APPEND));
	close(fd);
	cr_expect_eq(posix->read(h, text, 5, 0), 0);
	cr_expect_str_eq(text, "0ab34");
	cr_expect_eq(posix->close(h), 0);
	cr_expect(fcntl(buffered, F_GETFD) < 0 && fcntl(direct, F_GETFD) < 0);
}

/* Without /proc, the driver must share the caller's description, which some flags prevent. */
Test(posix, shared_description)
{
	char dir[] = "/tmp/test_posix.XXXXXX", text[3] = "";
	int fd = temp_file("/var/tmp", 0), root = open("/", O_PATH | O_DIRECTORY);
	void *h;

	need_root();
	cr_assert(mkdtemp(dir));
	cr_assert(chroot(dir) == 0);
	h = open_fd(fd, UMMAP_O_WRITE, "always");
	cr_expect_eq(geom.caps & UMMAP_CAP_DIRECT, 0);
	cr_expect(posix->write(h, "ab", 2, 0) == 0 && posix->read(h, text, 2, 0) == 0);
	cr_expect_str_eq(text, "ab");
	posix->close(h);
	fcntl(fd, F_SETFL, O_APPEND);
	cr_expect_eq(try_fd(fd, UMMAP_O_WRITE, NULL, &h), -EINVAL);
	cr_expect(strstr(geom.why, "O_APPEND"), "%s", geom.why);
	posix->close(open_fd(fd, 0, NULL));
	fcntl(fd, F_SETFL, O_DIRECT);
	cr_expect_eq(try_fd(fd, 0, NULL, &h), -EINVAL);
	cr_expect(strstr(geom.why, "O_DIRECT"), "%s", geom.why);
	cr_assert(fchdir(root) == 0 && chroot(".") == 0);
	rmdir(dir);
}

/* ---- Ends of files, limits, sizes ---- */

Test(posix, past_the_end)
{
	static const char *const modes[] = { "auto", "always", "never" };
	static const size_t sizes[] = { 0, 1, 511, 513, 4096, 5000, 8192, 12289 };
	int fd = temp_file("/var/tmp", 0);
	char *buf = buffer(16 * PAGE), *bytes = buffer(16 * PAGE);

	for (size_t i = 0; i < COUNT(sizes) * COUNT(modes); i++) {
		size_t size = sizes[i % COUNT(sizes)];
		void *h = open_fd(fd, 0, modes[i / COUNT(sizes)]);

		memset(bytes, 0, 16 * PAGE);
		fill(bytes, size);
		cr_assert(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, size, 0) == (ssize_t)size);
		if (i % 2)
			drop_pages(fd);
		memset(buf, 0x55, 16 * PAGE);
		cr_expect_eq(posix->read(h, buf, 8 * PAGE, 0), 0);
		cr_expect_arr_eq(buf, bytes, 8 * PAGE, "size %zu", size);
		cr_expect_eq(buf[8 * PAGE], 0x55);
		cr_expect_eq(posix->read(h, buf, PAGE, 20 * PAGE), 0);
		cr_expect_arr_eq(buf, bytes + 8 * PAGE, PAGE);
		posix->close(h);
	}
}

Test(posix, resize)
{
	int fd = temp_file("/var/tmp", 10);
	void *h = open_fd(fd, UMMAP_O_WRITE, NULL);
	uint64_t size;

	cr_expect_eq(posix->resize(h, 123456), 0);
	cr_expect(posix->size(h, &size) == 0 && size == 123456);
	cr_expect_eq(posix->write(h, "x", 1, 200000), 0);
	cr_expect(posix->size(h, &size) == 0 && size == 200001);
	cr_expect_eq(posix->resize(h, 0), 0);
	cr_expect(posix->size(h, &size) == 0 && size == 0);
	cr_expect_eq(posix->resize(h, UINT64_MAX), -EINVAL);
	posix->close(h);
}

Test(posix, block_device)
{
	char path[32], *buf = buffer(4 * PAGE);
	uint64_t size;
	int fd;
	void *h;

	need_root();
	fd = loop_device(MIB, path, sizeof(path));
	cr_assert_eq(try_path(path, UMMAP_O_WRITE, NULL, &h), 0, "%s", geom.why);
	cr_expect_eq(geom.caps, UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE | UMMAP_CAP_DIRECT |
					UMMAP_CAP_WRITE);
	cr_expect(geom.size == MIB && posix->size(h, &size) == 0 && size == MIB);
	fill(buf, 4 * PAGE);
	cr_expect_eq(posix->write(h, buf, 4 * PAGE, MIB - 4 * PAGE), 0);
	cr_expect_eq(posix->write(h, buf, 4 * PAGE, MIB - PAGE), -ENOSPC);
	cr_expect_eq(posix->flush(h, 0, UINT64_MAX), 0);
	cr_expect_eq(posix->read(h, buf, 4 * PAGE, MIB - PAGE), 0);
	for (size_t i = PAGE; i < 4 * PAGE; i++)
		cr_assert_eq(buf[i], 0);
	cr_expect_eq(posix->resize(h, 2 * MIB), -EINVAL);
	cr_expect_eq(posix->close(h), 0);
	cr_assert_eq(ioctl(fd, BLKROSET, &(int){ 1 }), 0);
	cr_expect_eq(try_path(path, UMMAP_O_WRITE, NULL, &h), -EROFS);
	cr_expect(strstr(geom.why, "read-only"), "%s", geom.why);
	cr_assert_eq(try_path(path, 0, NULL, &h), 0, "%s", geom.why);
	posix->close(h);
	/* The next test may get this device. */
	cr_assert_eq(ioctl(fd, BLKROSET, &(int){ 0 }), 0);
	close(fd);
}

Test(posix, no_space)
{
	char *buf = buffer(4 * MIB);
	int fd, err = 0;
	void *h;

	need_root();
	fd = ext4_file(0);
	h = open_fd(fd, UMMAP_O_WRITE, NULL);
	for (size_t i = 0; i < 8 && !err; i++)
		err = posix->write(h, buf, 4 * MIB - 100, i * 4 * MIB);
	cr_expect_eq(err, -ENOSPC);
	cr_expect_eq(posix->resize(h, 0), 0);
	cr_expect_eq(posix->flush(h, 0, UINT64_MAX), 0);
	cr_expect_eq(posix->write(h, buf, 4 * MIB, 0), 0,
		     "a write failed although there is space again");
	posix->close(h);
}

/* The limit of a file's size permits a part of a write, and then the write fails. */
Test(posix, short_write)
{
	struct rlimit limit = { 100000, RLIM_INFINITY };
	int fd = temp_file("/var/tmp", 0);
	void *h = open_fd(fd, UMMAP_O_WRITE, NULL);
	char *buf = buffer(MIB);
	uint64_t size;

	signal(SIGXFSZ, SIG_IGN);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	cr_expect_eq(posix->write(h, buf, MIB, 0), -EFBIG);
	cr_expect(posix->size(h, &size) == 0 && size >= 98304 && size <= 100000);
	posix->close(h);
}

/* More pieces than a system call accepts, of odd lengths, and then of whole pages. */
Test(posix, many_pieces)
{
	enum { PIECES = 3000 };
	static struct iovec iov[PIECES];
	int fd = temp_file("/var/tmp", 0);
	void *h = open_fd(fd, UMMAP_O_WRITE, "always");
	char *bytes = buffer(PIECES * PAGE), *buf = buffer(PIECES * PAGE);

	fill(bytes, PIECES * PAGE);
	for (int whole = 0; whole < 2; whole++) {
		size_t total = 0;

		for (size_t i = 0; i < PIECES; i++) {
			iov[i] = (struct iovec){ bytes + total, whole ? PAGE : i % 7 * 37 };
			total += iov[i].iov_len;
		}
		cr_expect_eq(posix->writev(h, iov, PIECES, 0), 0);
		for (size_t i = 0; i < PIECES; i++)
			iov[i].iov_base = (char *)iov[i].iov_base - bytes + buf;
		cr_expect_eq(posix->readv(h, iov, PIECES, 0), 0);
		cr_expect_arr_eq(buf, bytes, total);
	}
	cr_expect_eq(posix->readv(h, iov, 0, 0), 0);
	posix->close(h);
}

/* A transfer longer than one system call of the driver: over a GiB of addresses of 16 MiB of
 * memory. */
Test(posix, long_transfer)
{
	static const char *const modes[] = { "always", "never" };
	const size_t window = 16 * MIB, len = 1040 * MIB;
	int fd = temp_file("/var/tmp", len), memory = memfd_create("window", MFD_CLOEXEC);
	char *buf = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	cr_assert_eq(ftruncate(memory, (off_t)window), 0);
	for (size_t at = 0; at < len; at += window)
		cr_assert_neq(mmap(buf + at, window, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
				   memory, 0), MAP_FAILED);
	cr_assert_eq(pwrite(fd, "the end", 7, (off_t)len - 7), 7);
	for (size_t i = 0; i < COUNT(modes); i++) {
		void *h = open_fd(fd, 0, modes[i]);

		memset(buf, 0x55, window);
		cr_expect_eq(posix->read(h, buf, len, 0), 0);
		cr_expect_arr_eq(buf + len - 7, "the end", 7, "%s", modes[i]);
		cr_expect_eq(buf[0], 0);
		posix->close(h);
		drop_pages(fd);
	}
}

/* ---- Direct and buffered transfers ---- */

/* Bytes that this process has read from storage, which may include some of its program. */
static size_t storage_reads(void)
{
	char text[512] = "";
	int fd = open("/proc/self/io", O_RDONLY);

	cr_assert_gt(read(fd, text, sizeof(text) - 1), 0);
	close(fd);
	return strtoull(strstr(text, "\nread_bytes: ") + 13, NULL, 10);
}

#define A_FEW (MIB / 8)

static bool has_cachestat(int fd)
{
	uint64_t range[2] = { 0, PAGE }, counts[5];

	return syscall(451, fd, range, counts, 0) == 0;
}

Test(posix, direct_when)
{
	int fd = temp_file("/var/tmp", 0);
	void *automatic = open_fd(fd, 0, NULL), *always = open_fd(fd, 0, "always");
	void *never = open_fd(fd, 0, "never");
	const size_t odd = MIB - 1000;
	char *buf = buffer(2 * MIB);
	size_t before;

	fill(buf, odd);
	cr_assert_eq(pwrite(fd, buf, odd, 0), (ssize_t)odd);
	drop_pages(fd);
	cr_assert_eq(cached_pages(fd, odd), 0);
	before = storage_reads();
	cr_assert_eq(posix->read(automatic, buf, MIB / 2, 0), 0);
	cr_expect_eq(cached_pages(fd, odd), 0, "a transfer of uncached data must be direct");
	cr_expect_geq(storage_reads() - before, MIB / 2);

	cr_assert_eq(posix->read(never, buf, MIB, 0), 0);
	cr_expect_eq(cached_pages(fd, odd), MIB / PAGE);
	before = storage_reads();
	cr_assert_eq(posix->read(automatic, buf, MIB / 2, 0), 0);
	cr_assert_eq(posix->read(automatic, buf, 2 * MIB, 0), 0,
		     "a read behind an odd end of the file failed");
	if (has_cachestat(fd))
		cr_expect_lt(storage_reads() - before, A_FEW,
			     "cached data must come from the page cache");
	cr_assert_eq(posix->read(always, buf, MIB / 2, 0), 0);
	cr_expect_geq(storage_reads() - before, MIB / 2);
	drop_pages(fd);
	cr_assert_eq(posix->read(never, buf, PAGE, 0), 0);
	before = storage_reads();
	cr_assert_eq(posix->read(automatic, buf, 2 * MIB, 0), 0);
	cr_expect_geq(storage_reads() - before, odd / 2, "most data are not cached");
	cr_expect_lt(cached_pages(fd, odd), MIB / PAGE);
	posix->close(automatic);
	posix->close(always);
	posix->close(never);
}

/* Only the ends of an odd transfer use the page cache, without the pages around them. */
Test(posix, ends_through_the_cache)
{
	int fd = temp_file("/var/tmp", 0);
	void *h;
	char *buf = buffer(MIB + PAGE);

	cr_assert_eq(pwrite(fd, buf, MIB, 0), (ssize_t)MIB);
	drop_pages(fd);
	h = open_fd(fd, UMMAP_O_WRITE, NULL);
	cr_assert_eq(posix->read(h, buf + 1, MIB / 2, 0), 0, "a read to unaligned memory failed");
	cr_expect_eq(cached_pages(fd, MIB), MIB / 2 / PAGE);
	drop_pages(fd);
	cr_assert_eq(posix->read(h, buf + 1024, MIB / 2, PAGE + 1024), 0);
	cr_expect_eq(cached_pages(fd, MIB), 2);
	drop_pages(fd);
	cr_assert_eq(posix->write(h, buf + 1024, MIB / 2, PAGE + 1024), 0);
	cr_expect_eq(cached_pages(fd, MIB), 2);
	posix->close(h);
}

/* From now on, this call fails with err on that descriptor; err 0: it returns 0. */
static void fail_call(long call, int fd, int err)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (__u32)call, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (__u32)fd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (__u32)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { COUNT(filter), filter };

	cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	cr_assert_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

Test(posix, direct_refused_later)
{
	int fd = temp_file("/var/tmp", MIB), buffered, direct;
	void *h = open_with_fds(fd, "always", &buffered, &direct);
	char *buf = buffer(MIB), *back = buffer(MIB);

	fill(buf, MIB);
	fail_call(SYS_pwritev, direct, EINVAL);
	cr_expect_eq(posix->write(h, buf, MIB, 0), 0);
	cr_expect_eq(cached_pages(fd, MIB), MIB / PAGE, "the transfer must use the page cache");
	fail_call(SYS_preadv, direct, EIO);
	cr_expect_eq(posix->read(h, back, MIB, 0), 0, "the driver must not try again");
	cr_expect_arr_eq(buf, back, MIB);
	posix->close(h);
}

Test(posix, errors_come_through)
{
	int fd = temp_file("/var/tmp", MIB), buffered, direct;
	void *h = open_with_fds(fd, NULL, &buffered, &direct);
	char *buf = buffer(MIB), byte[1];

	fail_call(SYS_preadv, direct, EIO);
	cr_expect_eq(posix->read(h, buf, MIB, 0), -EIO);
	fail_call(SYS_pwritev, direct, ENOSPC);
	cr_expect_eq(posix->write(h, buf, MIB, 0), -ENOSPC);
	fail_call(SYS_pwritev, buffered, 0);
	cr_expect_eq(posix->write(h, buf, 1, 0), -EIO, "a write that transfers nothing must fail");
	fail_call(SYS_fdatasync, buffered, EDQUOT);
	cr_expect_eq(posix->flush(h, 0, UINT64_MAX), -EDQUOT);
	fail_call(SYS_preadv, buffered, ESTALE);
	cr_expect_eq(posix->read(h, byte, 1, 0), -ESTALE);
	posix->close(h);
}

Test(posix, without_cachestat)
{
	int fd = temp_file("/var/tmp", MIB), buffered, direct;
	void *h = open_with_fds(fd, NULL, &buffered, &direct);
	char *buf = buffer(MIB), *back = buffer(MIB);
	size_t before;

	fill(buf, MIB);
	cr_assert_eq(pwrite(fd, buf, MIB, 0), (ssize_t)MIB);
	fail_call(451, buffered, ENOSYS);
	before = storage_reads();
	cr_expect_eq(posix->read(h, back, MIB, 0), 0);
	cr_expect_geq(storage_reads() - before, MIB);
	cr_expect_arr_eq(buf, back, MIB);
	posix->close(h);
}

/* The driver's calls are not cancellation points: a cancelled thread completes them. */
static void *use_cancelled(void *arg)
{
	static _Thread_local char byte = 1;
	void *h = arg;

	pthread_cancel(pthread_self());
	if (posix->write(h, &byte, 1, 7) || posix->flush(h, 0, 8) || posix->read(h, &byte, 1, 0) ||
	    posix->resize(h, 9))
		return NULL;
	byte = 42;
	posix->write(h, &byte, 1, 8);
	pthread_testcancel();
	return NULL;
}

Test(posix, cancellation)
{
	void *h = open_fd(temp_file("/var/tmp", 0), UMMAP_O_WRITE, NULL), *result;
	pthread_t thread;
	char byte = 0;

	cr_assert_eq(pthread_create(&thread, NULL, use_cancelled, h), 0);
	pthread_join(thread, &result);
	cr_expect_eq(result, PTHREAD_CANCELED);
	cr_expect_eq(posix->read(h, &byte, 1, 8), 0);
	cr_expect_eq(byte, 42, "a call was cancelled");
	posix->close(h);
}
