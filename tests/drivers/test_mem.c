/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver mem: contents, bytes that were never written, names, ends of stores, threads, forked
 * children.
 */
#include <criterion/criterion.h>

#include "common.h"
#include "ummap-driver.h"

#define SEG (64 * KIB)
#define BUDGET (16 * SEG)
#define SIZE (8 * BUDGET)
#define THREADS 4

extern const struct ummap_driver ummap_driver_mem;
static const struct ummap_driver *const mem = &ummap_driver_mem;

static uint8_t *map_uri(const char *uri, size_t size, off_t offset, int prot)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr = NULL;

	attr.seg_size = SEG;
	check(ummap_open(uri, size, offset, prot, &attr, &addr) == 0, "%s", uri);
	return addr;
}

/* Opens a handle of the driver without the library. */
static int try_handle(const char *path, const char *name, void **h, struct ummap_geom *geom)
{
	struct ummap_key key = { "name", name };
	struct ummap_uri uri = {
		.scheme = "mem", .path = path, .keys = &key, .nkeys = name != NULL
	};

	memset(geom, 0, sizeof(*geom));
	return mem->open(&uri, UMMAP_O_WRITE, h, geom);
}

static void *handle(const char *path, const char *name)
{
	struct ummap_geom geom;
	void *h = NULL;
	int err = try_handle(path, name, &h, &geom);

	check(err == 0, "%s: %s (%s)", path, strerror(-err), geom.why);
	return h;
}

/* ---- Through the public calls ---- */

Test(mem, holds_more_than_the_budget)
{
	uint8_t *m;

	set_budget(BUDGET);
	m = map_uri("mem:8M", SIZE, 0, READ_WRITE);
	fill(m, SIZE, 0, 1);
	check_bytes(m, SIZE, 0, 1);
	check(umsync(m, 1) == 0);
	check(stat_of(m).resident_bytes == 0);
	check_bytes(m, SIZE, 0, 1);
	fill(m + 12345, SIZE / 2, 12345, 2);
	check_bytes(m, 12345, 0, 1);
	check_bytes(m + 12345, SIZE / 2, 12345, 2);
	check_bytes(m + 12345 + SIZE / 2, SIZE / 2 - 12345, 12345 + SIZE / 2, 1);
	check(stat_of(NULL).over_budget_peak == 0);
	check(umunmap(m, 1) == 0);
}

Test(mem, name_outlives_a_mapping_while_another_holds_it)
{
	uint8_t *m, *other;

	set_budget(BUDGET);
	m = map_uri("mem:8M?name=a", SIZE, 0, READ_WRITE);
	other = map_uri("mem:8192K?name=a", SEG, 0, PROT_READ);
	fill(m, SIZE, 0, 1);
	check(umunmap(m, 1) == 0);
	check_bytes(other, SEG, 0, 1);
	m = map_uri("mem:8388608?name=a", SIZE - 777, 777, READ_WRITE);
	check_bytes(m, SIZE - 777, 777, 1);
	check(umunmap(m, 1) == 0);
	check(umunmap(other, 1) == 0);
	/* The last mapping has freed the store. */
	m = map_uri("mem:8M?name=a", SIZE, 0, READ_WRITE);
	check_zeros(m, SIZE);
	check(umunmap(m, 1) == 0);
}

Test(mem, stores_are_apart)
{
	static const char *const uris[] = { "mem:1M", "mem:1M", "mem:1M?name=a", "mem:1M?name=b",
					    "mem:1M?name=A" };
	uint8_t *m[5];

	for (int i = 0; i < 5; i++) {
		m[i] = map_uri(uris[i], MIB, 0, READ_WRITE);
		fill(m[i], MIB, 0, i);
		check(umsync(m[i], 1) == 0);
	}
	for (int i = 0; i < 5; i++) {
		check_bytes(m[i], MIB, 0, i);
		check(umunmap(m[i], 1) == 0);
	}
}

/* The new range overlaps the old one, so the library must know that both are in one store. */
Test(mem, remapping_within_a_store)
{
	uint8_t *m = map_uri("mem:2M?name=a", MIB, 0, READ_WRITE), *all;
	void *base = NULL;

	fill(m, MIB, 0, 1);
	check(umremap(m, 0, -1, SEG / 2, 0, &base) == 0);
	check_bytes(base, MIB, 0, 1);
	all = map_uri("mem:2M?name=a", 2 * MIB, 0, PROT_READ);
	check(umunmap(base, 1) == 0);
	check_bytes(all + SEG / 2, MIB, 0, 1);
	check_zeros(all + SEG / 2 + MIB, MIB - SEG / 2);
	check(umunmap(all, 1) == 0);
}

Test(mem, ends_where_it_ends)
{
	const size_t store = 1000000;
	uint8_t *m = map_uri("mem:1000000", 2 * MIB, 0, READ_WRITE);

	fill(m, store, 0, 1);
	check(umsync(m, 1) == 0);
	check_bytes(m, store, 0, 1);
	check_zeros(m + store, 2 * MIB - store);
	m[MIB + 5] = 7;
	check_fails(umsync(m, 0), ENOSPC);
	check(m[MIB + 5] == 7);
	check(umunmap(m, 0) == 0);
}

static void map_with_stderr(void *to)
{
	check(dup2(*(int *)to, STDERR_FILENO) >= 0);
	check(umunmap(map_uri("mem:1000000", 1000000, 0, READ_WRITE), 1) == 0);
	check(umunmap(map_uri("mem:1000000", 2 * MIB, 0, PROT_READ), 1) == 0);
	check(lseek(*(int *)to, 0, SEEK_END) == 0, "a warning before changes were lost");
	check(umunmap(map_uri("mem:1000000", 2 * MIB, 0, READ_WRITE), 1) == 0);
	_exit(0);
}

Test(mem, warns_of_its_end)
{
	char text[KIB] = "";
	int to = temp_file(0);

	check_exits(run_child(map_with_stderr, &to), 0);
	check(pread(to, text, sizeof(text) - 1, 0) > 0);
	check(strstr(text, "cannot write changes behind byte 1000000") &&
		      strstr(text, "ends at byte 2097152"),
	      "%s", text);
}

Test(mem, refuses_with_a_sentence)
{
	static const char *const bad[] = {
		"mem:0",
		"mem:x",
		"mem:-1",
		"mem:+1",
		"mem: 1",
		"mem:1X",
		"mem:1MM",
		"mem:1M ",
		"mem:K",
		"mem:0x10",
		"mem:18446744073709551616",
		"mem:9999999999T",
		"mem:8388608T",
		"mem:1M?name=",
		"mem:1M?nmae=a",
		"mem:2M?name=a",
		"mem:",
		"mem",
	};
	uint8_t *m = map_uri("mem:1M?name=a", MIB, 0, READ_WRITE);
	void *addr;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check_fails(ummap_open(bad[i], MIB, 0, PROT_READ, NULL, &addr), EINVAL);
	check_fails(ummap_open("mem:2M?name=a", MIB, 0, PROT_READ, NULL, &addr), EINVAL);
	check(strstr(umerrormsg(), "1048576") && strstr(umerrormsg(), "2097152"), "both sizes");
	check_fails(ummap_open("mem:1000000G", MIB, 0, PROT_READ, NULL, &addr), ENOMEM);
	check(umunmap(m, 1) == 0);
}

Test(mem, refuses_descriptors)
{
	int fd = temp_file(MIB);
	void *addr;

	set_env("UMMAP_DRIVER", "mem");
	check_fails(ummap(MIB, SEG, PROT_READ, fd, 0, -1, 1, UMMAP_PTYPE_FIFO, &addr), EINVAL);
	close(fd);
}

/* ---- Memory use ---- */

#if !SANITIZED
Test(mem, reading_takes_no_memory)
{
	void *h = handle("4G", NULL), *buf = malloc(MIB);
	size_t memory, tables;

	memset(buf, 1, MIB);
	memory = status_bytes("VmRSS");
	tables = status_bytes("VmPTE");
	for (uint64_t off = 0; off < 4 * GIB; off += MIB) {
		check(mem->read(h, buf, MIB, off) == 0);
		check(((uint8_t *)buf)[0] == 0 && ((uint8_t *)buf)[MIB - 1] == 0);
	}
	check(status_bytes("VmRSS") < memory + MIB, "%zu", status_bytes("VmRSS") - memory);
	check(status_bytes("VmPTE") < tables + 64 * KIB, "%zu", status_bytes("VmPTE") - tables);
	mem->close(h);
	free(buf);
}

Test(mem, memory_is_taken_where_it_is_written_and_given_back)
{
	size_t before = status_bytes("VmRSS"), taken;
	void *h = handle("1T", NULL), *buf = malloc(MIB);

	memset(buf, 1, MIB);
	for (uint64_t i = 0; i < 64; i++)
		check(mem->write(h, buf, MIB, i * 16 * GIB) == 0);
	taken = status_bytes("VmRSS") - before;
	check(taken > 64 * MIB && taken < 80 * MIB, "%zu", taken);
	mem->close(h);
	free(buf);
	check(status_bytes("VmRSS") < before + 8 * MIB, "%zu", status_bytes("VmRSS"));
}
#endif

/* ---- The driver without the library ---- */

#define MODEL 300001

/* Transfers any range, even across the end of the store, and compares the result with an array. */
static void random_step(void *h, uint8_t *model, uint64_t *seed)
{
	uint64_t off = next_random(seed) % (MODEL + 1000);
	size_t len = next_random(seed) % (next_random(seed) % 4 ? 5000 : MODEL);
	size_t cut = len ? next_random(seed) % len : 0;
	size_t inside = off < MODEL ? (len < MODEL - off ? len : MODEL - off) : 0;
	uint8_t *buf = malloc(len + 1);
	struct iovec iov[2] = { { buf, cut }, { buf + cut, len - cut } };
	bool vectored = next_random(seed) % 2;

	fill(buf, len, off, *seed);
	if (next_random(seed) % 2 && off + len > MODEL) {
		check(mem->write(h, buf, len, off) == -ENOSPC);
	} else if (next_random(seed) % 2 && off + len <= MODEL) {
		check((vectored ? mem->writev(h, iov, 2, off) : mem->write(h, buf, len, off)) == 0);
		memcpy(model + off, buf, len);
	} else {
		check((vectored ? mem->readv(h, iov, 2, off) : mem->read(h, buf, len, off)) == 0);
		check(memcmp(buf, model + off, inside) == 0, "%zu bytes at %" PRIu64, len, off);
		check_zeros(buf + inside, len - inside);
	}
	free(buf);
}

Test(mem, against_a_model)
{
	uint8_t *model = calloc(1, MODEL + 1000);
	void *h = handle("300001", NULL);
	uint64_t seed = 7;

	for (int i = 0; i < 3000; i++)
		random_step(h, model, &seed);
	mem->close(h);
	free(model);
}

Test(mem, tells_what_it_is)
{
	struct ummap_geom a, b, other;
	void *h[3];

	check(try_handle("3M", "x", &h[0], &a) == 0 && try_handle("3M", "x", &h[1], &b) == 0);
	check(try_handle("3M", NULL, &h[2], &other) == 0);
	check(a.size == 3 * MIB && a.align == 1);
	check(a.caps == (UMMAP_CAP_WRITE | UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE));
	check(a.id[0] && a.id[0] == b.id[0] && a.id[1] == b.id[1]);
	check(other.id[0] && other.id[0] != a.id[0]);
	for (int i = 0; i < 3; i++)
		check(mem->close(h[i]) == 0);
}

struct writer {
	void *h;
	uint64_t first;
};

#define WRITE_DISTANCE (64 * KIB)
#define WRITES 16384

/* Makes every fourth write, so that the threads always write neighboring chunks. */
static void *write_pieces(void *arg)
{
	struct writer *w = arg;
	uint8_t byte;

	for (uint64_t i = w->first; i < WRITES; i += THREADS) {
		byte = pattern(i, 3);
		check(mem->write(w->h, &byte, 1, i * WRITE_DISTANCE) == 0);
	}
	return NULL;
}

Test(mem, threads_side_by_side)
{
	pthread_t threads[THREADS];
	struct writer writers[THREADS];
	void *h = handle("1G", NULL);
	uint8_t bytes[2];

	for (int i = 0; i < THREADS; i++) {
		writers[i] = (struct writer){ h, i };
		check(pthread_create(&threads[i], NULL, write_pieces, &writers[i]) == 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (uint64_t i = 0; i < WRITES; i++) {
		check(mem->read(h, bytes, 2, i * WRITE_DISTANCE) == 0);
		check(bytes[0] == pattern(i, 3) && bytes[1] == 0, "byte %" PRIu64, i);
	}
	mem->close(h);
}

static void *open_and_close(void *name)
{
	for (int i = 0; i < 2000; i++) {
		void *h = handle("1M", name);
		uint8_t byte = 1;

		check(mem->write(h, &byte, 1, i) == 0);
		mem->close(h);
	}
	return NULL;
}

Test(mem, threads_that_open_and_close_one_store)
{
	pthread_t threads[THREADS];
	uint8_t buf[4 * KIB];
	void *h;

	for (int i = 0; i < THREADS; i++)
		check(pthread_create(&threads[i], NULL, open_and_close, "x") == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	h = handle("2M", "x"); /* another size: no handle is left */
	check(mem->read(h, buf, sizeof(buf), 0) == 0);
	check_zeros(buf, sizeof(buf));
	mem->close(h);
}

/* ---- Forked children ---- */

static void be_a_child(void *unused)
{
	uint8_t *m = map_uri("mem:8M?name=a", SIZE, 0, READ_WRITE);

	(void)unused;
	check_zeros(m, SIZE);
	fill(m, SIZE, 0, 2);
	check_bytes(m, SIZE, 0, 2);
	check(umunmap(m, 1) == 0);
}

Test(mem, a_child_has_stores_of_its_own)
{
	uint8_t *m;

	set_budget(BUDGET);
	m = map_uri("mem:8M?name=a", SIZE, 0, READ_WRITE);
	fill(m, SIZE, 0, 1);
	check_exits(run_child(be_a_child, NULL), 0);
	check_bytes(m, SIZE, 0, 1);
	check(umunmap(m, 1) == 0);
}

/* The child may have another mapping at the addresses of the parent's store. */
static void map_and_close(void *h)
{
	uint8_t *m =
		mmap(NULL, GIB, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	check(m != MAP_FAILED);
	m[0] = m[GIB - 1] = 7;
	mem->close(h);
	check(m[0] == 7 && m[GIB - 1] == 7);
}

Test(mem, a_child_unmaps_nothing)
{
	void *h = handle("1G", NULL);

	check_exits(run_child(map_and_close, h), 0);
	mem->close(h);
}

static atomic_bool enough;

static void *open_all_the_time(void *unused)
{
	while (!enough)
		mem->close(handle("1M", "x"));
	return unused;
}

static void open_once(void *unused)
{
	(void)unused;
	mem->close(handle("3M", "x"));
}

/* A thread of the parent may have the lock during fork(2). */
Test(mem, a_child_does_not_wait_for_a_thread_that_it_has_not)
{
	pthread_t thread;

	check(pthread_create(&thread, NULL, open_all_the_time, NULL) == 0);
	for (int i = 0; i < 200; i++)
		check_exits(run_child(open_once, NULL), 0);
	enough = true;
	pthread_join(thread, NULL);
}
