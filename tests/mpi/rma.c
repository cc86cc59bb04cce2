/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma - every kind of one-sided operation has the same results on a window in storage and on a
 * window in memory. All ranks run the same random operations on both, while segments are loaded,
 * written and evicted. Each rank has its own words in every window, where results do not depend on
 * the order; to the other words, all ranks only add. The test runs again with windows that other
 * ranks access without MPI, in part or as a whole.
 */
#include "common.h"

#define SEG (4 * KIB)
#define SIZE (512 * KIB)
#define BUDGET (SIZE / 8)
#define WORDS (SIZE / 8)
#define MAX_WORDS (16 * KIB) /* words of one operation */
#define ROUNDS 24 /* rounds of all ranks together */
#define OPERATIONS 12
#ifdef OPEN_MPI
#define PLAIN_FETCHES true /* OpenMPI 4.1 fails: MPI_Get_accumulate of derived datatypes */
#else
#define PLAIN_FETCHES false
#endif
#define SWAP_VALUES 4 /* words and values of MPI_Compare_and_swap: few, so that some are equal */

static const struct place {
	const char *hint, *value;
	size_t stored;          /* number of bytes at the end of the window that are in the file */
	bool paged;             /* the library pages segments of the window */
} places[] = {
	{ "storage_alloc_segsize", "4096", SIZE, true },
	{ "storage_alloc_factor", "0.5", SIZE / 2, true },
	{ "storage_alloc_engine", "kernel", SIZE, false },
};

struct both {
	const struct place *place;
	MPI_Win stored, memory;
	int64_t *in_storage, *in_memory;
};

static uint64_t random_state;
static int64_t origin[MAX_WORDS], got_stored[MAX_WORDS], got_memory[MAX_WORDS], compare_with;

static uint64_t draw(uint64_t n)
{
	return next_random(&random_state) % n;
}

/* ---- Operations ---- */

struct kind;

/* An operation, which runs on both windows. */
struct operation {
	const struct kind *kind;
	int target, count;     /* target rank, and number of words */
	MPI_Aint at;
	MPI_Datatype type;     /* datatype at the target, `items` times */
	int items;
	MPI_Op op;
	MPI_Request request;   /* request of MPI_Rput and similar calls */
};

static void put(struct operation *o, MPI_Win win, int64_t *got)
{
	(void)got;
	MPI_Put(origin, o->count, MPI_INT64_T, o->target, o->at, o->items, o->type, win);
}

static void get(struct operation *o, MPI_Win win, int64_t *got)
{
	MPI_Get(got, o->count, MPI_INT64_T, o->target, o->at, o->items, o->type, win);
}

static void accumulate(struct operation *o, MPI_Win win, int64_t *got)
{
	(void)got;
	MPI_Accumulate(origin, o->count, MPI_INT64_T, o->target, o->at, o->items, o->type, o->op,
		       win);
}

static void get_accumulate(struct operation *o, MPI_Win win, int64_t *got)
{
	MPI_Get_accumulate(origin, o->count, MPI_INT64_T, got, o->count, MPI_INT64_T, o->target,
			   o->at, o->items, o->type, o->op, win);
}

static void fetch_and_op(struct operation *o, MPI_Win win, int64_t *got)
{
	MPI_Fetch_and_op(origin, got, MPI_INT64_T, o->target, o->at, o->op, win);
}

static void compare_and_swap(struct operation *o, MPI_Win win, int64_t *got)
{
	MPI_Compare_and_swap(origin, &compare_with, got, MPI_INT64_T, o->target, o->at, win);
}

static void rput(struct operation *o, MPI_Win win, int64_t *got)
{
	(void)got;
	MPI_Rput(origin, o->count, MPI_INT64_T, o->target, o->at, o->items, o->type, win,
		 &o->request);
}

static void rget(struct operation *o, MPI_Win win, int64_t *got)
{
	MPI_Rget(got, o->count, MPI_INT64_T, o->target, o->at, o->items, o->type, win, &o->request);
}

static void raccumulate(struct operation *o, MPI_Win win, int64_t *got)
{
	(void)got;
	MPI_Raccumulate(origin, o->count, MPI_INT64_T, o->target, o->at, o->items, o->type, o->op,
			win, &o->request);
}

static void rget_accumulate(struct operation *o, MPI_Win win, int64_t *got)
{
	MPI_Rget_accumulate(origin, o->count, MPI_INT64_T, got, o->count, MPI_INT64_T, o->target,
			    o->at, o->items, o->type, o->op, win, &o->request);
}

static const struct kind {
	void (*run)(struct operation *, MPI_Win, int64_t *got);
	bool fetches;  /* the operation returns words, and uses the words of this rank */
	bool adds;     /* the operation uses the words of all ranks */
	bool single;   /* the operation has one word */
	bool requests; /* the call returns a request */
	bool plain;    /* the datatype must not be derived */
} kinds[] = {
	{ .run = put },
	{ .run = get, .fetches = true },
	{ .run = accumulate, .adds = true },
	{ .run = get_accumulate, .fetches = true, .plain = PLAIN_FETCHES },
	{ .run = fetch_and_op, .fetches = true, .single = true },
	{ .run = compare_and_swap, .fetches = true, .single = true },
	{ .run = rput, .requests = true },
	{ .run = rget, .fetches = true, .requests = true },
	{ .run = raccumulate, .adds = true, .requests = true },
	{ .run = rget_accumulate, .fetches = true, .requests = true, .plain = PLAIN_FETCHES },
};

#define KINDS (sizeof(kinds) / sizeof(*kinds))
#define KINDS_WITHOUT_REQUESTS 6

/* All ranks add to the first half of a window. Each rank has its own words in the second half. */
static void choose_place(struct operation *o, const struct kind *kind)
{
	size_t own = WORDS / 2 / (size_t)ranks, room = kind->adds ? WORDS / 2 : own, words, stride;
	size_t from = kind->adds ? 0 : WORDS / 2 + own * (size_t)rank;

	words = 1 + draw(draw(2) ? 8 : MAX_WORDS < room / 2 ? MAX_WORDS : room / 2);
	if (kind->single)
		words = 1;
	o->count = (int)words;
	stride = draw(3) || kind->single || kind->plain ?
			 1 :
			 1 + draw(room / words < 9 ? room / words : 9);
	o->at = (MPI_Aint)(from + draw(kind->single ? SWAP_VALUES : room - (words - 1) * stride));
	o->items = o->count;
	o->type = MPI_INT64_T;
	if (stride == 1)
		return;
	MPI_Type_vector(o->count, 1, (int)stride, MPI_INT64_T, &o->type);
	MPI_Type_commit(&o->type);
	o->items = 1;
}

/* Bitwise operations of Open MPI 5 have wrong results, also in memory. */
static bool has_bitwise_operations(void)
{
	static char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int len;

	if (!*version)
		MPI_Get_library_version(version, &len);
	return strncmp(version, "Open MPI v5", strlen("Open MPI v5")) != 0;
}

static void prepare(struct operation *o, const struct kind *kind, int target)
{
	const MPI_Op ops[] = { MPI_SUM, MPI_REPLACE, has_bitwise_operations() ? MPI_BXOR : MPI_MIN,
			       MPI_MAX };

	*o = (struct operation){ .kind = kind,
				 .target = target,
				 .op = kind->adds ? MPI_SUM : ops[draw(4)] };
	choose_place(o, kind);
	for (int i = 0; i < o->count; i++)
		origin[i] =
			(int64_t)(kind->single ? draw(SWAP_VALUES) : next_random(&random_state));
	compare_with = (int64_t)draw(SWAP_VALUES);
}

static void finish(struct operation *o)
{
	if (o->type != MPI_INT64_T)
		MPI_Type_free(&o->type);
	if (o->kind->fetches)
		check(memcmp(got_stored, got_memory, (size_t)o->count * 8) == 0,
		      "%d words fetched from rank %d, kind %d", o->count, o->target,
		      (int)(o->kind - kinds));
}

/* ---- Epochs: functions that run an operation in an epoch ---- */

static void flush(struct operation *o, MPI_Win win, int64_t *got)
{
	MPI_Win_lock_all(0, win);
	o->kind->run(o, win, got);
	if (o->kind->requests)
		MPI_Wait(&o->request, MPI_STATUS_IGNORE);
	MPI_Win_flush(o->target, win);
	MPI_Win_unlock_all(win);
}

static void lock(struct operation *o, MPI_Win win, int64_t *got)
{
	MPI_Win_lock(o->count % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, o->target, 0, win);
	o->kind->run(o, win, got);
	if (o->count % 3 == 0)
		MPI_Win_flush(o->target, win);
	MPI_Win_unlock(o->target, win);
}

static void fence(struct operation *o, MPI_Win win, int64_t *got)
{
	MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
	o->kind->run(o, win, got);
	MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
}

/* Exposes the window to the previous rank and accesses that of the next one. */
static void post(struct operation *o, MPI_Win win, int64_t *got)
{
	int before = (rank + ranks - 1) % ranks;
	MPI_Group world, to, from;

	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, &o->target, &to);
	MPI_Group_incl(world, 1, &before, &from);
	MPI_Win_post(from, 0, win);
	MPI_Win_start(to, 0, win);
	o->kind->run(o, win, got);
	MPI_Win_complete(win);
	MPI_Win_wait(win);
	MPI_Group_free(&world);
	MPI_Group_free(&to);
	MPI_Group_free(&from);
}

static const struct epoch {
	void (*run)(struct operation *, MPI_Win, int64_t *got);
	uint64_t kinds;
	bool next; /* the target is the next rank */
} epochs[] = {
	{ flush, .kinds = KINDS },
	{ lock, .kinds = KINDS_WITHOUT_REQUESTS },
	{ fence, .kinds = KINDS_WITHOUT_REQUESTS },
	{ post, .kinds = KINDS_WITHOUT_REQUESTS, .next = true },
};

/* MPI_Get_accumulate of OpenMPI's osc/ucx sometimes returns wrong words, also from memory. */
static bool is_skipped(const struct kind *kind)
{
	const char *osc = getenv("OMPI_MCA_osc");

	return osc && strcmp(osc, "ucx") == 0 &&
	       (kind->run == get_accumulate || kind->run == rget_accumulate);
}

static const struct kind *choose_kind(uint64_t n)
{
	const struct kind *kind = &kinds[draw(n)];

	return is_skipped(kind) ? choose_kind(n) : kind;
}

static void run_epochs(const struct epoch *e, const struct both *w)
{
	for (int i = 0; i < OPERATIONS; i++) {
		struct operation o;

		prepare(&o, choose_kind(e->kinds),
			e->next ? (rank + 1) % ranks : (int)draw((uint64_t)ranks));
		e->run(&o, w->stored, got_stored);
		e->run(&o, w->memory, got_memory);
		finish(&o);
	}
}

/* ---- State changes by the owner between epochs ---- */

/* Evicts the bytes of [from, to) that are in storage. */
static void evict(const struct both *w, size_t from, size_t to)
{
	size_t stored = SIZE - w->place->stored;

	from = from < stored ? stored : from;
	if (w->place->paged && from < to)
		check(umadvise((char *)w->in_storage + from, to - from, UMMAP_ADV_DONTNEED) == 0);
}

static void change_states(const struct both *w)
{
	size_t at = draw(SIZE - 64 * KIB), len = 1 + draw(64 * KIB);
	uint8_t *base = (uint8_t *)w->in_storage;
	volatile uint8_t sink = 0;

	switch (draw(4)) {
	case 0: /* all segments become clean */
		check(MPI_Win_sync(w->stored) == MPI_SUCCESS);
		break;
	case 1: /* some segments become inactive or absent */
		evict(w, at, at + len);
		break;
	case 2: /* some segments become resident */
		for (size_t i = 0; i < len; i += KIB)
			sink += base[at + i];
		break;
	case 3: /* some segments become dirty */
		for (size_t i = 0; i < 64; i++) {
			w->in_storage[at / 8 + i] ^= 5;
			w->in_memory[at / 8 + i] ^= 5;
		}
	}
	(void)sink;
}

static void compare(const struct both *w)
{
	MPI_Barrier(MPI_COMM_WORLD);
	for (size_t i = 0; i < WORDS; i++)
		check(w->in_storage[i] == w->in_memory[i],
		      "word %zu is %#" PRIx64 ", not %#" PRIx64, i, w->in_storage[i],
		      w->in_memory[i]);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void open_both(struct both *w)
{
	MPI_Info info = storage_hints("window.%r", w->place->hint, w->place->value, NULL);

	check(MPI_Win_allocate(SIZE, 8, info, MPI_COMM_WORLD, &w->in_storage, &w->stored) ==
	      MPI_SUCCESS);
	MPI_Info_free(&info);
	w->in_memory = calloc(1, SIZE);
	check(w->in_memory && MPI_Win_create(w->in_memory, SIZE, 8, MPI_INFO_NULL, MPI_COMM_WORLD,
					     &w->memory) == MPI_SUCCESS);
}

static void check_paging(const void *base)
{
	struct umstat st = stat_of(base);

	check(st.evictions > 0 && st.read_bytes > 0 && st.write_bytes > 0,
	      "no segment was evicted and loaded");
}

/* After MPI_Win_free, the file must have the contents of the window in memory. */
static void close_both(struct both *w)
{
	size_t from = SIZE - w->place->stored;
	char name[32], path[400];
	int64_t *words;
	int fd;

	if (w->place->paged)
		check_paging((char *)w->in_storage + from);
	check(MPI_Win_free(&w->stored) == MPI_SUCCESS);
	snprintf(name, sizeof(name), "window.%d", rank);
	fd = open_part(name);
	check(fd >= 0 && file_size(fd) <= SIZE);
	words = calloc(1, SIZE);
	check(pread(fd, words, SIZE, 0) == (ssize_t)file_size(fd));
	check(memcmp((char *)words + from, (char *)w->in_memory + from, SIZE - from) == 0,
	      "the file differs from the window");
	close(fd);
	free(words);
	MPI_Win_free(&w->memory);
	free(w->in_memory);
	/* The next window needs an empty file. */
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	check(unlink(path) == 0);
}

int main(int argc, char **argv)
{
	int threads = argc > 1 && strcmp(argv[1], "multiple") == 0 ? MPI_THREAD_MULTIPLE :
								     MPI_THREAD_SINGLE;
	uint64_t seed = (uint64_t)time(NULL), shared;
	struct both w;

	set_budget(BUDGET);
	start_mpi(&argc, &argv, threads);
	MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("seed %" PRIu64 "\n", seed);
	fflush(stdout);
	random_state = seed + (uint64_t)rank * 1000;
	shared = seed;
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		w.place = &places[i];
		open_both(&w);
		for (int n = 0; n < ROUNDS / ranks; n++) {
			change_states(&w);
			compare(&w);
			run_epochs(&epochs[next_random(&shared) % 4], &w);
			compare(&w);
		}
		close_both(&w);
	}
	MPI_Finalize();
	return 0;
}
