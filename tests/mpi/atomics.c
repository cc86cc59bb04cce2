/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * atomics - all ranks lock parts of windows in storage at the same time, and add to the same words
 * by every kind of atomic operation, while segments are evicted and loaded. No addition is lost or
 * made twice, an exclusive lock excludes all other ranks, and a shared lock shows only complete
 * changes. The test runs with each kind of memory, and with the locks of the library and of MPI.
 * With several machines, windows over all of them have the locks of MPI, and windows of one machine
 * those of the library.
 */
#include "common.h"

#define SEG (64 * KIB)
#define SEGS 8
#define SIZE (SEGS * SEG)
#define ROUNDS ((int)by_time(60, 400))
#ifdef OPEN_MPI
#define MPI_HAS_MAXLOC false /* MPI_Accumulate of OpenMPI 4.1 cannot use MPI_MAXLOC */
#else
#define MPI_HAS_MAXLOC true
#endif
#define PLACES 6 /* number of structures in a part; each is at the beginning of a segment */

/* Words at the beginning of a segment. */
struct place {
	int64_t tickets, sums[40], pair[2], odd_begin[8];
	int32_t small[8];
	double real[8];
	struct { double value; int32_t owner; } best;
};

/* Sums that this rank has added to a place of a target. */
struct added {
	int64_t sums[40], small[8], real[8], odd;
};

static MPI_Comm comm;      /* communicator of `rank` and `ranks` */
static char *base;
static MPI_Win win;
static struct added *added;
static uint8_t *seen;      /* number of times that this rank has drawn each ticket */
static int64_t tickets;
static uint64_t random_state;
static bool has_pairs;
/* The window has the locks of the library. With those of MPI, MPI_Win_lock_all can deadlock: it
 * waits for a rank that waits for a lock which it holds. */
static bool has_own_locks;

static uint64_t draw(uint64_t n)
{
	return next_random(&random_state) % n;
}

#define AT(number, field) ((MPI_Aint)((number) * SEG + offsetof(struct place, field)))
/* Offset of a word that is not aligned. */
#define ODD(number) (AT(number, odd_begin) + 3)

/* ---- Additions ---- */

static void draw_ticket(int target)
{
	int64_t one = 1, mine = -1;

	MPI_Fetch_and_op(&one, &mine, MPI_INT64_T, target, AT(0, tickets), MPI_SUM, win);
	MPI_Win_flush(target, win);
	check(mine >= 0 && mine < tickets * ranks, "%" PRId64, mine);
	if (target == 0)
		seen[mine]++;
}

static void add_one(int target, int place, struct added *a)
{
	int i = (int)draw(40);
	int64_t n = (int64_t)draw(100);

	MPI_Accumulate(&n, 1, MPI_INT64_T, target, AT(place, sums) + 8 * i, 1, MPI_INT64_T, MPI_SUM,
		       win);
	a->sums[i] += n;
}

static void add_many(int target, int place, struct added *a)
{
	int64_t n[40], got[40];

	for (int i = 0; i < 40; i++)
		a->sums[i] += n[i] = (int64_t)draw(100);
	if (draw(2))
		MPI_Get_accumulate(n, 40, MPI_INT64_T, got, 40, MPI_INT64_T, target,
				   AT(place, sums), 40, MPI_INT64_T, MPI_SUM, win);
	else
		MPI_Accumulate(n, 40, MPI_INT64_T, target, AT(place, sums), 40, MPI_INT64_T,
			       MPI_SUM, win);
	MPI_Win_flush_local(target, win);
}

/* Adds to every third word. */
static void add_strided(int target, int place, struct added *a)
{
	MPI_Datatype third;
	int64_t n[10];

	MPI_Type_vector(10, 1, 3, MPI_INT64_T, &third);
	MPI_Type_commit(&third);
	for (int i = 0; i < 10; i++)
		a->sums[3 * i] += n[i] = (int64_t)draw(100);
	MPI_Accumulate(n, 10, MPI_INT64_T, target, AT(place, sums), 1, third, MPI_SUM, win);
	MPI_Win_flush_local(target, win);
	MPI_Type_free(&third);
}

static void add_by_swap(int target, int place, struct added *a)
{
	int i = (int)draw(40);
	int64_t none = 0, old, new, got;

	MPI_Fetch_and_op(&none, &got, MPI_INT64_T, target, AT(place, sums) + 8 * i, MPI_NO_OP, win);
	MPI_Win_flush(target, win);
	do {
		old = got;
		new = old + 7;
		MPI_Compare_and_swap(&new, &old, &got, MPI_INT64_T, target, AT(place, sums) + 8 * i,
				     win);
		MPI_Win_flush(target, win);
	} while (got != old);
	a->sums[i] += 7;
}

static void add_small(int target, int place, struct added *a)
{
	int i = (int)draw(8);
	int32_t n = (int32_t)draw(100), got;

	MPI_Fetch_and_op(&n, &got, MPI_INT32_T, target, AT(place, small) + 4 * i, MPI_SUM, win);
	MPI_Win_flush(target, win);
	a->small[i] += n;
}

/* Adds integers, which a sum of doubles represents exactly. */
static void add_real(int target, int place, struct added *a)
{
	double n[8];

	for (int i = 0; i < 8; i++) {
		n[i] = (double)draw(100);
		a->real[i] += (int64_t)n[i];
	}
	MPI_Accumulate(n, 8, MPI_DOUBLE, target, AT(place, real), 8, MPI_DOUBLE, MPI_SUM, win);
	MPI_Win_flush_local(target, win);
}

static void add_odd(int target, int place, struct added *a)
{
	int64_t n = (int64_t)draw(100);

	MPI_Accumulate(&n, 1, MPI_INT64_T, target, ODD(place), 1, MPI_INT64_T, MPI_SUM, win);
	MPI_Win_flush_local(target, win);
	a->odd += n;
}

/* Stores the largest value and its rank. The last round has the largest value. */
static void store_maximum(int target, int place, int round)
{
	struct { double value; int32_t owner; } mine = { round * ranks + rank, rank };

	MPI_Accumulate(&mine, 1, MPI_DOUBLE_INT, target, AT(place, best), 1, MPI_DOUBLE_INT,
		       MPI_MAXLOC, win);
	MPI_Win_flush_local(target, win);
}

static void add_something(int target, int place, int round)
{
	static void (*const adds[])(int, int, struct added *) = {
		add_one, add_many, add_strided, add_by_swap, add_small, add_real, add_odd,
	};

	adds[draw(sizeof(adds) / sizeof(*adds))](target, place, &added[target * PLACES + place]);
	if (has_pairs)
		store_maximum(target, place, round);
}

/* ---- Locks ---- */

static void read_pair(int target, int place, int64_t pair[2])
{
	MPI_Get(pair, 2, MPI_INT64_T, target, AT(place, pair), 2, MPI_INT64_T, win);
	MPI_Win_flush(target, win);
}

static void change_exclusively(int target, int place)
{
	int64_t pair[2];

	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
	for (int i = 0; i < 3; i++) {
		read_pair(target, place, pair);
		check(pair[0] == pair[1], "%" PRId64 " %" PRId64, pair[0], pair[1]);
		pair[0]++;
		MPI_Put(&pair[0], 1, MPI_INT64_T, target, AT(place, pair), 1, MPI_INT64_T, win);
		MPI_Win_flush(target, win);
		pair[1]++;
		MPI_Put(&pair[1], 1, MPI_INT64_T, target, AT(place, pair) + 8, 1, MPI_INT64_T, win);
		MPI_Win_flush(target, win);
	}
	MPI_Win_unlock(target, win);
}

static void read_shared(int target, int place)
{
	int64_t pair[2], again[2];

	MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
	read_pair(target, place, pair);
	read_pair(target, place, again);
	check(pair[0] == pair[1] && again[0] == pair[0] && again[1] == pair[0],
	      "%" PRId64 " %" PRId64, pair[0], pair[1]);
	MPI_Win_unlock(target, win);
}

/* ---- Additions by processor instructions and under a lock ---- */

#define ADDITIONS 200
/* The sum of these and of the other additions must fit into three bytes. */
#define MAX_ADDITIONS 10000000

static void add(int64_t n, MPI_Aint at)
{
	MPI_Accumulate(&n, 1, MPI_INT64_T, 1, at, 1, MPI_INT64_T, MPI_SUM, win);
	MPI_Win_flush(1, win);
}

static bool are_done(MPI_Aint at)
{
	int64_t none = 0, done = 0;

	MPI_Fetch_and_op(&none, &done, MPI_INT64_T, 1, at, MPI_NO_OP, win);
	MPI_Win_flush(1, win);
	return done == ranks - 1;
}

/*
 * The other ranks add to a number in the part of rank 1 that crosses the border of two segments,
 * which takes two copies for each load and store. Its first bytes are the last bytes of an aligned
 * word. Rank 0 adds to these bytes in the aligned word at the same time.
 */
static void add_to_overlapping_words(void)
{
	const MPI_Aint border = 7 * SEG, done = border + 64;
	int64_t sum = 0, added_here = 0;

	/* No rank may wait for a lock that rank 0 holds until all others have finished. */
	MPI_Barrier(comm);
	MPI_Win_lock_all(0, win);
	for (; rank ? added_here < ADDITIONS : added_here < MAX_ADDITIONS && !are_done(done);
	     added_here++)
		add(rank ? 1 : (int64_t)1 << 40, rank ? border - 3 : border - 8);
	if (rank)
		add(1, done);
	MPI_Win_unlock_all(win);
	MPI_Allreduce(MPI_IN_PLACE, &added_here, 1, MPI_INT64_T, MPI_SUM, comm);
	if (rank == 1)
		memcpy(&sum, base + border - 3, sizeof(sum));
	check(rank != 1 || sum == added_here, "%" PRId64 ", not %" PRId64, sum, added_here);
}

/* ---- Rounds ---- */

static void run_round(int round, bool paged)
{
	int target = (int)draw((uint64_t)ranks), place = (int)draw(PLACES);

	switch (draw(has_own_locks ? 4 : 3)) {
	case 0: change_exclusively(target, place); break;
	case 1: read_shared(target, place); break;
	case 3:
		MPI_Win_lock_all(0, win);
		for (int i = 0; i < 8; i++)
			add_something((int)draw((uint64_t)ranks), (int)draw(PLACES), round);
		MPI_Win_unlock_all(win);
		break;
	default:
		MPI_Win_lock(draw(2) ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, target, 0, win);
		for (int i = 0; i < 4; i++)
			add_something(target, place, round);
		MPI_Win_unlock(target, win);
	}
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
	draw_ticket(0);
	MPI_Win_unlock(0, win);
	/* Some segments become inactive, and others clean. */
	if (paged && draw(4) == 0)
		check(umadvise(base + draw(SEGS) * SEG, SEG, UMMAP_ADV_DONTNEED) == 0);
	if (paged && draw(8) == 0)
		check(MPI_Win_sync(win) == MPI_SUCCESS);
}

static void check_sums(int place)
{
	const struct place *p = (const struct place *)(base + place * SEG);
	const struct added *a = &added[rank * PLACES + place];
	int64_t odd;

	for (int i = 0; i < 40; i++)
		check(p->sums[i] == a->sums[i], "place %d, sum %d: %" PRId64 ", not %" PRId64,
		      place, i, p->sums[i], a->sums[i]);
	for (int i = 0; i < 8; i++)
		check(p->small[i] == a->small[i] && (int64_t)p->real[i] == a->real[i],
		      "place %d, %d", place, i);
	memcpy(&odd, (const char *)p + offsetof(struct place, odd_begin) + 3, sizeof(odd));
	check(odd == a->odd, "place %d: %" PRId64 ", not %" PRId64, place, odd, a->odd);
	check((int)p->best.value % ranks == p->best.owner, "%g is of rank %d", p->best.value,
	      p->best.owner);
	check(p->pair[0] == p->pair[1] && p->pair[0] % 3 == 0);
}

static void run_test(MPI_Info info, bool paged, bool ours)
{
	has_pairs = ours || MPI_HAS_MAXLOC;
	has_own_locks = ours;
	check(MPI_Win_allocate(SIZE, 1, info, comm, &base, &win) == MPI_SUCCESS);
	MPI_Info_free(&info);
	memset(base, 0, SIZE);
	added = calloc((size_t)ranks * PLACES, sizeof(*added));
	tickets = ROUNDS;
	seen = calloc(1, (size_t)(tickets * ranks));
	MPI_Barrier(comm);
	for (int i = 0; i < ROUNDS; i++)
		run_round(i, paged);
	if (has_own_locks && ranks > 1)
		add_to_overlapping_words();
	MPI_Barrier(comm);
	/* The structure consists of words, and its sums are the expected words of the window. */
	MPI_Allreduce(MPI_IN_PLACE, added, (int)((size_t)ranks * PLACES * sizeof(*added) / 8),
		      MPI_INT64_T, MPI_SUM, comm);
	MPI_Allreduce(MPI_IN_PLACE, seen, (int)(tickets * ranks), MPI_UINT8_T, MPI_SUM, comm);
	for (int i = 0; i < PLACES; i++)
		check_sums(i);
	for (int64_t i = 0; i < tickets * ranks; i++)
		check(seen[i] == 1, "ticket %" PRId64 " was drawn %d times", i, seen[i]);
	free(added);
	free(seen);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

/* Restricts the following tests to the ranks of this machine. */
static void use_ranks_of_machine(void)
{
	int first = rank;

	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &comm);
	MPI_Bcast(&first, 1, MPI_INT, 0, comm);
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &ranks);
	snprintf(folder + strlen(folder), sizeof(folder) - strlen(folder), "/%d", first);
	check(rank != 0 || mkdir(folder, 0700) == 0);
	MPI_Barrier(comm);
}

int main(int argc, char **argv)
{
	const char *engine = getenv("UMMAP_ENGINE");
	bool has_machines = getenv("MACHINES");
	/* With the engine segv, windows of one machine have the locks of the library. */
	bool paged = engine ? strcmp(engine, "segv") == 0 : !has_machines;
	uint64_t seed = (uint64_t)time(NULL);

	set_budget(4 * SEG);
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("seed %" PRIu64 "\n", seed);
	fflush(stdout);
	random_state = seed + (uint64_t)rank * 1000;
	comm = MPI_COMM_WORLD;
	if (has_machines) {
		run_test(storage_hints("all.%r", "storage_alloc_segsize", "64K", NULL), paged,
			 false);
		run_test(storage_hints("mapped.%r", "storage_alloc_engine", "kernel", NULL), false,
			 false);
		use_ranks_of_machine();
	}
	run_test(storage_hints("paged.%r", "storage_alloc_segsize", "64K", NULL), true, paged);
	run_test(storage_hints("kernel.%r", "storage_alloc_engine", "kernel", NULL), false, true);
	run_test(storage_hints("last.%r", "storage_alloc_factor", "0.5", "storage_alloc_order",
			       "storage_first", "storage_alloc_segsize", "64K", NULL),
		 false, paged);
	set_env("UMMAP_MPI_LOCAL", "false");
	run_test(storage_hints("theirs.%r", "storage_alloc_engine", "kernel", NULL), false, false);
	MPI_Finalize();
	return 0;
}
