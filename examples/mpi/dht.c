/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dht - a distributed hash table that survives its processes. The window of each rank is a file
 * with slots for a key and a value, and may be much larger than memory (UMMAP_MEM_LIMIT). The hash
 * of a key selects its rank and slot, and MPI_Compare_and_swap claims the slot. From time to time,
 * all ranks make their parts durable and record their progress.
 *
 *	mpirun -n 4 dht /data/table.%r KEYS [DIE]
 *
 * Each rank puts KEYS keys. If the program is killed at any moment and run again, it continues from
 * the last recorded progress; putting a key twice does no harm. With DIE, rank 0 kills itself after
 * this number of records. At the end, the program looks up every key.
 */
#include <inttypes.h>
#include <mpi.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define KEYS_PER_RECORD 1024

struct slot {
	uint64_t key, value; /* key 0: free */
};

/* The window of a rank has one slot for its progress, whose key is the number of keys that the rank
 * has put, and then the slots of the table. */
struct table {
	MPI_Win win;
	struct slot *mine;   /* this rank's part of the window */
	uint64_t slots;      /* slots of each rank */
	uint64_t keys;       /* keys that each rank puts */
	int rank, ranks;
};

static uint64_t hash(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* Returns the i-th key that a rank puts; never 0. */
static uint64_t key_of(int rank, uint64_t i)
{
	return i << 16 | (uint64_t)(rank + 1);
}

static uint64_t value_of(uint64_t key)
{
	return hash(~key);
}

/* Returns the displacement of a field of a slot. */
static MPI_Aint place(uint64_t slot, size_t field)
{
	return (MPI_Aint)((slot + 1) * sizeof(struct slot) + field);
}

/* ---- The table ---- */

/* Finds the slot of a key, or claims a free one. */
static uint64_t find_slot(const struct table *t, uint64_t key, int *owner)
{
	uint64_t h = hash(key), slot = h / (uint64_t)t->ranks % t->slots, no_key = 0, found;

	*owner = (int)(h % (uint64_t)t->ranks);
	for (;; slot = (slot + 1) % t->slots) {
		MPI_Compare_and_swap(&key, &no_key, &found, MPI_UINT64_T, *owner, place(slot, 0),
				     t->win);
		MPI_Win_flush(*owner, t->win);
		if (found == no_key || found == key)
			return slot;
	}
}

static void put(const struct table *t, uint64_t key, uint64_t value)
{
	int owner;
	uint64_t slot = find_slot(t, key, &owner);

	MPI_Accumulate(&value, 1, MPI_UINT64_T, owner, place(slot, offsetof(struct slot, value)), 1,
		       MPI_UINT64_T, MPI_REPLACE, t->win);
	MPI_Win_flush(owner, t->win);
}

static uint64_t get(const struct table *t, uint64_t key)
{
	int owner;
	uint64_t slot = find_slot(t, key, &owner), value, unused = 0;

	MPI_Fetch_and_op(&unused, &value, MPI_UINT64_T, owner,
			 place(slot, offsetof(struct slot, value)), MPI_NO_OP, t->win);
	MPI_Win_flush(owner, t->win);
	return value;
}

/* ---- Progress ---- */

static void make_durable(const struct table *t)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (MPI_Win_sync(t->win) != MPI_SUCCESS)
		MPI_Abort(MPI_COMM_WORLD, 1);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Records that the rank has put `done` keys, when these keys are durable at all ranks. */
static void record_progress(const struct table *t, uint64_t done)
{
	make_durable(t);
	t->mine[0].key = done;
	if (MPI_Win_sync(t->win) != MPI_SUCCESS)
		MPI_Abort(MPI_COMM_WORLD, 1);
}

static void put_all(const struct table *t, uint64_t records_to_live)
{
	uint64_t done = t->mine[0].key;

	MPI_Allreduce(MPI_IN_PLACE, &done, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
	if (t->rank == 0)
		printf("continuing after %" PRIu64 " of %" PRIu64 " keys\n", done, t->keys);
	fflush(stdout);
	while (done < t->keys) {
		uint64_t left = t->keys - done,
			 end = left > KEYS_PER_RECORD ? done + KEYS_PER_RECORD : t->keys;

		for (; done < end; done++)
			put(t, key_of(t->rank, done), value_of(key_of(t->rank, done)));
		record_progress(t, done);
		if (--records_to_live > 0)
			continue;
		/* Rank 0 dies when all ranks have recorded their progress. */
		MPI_Barrier(MPI_COMM_WORLD);
		if (t->rank == 0)
			raise(SIGKILL);
	}
}

static uint64_t look_up_all(const struct table *t)
{
	uint64_t wrong = 0;

	for (uint64_t i = 0; i < t->keys; i++)
		wrong += get(t, key_of(t->rank, i)) != value_of(key_of(t->rank, i));
	MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	return wrong;
}

/* Half of the slots stay free, so that keys rarely compete for a slot. */
static void open_table(struct table *t, const char *file)
{
	MPI_Info info;

	t->slots = 2 * t->keys;
	MPI_Info_create(&info);
	MPI_Info_set(info, "alloc_type", "storage");
	MPI_Info_set(info, "storage_alloc_filename", file);
	MPI_Info_set(info, "storage_alloc_segsize", "4096");
	MPI_Info_set(info, "access_style", "random");
	MPI_Win_allocate((MPI_Aint)((t->slots + 1) * sizeof(struct slot)), 1, info, MPI_COMM_WORLD,
			 &t->mine, &t->win);
	MPI_Info_free(&info);
	MPI_Win_lock_all(0, t->win);
}

int main(int argc, char **argv)
{
	struct table t = { .keys = argc > 2 ? strtoull(argv[2], NULL, 10) : 0 };
	uint64_t wrong;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &t.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &t.ranks);
	if (t.keys == 0) {
		if (t.rank == 0)
			fprintf(stderr, "usage: dht FILE KEYS [DIE]; %%r in FILE is the rank\n");
		MPI_Finalize();
		return 2;
	}
	open_table(&t, argv[1]);
	put_all(&t, argc > 3 ? strtoull(argv[3], NULL, 10) : 0);
	MPI_Barrier(MPI_COMM_WORLD);
	wrong = look_up_all(&t);
	if (t.rank == 0)
		printf("found %" PRIu64 " keys, %" PRIu64 " of them wrong\n",
		       t.keys * (uint64_t)t.ranks, wrong);
	MPI_Win_unlock_all(t.win);
	MPI_Win_free(&t.win);
	MPI_Finalize();
	return wrong != 0;
}
