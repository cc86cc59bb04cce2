/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpiio - the driver mpiio. Windows in stripes and in parts of one file are compared with windows
 * in memory that get the same data, and so is the file after collective syncs, after fences, and
 * after MPI_Win_free. Some ranks have nothing to write, and other threads load, store and put
 * during syncs. The driver is also tested by itself.
 */
#include "common.h"

#include <dlfcn.h>
#include <ummap-driver.h>
#include <ummap-mpi.h>

#define SIZE (MIB + 12345)
#define APART (4 * MIB)   /* distance of the parts of two ranks */
#define BASE (100 * KIB)  /* offset of the first part or stripe */

static const struct kind {
	const char *name, *stripe, *segsize;
	size_t bytes;      /* bytes of a stripe; 0: the file has parts */
} kinds[] = {
	{ "stripes", "64K", "64K", 64 * KIB },
	{ "small", "4000", "16K", 4000 },
	{ "long", "4M", "64K", 4 * MIB },
	{ "parts", NULL, "16K", 0 },
};

#define KINDS (sizeof(kinds) / sizeof(*kinds))

/* A window in storage and one in memory that get the same data. */
struct both {
	const struct kind *kind;
	size_t size;
	uint8_t *base, *mirror;
	MPI_Win win, memory;
};

static uint64_t place(const struct kind *k, size_t i)
{
	if (!k->bytes)
		return BASE + APART * (size_t)rank + i;
	return BASE + (i / k->bytes * (size_t)ranks + (size_t)rank) * k->bytes + i % k->bytes;
}

static MPI_Info hints(const struct kind *k, bool fence)
{
	MPI_Info info =
		storage_hints(k->name, "storage_alloc_driver", "mpiio", "storage_alloc_segsize",
			      k->segsize, "cb_buffer_size", "1048576", "storage_alloc_fencesync",
			      fence ? "true" : "false", NULL);
	char offset[32];

	snprintf(offset, sizeof(offset), "%zu", BASE + (k->bytes ? 0 : APART * (size_t)rank));
	MPI_Info_set(info, "storage_alloc_offset", offset);
	if (k->stripe)
		MPI_Info_set(info, "storage_alloc_stripe", k->stripe);
	return info;
}

static void open_storage(struct both *b, bool fence)
{
	MPI_Info info = hints(b->kind, fence);

	check(MPI_Win_allocate((MPI_Aint)b->size, 1, info, MPI_COMM_WORLD, &b->base, &b->win) ==
	      MPI_SUCCESS);
	MPI_Info_free(&info);
}

/* MPI_Win_create is used because MPICH cannot access some windows of its MPI_Win_allocate. */
static void open_memory(struct both *b)
{
	b->mirror = calloc(1, b->size);
	check(MPI_Win_create(b->mirror, (MPI_Aint)b->size, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
			     &b->memory) == MPI_SUCCESS);
}

static void close_both(struct both *b)
{
	check(MPI_Win_free(&b->win) == MPI_SUCCESS);
	check(MPI_Win_free(&b->memory) == MPI_SUCCESS);
	free(b->mirror);
}

static void check_file_of(const struct both *b)
{
	int fd = open_part(b->kind->name);
	uint8_t *got = calloc(1, b->size);

	check(fd >= 0);
	for (size_t i = 0, len; i < b->size; i += len) {
		len = b->kind->bytes ? b->kind->bytes - i % b->kind->bytes : b->size;
		len = len < b->size - i ? len : b->size - i;
		check(pread(fd, got + i, len, (off_t)place(b->kind, i)) >= 0);
	}
	for (size_t i = 0; i < b->size; i++)
		check(got[i] == b->mirror[i], "%s: byte %zu is %d, not %d", b->kind->name, i,
		      got[i], b->mirror[i]);
	free(got);
	close(fd);
}

static void check_window(const struct both *b)
{
	for (size_t i = 0; i < b->size; i++)
		check(b->base[i] == b->mirror[i], "%s: byte %zu is %d, not %d", b->kind->name, i,
		      b->base[i], b->mirror[i]);
}

/* Makes `pieces` puts to all ranks in turn. Each rank has its own bytes at every target. */
static void put_pieces(struct both *b, int pieces, uint64_t *random)
{
	static uint8_t bytes[20000];
	size_t share = SIZE / (size_t)ranks;

	for (int i = 0; i < pieces; i++) {
		size_t len = 1 + next_random(random) % sizeof(bytes),
		       at = next_random(random) % (share - len);
		MPI_Aint to = (MPI_Aint)(share * (size_t)rank + at);

		fill(bytes, len, at, *random);
		MPI_Put(bytes, (int)len, MPI_BYTE, i % ranks, to, (int)len, MPI_BYTE, b->win);
		MPI_Put(bytes, (int)len, MPI_BYTE, i % ranks, to, (int)len, MPI_BYTE, b->memory);
		MPI_Win_fence(0, b->win);
		MPI_Win_fence(0, b->memory);
	}
}

static void sync_and_check(struct both *b)
{
	check(ummpi_sync_all(MPI_COMM_WORLD, b->base) == MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
	check_file_of(b);
	check(stat_of(b->base).dirty_bytes == 0, "%" PRIu64, stat_of(b->base).dirty_bytes);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Stores to random pages of this rank's part: to `density` percent of them. */
static void store_some(struct both *b, uint64_t *random, unsigned density)
{
	for (size_t at = 0; at < b->size; at += 4096) {
		size_t len = 1 + next_random(random) % 4096;

		len = len < b->size - at ? len : b->size - at;
		if (next_random(random) % 100 >= density)
			continue;
		fill(b->base + at, len, at, *random);
		memcpy(b->mirror + at, b->base + at, len);
	}
}

static void work_through(const struct kind *k, uint64_t random)
{
	struct both b = { .kind = k, .size = SIZE + (size_t)rank * 70000 };

	open_memory(&b);
	open_storage(&b, false);
	MPI_Win_fence(0, b.win);
	MPI_Win_fence(0, b.memory);
	put_pieces(&b, 24, &random);
	check_window(&b);
	sync_and_check(&b);
	store_some(&b, &random, 100);
	sync_and_check(&b);
	store_some(&b, &random, 3);
	sync_and_check(&b);
	for (int idle = 0; idle < 2; idle++) {
		store_some(&b, &random, rank == idle ? 0 : 30);
		sync_and_check(&b);
		store_some(&b, &random, rank == idle ? 30 : 0);
		sync_and_check(&b);
	}
	sync_and_check(&b);
	check_window(&b);
	store_some(&b, &random, 50);
	check(MPI_Win_free(&b.win) == MPI_SUCCESS);
	check_file_of(&b);
	open_storage(&b, true);
	check_window(&b);
	MPI_Barrier(MPI_COMM_WORLD);
	/* From now on, fences sync the window. */
	store_some(&b, &random, 50);
	check(MPI_Win_fence(0, b.win) == MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
	check_file_of(&b);
	check_hint(b.win, "cb_buffer_size", "1048576");
	check_hint(b.win, "storage_alloc_fencesync", "true");
	MPI_Barrier(MPI_COMM_WORLD);
	close_both(&b);
}

/* ---- During a collective write ---- */

/* The windows that are compared during collective writes; NULL: none. */
static struct both *watched;

/* Replaces MPI's function, also for the library. The data is in the staging buffer, and not yet in
 * the file, so segments that are evicted now must be read from the buffer. */
__attribute__((visibility("default"))) int PMPI_File_write_at_all(MPI_File file, MPI_Offset at,
								  const void *buf, int n,
								  MPI_Datatype type,
								  MPI_Status *status)
{
	static __typeof__(&PMPI_File_write_at_all) next;
	int code;

	if (!next)
		next = (__typeof__(next))dlsym(RTLD_NEXT, "PMPI_File_write_at_all");
	if (watched) {
		check(umadvise(watched->base, watched->size, UMMAP_ADV_DONTNEED) == 0);
		check_window(watched);
	}
	code = next(file, at, buf, n, type, status);
	if (watched)
		check_window(watched);
	return code;
}

static void in_the_middle(const struct kind *k)
{
	struct both b = { .kind = k, .size = SIZE };
	uint64_t random = 33 + (uint64_t)rank;

	open_memory(&b);
	open_storage(&b, false);
	memcpy(b.mirror, b.base, SIZE);
	watched = &b;
	for (int i = 0; i < 3; i++) {
		store_some(&b, &random, 50);
		sync_and_check(&b);
	}
	watched = NULL;
	close_both(&b);
}

/* ---- Threads ---- */

struct busy {
	pthread_t thread;
	struct both b;
	uint64_t random;
	_Atomic bool done;
};

/* Loads and stores, and puts to the last bytes of the next rank, which this thread does not use. */
static void *be_busy(void *arg)
{
	struct busy *t = arg;
	size_t own = t->b.size / 2, half = SIZE / 2;
	uint8_t bytes[5000];

	for (int i = 0; i < 160; i++) {
		size_t len = 1 + next_random(&t->random) % sizeof(bytes),
		       at = next_random(&t->random) % (own - len);

		check(memcmp(t->b.base + at, t->b.mirror + at, len) == 0);
		fill(t->b.base + at, len, at, t->random);
		memcpy(t->b.mirror + at, t->b.base + at, len);
		if (i % 8)
			continue;
		at = half + 70000 * (size_t)ranks / 2 + at % (half / 2);
		fill(bytes, len, at, t->random);
		MPI_Put(bytes, (int)len, MPI_BYTE, (rank + 1) % ranks, (MPI_Aint)at, (int)len,
			MPI_BYTE, t->b.win);
		MPI_Put(bytes, (int)len, MPI_BYTE, (rank + 1) % ranks, (MPI_Aint)at, (int)len,
			MPI_BYTE, t->b.memory);
		MPI_Win_flush((rank + 1) % ranks, t->b.win);
		MPI_Win_flush((rank + 1) % ranks, t->b.memory);
	}
	t->done = true;
	return NULL;
}

static void with_threads(const struct kind *k)
{
	struct busy t = { .b = { .kind = k, .size = SIZE + 70000 * (size_t)ranks },
			  .random = 77 + (uint64_t)rank };
	int rounds = 0, more = true;

	open_memory(&t.b);
	open_storage(&t.b, false);
	memset(t.b.base, 0, t.b.size);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, t.b.win);
	MPI_Win_lock_all(0, t.b.memory);
	check(pthread_create(&t.thread, NULL, be_busy, &t) == 0);
	for (; more; rounds++) {
		check(ummpi_sync_all(MPI_COMM_WORLD, t.b.base) == MPI_SUCCESS);
		if (rounds % 5 == 0)
			check(umsync(t.b.base, 1) == 0);
		more = !t.done;
		MPI_Allreduce(MPI_IN_PLACE, &more, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
	}
	pthread_join(t.thread, NULL);
	MPI_Win_unlock_all(t.b.win);
	MPI_Win_unlock_all(t.b.memory);
	MPI_Barrier(MPI_COMM_WORLD);
	check_window(&t.b);
	sync_and_check(&t.b);
	close_both(&t.b);
}

/* ---- The driver by itself ---- */

static void driver_alone(const char *file, const char *keys)
{
	static uint8_t shadow[200000], bytes[50000];
	struct ummap_driver d = { .struct_size = sizeof(d) };
	uint64_t random = 5 + (uint64_t)rank;
	struct ummap_geom geom;
	char uri[600];
	void *h;

	memset(shadow, 0, sizeof(shadow));
	snprintf(uri, sizeof(uri), "mpiio:%s/%s?%s&rank=%d&ranks=%d", folder, file, keys, rank,
		 ranks);
	check(ummap_driver_open(uri, UMMAP_O_WRITE | UMMAP_O_CREATE, &d, &h, &geom) == 0, "%s",
	      uri);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < 300; i++) {
		size_t len = next_random(&random) % sizeof(bytes),
		       at = next_random(&random) % (sizeof(shadow) - len);
		struct iovec iov[2] = { { bytes, len / 3 }, { bytes + len / 3, len - len / 3 } };

		if (i % 2) {
			check((i % 4 == 1 ? d.read(h, bytes, len, at) : d.readv(h, iov, 2, at)) ==
			      0);
			check(memcmp(bytes, shadow + at, len) == 0, "at %zu", at);
		} else {
			fill(bytes, len, at, random);
			memcpy(shadow + at, bytes, len);
			check((i % 4 ? d.write(h, bytes, len, at) : d.writev(h, iov, 2, at)) == 0);
		}
	}
	check(d.flush(h, 0, UINT64_MAX) == 0 && d.close(h) == 0);
	check(ummap_driver_open(uri, 0, &d, &h, &geom) == 0, "%s", uri);
	check(geom.size < sizeof(shadow) + 64 * KIB && !(geom.caps & UMMAP_CAP_WRITE), "%" PRIu64,
	      geom.size);
	check(d.read(h, bytes, 50000, 160000) == 0 && memcmp(bytes, shadow + 160000, 40000) == 0);
	for (size_t i = 40000; i < sizeof(bytes); i++)
		check(bytes[i] == 0, "byte %zu", i);
	check(d.write(h, bytes, 1, 0) < 0);
	check(d.close(h) == 0);
	MPI_Barrier(MPI_COMM_WORLD);
	check_fails(ummap_driver_open("mpiio:/nowhere/at/all", 0, &d, &h, &geom), ENOENT);
}

static void bad_keys(void)
{
	static const char *const bad[][2] = {
		{ "mpiio:/tmp/x?stripe=0", "stripe is \"0\"" },
		{ "mpiio:/tmp/x?stripe=wide", "stripe is \"wide\"" },
		{ "mpiio:/tmp/x?stripe=4K&rank=2&ranks=2",
		  "rank is \"2\": it must be a number less than ranks" },
		{ "mpiio:/tmp/x?rank=0&ranks=2", "without the key stripe" },
		{ "mpiio:/tmp/x?offset=-1", "offset is \"-1\"" },
		{ "mpiio:/tmp/x?depth=3", "the key 'depth'" },
	};
	void *addr;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		check_fails(ummpi_open(bad[i][0], SIZE, 0, READ_WRITE, NULL, &addr), EINVAL);
		check(strstr(umerrormsg(), bad[i][1]), "%s", bad[i][0]);
	}
}

/* ---- Other mappings ---- */

static uint8_t *map_share(const char *keys)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[600];
	void *addr;

	attr.seg_size = 64 * KIB;
	attr.flags = UMMAP_CREATE;
	snprintf(uri, sizeof(uri), "mpiio:%s/mapped?rank=%d&ranks=%d&stripe=%s", folder, rank,
		 ranks, keys);
	check(ummpi_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0, "%s", uri);
	return addr;
}

static void check_share(size_t stripe, uint64_t seed)
{
	int fd = open_part("mapped");

	for (size_t i = 0; i < SIZE; i += stripe) {
		size_t len = SIZE - i < stripe ? SIZE - i : stripe;

		check_file(fd, (i / stripe * (size_t)ranks + (size_t)rank) * stripe, len, i, seed);
	}
	close(fd);
}

/* Mappings of ummpi_open, with ranks that have none, or have one of another driver. */
static void other_mappings(void)
{
	uint8_t *m = map_share("16K&hints=cb_nodes=1;romio_cb_write=enable"), *none = NULL, *file;
	int fd = temp_file(SIZE);

	fill(m, SIZE, 0, 40 + (uint64_t)rank);
	check(ummpi_sync_all(MPI_COMM_WORLD, m) == MPI_SUCCESS);
	check_share(16 * KIB, 40 + (uint64_t)rank);
	MPI_Barrier(MPI_COMM_WORLD);
	fill(m, SIZE, 0, 50 + (uint64_t)rank);
	check(ummpi_sync_all(MPI_COMM_WORLD, rank ? m : none) == MPI_SUCCESS);
	check_share(16 * KIB, rank ? 50 + (uint64_t)rank : 40);
	check(umsync(m, 0) == 0);
	check_share(16 * KIB, 50 + (uint64_t)rank);
	MPI_Barrier(MPI_COMM_WORLD);
	file = map_file(fd, SIZE, 64 * KIB, READ_WRITE, 0);
	fill(file, SIZE, 0, 9);
	fill(m, SIZE, 0, 60 + (uint64_t)rank);
	check(ummpi_sync_all(MPI_COMM_WORLD, rank ? m : file) == MPI_SUCCESS);
	if (rank)
		check_share(16 * KIB, 60 + (uint64_t)rank);
	else
		check_file(fd, 0, SIZE, 0, 9);
	check_error(ummpi_sync_all(MPI_COMM_WORLD, rank == ranks - 1 ? (void *)(uintptr_t)4096 : m),
		    MPI_ERR_INFO_VALUE, "cannot find a mapping");
	check(umunmap(m, 1) == 0 && umunmap(file, 0) == 0);
	close(fd);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Writes and reads a mapping through a filter, whose own file each rank has by itself. `before` and
 * `after`: seeds of the contents of the shared file. */
static void behind_filter(const char *filter, const char *keys, int times, uint64_t before,
			  uint64_t after)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[1000];
	void *addr;

	attr.seg_size = 64 * KIB;
	snprintf(uri, sizeof(uri),
		 "%s+mpiio:%s/mapped?rank=%d&ranks=%d&stripe=16K&%s.path=%s/beside.%s.%d%s", filter,
		 folder, rank, ranks, filter, folder, filter, rank, keys);
	for (int again = 0; again < times; again++) {
		check(ummpi_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0, "%s", uri);
		check_bytes(addr, SIZE, 0, again ? 80 + (uint64_t)rank : before);
		fill(addr, SIZE, 0, 80 + (uint64_t)rank);
		check(ummpi_sync_all(MPI_COMM_WORLD, addr) == MPI_SUCCESS);
		check(umunmap(addr, 1) == 0);
	}
	check_share(16 * KIB, after);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void behind_filters(void)
{
	uint64_t self = (uint64_t)rank;
	uint8_t *m = map_share("16K");

	fill(m, SIZE, 0, 60 + self);
	check(umunmap(m, 1) == 0);
	MPI_Barrier(MPI_COMM_WORLD);
	behind_filter("cow", "", 2, 60 + self, 60 + self);
	behind_filter("wal", "", 2, 60 + self, 80 + self);
	/* A second mapping would be refused, because other ranks have written to the file. */
	behind_filter("cache", "&cache.size=2M", 1, 80 + self, 80 + self);
}

/* Storage fails some writes of one rank: all ranks get the error, and no data is lost. The number
 * of failing writes is larger than a batch of evictions and its retries. */
static void one_fails(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[600];
	void *addr;

	attr.seg_size = 64 * KIB;
	attr.flags = UMMAP_CREATE;
	snprintf(uri, sizeof(uri), "error+mpiio:%s/failing?rank=%d&ranks=%d&stripe=64K%s", folder,
		 rank, ranks,
		 rank == ranks - 1 ? "&error.op=write&error.times=40&error.errno=EIO" :
				     "&error.nth=1000000000");
	check(ummpi_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0, "%s", uri);
	fill(addr, SIZE, 0, 70 + (uint64_t)rank);
	check_error(ummpi_sync_all(MPI_COMM_WORLD, addr), MPI_ERR_IO, "failing");
	check_bytes(addr, SIZE, 0, 70 + (uint64_t)rank);
	for (int tries = 0; ummpi_sync_all(MPI_COMM_WORLD, addr) != MPI_SUCCESS; tries++)
		check(tries < 40);
	check(umunmap(addr, 0) == 0);
	snprintf(uri, sizeof(uri), "mpiio:%s/failing?rank=%d&ranks=%d&stripe=64K", folder, rank,
		 ranks);
	check(ummpi_open(uri, SIZE, 0, PROT_READ, &attr, &addr) == 0);
	check_bytes(addr, SIZE, 0, 70 + (uint64_t)rank);
	check(umunmap(addr, 0) == 0);
}

int main(int argc, char **argv)
{
	set_budget(2 * MIB);
	start_mpi(&argc, &argv, MPI_THREAD_MULTIPLE);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	bad_keys();
	driver_alone("alone", "stripe=1000");
	driver_alone("another", "stripe=64K&offset=777");
	for (size_t i = 0; i < KINDS; i++)
		work_through(&kinds[i], 100 + 11 * i + (uint64_t)rank);
	in_the_middle(&kinds[0]);
	with_threads(&kinds[0]);
	with_threads(&kinds[1]);
	other_mappings();
	behind_filters();
	one_fails();
	MPI_Finalize();
	return 0;
}
