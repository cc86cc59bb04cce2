/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * windows - each kind of window in storage: the contents of the file after MPI_Win_sync and
 * MPI_Win_free, and of a later window of the same file. Ranks write to the windows of other ranks
 * by MPI.
 */
#include "common.h"

#define SIZE (256 * KIB)
#define SEG (16 * KIB)
#define ODD (SIZE - 1001) /* a size that is not a multiple of a word */
/* MPICH 4.0 can access only windows that begin at a multiple of 16 bytes, also in memory. */
#define AFTER 128
#define PART ((MPI_Aint)SIZE - 1008)

enum { FIRST = 1, SECOND, THIRD };

static int next_rank(void)
{
	return (rank + 1) % ranks;
}

static int previous_rank(void)
{
	return (rank + ranks - 1) % ranks;
}

/*
 * Puts a pattern of this rank into the window of the next_rank rank, after all ranks have checked
 * theirs.
 */
static void put_next(MPI_Win win, MPI_Aint displacement, size_t len, uint64_t seed)
{
	uint8_t *bytes = malloc(len);

	fill(bytes, len, 0, seed + (uint64_t)rank * 100);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, next_rank(), 0, win);
	MPI_Put(bytes, (int)len, MPI_BYTE, next_rank(), displacement, (int)len, MPI_BYTE, win);
	MPI_Win_unlock(next_rank(), win);
	free(bytes);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Checks the pattern that the previous rank has put. */
static void check_put(const void *base, size_t len, uint64_t seed)
{
	check_bytes(base, len, 0, seed + (uint64_t)previous_rank() * 100);
}

static void check_part(const char *pattern_of_names, uint64_t from, size_t len, uint64_t seed)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), pattern_of_names, rank);
	fd = open_part(name);
	check(fd >= 0, "%s", name);
	check_file(fd, from, len, 0, seed + (uint64_t)previous_rank() * 100);
	close(fd);
}

static uint8_t *allocate(size_t size, MPI_Info info, MPI_Win *win)
{
	uint8_t *base = NULL;

	check(MPI_Win_allocate((MPI_Aint)size, 1, info, MPI_COMM_WORLD, &base, win) == MPI_SUCCESS);
	if (info != MPI_INFO_NULL)
		MPI_Info_free(&info);
	return base;
}

/* ---- MPI_Win_allocate ---- */

static void test_durability(void)
{
	MPI_Win win;
	uint8_t *base = allocate(ODD, storage_hints("again.%r", NULL), &win);

	check_zeros(base, ODD);
	put_next(win, 0, ODD, FIRST);
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	check_part("again.%d", 0, ODD, FIRST);
	put_next(win, 0, ODD, SECOND);
	check(MPI_Win_free(&win) == MPI_SUCCESS && win == MPI_WIN_NULL);
	check_part("again.%d", 0, ODD, SECOND);

	base = allocate(ODD, storage_hints("again.%r", NULL), &win);
	check_put(base, ODD, SECOND);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

static void attributes(void)
{
	MPI_Win win;
	uint8_t *base = allocate(ODD, storage_hints("attributes.%r", NULL), &win);
	int found, *number;
	MPI_Aint *size;
	void *value;

	check(MPI_Win_get_attr(win, MPI_WIN_BASE, &value, &found) == MPI_SUCCESS && found &&
	      value == base);
	check(MPI_Win_get_attr(win, MPI_WIN_SIZE, &size, &found) == MPI_SUCCESS && found &&
	      *size == ODD);
	check(MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &number, &found) == MPI_SUCCESS && found &&
	      *number == 1);
	check(MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &number, &found) == MPI_SUCCESS &&
	      found);
	check(*number == MPI_WIN_FLAVOR_ALLOCATE, "%d", *number);
	MPI_Win_free(&win);
}

/* The parts of all ranks are adjacent in one file, at odd offsets. */
static void test_one_file(void)
{
	char offset[32];
	MPI_Win win;
	uint8_t *base;
	int fd;

	snprintf(offset, sizeof(offset), "%zu", 7 + (size_t)rank * ODD);
	base = allocate(ODD,
			storage_hints("one", "storage_alloc_offset", offset,
				      "storage_alloc_segsize", "16K", NULL),
			&win);
	check_zeros(base, ODD);
	put_next(win, 0, ODD, FIRST);
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
	fd = open_part("one");
	check_file_zeros(fd, 0, 7);
	for (int r = 0; r < ranks; r++)
		check_file(fd, 7 + (size_t)r * ODD, ODD, 0,
			   FIRST + (uint64_t)((r + ranks - 1) % ranks) * 100);
	close(fd);
	MPI_Win_free(&win);
}

static void test_discard_and_unlink(void)
{
	char name[32];
	MPI_Win win;

	allocate(SIZE, storage_hints("discard.%r", "storage_alloc_discard", "true", NULL), &win);
	put_next(win, 0, SIZE, FIRST);
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	put_next(win, 0, SIZE, SECOND);
	MPI_Win_free(&win);
	check_part("discard.%d", 0, SIZE, FIRST);

	allocate(SIZE, storage_hints("unlink.%r", "storage_alloc_unlink", "true", NULL), &win);
	snprintf(name, sizeof(name), "unlink.%d", rank);
	check(has_file(name));
	MPI_Win_free(&win);
	check(!has_file(name));
}

/* MPI_Win_sync is a memory barrier, and writes nothing. */
static void sync_of_memory(MPI_Info info)
{
	MPI_Win win;
	uint8_t *base = allocate(SIZE, info, &win);
	uint64_t written;

	check_hint(win, "storage_alloc_winsync", "memory");
	put_next(win, 0, SIZE, FIRST);
	written = stat_of(base).write_bytes;
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	check(stat_of(base).write_bytes == written && stat_of(base).dirty_bytes > 0);
	MPI_Win_free(&win);
}

static void syncs_of_memory(void)
{
	sync_of_memory(storage_hints("barrier.%r", "storage_alloc_winsync", "memory", NULL));
	check_part("barrier.%d", 0, SIZE, FIRST);
	sync_of_memory(storage_hints("gone.%r", "storage_alloc_unlink", "true",
				     "storage_alloc_discard", "true", NULL));
	set_env("UMMAP_MPI_ALL", folder);
	sync_of_memory(MPI_INFO_NULL);
	check(unsetenv("UMMAP_MPI_ALL") == 0);
}

/* Windows of some ranks are empty. */
static void test_empty_windows(void)
{
	MPI_Win win;
	uint8_t *base =
		allocate(rank ? SIZE : 0, storage_hints("nothing.%r", NULL), &win);

	if (rank)
		memset(base, 1, SIZE);
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	check(has_file("nothing.1") && !has_file("nothing.0"));
}

/* ---- Combined windows ---- */

/*
 * The bytes [stored, stored + len) of the window are in the file at the same offset; the others are
 * in memory.
 */
static void test_combined_window(const char *factor, const char *order, size_t stored, size_t len)
{
	MPI_Info info =
		storage_hints("combined.%r", "storage_alloc_factor", factor,
			      "storage_alloc_order", order, "storage_alloc_segsize", "16K", NULL);
	uint8_t *bytes = malloc(SIZE);
	char name[32], path[400];
	MPI_Win win;
	uint8_t *base;
	int fd;

	snprintf(name, sizeof(name), "combined.%d", rank);
	base = allocate(SIZE, info, &win);
	check_zeros(base, SIZE);
	put_next(win, 0, SIZE, FIRST);
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	check(umadvise(base + stored, len, UMMAP_ADV_DONTNEED) == 0);
	put_next(win, SIZE / 2 - 100, 200, SECOND);
	check_put(base, SIZE / 2 - 100, FIRST);
	check_put(base + SIZE / 2 - 100, 200, SECOND);
	fill(bytes, SIZE, 0, FIRST + (uint64_t)previous_rank() * 100);
	check(memcmp(base + SIZE / 2 + 100, bytes + SIZE / 2 + 100, SIZE / 2 - 100) == 0);
	memset(base, rank + 1, SIZE);
	MPI_Win_free(&win);

	fd = open_part(name);
	check(fd >= 0 && file_size(fd) == stored + len, "%" PRIu64, file_size(fd));
	check(pread(fd, bytes, stored + len, 0) == (ssize_t)(stored + len));
	for (size_t i = 0; i < stored + len; i++)
		check(bytes[i] == (i < stored ? 0 : rank + 1), "byte %zu is %d", i, bytes[i]);
	close(fd);
	free(bytes);

	base = allocate(SIZE, storage_hints("combined.%r", NULL), &win);
	check_zeros(base, stored);
	check(base[stored] == rank + 1 && base[stored + len - 1] == rank + 1);
	MPI_Win_free(&win);
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	check(unlink(path) == 0);
}

/*
 * Readahead in both directions ends at the border of the storage, so that the adjacent memory keeps
 * its contents.
 */
static void test_readahead_at_border(const char *order, size_t stored)
{
	MPI_Info info = storage_hints("beside.%r", "storage_alloc_factor", "0.5",
				      "storage_alloc_order", order, "storage_alloc_segsize", "16K",
				      "storage_alloc_unlink", "true", NULL);
	size_t memory = SIZE / 2 - stored;
	MPI_Win win;
	uint8_t *base = allocate(SIZE, info, &win);

	memset(base + memory, rank + 1, SIZE / 2);
	for (int turn = 0; turn < 4; turn++) {
		check(umadvise(base + stored, SIZE / 2, UMMAP_ADV_DONTNEED) == 0);
		for (size_t i = 0; i < SIZE / 2; i += KIB)
			check(((volatile uint8_t *)
				       base)[turn % 2 ? SIZE / 2 - 1 - i + stored : stored + i] ==
			      0);
		usleep(20000); /* readahead requests complete */
		for (size_t i = 0; i < SIZE / 2; i++)
			check(base[memory + i] == rank + 1, "turn %d, byte %zu is %d", turn,
			      memory + i, base[memory + i]);
	}
	MPI_Win_free(&win);
}

/*
 * With the factor auto, the bytes that fit into the budget are in memory, and the others in
 * storage.
 */
static void test_automatic_factor(size_t budget)
{
	MPI_Win win;
	uint8_t *base = allocate(
		SIZE, storage_hints("auto.%r", "storage_alloc_factor", "auto", NULL), &win);

	check_hint(win, "storage_alloc_factor", "1");
	memset(base, 1, SIZE);
	MPI_Win_free(&win);

	base = allocate(4 * budget, storage_hints("auto.%r", "storage_alloc_factor", "auto", NULL),
			&win);
	check(atof(hint_in_use(win, "storage_alloc_factor")) > 0.1 &&
		      atof(hint_in_use(win, "storage_alloc_factor")) < 0.25,
	      "%s", hint_in_use(win, "storage_alloc_factor"));
	memset(base, 1, 4 * budget);
	check(stat_of(base + 4 * budget - 1).resident_bytes <= budget / 2);
	MPI_Win_free(&win);
}

/* ---- Windows of existing memory ---- */

static void created(void)
{
	MPI_Info info = storage_hints("created.%r", NULL);
	int found, *flavor;
	uint8_t *base;
	MPI_Win win;

	check(MPI_Alloc_mem(SIZE, info, &base) == MPI_SUCCESS);
	check(MPI_Win_create(base + AFTER, SIZE - AFTER, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win) ==
	      MPI_SUCCESS);
	MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &flavor, &found);
	check(found && *flavor == MPI_WIN_FLAVOR_CREATE);
	put_next(win, 0, SIZE - AFTER, FIRST);
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	check_part("created.%d", AFTER, SIZE - AFTER, FIRST);
	put_next(win, 0, SIZE - AFTER, SECOND);
	MPI_Win_free(&win);
	check_put(base + AFTER, SIZE - AFTER, SECOND);
	check(MPI_Free_mem(base) == MPI_SUCCESS);
	check_part("created.%d", AFTER, SIZE - AFTER, SECOND);
	MPI_Info_free(&info);
}

static uint8_t *map_by_itself(unsigned flags)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char path[400];
	void *mapped;

	snprintf(path, sizeof(path), "posix:%s/mapped.%d", folder, rank);
	attr.seg_size = SEG;
	attr.flags = UMMAP_CREATE | flags;
	check(ummap_open(path, SIZE, 0, READ_WRITE, &attr, &mapped) == 0, "%s", umerrormsg());
	return mapped;
}

/* Transports of OpenMPI between machines pass memory to system calls. */
static bool needs_kernel(void)
{
#ifdef OPEN_MPI
	const char *machines = getenv("MACHINES");

	return machines && *machines;
#else
	return false;
#endif
}

/*
 * One rank has memory that MPI cannot access: MPI_Win_create fails at all ranks, and MPI_Win_attach
 * at this rank.
 */
static void test_inaccessible_mapping(void)
{
	uint8_t *base = map_by_itself(rank == 0 ? 0 : UMMAP_KERNEL);
	bool out = !stat_of(base).kernel;
	MPI_Win win;

	check(out || rank > 0);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	check_error(MPI_Win_create(base, SIZE, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win),
		    MPI_ERR_BASE, "UMMAP_KERNEL");
	check(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win) == MPI_SUCCESS);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
	if (out) {
		check_error(MPI_Win_attach(win, base, SIZE), MPI_ERR_BASE, "UMMAP_KERNEL");
	} else {
		check(MPI_Win_attach(win, base, SIZE) == MPI_SUCCESS);
		check(MPI_Win_detach(win, base) == MPI_SUCCESS);
	}
	MPI_Win_free(&win);
	check(umunmap(base, 0) == 0);
}

/* A window of a mapping that the program has made is in storage, too. */
static void test_mapping_of_program(void)
{
	uint8_t *base = map_by_itself(needs_kernel() ? UMMAP_KERNEL : 0);
	MPI_Win win;

	check(MPI_Win_create(base, SIZE, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win) == MPI_SUCCESS);
	put_next(win, 0, SIZE, FIRST);
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	check_part("mapped.%d", 0, SIZE, FIRST);
	MPI_Win_free(&win);
	check(umunmap(base, 0) == 0);
}

static void dynamic(void)
{
	MPI_Info info[2] = { storage_hints("dynamic-a.%r", NULL),
			     storage_hints("dynamic-b.%r", NULL) };
	MPI_Aint at[2], to[2];
	uint8_t *base[2];
	MPI_Win win;

	check(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win) == MPI_SUCCESS);
	for (int i = 0; i < 2; i++) {
		check(MPI_Alloc_mem(SIZE, info[i], &base[i]) == MPI_SUCCESS);
		check(MPI_Win_attach(win, base[i], SIZE) == MPI_SUCCESS);
		MPI_Get_address(base[i], &at[i]);
	}
	MPI_Sendrecv(at, 2, MPI_AINT, previous_rank(), 0, to, 2, MPI_AINT, next_rank(), 0,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	put_next(win, to[0], SIZE, FIRST);
	put_next(win, to[1], SIZE, SECOND);
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	check_part("dynamic-a.%d", 0, SIZE, FIRST);
	check_part("dynamic-b.%d", 0, SIZE, SECOND);
	check(MPI_Win_detach(win, base[0]) == MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
	put_next(win, to[1], SIZE, THIRD);
	memset(base[0], 0, SIZE);
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	check_part("dynamic-a.%d", 0, SIZE, FIRST); /* this memory is detached */
	check_part("dynamic-b.%d", 0, SIZE, THIRD);
	MPI_Win_detach(win, base[1]);
	MPI_Win_free(&win);
	for (int i = 0; i < 2; i++) {
		check(MPI_Free_mem(base[i]) == MPI_SUCCESS);
		MPI_Info_free(&info[i]);
	}
}

/* ---- Shared windows ---- */

static void shared(const char *apart)
{
	MPI_Info info = storage_hints("shared", "alloc_shared_noncontig", apart,
				      "storage_alloc_offset", "8K", NULL);
	MPI_Aint size, mine = PART + 16 * rank;
	int unit, found, *flavor, fd;
	uint8_t *base, *other;
	size_t from = 8 * KIB;
	MPI_Win win;

	check(MPI_Win_allocate_shared(mine, 1, info, MPI_COMM_WORLD, &base, &win) == MPI_SUCCESS);
	MPI_Info_free(&info);
	check_hint(win, "storage_alloc_engine", "kernel");
	MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &flavor, &found);
	check(found && *flavor == MPI_WIN_FLAVOR_SHARED);
	check(MPI_Win_shared_query(win, next_rank(), &size, &unit, &other) == MPI_SUCCESS);
	check(size == PART + 16 * next_rank() && unit == 1);
	fill(other, (size_t)size, 0, FIRST + (uint64_t)rank * 100);
	MPI_Barrier(MPI_COMM_WORLD);
	check_put(base, (size_t)mine, FIRST);
	put_next(win, 0, 1000, SECOND);
	check_put(base, 1000, SECOND);
	check(MPI_Win_shared_query(win, MPI_PROC_NULL, &size, &unit, &other) == MPI_SUCCESS &&
	      size == PART);
	check(rank > 0 || other == base);
	if (strcmp(apart, "true") != 0)
		check(MPI_Win_shared_query(win, 1, &size, &unit, &base) == MPI_SUCCESS &&
		      base == other + PART);
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
	fd = open_part("shared");
	if (strcmp(apart, "true") != 0)
		from += (size_t)(PART * rank + 8 * rank * (rank - 1));
	else
		from += (size_t)rank * SIZE;
	check_file(fd, from, 1000, 0, SECOND + (uint64_t)previous_rank() * 100);
	close(fd);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

/* One or all ranks have no bytes. */
static void test_empty_shared_windows(int with)
{
	MPI_Info info = storage_hints("shared-nothing", NULL);
	MPI_Aint size, mine = rank == with ? PART : 0;
	uint8_t *base, *other;
	MPI_Win win;
	int unit;

	check(MPI_Win_allocate_shared(mine, 1, info, MPI_COMM_WORLD, &base, &win) == MPI_SUCCESS);
	check(!base == !mine);
	for (int r = 0; r < ranks; r++) {
		check(MPI_Win_shared_query(win, r, &size, &unit, &other) == MPI_SUCCESS);
		check(r == with ? size == PART && other : size == 0 && !other);
	}
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	MPI_Info_free(&info);
}

static void test_refused_shared_windows(void)
{
	MPI_Info many = storage_hints("shared.%r", NULL),
		 half = storage_hints("shared", "storage_alloc_factor", "0.5", NULL);
	void *base;
	MPI_Win win;

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	check_error(MPI_Win_allocate_shared(SIZE, 1, many, MPI_COMM_WORLD, &base, &win),
		    MPI_ERR_INFO_VALUE, "one file");
	check_error(MPI_Win_allocate_shared(SIZE, 1, half, MPI_COMM_WORLD, &base, &win),
		    MPI_ERR_INFO_VALUE, "_factor");
#ifdef MPICH
	MPI_Info_free(&half);
	half = storage_hints("shared", NULL);
	check_error(MPI_Win_allocate_shared(ODD, 1, half, MPI_COMM_WORLD, &base, &win),
		    MPI_ERR_SIZE, "multiple of 16");
#endif
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	MPI_Info_free(&many);
	MPI_Info_free(&half);
}

/* ---- UMMAP_MPI_ALL ---- */

static void all_in_storage(void)
{
	struct umstat st = { .struct_size = sizeof(st) };
	uint8_t *base, *more;
	MPI_Win win;

	check(umstat(NULL, &st) == 0 && st.mappings == 0);
	set_env("UMMAP_MPI_ALL", folder);
	base = allocate(SIZE, storage_hints("none", "alloc_type", "memory", NULL), &win);
	check(umstat(NULL, &st) == 0 && st.mappings == 0);
	MPI_Win_free(&win);
	check(MPI_Win_allocate(SIZE, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win) == MPI_SUCCESS);
	check(MPI_Alloc_mem(SIZE, MPI_INFO_NULL, &more) == MPI_SUCCESS);
	check(umstat(NULL, &st) == 0 && st.mappings == 2);
	put_next(win, 0, SIZE, FIRST);
	check_put(base, SIZE, FIRST);
	memset(more, 1, SIZE);
	MPI_Win_free(&win);
	MPI_Free_mem(more);
	check(umstat(NULL, &st) == 0 && st.mappings == 0);
	check(unsetenv("UMMAP_MPI_ALL") == 0);
}

#define BUDGET (4 * MIB)

int main(int argc, char **argv)
{
	set_budget(BUDGET);
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	check(ranks > 1);
	test_durability();
	attributes();
	test_one_file();
	test_discard_and_unlink();
	syncs_of_memory();
	test_empty_windows();
	test_combined_window("0.5", "memory_first", SIZE / 2, SIZE / 2);
	test_combined_window("0.5", "storage_first", 0, SIZE / 2);
	test_combined_window("0.3", "memory_first", 4 * SEG, SIZE - 4 * SEG);
	test_combined_window("0.3", "storage_first", 0, SIZE - 4 * SEG);
	test_readahead_at_border("memory_first", SIZE / 2);
	test_readahead_at_border("storage_first", 0);
	test_automatic_factor(BUDGET);
	created();
	if (needs_kernel() &&
	    !(getenv("UMMAP_ENGINE") && strcmp(getenv("UMMAP_ENGINE"), "uffd") == 0))
		test_inaccessible_mapping();
	test_mapping_of_program();
	dynamic();
	shared("false");
	shared("true");
	test_empty_shared_windows(1);
	test_empty_shared_windows(-1);
	test_refused_shared_windows();
	all_in_storage();
	MPI_Finalize();
	return 0;
}
