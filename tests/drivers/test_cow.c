/* SPDX-License-Identifier: BSD-3-Clause */
/* The filter cow+ with files: which store a file of changes belongs to, damage, sizes, and errors.
 * */
#include <criterion/criterion.h>

#include "drivers/overlay/cow.h"
#include "common.h"
#include "overlay_file.h"

#define BLOCKS ((uint64_t)600)           /* their entries take three pages */
#define SIZE (BLOCKS * OVERLAY_BLOCK - 1000)

struct handle {
	struct ummap_driver driver;
	void *cow;
	struct ummap_geom geom;
};

static char store[320], changes[330];

static int try_open(struct handle *h, int oflags, const char *format, ...)
{
	char uri[1000];
	va_list args;

	va_start(args, format);
	vsnprintf(uri, sizeof(uri), format, args);
	va_end(args);
	memset(h, 0, sizeof(*h));
	h->driver.struct_size = sizeof(h->driver);
	return ummap_driver_open(uri, oflags, &h->driver, &h->cow, &h->geom);
}

static void open_store(struct handle *h, int oflags)
{
	check(try_open(h, oflags, "cow+posix:%s", store) == 0);
}

static void close_store(struct handle *h)
{
	check(h->driver.close(h->cow) == 0);
}

static void put(struct handle *h, uint64_t off, size_t len, uint64_t seed)
{
	uint8_t *bytes = malloc(len);

	fill(bytes, len, off, seed);
	check(h->driver.write(h->cow, bytes, len, off) == 0);
	free(bytes);
}

static void expect(struct handle *h, uint64_t off, size_t len, uint64_t seed)
{
	uint8_t *bytes = malloc(len);

	check(h->driver.read(h->cow, bytes, len, off) == 0);
	check_bytes(bytes, len, off, seed);
	free(bytes);
}

static void expect_zeros(struct handle *h, uint64_t off, size_t len)
{
	uint8_t *bytes = malloc(len);

	check(h->driver.read(h->cow, bytes, len, off) == 0);
	check_zeros(bytes, len);
	free(bytes);
}

static int make_store(void)
{
	int fd = temp_named("store", SIZE, store);

	set_group();
	file_fill(fd, 0, SIZE, 0, 1);
	snprintf(changes, sizeof(changes), "%s.cow", store);
	return fd;
}

Test(cow, leaves_the_store)
{
	int fd = make_store();
	struct stat before, after;
	struct handle h;

	check(fstat(fd, &before) == 0);
	open_store(&h, UMMAP_O_WRITE);
	check(h.geom.size == SIZE);
	expect(&h, 0, SIZE, 1);
	put(&h, 5000, 100000, 2);
	close_store(&h);
	open_store(&h, 0);
	check(!(h.geom.caps & UMMAP_CAP_WRITE) && h.driver.write(h.cow, "", 1, 0) == -EBADF);
	expect(&h, 0, 5000, 1);
	expect(&h, 5000, 100000, 2);
	expect(&h, 105000, SIZE - 105000, 1);
	close_store(&h);
	check_file(fd, 0, SIZE, 0, 1);
	check(fstat(fd, &after) == 0 && after.st_mtim.tv_nsec == before.st_mtim.tv_nsec);
	check(unlink(changes) == 0);
	open_store(&h, 0);
	expect(&h, 0, SIZE, 1);
	close_store(&h);
	check(access(changes, F_OK) < 0, "a reader creates no file of changes");
}

Test(cow, two_of_one_store)
{
	struct handle a, b, plain;

	make_store();
	check(try_open(&a, UMMAP_O_WRITE, "cow+posix:%s?cow.path=%s.a", store, store) == 0);
	check(try_open(&b, UMMAP_O_WRITE, "cow+posix:%s?cow.path=%s.b", store, store) == 0);
	check(memcmp(a.geom.id, b.geom.id, sizeof(a.geom.id)) != 0);
	for (int i = 0; i < 2; i++) {
		struct handle *h = i ? &a : &b;

		check(h->driver.lock(h->cow, 0, SIZE, UMMAP_LOCK_EXCLUSIVE, (char[160]){ "" }) ==
		      0);
		put(h, 40960, 20000, 10 + i);
	}
	expect(&a, 40960, 20000, 11);
	expect(&b, 40960, 20000, 10);
	/* No process may write the store that both read. */
	check(try_open(&plain, UMMAP_O_WRITE, "posix:%s", store) == 0);
	check(plain.driver.lock(plain.cow, 0, SIZE, UMMAP_LOCK_EXCLUSIVE, (char[160]){ "" }) ==
	      -EBUSY);
	close_store(&a);
	close_store(&b);
	check(plain.driver.lock(plain.cow, 0, SIZE, UMMAP_LOCK_EXCLUSIVE, (char [160]){ "" }) == 0);
	close_store(&plain);
}

Test(cow, grows)
{
	struct handle h;

	make_store();
	open_store(&h, UMMAP_O_WRITE);
	put(&h, SIZE - 10, 5, 2);
	check(h.driver.resize(h.cow, SIZE + 100000) == 0);
	put(&h, SIZE + 200000, 1000, 3);
	close_store(&h);
	open_store(&h, 0);
	check(h.geom.size == SIZE + 201000);
	expect(&h, SIZE - 10, 5, 2);
	expect_zeros(&h, SIZE, 200000);
	expect(&h, SIZE + 200000, 1000, 3);
	expect_zeros(&h, SIZE + 201000, 50000);
	close_store(&h);
}

/* ---- Stores become shorter ---- */

#define ROOM (SIZE + 300000)

struct model {
	struct handle h;
	uint8_t *want, *have;        /* ROOM bytes */
	uint64_t size, seed;
};

static void check_contents(struct model *m)
{
	uint64_t size;

	check(m->h.driver.size(m->h.cow, &size) == 0);
	check(size == m->size, "%" PRIu64 " is not %" PRIu64, size, m->size);
	check(m->h.driver.read(m->h.cow, m->have, ROOM, 0) == 0);
	check(memcmp(m->have, m->want, ROOM) == 0);
}

static void resize_to(struct model *m, uint64_t size)
{
	check(m->h.driver.resize(m->h.cow, size) == 0);
	if (size < m->size)
		memset(m->want + size, 0, m->size - size);
	m->size = size;
}

static void write_some(struct model *m)
{
	uint64_t off = next_random(&m->seed) % (ROOM - 1);
	uint64_t len = 1 + next_random(&m->seed) % (next_random(&m->seed) % 2 ? 500 : 60000);

	off = next_random(&m->seed) % 4 ? off % (m->size + 1) : off;
	len = len < ROOM - off ? len : ROOM - off;
	fill(m->want + off, len, off, next_random(&m->seed));
	check(m->h.driver.write(m->h.cow, m->want + off, len, off) == 0);
	m->size = off + len > m->size ? off + len : m->size;
}

static void open_again(struct model *m)
{
	close_store(&m->h);
	open_store(&m->h, UMMAP_O_WRITE);
	check(m->h.geom.size == m->size);
}

static void take_step(struct model *m)
{
	switch (next_random(&m->seed) % 8) {
	case 0:
		return resize_to(m, next_random(&m->seed) % ROOM);
	case 1:
		return resize_to(m, next_random(&m->seed) % (m->size + 1));
	case 2:
		return resize_to(m, next_random(&m->seed) % (m->size + 1) & ~(uint64_t)4095);
	case 3:
		check(m->h.driver.flush(m->h.cow, 0, UINT64_MAX) == 0);
		return;
	case 4:
		return open_again(m);
	default:
		return write_some(m);
	}
}

/* Writes the changes in a file to a store of this path and size, and removes the file. */
static void commit_changes(const char *path, const char *of, uint64_t size, struct handle *to)
{
	const struct overlay_opening how = { .path = path, .write = true };
	struct overlay o = { .policy = &overlay_cow };
	struct ummap_geom geom = { .size = 0 };
	struct store_facts now;

	check(overlay_open(&o, &how, &geom) == 0 && overlay_load(&o) == 0, "%s", geom.why);
	overlay_describe(&now, of, -1, size);
	check(cow_commit(&o, &now, &to->driver, to->cow, &geom) == 0, "%s", geom.why);
	overlay_close(&o);
	check(access(path, F_OK) < 0);
}

static void check_committed(struct model *m)
{
	check(try_open(&m->h, UMMAP_O_WRITE, "posix:%s", store) == 0);
	commit_changes(changes, store, SIZE, &m->h);
	check_contents(m);
	close_store(&m->h);
}

/* Bytes behind a shorter end are zeros if the store becomes longer again, and the commit shortens
 * the store itself. */
Test(cow, shrinks)
{
	struct model m = { .want = calloc(1, ROOM), .have = malloc(ROOM), .size = SIZE,
			   .seed = (uint64_t)time(NULL) };

	printf("seed %" PRIu64 "\n", m.seed);
	fflush(stdout);
	for (int round = 0; round < 30; round++) {
		int fd = make_store();

		memset(m.want, 0, ROOM);
		fill(m.want, SIZE, 0, 1);
		m.size = SIZE;
		open_store(&m.h, UMMAP_O_WRITE);
		for (int i = 0; i < 40; i++) {
			take_step(&m);
			check_contents(&m);
		}
		close_store(&m.h);
		check_file(fd, 0, SIZE, 0, 1);
		close(fd);
		check_committed(&m);
	}
}

/* A store that cannot become shorter gets zeros behind the end. */
Test(cow, zeros_in_a_fixed_store)
{
	struct handle h, plain;
	char path[330];

	close(make_store());
	snprintf(path, sizeof(path), "%s.mem", store);
	check(try_open(&plain, UMMAP_O_WRITE, "mem:1M?name=fixed") == 0);
	put(&plain, 0, 1 << 20, 1);
	check(try_open(&h, UMMAP_O_WRITE, "cow+mem:1M?name=fixed&cow.path=%s", path) == 0);
	check(h.driver.resize(h.cow, 10000) == 0);
	put(&h, 20000, 10, 2);
	check(h.driver.flush(h.cow, 0, UINT64_MAX) == 0);
	close_store(&h);
	commit_changes(path, "1M", 1 << 20, &plain);
	expect(&plain, 0, 10000, 1);
	expect_zeros(&plain, 10000, 10000);
	expect(&plain, 20000, 10, 2);
	expect_zeros(&plain, 20010, (1 << 20) - 20010);
	close_store(&plain);
}

/* ---- Changes belong to a store ---- */

Test(cow, are_of_one_store)
{
	char other[320], moved[330];
	struct handle h;
	int fd = make_store();

	open_store(&h, UMMAP_O_WRITE);
	put(&h, 0, 10, 2);
	close_store(&h);
	snprintf(moved, sizeof(moved), "%s.moved", store);
	check(rename(store, moved) == 0);
	check(try_open(&h, 0, "cow+posix:%s?cow.path=%s", moved, changes) == 0, "a store may move");
	close_store(&h);
	check(rename(moved, store) == 0);
	close(temp_named("other", SIZE, other));
	check_fails(try_open(&h, 0, "cow+posix:%s?cow.path=%s", other, changes), EINVAL);
	check(strstr(umerrormsg(), "another store, 'store'"), "%s", umerrormsg());
	check_fails(try_open(&h, 0, "cow+mem:1M?cow.path=%s", changes), EINVAL);
	check(pwrite(fd, "", 1, 9) == 1);
	check_fails(try_open(&h, UMMAP_O_WRITE, "cow+posix:%s", store), ESTALE);
	check(strstr(umerrormsg(), "was written since") && strstr(umerrormsg(), "ummap cow"), "%s",
	      umerrormsg());
}

Test(cow, notices_another_size)
{
	struct timespec times[2];
	struct handle h;
	struct stat st;
	int fd = make_store();

	open_store(&h, UMMAP_O_WRITE);
	close_store(&h);
	check(fstat(fd, &st) == 0 && ftruncate(fd, SIZE + 1) == 0);
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	check(futimens(fd, times) == 0);
	check_fails(try_open(&h, 0, "cow+posix:%s", store), ESTALE);
}

/* The store is not written, and therefore not created. It may be empty: bytes beyond its end are
 * changes. */
Test(cow, creates_no_store)
{
	struct handle h;

	close(make_store());
	check(unlink(store) == 0);
	check(try_open(&h, UMMAP_O_WRITE | UMMAP_O_CREATE, "cow+posix:%s", store) == -1 &&
	      errno == ENOENT);
	check(strstr(umerrormsg(), "create it first"), "%s", umerrormsg());
	check(access(store, F_OK) < 0 && access(changes, F_OK) < 0);
	close(open(store, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	check(try_open(&h, UMMAP_O_WRITE | UMMAP_O_CREATE, "cow+posix:%s", store) == 0, "%s",
	      umerrormsg());
	put(&h, 0, 5000, 1);
	close_store(&h);
	open_store(&h, 0);
	check(h.geom.size == 5000);
	expect(&h, 0, 5000, 1);
	close_store(&h);
}

static void put_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	check(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

Test(cow, without_a_path)
{
	struct handle h;
	char path[400];

	make_store();
	check_fails(try_open(&h, UMMAP_O_WRITE, "cow+mem:1M"), EINVAL);
	check(strstr(umerrormsg(), "by cow.path"), "%s", umerrormsg());
	check_fails(try_open(&h, UMMAP_O_WRITE, "cow+posix:%s?cow.path=", store), EINVAL);
	check_fails(try_open(&h, UMMAP_O_WRITE | UMMAP_O_CREATE, "cow+posix:%s.none", store),
		    ENOENT);
	snprintf(path, sizeof(path), "%s.none", store);
	check(access(path, F_OK) < 0, "the store is not created");
	check_fails(try_open(&h, UMMAP_O_WRITE | UMMAP_O_WRITERS, "cow+posix:%s", store), EINVAL);
	check_fails(try_open(&h, UMMAP_O_WRITE, "cow+posix:%s?cow.path=/no-such-folder/x", store),
		    ENOENT);
	check(strstr(umerrormsg(), "/no-such-folder/x': "), "%s", umerrormsg());
	check_fails(try_open(&h, UMMAP_O_WRITE, "cow+posix:%s?cow.path=%s", store, store), EINVAL);
	check(strstr(umerrormsg(), "is the store itself"), "%s", umerrormsg());
	snprintf(path, sizeof(path), "%s.other", store);
	put_text(path, "no changes of anybody's");
	check_fails(try_open(&h, UMMAP_O_WRITE, "cow+posix:%s?cow.path=%s", store, path), EUCLEAN);
	check(strstr(umerrormsg(), "no file of cow+"), "%s", umerrormsg());
}

Test(cow, twice)
{
	struct handle h;

	close(make_store());
	check_fails(try_open(&h, UMMAP_O_WRITE, "cow+cow+posix:%s", store), EINVAL);
	check(strstr(umerrormsg(), "in front of cow+"), "%s", umerrormsg());
	check_fails(try_open(&h, UMMAP_O_WRITE, "cow+trace+cow+posix:%s?trace.file=/dev/null",
			     store), EINVAL);
	check(access(changes, F_OK) < 0);
}

/* ---- Damage ---- */

static void flip(int fd, uint64_t at, uint8_t by)
{
	uint8_t byte;

	check(pread(fd, &byte, 1, at) == 1);
	byte ^= by;
	check(pwrite(fd, &byte, 1, at) == 1);
}

/* Opening fails, and the message names the byte. */
static void check_damaged(int fd, uint64_t at, uint64_t named)
{
	char number[40];
	struct handle h;

	flip(fd, at, 1u << at % 8);
	check_fails(try_open(&h, at % 2 ? UMMAP_O_WRITE : 0, "cow+posix:%s", store), EUCLEAN);
	snprintf(number, sizeof(number), "damaged at byte %" PRIu64 ".", named);
	check(strstr(umerrormsg(), number), "byte %" PRIu64 ": %s", at, umerrormsg());
	flip(fd, at, 1u << at % 8);
}

static void check_not_damaged(int fd, uint64_t at)
{
	struct handle h;

	flip(fd, at, 1u << at % 8);
	open_store(&h, 0);
	expect(&h, 0, 40 * OVERLAY_BLOCK, 2);
	close_store(&h);
	flip(fd, at, 1u << at % 8);
}

/* Bytes of the header and of all records, and each one of the commit record and of the
 * acknowledgment. One slot of the header is enough. Without the acknowledgment, the blocks are
 * checked. */
Test(cow, every_byte)
{
	uint64_t records = BLOCKS / 50 * 40, commit = OVERLAY_COMMITS_AT + OVERLAY_SECTOR;
	struct handle h;
	int fd;

	make_store();
	open_store(&h, UMMAP_O_WRITE);
	for (uint64_t k = 0; k < BLOCKS; k += 50)
		put(&h, k * OVERLAY_BLOCK, 40 * OVERLAY_BLOCK, 2);
	close_store(&h);
	fd = open(changes, O_RDWR | O_CLOEXEC);
	check(fd >= 0);
	for (uint64_t at = 0; at < HEADER_BYTES; at += 5)
		check_not_damaged(fd, at);
	for (uint64_t i = 0; i < sizeof(struct overlay_commit); i++)
		check_damaged(fd, commit + i, commit);
	for (uint64_t i = 0; i < sizeof(struct overlay_ack); i++)
		check_not_damaged(fd, OVERLAY_ACK_AT + i);
	for (uint32_t r = 0; r < records; r++) {
		uint64_t at = file_record_at(r) + OVERLAY_TABLE_BYTES;

		check_damaged(fd, at + r % sizeof(struct overlay_record), at);
	}
	/* Both slots of the header are damaged; and a file that ends too early. */
	flip(fd, 100, 1);
	flip(fd, 100 + HEADER_SLOT, 1);
	check_fails(try_open(&h, 0, "cow+posix:%s", store), EUCLEAN);
	flip(fd, 100, 1);
	flip(fd, 100 + HEADER_SLOT, 1);
	check(ftruncate(fd, (off_t)(file_record_at(0) + OVERLAY_TABLE_BYTES)) == 0);
	check_fails(try_open(&h, 0, "cow+posix:%s", store), EUCLEAN);
	close(fd);
}

/* Blocks are checked when they are read, if the user requests it, and when the file is opened, if
 * the acknowledgment does not say that they are durable. */
Test(cow, verifies_blocks)
{
	uint64_t block = file_block_at(10);
	uint8_t bytes[2 * OVERLAY_BLOCK];
	char uri[400];
	struct handle h;
	int fd;

	make_store();
	open_store(&h, UMMAP_O_WRITE);
	put(&h, 0, 20 * OVERLAY_BLOCK, 2);
	close_store(&h);
	fd = open(changes, O_RDWR | O_CLOEXEC);
	snprintf(uri, sizeof(uri), "cow+posix:%s?cow.verify=yes", store);
	check(fd >= 0 && try_open(&h, 0, "%s", uri) == 0);
	expect(&h, 100, 20 * OVERLAY_BLOCK - 200, 2);
	flip(fd, block + 4000, 1);
	check(h.driver.read(h.cow, bytes, OVERLAY_BLOCK, 10 * OVERLAY_BLOCK) == -EIO);
	check(h.driver.read(h.cow, bytes, 2 * OVERLAY_BLOCK, 9 * OVERLAY_BLOCK) == -EIO);
	check(h.driver.read(h.cow, bytes, 10, 10 * OVERLAY_BLOCK + 7) == -EIO);
	expect(&h, 0, 10 * OVERLAY_BLOCK, 2);
	expect(&h, 11 * OVERLAY_BLOCK, 9 * OVERLAY_BLOCK, 2);
	close_store(&h);
	open_store(&h, 0);
	check(h.driver.read(h.cow, bytes, OVERLAY_BLOCK, 10 * OVERLAY_BLOCK) == 0);
	close_store(&h);
	/* Without the only commit, which may be torn, the store itself remains. */
	flip(fd, OVERLAY_ACK_AT, 1);
	open_store(&h, 0);
	expect(&h, 0, SIZE, 1);
	close_store(&h);
	close(fd);
}

/* A file of an earlier format. */
Test(cow, refuses_other_versions)
{
	static const char *const text[] = { "cowhead1", "umovrly2" }, *const want[] = {
		"earlier version", "version '2'"
	};
	char page[HEADER_SLOT * 3] = "";
	struct handle h;

	make_store();
	for (int i = 0; i < 2; i++) {
		int fd = open(changes, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

		memcpy(page + HEADER_SLOT, text[i], 8);
		check(fd >= 0 && pwrite(fd, page, sizeof(page), 0) == sizeof(page));
		close(fd);
		check_fails(try_open(&h, UMMAP_O_WRITE, "cow+posix:%s", store), EUCLEAN);
		check(strstr(umerrormsg(), want[i]), "%s", umerrormsg());
	}
}
