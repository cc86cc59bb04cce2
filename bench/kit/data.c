/* SPDX-License-Identifier: BSD-3-Clause */
#include "kit/data.h"

void fill_words(void *buf, size_t len, uint64_t off, uint64_t salt)
{
	uint64_t *w = buf, v = salt + off / 8 * STRIDE;
	size_t i;

	for (i = 0; i < len / 8; i += 4, v += 4 * STRIDE) {
		w[i] = v;
		w[i + 1] = v + STRIDE;
		w[i + 2] = v + 2 * STRIDE;
		w[i + 3] = v + 3 * STRIDE;
	}
}

uint64_t sum_words(const void *buf, size_t len)
{
	const uint64_t *w = buf;
	uint64_t a = 0, b = 0, c = 0, d = 0;
	size_t i;

	for (i = 0; i < len / 8; i += 4) {
		a += w[i];
		b += w[i + 1];
		c += w[i + 2];
		d += w[i + 3];
	}
	return a + b + c + d;
}

uint64_t expected_sum(size_t len, uint64_t off, uint64_t salt)
{
	uint64_t n = len / 8, first = off / 8;

	return n * salt + n / 2 * (2 * first + n - 1) * STRIDE;
}

void read_whole(int fd, void *buf, size_t len, uint64_t off)
{
	ssize_t got;

	while (len && (got = pread(fd, buf, len, (off_t)off)) > 0) {
		buf = (char *)buf + got;
		len -= (size_t)got;
		off += (uint64_t)got;
	}
	if (len)
		die("read at %llu: %s", (unsigned long long)off,
		    got ? strerror(errno) : "end of file");
}

void write_whole(int fd, const void *buf, size_t len, uint64_t off)
{
	ssize_t put;

	while (len && (put = pwrite(fd, buf, len, (off_t)off)) > 0) {
		buf = (const char *)buf + put;
		len -= (size_t)put;
		off += (uint64_t)put;
	}
	if (len)
		die("write at %llu: %s", (unsigned long long)off, strerror(errno));
}

int open_file(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0644);

	if (fd < 0)
		die("%s: %s", path, strerror(errno));
	return fd;
}

/* Ends the program if the file does not begin as fill_words writes it: another program owns it. */
static void check_file(int fd, const char *path, size_t size)
{
	uint64_t head[512] = { 0 };
	size_t i;

	if (size >= sizeof(head))
		read_whole(fd, head, sizeof(head), 0);
	for (i = 1; i < 512; i++)
		if (head[i] - head[i - 1] != STRIDE)
			die("%s is no file of this benchmark; it is left as it is", path);
}

void make_file(const char *path, size_t size)
{
	int fd = open_file(path, O_RDWR | O_CREAT);
	struct stat st;
	char *buf;
	size_t off, len;

	if (fstat(fd, &st))
		die("%s: %s", path, strerror(errno));
	if (st.st_size)
		check_file(fd, path, (size_t)st.st_size);
	if ((size_t)st.st_size < size) {
		fprintf(stderr, "filling %s\n", path);
		buf = malloc(MIB);
		for (off = 0; off < size; off += len) {
			len = size - off < MIB ? size - off : MIB;
			fill_words(buf, len, off, FILE_SALT);
			write_whole(fd, buf, len, off);
		}
		free(buf);
	}
	if (fsync(fd))
		die("%s: %s", path, strerror(errno));
	close(fd);
}

/* Returns the number of pages of the file that the page cache has, by mincore(2). */
static size_t resident_pages(int fd, size_t size)
{
	size_t pages = (size + 4 * KIB - 1) / (4 * KIB), i, n = 0;
	unsigned char *in = calloc(pages, 1);
	void *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED || mincore(p, size, in))
		die("mincore: %s", strerror(errno));
	for (i = 0; i < pages; i++)
		n += in[i] & 1;
	munmap(p, size);
	free(in);
	return n;
}

/* Returns the same number by cachestat(2), if the kernel supports it. */
static size_t cached_pages(int fd, size_t size)
{
	enum { CACHESTAT = 451 };
	struct { uint64_t off, len; } range = { 0, size };
	struct { uint64_t cache, dirty, writeback, evicted, recently_evicted; } stat;

	if (syscall(CACHESTAT, fd, &range, &stat, 0))
		return resident_pages(fd, size);
	return stat.cache;
}

bool drop_cache(int fd, size_t size)
{
	if (fsync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		die("emptying the page cache: %s", strerror(errno));
	return cached_pages(fd, size) == 0;
}
