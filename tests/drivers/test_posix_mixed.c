/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct and buffered transfers of one file, by turns and at once, in every place that the posix
 * driver may meet: what was written must be what is read, and nothing else may have changed.
 */
#include "posix.h"

#include <pthread.h>

/* --- transfers against a model --- */

#define SPAN (MIB / 4)

struct model {
	int fd;         /* the test's own, through the page cache */
	void *h;
	bool grows;
	size_t size;
	char *bytes, *buf;
};

/* A place and a length: of whole pages, of whole sectors, or any. */
static void somewhere(size_t *off, size_t *len)
{
	static const size_t grains[] = { PAGE, 512, 1 };
	size_t grain = grains[rand() % 3], other = grains[rand() % 3];
	size_t longest = rand() % 3 ? 4 * PAGE : SPAN / 2;

	*off = (size_t)rand() % SPAN / grain * grain;
	*len = ((size_t)rand() % longest + 1 + other - 1) / other * other;
	if (*len > SPAN - *off)
		*len = SPAN - *off;
}

/* One to five pieces, some of them empty, some of them aligned. */
static int cut(char *buf, size_t len, struct iovec *iov)
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

	somewhere(&off, &len);
	buf += rand() % 2 ? off % PAGE : (size_t[]){ 0, 512, 4, 1 }[rand() % 4];
	n = cut(buf, len, iov);
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

/* Driver and page cache write and read the same file in turns: both must see what was written last. */
static void against_model(int fd, bool grows)
{
	static const char *const modes[] = { "auto", "always", "never" };
	struct model m = { .fd = fd, .grows = grows, .bytes = buffer(SPAN), .buf = buffer(SPAN + PAGE) };
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
	against_model(temp_file("/var/tmp", 0), true);
}

Test(posix_mixed, model_on_tmpfs)
{
	against_model(temp_file("/dev/shm", 0), true);
}

Test(posix_mixed, model_on_ext4)
{
	need_root();
	against_model(ext4_file(0), true);
}

Test(posix_mixed, model_on_block_device)
{
	char path[32];

	need_root();
	against_model(loop_device(SPAN, path, sizeof(path)), false);
}

/* --- threads --- */

#define THREADS 4
#define SLOTS 32
#define ROUNDS 60

struct worker {
	void *h;
	int fd;
	size_t slot;   /* bytes of one */
	unsigned me;
	bool drops;
	const char *wrong;
};

static void stamp(char *buf, size_t len, unsigned slot, unsigned round)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (char)(slot * 31 + round * 7 + i % 251);
}

/* Writes and reads back each slot of its own, between those of others. */
static void *write_slots(void *arg)
{
	struct worker *w = arg;
	char *buf = buffer(w->slot + PAGE), *expected = buffer(w->slot);

	for (unsigned round = 1; round <= ROUNDS; round++) {
		for (unsigned s = w->me; s < SLOTS; s += THREADS) {
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
				w->wrong = "something else was read than was written";
		}
		if (w->me == 0 && posix->flush(w->h, 0, UINT64_MAX))
			w->wrong = "a flush failed";
		if (w->drops && w->me == 1)
			posix_fadvise(w->fd, 0, 0, POSIX_FADV_DONTNEED);
	}
	return NULL;
}

/*
 * Neighbouring slots share pages: one thread's direct write stands beside the other's buffered one. `drops`: pages are
 * dropped meanwhile, dirty ones too. Linux 6.18 marks those with the bit that also means readahead, and whoever reads
 * one next has it read the pages around, on a block device many to a folio. Where such a folio has the end of one slot
 * in it when the middle of another is written directly, the next flush fails with EIO and the log speaks of a collision:
 * nothing that a driver could keep from happening, and nothing was lost.
 */
static void many_threads(int fd, bool drops)
{
	static const size_t slots[] = { 5000, 20000, 1536 };

	for (size_t i = 0; i < COUNT(slots); i++) {
		void *h = open_fd(fd, UMMAP_O_WRITE, i % 2 ? "auto" : "always");
		char *buf = buffer(slots[i]), *expected = buffer(slots[i]);
		struct worker workers[THREADS];
		pthread_t threads[THREADS];

		for (unsigned t = 0; t < THREADS; t++) {
			workers[t] = (struct worker){ h, fd, slots[i], t, drops, NULL };
			cr_assert_eq(pthread_create(&threads[t], NULL, write_slots, &workers[t]), 0);
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
			cr_assert_eq(pread(fd, buf, slots[i], (off_t)(s * slots[i])), (ssize_t)slots[i]);
			cr_assert_arr_eq(buf, expected, slots[i], "slot %u of %zu bytes", s, slots[i]);
		}
	}
}

Test(posix_mixed, threads_on_disk)
{
	many_threads(temp_file("/var/tmp", 0), true);
}

Test(posix_mixed, threads_on_ext4)
{
	need_root();
	many_threads(ext4_file(0), true);
}

Test(posix_mixed, threads_on_block_device)
{
	char path[32];

	need_root();
	many_threads(loop_device(MIB, path, sizeof(path)), false);
}
