/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * atomics - all ranks at once lock parts of windows in storage, and add to the same words of them by every kind of atomic
 * operation, while segments come and go: no addition is lost or made twice, whoever has a part alone is alone, and who
 * shares it sees whole states. On each kind of memory, with locks of the library's and of MPI's. Among machines those of
 * windows over several are MPI's, and those of one machine's windows the library's.
 */
#include "common.h"

#define SEG (64 * KIB)
#define SEGS 8
#define SIZE (SEGS * SEG)
#define ROUNDS ((int)by_time(60, 400))
#ifdef OPEN_MPI
#define PAIRS_OF_MPI false  /* OpenMPI 4.1 has no MPI_MAXLOC of pairs for MPI_Accumulate */
#else
#define PAIRS_OF_MPI true
#endif
#define PLACES 6  /* of each thing in a part, each in a segment of its own */

/* What is at the beginning of some segments of each part. */
struct place {
	int64_t tickets, sums[40], pair[2], odd_begin[8];
	int32_t small[8];
	double real[8];
	struct { double value; int32_t who; } best;
};

/* What this rank has added, by target and place. */
struct added {
	int64_t sums[40], small[8], real[8], odd;
};

static MPI_Comm comm;      /* `rank` and `ranks` are of it */
static char *base;
static MPI_Win win;
static struct added *added;
static uint8_t *seen;      /* tickets that this rank has drawn */
static int64_t tickets;
static uint64_t random_state;
static bool has_pairs;
/* The locks are the library's. With MPI's, a lock of all ranks can wait for ever: for one who waits for whom it keeps out. */
static bool are_ours;

static uint64_t dice(uint64_t n)
{
	return next_random(&random_state) % n;
}

#define AT(number, field) ((MPI_Aint)((number) * SEG + offsetof(struct place, field)))
/* No multiple of eight. */
#define ODD(number) (AT(number, odd_begin) + 3)

/* ---- Additions ---- */

static void ticket(int target)
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
	int i = (int)dice(40);
	int64_t n = (int64_t)dice(100);

	MPI_Accumulate(&n, 1, MPI_INT64_T, target, AT(place, sums) + 8 * i, 1, MPI_INT64_T, MPI_SUM, win);
	a->sums[i] += n;
}

static void add_many(int target, int place, struct added *a)
{
	int64_t n[40], got[40];

	for (int i = 0; i < 40; i++)
		a->sums[i] += n[i] = (int64_t)dice(100);
	if (dice(2))
		MPI_Get_accumulate(n, 40, MPI_INT64_T, got, 40, MPI_INT64_T, target, AT(place, sums), 40, MPI_INT64_T, MPI_SUM, win);
	else
		MPI_Accumulate(n, 40, MPI_INT64_T, target, AT(place, sums), 40, MPI_INT64_T, MPI_SUM, win);
	MPI_Win_flush_local(target, win);
}

/* Every third. */
static void add_apart(int target, int place, struct added *a)
{
	MPI_Datatype third;
	int64_t n[10];

	MPI_Type_vector(10, 1, 3, MPI_INT64_T, &third);
	MPI_Type_commit(&third);
	for (int i = 0; i < 10; i++)
		a->sums[3 * i] += n[i] = (int64_t)dice(100);
	MPI_Accumulate(n, 10, MPI_INT64_T, target, AT(place, sums), 1, third, MPI_SUM, win);
	MPI_Win_flush_local(target, win);
	MPI_Type_free(&third);
}

static void swap_in(int target, int place, struct added *a)
{
	int i = (int)dice(40);
	int64_t none = 0, old, new, got;

	MPI_Fetch_and_op(&none, &got, MPI_INT64_T, target, AT(place, sums) + 8 * i, MPI_NO_OP, win);
	MPI_Win_flush(target, win);
	do {
		old = got;
		new = old + 7;
		MPI_Compare_and_swap(&new, &old, &got, MPI_INT64_T, target, AT(place, sums) + 8 * i, win);
		MPI_Win_flush(target, win);
	} while (got != old);
	a->sums[i] += 7;
}

static void add_small(int target, int place, struct added *a)
{
	int i = (int)dice(8);
	int32_t n = (int32_t)dice(100), got;

	MPI_Fetch_and_op(&n, &got, MPI_INT32_T, target, AT(place, small) + 4 * i, MPI_SUM, win);
	MPI_Win_flush(target, win);
	a->small[i] += n;
}

/* Whole numbers, which sums of doubles keep. */
static void add_real(int target, int place, struct added *a)
{
	double n[8];

	for (int i = 0; i < 8; i++) {
		n[i] = (double)dice(100);
		a->real[i] += (int64_t)n[i];
	}
	MPI_Accumulate(n, 8, MPI_DOUBLE, target, AT(place, real), 8, MPI_DOUBLE, MPI_SUM, win);
	MPI_Win_flush_local(target, win);
}

static void add_odd(int target, int place, struct added *a)
{
	int64_t n = (int64_t)dice(100);

	MPI_Accumulate(&n, 1, MPI_INT64_T, target, ODD(place), 1, MPI_INT64_T, MPI_SUM, win);
	MPI_Win_flush_local(target, win);
	a->odd += n;
}

/* The greatest, and who has it: the last rank will have put the greatest of all. */
static void find_best(int target, int place, int round)
{
	struct { double value; int32_t who; } mine = { round * ranks + rank, rank };

	MPI_Accumulate(&mine, 1, MPI_DOUBLE_INT, target, AT(place, best), 1, MPI_DOUBLE_INT, MPI_MAXLOC, win);
	MPI_Win_flush_local(target, win);
}

static void add_something(int target, int place, int round)
{
	static void (*const adds[])(int, int, struct added *) = { add_one, add_many, add_apart, swap_in, add_small, add_real, add_odd };

	adds[dice(sizeof(adds) / sizeof(*adds))](target, place, &added[target * PLACES + place]);
	if (has_pairs)
		find_best(target, place, round);
}

/* ---- Locks ---- */

static void read_pair(int target, int place, int64_t pair[2])
{
	MPI_Get(pair, 2, MPI_INT64_T, target, AT(place, pair), 2, MPI_INT64_T, win);
	MPI_Win_flush(target, win);
}

static void change_alone(int target, int place)
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

static void look_together(int target, int place)
{
	int64_t pair[2], again[2];

	MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
	read_pair(target, place, pair);
	read_pair(target, place, again);
	check(pair[0] == pair[1] && again[0] == pair[0] && again[1] == pair[0], "%" PRId64 " %" PRId64, pair[0], pair[1]);
	MPI_Win_unlock(target, win);
}

/* ---- By processor instructions, and under the lock ---- */

#define ADDITIONS 200
/* Three bytes hold that and what the others add. */
#define MOST 10000000

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

/* As long as the others add to a number that begins with the last bytes of a word in the second one's part, and lies over the
 * border of a segment, which takes two copies there and back, the first rank adds to these bytes in the word. */
static void meet(void)
{
	const MPI_Aint border = 7 * SEG, done = border + 64;
	int64_t sum = 0, added_here = 0;

	/* Nobody waits for a lock that the first rank keeps until they are done. */
	MPI_Barrier(comm);
	MPI_Win_lock_all(0, win);
	for (; rank ? added_here < ADDITIONS : added_here < MOST && !are_done(done); added_here++)
		add(rank ? 1 : (int64_t)1 << 40, rank ? border - 3 : border - 8);
	if (rank)
		add(1, done);
	MPI_Win_unlock_all(win);
	MPI_Allreduce(MPI_IN_PLACE, &added_here, 1, MPI_INT64_T, MPI_SUM, comm);
	if (rank == 1)
		memcpy(&sum, base + border - 3, sizeof(sum));
	check(rank != 1 || sum == added_here, "%" PRId64 ", not %" PRId64, sum, added_here);
}

/* ---- All of it ---- */

static void run_round(int round, bool paged)
{
	int target = (int)dice((uint64_t)ranks), place = (int)dice(PLACES);

	switch (dice(are_ours ? 4 : 3)) {
	case 0: change_alone(target, place); break;
	case 1: look_together(target, place); break;
	case 3:
		MPI_Win_lock_all(0, win);
		for (int i = 0; i < 8; i++)
			add_something((int)dice((uint64_t)ranks), (int)dice(PLACES), round);
		MPI_Win_unlock_all(win);
		break;
	default:
		MPI_Win_lock(dice(2) ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, target, 0, win);
		for (int i = 0; i < 4; i++)
			add_something(target, place, round);
		MPI_Win_unlock(target, win);
	}
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
	ticket(0);
	MPI_Win_unlock(0, win);
	/* Some absent, or clean. */
	if (paged && dice(4) == 0)
		check(umadvise(base + dice(SEGS) * SEG, SEG, UMMAP_ADV_DONTNEED) == 0);
	if (paged && dice(8) == 0)
		check(MPI_Win_sync(win) == MPI_SUCCESS);
}

static void check_sums(int place)
{
	const struct place *p = (const struct place *)(base + place * SEG);
	const struct added *a = &added[rank * PLACES + place];
	int64_t odd;

	for (int i = 0; i < 40; i++)
		check(p->sums[i] == a->sums[i], "place %d, sum %d: %" PRId64 ", not %" PRId64, place, i, p->sums[i], a->sums[i]);
	for (int i = 0; i < 8; i++)
		check(p->small[i] == a->small[i] && (int64_t)p->real[i] == a->real[i], "place %d, %d", place, i);
	memcpy(&odd, (const char *)p + offsetof(struct place, odd_begin) + 3, sizeof(odd));
	check(odd == a->odd, "place %d: %" PRId64 ", not %" PRId64, place, odd, a->odd);
	check((int)p->best.value % ranks == p->best.who, "%g is of rank %d", p->best.value, p->best.who);
	check(p->pair[0] == p->pair[1] && p->pair[0] % 3 == 0);
}

static void everything(MPI_Info info, bool paged, bool ours)
{
	has_pairs = ours || PAIRS_OF_MPI;
	are_ours = ours;
	check(MPI_Win_allocate(SIZE, 1, info, comm, &base, &win) == MPI_SUCCESS);
	MPI_Info_free(&info);
	memset(base, 0, SIZE);
	added = calloc((size_t)ranks * PLACES, sizeof(*added));
	tickets = ROUNDS;
	seen = calloc(1, (size_t)(tickets * ranks));
	MPI_Barrier(comm);
	for (int i = 0; i < ROUNDS; i++)
		run_round(i, paged);
	if (are_ours && ranks > 1)
		meet();
	MPI_Barrier(comm);
	/* The same numbers are all that is in it. */
	MPI_Allreduce(MPI_IN_PLACE, added, (int)((size_t)ranks * PLACES * sizeof(*added) / 8), MPI_INT64_T, MPI_SUM, comm);
	MPI_Allreduce(MPI_IN_PLACE, seen, (int)(tickets * ranks), MPI_UINT8_T, MPI_SUM, comm);
	for (int i = 0; i < PLACES; i++)
		check_sums(i);
	for (int64_t i = 0; i < tickets * ranks; i++)
		check(seen[i] == 1, "ticket %" PRId64 " was drawn %d times", i, seen[i]);
	free(added);
	free(seen);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

/* From now on all is among the ranks of this machine. */
static void stay_here(void)
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
	bool far = getenv("MACHINES");
	bool paged = engine ? strcmp(engine, "segv") == 0 : !far; /* with it, locks are the library's on one machine */
	uint64_t seed = (uint64_t)time(NULL);

	set_budget(4 * SEG);
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("seed %" PRIu64 "\n", seed);
	fflush(stdout);
	random_state = seed + (uint64_t)rank * 1000;
	comm = MPI_COMM_WORLD;
	if (far) {
		everything(storage_hints("all.%r", "storage_alloc_segsize", "64K", NULL), paged, false);
		everything(storage_hints("mapped.%r", "storage_alloc_engine", "kernel", NULL), false, false);
		stay_here();
	}
	everything(storage_hints("paged.%r", "storage_alloc_segsize", "64K", NULL), true, paged);
	everything(storage_hints("kernel.%r", "storage_alloc_engine", "kernel", NULL), false, true);
	everything(storage_hints("last.%r", "storage_alloc_factor", "0.5", "storage_alloc_order", "storage_first",
				 "storage_alloc_segsize", "64K", NULL), false, paged);
	set_env("UMMAP_MPI_LOCAL", "false");
	everything(storage_hints("theirs.%r", "storage_alloc_engine", "kernel", NULL), false, false);
	MPI_Finalize();
	return 0;
}
