/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * local - ranks of one machine access the windows of each other without MPI, for each kind of
 * memory. The test checks that these accesses happen, that locks and test_fences order them, that
 * they work together with operations of MPI, and which operations MPI makes.
 */
#include "common.h"

#define SEG (64 * KIB)
#define SIZE (16 * SEG)
#define WORDS (SIZE / 8)
#define TURNS ((int)by_time(40, 200))
#define ROUNDS ((int)by_time(5, 20))

static int64_t *base;
static MPI_Win win;
static bool fast;  /* this rank accesses others without MPI */
static bool near;  /* ranks 0 and 1 are on one machine */

static void open_window(MPI_Info info)
{
	check(MPI_Win_allocate(SIZE, 8, info, MPI_COMM_WORLD, &base, &win) == MPI_SUCCESS);
	MPI_Info_free(&info);
	memset(base, 0, SIZE);
	MPI_Barrier(MPI_COMM_WORLD);
}

static int next(void)
{
	return (rank + 1) % ranks;
}

static int64_t get(int target, MPI_Aint at)
{
	int64_t value = -1;

	check(MPI_Get(&value, 1, MPI_INT64_T, target, at, 1, MPI_INT64_T, win) == MPI_SUCCESS);
	MPI_Win_flush(target, win);
	return value;
}

static void put(int target, MPI_Aint at, int64_t value)
{
	check(MPI_Put(&value, 1, MPI_INT64_T, target, at, 1, MPI_INT64_T, win) == MPI_SUCCESS);
	MPI_Win_flush(target, win);
}

/* A target that makes no MPI calls receives the data, and its answer is visible in its memory. */
static void test_passive_target(void)
{
	_Atomic int64_t *mine = (_Atomic int64_t *)base;

	/* Puts to paged memory need a dirty segment. */
	mine[0] = mine[1] = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
	if (rank == 1) {
		while (mine[0] != 5)
			;
		mine[1] = 6;
	} else if (rank == 0) {
		put(1, 0, 5);
		while (get(1, 1) != 6)
			;
	}
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Displacements are right although the window does not begin at a segment. */
static void test_displacements(void)
{
	base[WORDS / 2] = rank + 50;
	base[WORDS / 4 * 3] = rank + 60;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
	check(get(next(), WORDS / 2) == next() + 50 && get(next(), WORDS / 4 * 3) == next() + 60);
	put(next(), WORDS / 2, rank);
	check(get(next(), WORDS / 2) == rank);
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	check(base[WORDS / 2] == (rank + ranks - 1) % ranks && base[WORDS / 4 * 3] == rank + 60);
	MPI_Barrier(MPI_COMM_WORLD);
}

/*
 * All ranks add to a word of rank 0 by get and put, which only an test_exclusive_lock lock makes
 * correct.
 */
static void test_exclusive_lock(void)
{
	for (int i = 0; i < TURNS; i++) {
		int64_t value;

		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
		value = get(0, 2);
		put(0, 2, value + 1);
		put(0, 3, -1);
		check(get(0, 2) == value + 1 && get(0, 3) == -1);
		put(0, 3, 0);
		MPI_Win_unlock(0, win);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
	check(get(0, 2) == (int64_t)TURNS * ranks && get(0, 3) == 0, "%" PRId64, get(0, 2));
	MPI_Win_unlock(0, win);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Operations of MPI and direct copies see the results of each other. */
static void test_atomics(void)
{
	int64_t one = 1, old, none = 0;

	MPI_Win_lock_all(0, win);
	put(next(), 8 + rank, 100);
	for (int i = 0; i < TURNS; i++) {
		MPI_Accumulate(&one, 1, MPI_INT64_T, next(), 8 + rank, 1, MPI_INT64_T, MPI_SUM,
			       win);
		MPI_Win_flush(next(), win);
		check(get(next(), 8 + rank) == 101 + 2 * i);
		MPI_Fetch_and_op(&one, &old, MPI_INT64_T, next(), 8 + rank, MPI_SUM, win);
		MPI_Win_flush(next(), win);
		check(old == 101 + 2 * i && get(next(), 8 + rank) == old + 1);
	}
	put(next(), 8 + rank, 7);
	MPI_Fetch_and_op(&none, &old, MPI_INT64_T, next(), 8 + rank, MPI_NO_OP, win);
	MPI_Win_flush_all(win);
	check(old == 7);
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Returns a different value for each word and round. */
static int64_t word(int of, int round, size_t i)
{
	return ((int64_t)i * 64 + of) * 64 + round + 1;
}

/*
 * The owner and other ranks change the same bytes in turn. Each sees the changes of the previous
 * one, also across the border of two kinds of memory.
 */
static void test_fences(int begin, int end)
{
	static int64_t block[WORDS], got[WORDS];

	for (int round = 0; round < ROUNDS; round++) {
		for (size_t i = 0; i < WORDS; i++) {
			base[i] = word(rank, round, i);
			block[i] = -base[i];
		}
		MPI_Win_fence(begin, win);
		MPI_Get(got, WORDS, MPI_INT64_T, next(), 0, WORDS, MPI_INT64_T, win);
		MPI_Win_fence(0, win);
		for (size_t i = 0; i < WORDS; i++)
			check(got[i] == word(next(), round, i), "round %d, word %zu: %" PRId64,
			      round, i, got[i]);
		for (size_t i = 0; i < WORDS; i += WORDS / 4)
			MPI_Put(block + i, WORDS / 4, MPI_INT64_T, next(), (MPI_Aint)i, WORDS / 4,
				MPI_INT64_T, win);
		MPI_Win_fence(end, win);
		for (size_t i = 0; i < WORDS; i++)
			check(base[i] == -word((rank + ranks - 1) % ranks, round, i),
			      "round %d, word %zu: %" PRId64, round, i, base[i]);
		if (end)
			MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void test_requests(void)
{
	int64_t from[3] = { 1, 2, 3 }, to[3] = { 0 };
	MPI_Request r[3];
	MPI_Status status[3];
	int flag = 0;

	MPI_Win_lock_all(0, win);
	put(next(), 20, 0);
	for (int i = 0; i < 3; i++)
		check(MPI_Rput(&from[i], 1, MPI_INT64_T, next(), 20 + i, 1, MPI_INT64_T, win,
			       &r[i]) == MPI_SUCCESS);
	check(MPI_Waitall(3, r, status) == MPI_SUCCESS && r[0] == MPI_REQUEST_NULL);
	MPI_Win_flush(next(), win);
	check(MPI_Rget(to, 3, MPI_INT64_T, next(), 20, 3, MPI_INT64_T, win, &r[0]) == MPI_SUCCESS);
	while (!flag)
		check(MPI_Test(&r[0], &flag, status) == MPI_SUCCESS);
	check(to[0] == 1 && to[1] == 2 && to[2] == 3);
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Datatypes without gaps in order, without gaps out of order, and with gaps. */
static void test_types(void)
{
	int lengths[] = { 1, 1 }, backwards[] = { 1, 0 };
	int64_t from[4] = { 1, 2, 3, 4 }, to[4];
	MPI_Datatype pair, two, swapped, apart;

	MPI_Type_contiguous(2, MPI_INT64_T, &pair);
	MPI_Type_contiguous(2, pair, &two);
	MPI_Type_indexed(2, lengths, backwards, MPI_INT64_T, &swapped);
	MPI_Type_vector(2, 1, 2, MPI_INT64_T, &apart);
	MPI_Type_commit(&two);
	MPI_Type_commit(&swapped);
	MPI_Type_commit(&apart);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next(), 0, win);
	put(next(), 34, 9);
	MPI_Put(from, 1, two, next(), 30, 4, MPI_INT64_T, win);
	MPI_Win_flush(next(), win);
	MPI_Get(to, 4, MPI_INT64_T, next(), 30, 1, two, win);
	MPI_Win_flush(next(), win);
	check(memcmp(from, to, sizeof(to)) == 0 && get(next(), 34) == 9);
	MPI_Put(from, 2, MPI_INT64_T, next(), 30, 1, swapped, win);
	MPI_Win_flush(next(), win);
	check(get(next(), 30) == 2 && get(next(), 31) == 1);
	MPI_Put(from, 2, MPI_INT64_T, next(), 30, 1, apart, win);
	MPI_Put(NULL, 0, MPI_INT64_T, next(), 30, 0, MPI_INT64_T, win);
	MPI_Put(from, 1, MPI_INT64_T, MPI_PROC_NULL, 30, 1, MPI_INT64_T, win);
	MPI_Win_flush(next(), win);
	check(get(next(), 30) == 1 && get(next(), 31) == 1 && get(next(), 32) == 2);
	MPI_Win_unlock(next(), win);
	MPI_Type_free(&pair);
	MPI_Type_free(&two);
	MPI_Type_free(&swapped);
	MPI_Type_free(&apart);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* MPI reports invalid arguments. */
static void test_errors(void)
{
	int64_t value = 0;

	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
	check(MPI_Put(&value, 1, MPI_INT64_T, next(), 0, 1, MPI_INT64_T, win) != MPI_SUCCESS,
	      "outside of epochs");
	MPI_Win_lock(MPI_LOCK_SHARED, next(), MPI_MODE_NOCHECK, win);
	check(MPI_Put(&value, 1, MPI_INT64_T, ranks, 0, 1, MPI_INT64_T, win) != MPI_SUCCESS,
	      "no such rank");
	check(MPI_Put(&value, -1, MPI_INT64_T, next(), 0, -1, MPI_INT64_T, win) != MPI_SUCCESS,
	      "no such count");
	check(MPI_Put(&value, 1, MPI_DATATYPE_NULL, next(), 0, 1, MPI_INT64_T, win) != MPI_SUCCESS,
	      "no such type");
	MPI_Win_unlock(next(), win);
	MPI_Win_set_errhandler(win, MPI_ERRORS_ARE_FATAL);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Whether ranks 0 and 1 are on one machine according to MPI; the result is equal at all ranks. */
static bool are_near(void)
{
	MPI_Comm machine;
	MPI_Group here, all;
	int first_two[2] = { 0, 1 }, found[2], both;

	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
	MPI_Comm_group(machine, &here);
	MPI_Comm_group(MPI_COMM_WORLD, &all);
	MPI_Group_translate_ranks(all, 2, first_two, here, found);
	MPI_Group_free(&all);
	MPI_Group_free(&here);
	MPI_Comm_free(&machine);
	both = found[0] != MPI_UNDEFINED && found[1] != MPI_UNDEFINED;
	MPI_Bcast(&both, 1, MPI_INT, 0, MPI_COMM_WORLD);
	return both;
}

static void test_window(MPI_Info info, bool reached)
{
	open_window(info);
	if (reached && near)
		test_passive_target();
	test_displacements();
	test_exclusive_lock();
	test_atomics();
	test_fences(0, 0);
	test_fences(MPI_MODE_NOPRECEDE, MPI_MODE_NOSUCCEED);
	test_requests();
	test_types();
	test_errors();
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	const char *engine = getenv("UMMAP_ENGINE");
	bool paged = !engine || strcmp(engine, "sigbus") != 0; /* ranks access paged memory, too */

	set_budget(8 * SEG);
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	near = are_near();
	fast = true;
	test_window(storage_hints("kernel.%r", "storage_alloc_engine", "kernel", NULL), true);
	test_window(storage_hints("odd.%r", "storage_alloc_engine", "kernel",
				  "storage_alloc_offset", "4112", NULL),
		    true);
	test_window(storage_hints("part.%r", "storage_alloc_factor", "0.5", NULL), paged);
	test_window(storage_hints("quarter.%r", "storage_alloc_factor", "0.25", NULL), paged);
	test_window(storage_hints("last.%r", "storage_alloc_factor", "0.5", "storage_alloc_order",
				  "storage_first", NULL),
		    paged);
	test_window(storage_hints("paged.%r", NULL), paged);
	/* The locks are those of MPI, but ranks access most parts directly. */
	fast = rank != ranks - 1;
	set_env("UMMAP_MPI_LOCAL", fast ? "true" : "false");
	test_window(storage_hints("most.%r", "storage_alloc_engine", "kernel", NULL), false);
	fast = false;
	set_env("UMMAP_MPI_LOCAL", "false");
	test_window(storage_hints("slow.%r", "storage_alloc_engine", "kernel", NULL), false);
	test_window(storage_hints("off.%r", "storage_alloc_factor", "0.5", NULL), false);
	MPI_Finalize();
	return 0;
}
