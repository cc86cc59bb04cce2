/* SPDX-License-Identifier: BSD-3-Clause */
/* Code of filters that keep a file beside a store: the map from blocks to places, and the header of
 * the file. */
#include <criterion/criterion.h>

#include "drivers/blockmap.h"
#include "drivers/notice.h"
#include "drivers/side.h"
#include "power.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* ---- The map ---- */

#define BLOCKS ((uint64_t)3000)

/* Compares the map with an array. Parts of the map are far apart. */
Test(blockmap, does_what_an_array_does)
{
	static const uint64_t bases[] = { 0, 511, ((uint64_t)1 << 51) - BLOCKS };
	struct blockmap m = { .count = 0 };
	uint64_t seed = 5;

	for (size_t b = 0; b < sizeof(bases) / sizeof(*bases); b++) {
		static uint64_t want[BLOCKS];
		uint64_t base = bases[b], before = m.count, entries = 0, at, value;

		memset(want, 0, sizeof(want));
		for (int i = 0; i < 4000; i++) {
			uint64_t k = next_random(&seed) % BLOCKS;

			check(blockmap_reserve(&m, base + k, 1) == 0);
			if (i % 4 == 3) {
				check(blockmap_drop(&m, base + k, want[k] ? want[k] : 1) ==
				      (want[k] != 0));
				want[k] = 0;
			} else {
				want[k] = 1 + next_random(&seed) % 1000;
				blockmap_set(&m, base + k, want[k]);
			}
		}
		for (uint64_t k = 0; k < BLOCKS; k++)
			check(blockmap_get(&m, base + k) == want[k], "block %" PRIu64, k);
		at = base;
		for (uint64_t k = 0; k < BLOCKS; k++) {
			if (!want[k])
				continue;
			entries++;
			check(blockmap_next(&m, &at, &value) && at == base + k && value == want[k],
			      "block %" PRIu64, k);
			at++;
		}
		check(m.count == before + entries);
		/* The next part of the map, which would be found now, must begin empty. */
		for (uint64_t k = 0; k < BLOCKS; k++)
			check(!want[k] || blockmap_drop(&m, base + k, want[k]));
		at = base;
		check(m.count == 0 && !blockmap_next(&m, &at, &value));
	}
	blockmap_free(&m);
}

Test(blockmap, drops_only_what_is_still_there)
{
	struct blockmap m = { .count = 0 };

	check(!blockmap_drop(&m, 7, 1));
	check(blockmap_reserve(&m, 7, 1) == 0);
	blockmap_set(&m, 7, 1);
	blockmap_set(&m, 7, 2);
	check(!blockmap_drop(&m, 7, 1) && blockmap_get(&m, 7) == 2 && m.count == 1);
	blockmap_free(&m);
}

Test(blockmap, tells_runs)
{
	struct blockmap m = { .count = 0 };
	uint64_t value;

	check(blockmap_run(&m, 3, 100000, 10, &value) == 100000 && value == 0);
	check(blockmap_reserve(&m, 500, 600) == 0);
	for (uint64_t k = 500; k < 1100; k++)
		blockmap_set(&m, k, 50 + (k - 500) * 10 + (k >= 1000) * 5);
	check(blockmap_run(&m, 0, 100000, 10, &value) == 500 && value == 0);
	check(blockmap_run(&m, 500, 100000, 10, &value) == 500 && value == 50);
	check(blockmap_run(&m, 1000, 100000, 10, &value) == 100 && value == 5055);
	check(blockmap_run(&m, 510, 20, 10, &value) == 20 && value == 150);
	check(blockmap_run(&m, 1100, 100000, 10, &value) == 100000 && value == 0);
	blockmap_free(&m);
}

/* ---- The header ---- */

#define MAGIC 0x1234

static void open_side(struct side *s, const char *path)
{
	struct ummap_geom geom = { .size = 0 };

	check(side_open(s, path, UMMAP_O_WRITE | UMMAP_O_CREATE, 0600, UMMAP_LOCK_EXCLUSIVE,
			&geom) == 0,
	      "%s", geom.why);
}

static const char *side_path(void)
{
	static char path[320];

	snprintf(path, sizeof(path), "%s/side", temp_dir());
	return path;
}

/* If any byte has changed, the last number that was settled is found, and the damage is detected.
 * */
Test(head, survives_any_byte)
{
	struct header head = side_header(MAGIC), found;
	struct side s;
	uint64_t body = 41, got;

	open_side(&s, side_path());
	check(s.made && s.id[0]);
	found = head;
	check(header_read(&found, &s, &got, sizeof(got)) == 1);
	check(side_resize(&s, HEADER_BYTES + 1) == 0);
	check(header_read(&found, &s, &got, sizeof(got)) == -ENODATA);
	for (; body < 44; body++)
		check(header_write_both(&head, &s, &body, sizeof(body)) == 0);
	body--;
	for (uint64_t at = 0; at < HEADER_BYTES; at++) {
		uint8_t byte;

		check(side_read(&s, &byte, 1, at) == 0);
		byte ^= 1u << at % 8;
		check(side_write(&s, &byte, 1, at) == 0);
		found = side_header(MAGIC);
		check(header_read(&found, &s, &got, sizeof(got)) == 0 && got == body);
		check(found.damaged == 1u << at / HEADER_SLOT, "byte %" PRIu64, at);
		byte ^= 1u << at % 8;
		check(side_write(&s, &byte, 1, at) == 0);
	}
	side_close(&s);
}

/* A write of the header that was cut off leaves the other slot. */
Test(head, is_written_in_turn)
{
	struct header head = side_header(MAGIC), found = head;
	char zeros[HEADER_SLOT / 2] = { 0 };
	struct side s;
	uint64_t body = 1, got;

	open_side(&s, side_path());
	check(header_write_both(&head, &s, &body, sizeof(body)) == 0);
	body = 2;
	check(header_write(&head, &s, &body, sizeof(body)) == 0);
	check(side_write(&s, zeros, sizeof(zeros), head.number % 2 * HEADER_SLOT + sizeof(zeros)) ==
	      0);
	check(header_read(&found, &s, &got, sizeof(got)) == 0 && got == 1 &&
	      found.number == head.number - 1);
	/* The next write overwrites the damaged slot. */
	check(header_write(&found, &s, &body, sizeof(body)) == 0 && found.number == head.number);
	check(header_read(&found, &s, &got, sizeof(got)) == 0 && got == 2 && !found.damaged);
	side_close(&s);
}

/* A damaged slot must be removed before any data change that it may refer to. */
Test(head, is_mended)
{
	struct header head = side_header(MAGIC), found = head;
	char zeros[HEADER_SLOT / 2] = { 0 };
	struct side s;
	uint64_t body = 1, got;

	open_side(&s, side_path());
	check(header_write_both(&head, &s, &body, sizeof(body)) == 0);
	check(header_read(&found, &s, &got, sizeof(got)) == 0 && !found.damaged);
	header_set_flushed(&found);
	check(header_mend(&found, &s, &got, sizeof(got)) == 0 && found.number == head.number,
	      "a valid slot stays");
	body = 2;
	check(header_write(&head, &s, &body, sizeof(body)) == 0);
	check(side_write(&s, zeros, sizeof(zeros), head.number % 2 * HEADER_SLOT + sizeof(zeros)) ==
	      0);
	check(header_read(&found, &s, &got, sizeof(got)) == 0 && found.damaged);
	header_set_flushed(&found);
	check(header_mend(&found, &s, &got, sizeof(got)) == 0 && found.number == head.number &&
	      !found.damaged && !found.is_unflushed);
	check(header_read(&found, &s, &got, sizeof(got)) == 0 && got == 1 && !found.damaged);
	side_close(&s);
}

/* A write that failed may have left anything in its slot, and the next write uses the same slot. */
Test(head, is_kept_by_a_write_that_failed)
{
	const struct rlimit none = { 0, RLIM_INFINITY }, all = { RLIM_INFINITY, RLIM_INFINITY };
	struct header head = side_header(MAGIC), found = head;
	uint64_t body = 1, got;
	struct side s;

	open_side(&s, side_path());
	check(header_write_both(&head, &s, &body, sizeof(body)) == 0);
	body = 2;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &none);
	check(header_write(&head, &s, &body, sizeof(body)) == -EFBIG);
	setrlimit(RLIMIT_FSIZE, &all);
	header_repeat(&head);
	check(header_write(&head, &s, &body, sizeof(body)) == 0 && head.number == 3);
	check(header_read(&found, &s, &got, sizeof(got)) == 0 && got == 2 && found.number == 3);
	/* A write first flushes the newer slot, which is durable then, even if the write fails. */
	setrlimit(RLIMIT_FSIZE, &none);
	check(header_write(&head, &s, &body, sizeof(body)) == -EFBIG);
	setrlimit(RLIMIT_FSIZE, &all);
	header_repeat(&head);
	check(header_write(&head, &s, &body, sizeof(body)) == 0 && head.number == 4);
	side_close(&s);
}

/* The next write overwrites a slot that was not flushed. The durable slot stays in any case. */
Test(head, is_written_again)
{
	struct header head = side_header(MAGIC), found = head;
	char zeros[HEADER_SLOT] = { 0 };
	struct side s;
	uint64_t body = 1, got;

	open_side(&s, side_path());
	check(header_write_both(&head, &s, &body, sizeof(body)) == 0);
	for (body = 2; body < 5; body++) {
		header_repeat(&head);
		check(header_write(&head, &s, &body, sizeof(body)) == 0 && head.number == 3);
	}
	check(header_read(&found, &s, &got, sizeof(got)) == 0 && got == 4);
	check(side_write(&s, zeros, sizeof(zeros), head.number % 2 * HEADER_SLOT) == 0);
	check(header_read(&found, &s, &got, sizeof(got)) == 0 && got == 1);
	side_close(&s);
}

static void cut_after(struct power_record *record, size_t from, uint64_t seed, uint64_t least)
{
	struct power_replay replay;

	power_replay_begin(&replay, record);
	for (size_t k = from; k <= record->n; k++) {
		struct header found = side_header(MAGIC);
		struct side s;
		uint64_t body = 0;

		power_cut(&replay, k, seed);
		open_side(&s, "side");
		check(header_read(&found, &s, &body, sizeof(body)) == 0 && body >= least,
		      "%" PRIu64, body);
		side_close(&s);
	}
	power_replay_end(&replay);
}

/* A slot that a failed flush has lost does not count as durable, so the other slot stays. */
Test(head, survives_a_flush_that_failed)
{
	check(ummap_driver_register(&power_driver) == 0);
	side_driver = &power_driver;
	for (uint64_t seed = 1; seed < 100; seed++) {
		struct header head = side_header(MAGIC);
		struct power_record record;
		struct side s;
		uint64_t body = 1;
		size_t durable;

		power_erase();
		power_record_begin(&record);
		open_side(&s, "side");
		check(header_write_both(&head, &s, &body, sizeof(body)) == 0);
		body = 2;
		check(header_write(&head, &s, &body, sizeof(body)) == 0 && side_flush(&s) == 0);
		header_set_flushed(&head);
		durable = power_requests();
		body = 3;
		check(header_write(&head, &s, &body, sizeof(body)) == 0);
		power_bad_flushes = 1;
		body = 4;
		check(header_write(&head, &s, &body, sizeof(body)) == -EIO);
		for (; body < 7; body++)
			check(header_write(&head, &s, &body, sizeof(body)) == 0);
		side_close(&s);
		cut_after(&record, durable, seed, 2);
		power_record_free(&record);
	}
}

Test(side, is_locked_for_others)
{
	struct ummap_geom geom = { .size = 0 };
	struct side a, b;

	open_side(&a, side_path());
	check(side_open(&b, side_path(), 0, 0, UMMAP_LOCK_SHARED, &geom) == -EBUSY);
	check(strstr(geom.why, "is in use by process") && strstr(geom.why, side_path()), "%s",
	      geom.why);
	side_close(&a);
	check(side_open(&a, side_path(), 0, 0, UMMAP_LOCK_SHARED, &geom) == 0);
	check(side_open(&b, side_path(), 0, 0, UMMAP_LOCK_SHARED, &geom) == 0 && !b.made);
	side_close(&a);
	check(side_remove(&b) == 0 && access(side_path(), F_OK) < 0);
	side_close(&b);
}

Test(side, says_why_it_cannot_be)
{
	struct ummap_geom geom = { .size = 0 };
	struct side s;

	check(side_open(&s, "/no-such-folder/side", UMMAP_O_WRITE | UMMAP_O_CREATE, 0600,
			UMMAP_LOCK_EXCLUSIVE, &geom) == -ENOENT);
	check(strstr(geom.why, "/no-such-folder/side': "), "%s", geom.why);
	check(!s.h && side_close(&s) == 0);
}

/* A filter refuses the store as its own file, even if the store is empty. */
Test(side, is_not_the_store)
{
	static const char *const filters[] = { "wal+posix:%s?wal.path=%s",
					       "cow+posix:%s?cow.path=%s",
					       "cache+posix:%s?cache.path=%s&cache.size=2M" };
	char path[320], uri[800];
	struct stat st;
	void *addr;
	int fd = temp_named("empty", 0, path);

	for (size_t i = 0; i < sizeof(filters) / sizeof(*filters); i++) {
		struct ummap_attr attr = UMMAP_ATTR_INIT;

		attr.flags = UMMAP_CREATE;
		snprintf(uri, sizeof(uri), filters[i], path, path);
		check_fails(ummap_open(uri, 64 * KIB, 0, READ_WRITE, &attr, &addr), EINVAL);
		check(strstr(umerrormsg(), "the store itself"), "%s", umerrormsg());
		check(stat(path, &st) == 0 && st.st_size == 0);
	}
	close(fd);
}

/* ---- Names ---- */

static void make_named(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	check(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

/* The process changes to another folder, which has a file of the same name. */
Test(side, removes_its_own_file)
{
	struct ummap_geom geom = { .size = 0 };
	struct side s;

	check(chdir(temp_dir()) == 0 && mkdir("one", 0700) == 0 && mkdir("two", 0700) == 0);
	make_named("two/name", "precious");
	check(chdir("one") == 0);
	check(side_open(&s, "name", UMMAP_O_WRITE | UMMAP_O_CREATE, 0600, UMMAP_LOCK_EXCLUSIVE,
			&geom) == 0,
	      "%s", geom.why);
	check(chdir("../two") == 0);
	check(side_remove(&s) == 0 && access("../one/name", F_OK) < 0 && access("name", F_OK) == 0);
	side_close(&s);
}

/* Replacements of the C library's functions: check the name when its folder becomes durable. */
static const char *watched;
static int folders, with_name;

int fsync(int fd)
{
	struct stat st;

	if (watched && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
		folders++;
		with_name += access(watched, F_OK) == 0;
	}
	return (int)syscall(SYS_fsync, fd);
}

/* Creation and removal of the name are durable. */
Test(side, has_a_durable_name)
{
	struct ummap_geom geom = { .size = 0 };
	struct side s;

	watched = side_path();
	unlink(watched);
	check(side_open(&s, watched, UMMAP_O_WRITE | UMMAP_O_CREATE, 0600, UMMAP_LOCK_EXCLUSIVE,
			&geom) == 0,
	      "%s", geom.why);
	check(folders == 1 && with_name == 1);
	check(side_remove(&s) == 0);
	check(folders == 2 && with_name == 1);
	side_close(&s);
}

/* Another process renames the file, and gives its name to another file. */
Test(side, removes_no_other_file)
{
	struct ummap_geom geom = { .size = 0 };
	struct side s;

	check(chdir(temp_dir()) == 0);
	check(side_open(&s, "name", UMMAP_O_WRITE | UMMAP_O_CREATE, 0600, UMMAP_LOCK_EXCLUSIVE,
			&geom) == 0,
	      "%s", geom.why);
	check(rename("name", "moved") == 0);
	check(side_remove(&s) == -ENOENT);
	make_named("name", "precious");
	check(side_remove(&s) == -ENOENT && access("name", F_OK) == 0 &&
	      access("moved", F_OK) == 0);
	side_close(&s);
}

#define COLD_BYTES ((size_t)1 << 20)

/* Counts the pages of a file in the page cache. */
static size_t count_cached(int fd)
{
	static unsigned char in[COLD_BYTES / 4096];
	void *map = mmap(NULL, COLD_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	size_t n = 0;

	check(map != MAP_FAILED && mincore(map, COLD_BYTES, in) == 0);
	munmap(map, COLD_BYTES);
	for (size_t i = 0; i < COLD_BYTES / 4096; i++)
		n += in[i] & 1;
	return n;
}

/* Reads do not bring bytes into the page cache, but writes do. */
Test(side, reads_directly)
{
	char *buf = mmap(NULL, COLD_BYTES, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ummap_geom geom = { .size = 0 };
	struct side s;
	int fd, direct;

	unlink(side_path());
	check(side_open(&s, side_path(), UMMAP_O_WRITE | UMMAP_O_CREATE | SIDE_READS_DIRECT, 0600,
			UMMAP_LOCK_EXCLUSIVE, &geom) == 0, "%s", geom.why);
	fd = open(side_path(), O_RDONLY | O_CLOEXEC);
	memset(buf, 5, COLD_BYTES);
	check(fd >= 0 && side_write(&s, buf, COLD_BYTES, 0) == 0 && side_flush(&s) == 0);
	check(count_cached(fd) == COLD_BYTES / 4096);
	check(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	memset(buf, 0, COLD_BYTES);
	check(side_read(&s, buf, COLD_BYTES, 0) == 0);
	for (size_t i = 0; i < COLD_BYTES; i++)
		check(buf[i] == 5);
	/* Some file systems support no direct reads. */
	direct = open(side_path(), O_RDONLY | O_DIRECT | O_CLOEXEC);
	check(direct < 0 || count_cached(fd) == 0, "%zu", count_cached(fd));
	close(direct);
	memset(buf, 6, 4096);
	check(side_write(&s, buf, 4096, 8192) == 0 && side_read(&s, buf, COLD_BYTES, 0) == 0);
	check(buf[8191] == 5 && buf[8192] == 6 && buf[12287] == 6 && buf[12288] == 5);
	close(fd);
	side_close(&s);
	munmap(buf, COLD_BYTES);
}

static long count_blocks_read(void)
{
	struct rusage usage;

	check(getrusage(RUSAGE_SELF, &usage) == 0);
	return usage.ru_inblock;
}

/* Bytes in the page cache are copied from there, also in front of bytes that it lacks. */
Test(side, copies_cached_bytes)
{
	char *buf = mmap(NULL, COLD_BYTES, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ummap_geom geom = { .size = 0 };
	long blocks;
	struct side s;
	int fd;

	unlink(side_path());
	check(side_open(&s, side_path(), UMMAP_O_WRITE | UMMAP_O_CREATE | SIDE_READS_DIRECT, 0600,
			UMMAP_LOCK_EXCLUSIVE, &geom) == 0, "%s", geom.why);
	fd = open(side_path(), O_RDWR | O_CLOEXEC);
	memset(buf, 5, COLD_BYTES);
	check(fd >= 0 && side_write(&s, buf, COLD_BYTES / 2, 0) == 0 && side_flush(&s) == 0);
	check(ftruncate(fd, COLD_BYTES) == 0);
	blocks = count_blocks_read();
	check(side_read(&s, buf, 4096, COLD_BYTES / 2 - 4096) == 0 && buf[0] == 5);
	check(count_blocks_read() == blocks, "%ld", count_blocks_read() - blocks);
	close(fd);
	side_close(&s);
	munmap(buf, COLD_BYTES);
}

/* ---- Notices ---- */

static void keep_notice(void *arg, const char *sentence)
{
	snprintf(arg, 512, "%s", sentence);
}

/* A thread of the driver may give a notice before a listener is set. */
Test(notice, waits_for_a_listener)
{
	struct notice n = { .give = NULL };
	char first[512] = "", second[512] = "";

	notice_give(&n, "%d and %s", 1, "two");
	notice_set(&n, keep_notice, first);
	check(strcmp(first, "1 and two") == 0, "%s", first);
	notice_give(&n, "more");
	check(strcmp(first, "more") == 0, "%s", first);
	notice_set(&n, keep_notice, second);
	check(!*second, "given twice: %s", second);
	notice_give(&n, "again");
	check(strcmp(first, "more") == 0 && strcmp(second, "again") == 0);
}
