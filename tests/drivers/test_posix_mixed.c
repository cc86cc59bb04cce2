/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct and buffered transfers of one file, in turns and at the same time, on each kind of file
 * that the driver posix supports: reads must return the last write, and no other bytes may change.
 */
#include "posix.h"

#include <pthread.h>

/* ---- Transfers compared with a model ---- */

#define SPAN (MIB / 4)

struct model {
	int fd;         /* descriptor of the test, through the page cache */
	void *h;        /* handle of the driver */
	bool grows;     /* whether writes can enlarge the store */
	size_t size;    /* expected size of the store */
	char *bytes;    /* expected contents */
	char *buf;      /* memory for transfers */
};

/* Chooses a range of whole pages, of whole sectors, or of any bytes. */
static void choose_range(size_t *off, size_t *len)
{
	static const size_t grains[] = { PAGE, 512, 1 };
	size_t grain = grains[rand() % 3], other = grains[rand() % 3];
	size_t longest = rand() % 3 ? 4 * PAGE : SPAN / 2;

	*off = (size_t)rand() % SPAN / grain * grain;
	*len = ((size_t)rand() % longest + 1 + other - 1) / other * other;
	if (*len > SPAN - *off)
		*len = SPAN - *off;
}

/* Cuts a buffer into one to five pieces, some of which are empty or aligned. */
static int cut_buffer(char *buf, size_t len, struct iovec *iov)
{
	int n = 0;

	while (n < 4 && rand() % 3) {
		size_t piece = (size_t)rand() % (len + 1);

		if (rand() % 2)
			piece = piece / PAGE * PAGE;
		iov[n++] = (struct iovec){ buf, piece };
		buf += piece;
		len -= piece;
	}
	iov[n++] = (struct iovec){ buf, len };
	return n;
}

static void random_step(struct model *m)
{
	struct iovec iov[5];
	size_t off, len;
	char *buf = m->buf;
	int n;

	choose_range(&off, &len);
	buf += rand() % 2 ? off % PAGE : (size_t[]){ 0, 512, 4, 1 }[rand() % 4];
	n = cut_buffer(buf, len, iov);
	switch (rand() % 8) {
	case 0: case 1: case 2:
		fill(buf, len);
		memcpy(m->bytes + off, buf, len);
		m->size = off + len > m->size ? off + len : m->size;
		cr_assert_eq(n > 1 ? posix->writev(m->h, iov, n, off) :
				     posix->write(m->h, buf, len, off), 0);
		break;
	case 3: case 4: case 5:
		memset(buf, 0x55, len);
		cr_assert_eq(n > 1 ? posix->readv(m->h, iov, n, off) :
				     posix->read(m->h, buf, len, off), 0);
		cr_assert_arr_eq(buf, m->bytes + off, len, "%zu bytes at %zu", len, off);
		break;
	case 6:
		fill(buf, len);
		memcpy(m->bytes + off, buf, len);
		m->size = off + len > m->size ? off + len : m->size;
		cr_assert_eq(pwrite(m->fd, buf, len, (off_t)off), (ssize_t)len);
		break;
	default:
		n = (int)pread(m->fd, buf, len, (off_t)off);
		cr_assert_arr_eq(buf, m->bytes + off, (size_t)n, "%d bytes at %zu", n, off);
		if (rand() % 2)
			drop_pages(m->fd);
	}
}

/* The driver and the page cache transfer in turns. Each must see the last write of the other. */
static void compare_with_model(int fd, bool grows)
{
	static const char *const modes[] = { "auto", "always", "never" };
	struct model m = {
		.fd = fd, .grows = grows, .bytes = buffer(SPAN), .buf = buffer(SPAN + PAGE)
	};
	uint64_t size;

	srand(11);
	m.size = grows ? 70001 : SPAN;
	if (grows)
		cr_assert_eq(ftruncate(fd, (off_t)m.size), 0);
	for (size_t mode = 0; mode < COUNT(modes); mode++) {
		m.h = open_fd(fd, UMMAP_O_WRITE, modes[mode]);
		cr_expect_eq(geom.size, m.size);
		for (int i = 0; i < 1500; i++)
			random_step(&m);
		cr_expect_eq(posix->flush(m.h, 0, UINT64_MAX), 0);
		cr_expect(posix->size(m.h, &size) == 0 && size == m.size);
		cr_expect_eq(posix->close(m.h), 0);
		drop_pages(fd);
		cr_assert_eq(pread(fd, m.buf, SPAN, 0), (ssize_t)m.size);
		cr_assert_arr_eq(m.buf, m.bytes, m.size);
	}
}

Test(posix_mixed, model_on_disk)
{
	compare_with_model(temp_file("/var/tmp", 0), true);
}

Test(posix_mixed, model_on_tmpfs)
{
	compare_with_model(temp_file("/dev/shm", 0), true);
}

Test(posix_mixed, model_on_ext4)
{
	need_root();
	compare_with_model(ext4_file(0), true);
}

Test(posix_mixed, model_on_block_device)
{
	char path[32];

	need_root();
	compare_with_model(loop_device(SPAN, path, sizeof(path)), false);
}

/* ---- Threads ---- */

#define THREADS 4
#define SLOTS 32
#define ROUNDS 60

struct worker {
	void *h;           /* handle of the driver */
	int fd;            /* descriptor of the file */
	size_t slot;       /* bytes of a slot */
	unsigned number;   /* number of the thread */
	bool drops;        /* whether thread 1 drops pages from the page cache */
	const char *wrong; /* last error; NULL: none */
};

static void stamp(char *buf, size_t len, unsigned slot, unsigned round)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (char)(slot * 31 + round * 7 + i % 251);
}

/* Writes and reads the slots of this thread, which lie between slots of other threads. */
static void *write_slots(void *arg)
{
	struct worker *w = arg;
	char *buf = buffer(w->slot + PAGE), *expected = buffer(w->slot);

	for (unsigned round = 1; round <= ROUNDS; round++) {
		for (unsigned s = w->number; s < SLOTS; s += THREADS) {
			uint64_t off = s * w->slot;
			char *at = buf + off % PAGE;

			stamp(expected, w->slot, s, round);
			memcpy(at, expected, w->slot);
			if (posix->write(w->h, at, w->slot, off))
				w->wrong = "a write failed";
			memset(at, 0, w->slot);
			if (posix->read(w->h, at, w->slot, off))
				w->wrong = "a read failed";
			if (memcmp(at, expected, w->slot))
				w->wrong = "a read did not return the last write";
		}
		if (w->number == 0 && posix->flush(w->h, 0, UINT64_MAX))
			w->wrong = "a flush failed";
		if (w->drops && w->number == 1)
			posix_fadvise(w->fd, 0, 0, POSIX_FADV_DONTNEED);
	}
	return NULL;
}

/*
 * Neighboring slots share pages, so the direct write of one thread is next to the buffered write of
 * another. If `drops` is true, pages are dropped meanwhile, even dirty ones. Linux 6.18 marks these
 * pages with the bit that also means readahead, so the next read of such a page reads the pages
 * around it, on a block device many in a folio. If such a folio contains the end of one slot while
 * the middle of another slot is written directly, the next flush fails with EIO, and the kernel
 * logs a collision. A driver cannot prevent this, and no data are lost. Therefore the test on a
 * block device drops no pages.
 */
static void write_by_threads(int fd, bool drops)
{
	static const size_t slots[] = { 5000, 20000, 1536 };

	for (size_t i = 0; i < COUNT(slots); i++) {
		void *h = open_fd(fd, UMMAP_O_WRITE, i % 2 ? "auto" : "always");
		char *buf = buffer(slots[i]), *expected = buffer(slots[i]);
		struct worker workers[THREADS];
		pthread_t threads[THREADS];

		for (unsigned t = 0; t < THREADS; t++) {
			workers[t] = (struct worker){ h, fd, slots[i], t, drops, NULL };
			cr_assert_eq(pthread_create(&threads[t], NULL, write_slots, &workers[t]),
				     0);
		}
		for (unsigned t = 0; t < THREADS; t++) {
			pthread_join(threads[t], NULL);
			cr_expect_null(workers[t].wrong, "%zu: %s", slots[i], workers[t].wrong);
		}
		cr_expect_eq(posix->flush(h, 0, UINT64_MAX), 0);
		posix->close(h);
		drop_pages(fd);
		for (unsigned s = 0; s < SLOTS; s++) {
			stamp(expected, slots[i], s, ROUNDS);
			cr_assert_eq(pread(fd, buf, slots[i], (off_t)(s * slots[i])),
				     (ssize_t)slots[i]);
			cr_assert_arr_eq(buf, expected, slots[i], "slot %u of %zu bytes", s,
					 slots[i]);
		}
	}
}

Test(posix_mixed, threads_on_disk)
{
	write_by_threads(temp_file("/var/tmp", 0), true);
}

Test(posix_mixed, threads_on_ext4)
{
	need_root();
	write_by_threads(ext4_file(0), true);
}

Test(posix_mixed, threads_on_block_device)
{
	char path[32];

	need_root();
	write_by_threads(loop_device(MIB, path, sizeof(path)), false);
}
