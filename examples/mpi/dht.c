/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dht - a distributed hash table that outlives its processes. Each rank's window is a file that holds slots of a key and a
 * value, and may be far larger than memory (UMMAP_MEM_LIMIT). Keys find their rank and slot by their hash, and take a
 * slot by MPI_Compare_and_swap. Now and then all make their parts durable, and note how far they are.
 *
 *	mpirun -n 4 dht /data/table.%r KEYS [DIE]
 *
 * puts KEYS keys from each rank. Killed at any moment and run again, it goes on from the last note: to put a key twice
 * does no harm. With DIE, rank 0 kills itself after so many notes. When all are in, every key is looked up.
 */
#include <inttypes.h>
#include <mpi.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define KEYS_PER_NOTE 1024

struct slot {
	uint64_t key, value; /* key 0: free */
};

/* A window is one slot for notes, whose key is how many keys of the rank's are in, and then those of the table. */
struct table {
	MPI_Win win;
	struct slot *mine;
	uint64_t slots;      /* of each rank */
	uint64_t keys;       /* that each rank puts */
	int rank, ranks;
};

static uint64_t hash(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* The i-th key that a rank puts, never 0, and what is put with it. */
static uint64_t key_of(int rank, uint64_t i)
{
	return i << 16 | (uint64_t)(rank + 1);
}

static uint64_t value_of(uint64_t key)
{
	return hash(~key);
}

static MPI_Aint place(uint64_t slot, size_t field)
{
	return (MPI_Aint)((slot + 1) * sizeof(struct slot) + field);
}

/* ---- The table ---- */

/* Takes a slot for key, or finds the one that it has. */
static uint64_t find_slot(const struct table *t, uint64_t key, int *owner)
{
	uint64_t h = hash(key), slot = h / (uint64_t)t->ranks % t->slots, nobody = 0, there;

	*owner = (int)(h % (uint64_t)t->ranks);
	for (;; slot = (slot + 1) % t->slots) {
		MPI_Compare_and_swap(&key, &nobody, &there, MPI_UINT64_T, *owner, place(slot, 0), t->win);
		MPI_Win_flush(*owner, t->win);
		if (there == nobody || there == key)
			return slot;
	}
}

static void put(const struct table *t, uint64_t key, uint64_t value)
{
	int owner;
	uint64_t slot = find_slot(t, key, &owner);

	MPI_Accumulate(&value, 1, MPI_UINT64_T, owner, place(slot, offsetof(struct slot, value)), 1, MPI_UINT64_T,
		       MPI_REPLACE, t->win);
	MPI_Win_flush(owner, t->win);
}

static uint64_t get(const struct table *t, uint64_t key)
{
	int owner;
	uint64_t slot = find_slot(t, key, &owner), value, unused = 0;

	MPI_Fetch_and_op(&unused, &value, MPI_UINT64_T, owner, place(slot, offsetof(struct slot, value)), MPI_NO_OP,
			 t->win);
	MPI_Win_flush(owner, t->win);
	return value;
}

/* ---- Notes ---- */

static void make_durable(const struct table *t)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (MPI_Win_sync(t->win) != MPI_SUCCESS)
		MPI_Abort(MPI_COMM_WORLD, 1);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* The note comes after what it speaks of: all of that is durable everywhere. */
static void note(const struct table *t, uint64_t done)
{
	make_durable(t);
	t->mine[0].key = done;
	if (MPI_Win_sync(t->win) != MPI_SUCCESS)
		MPI_Abort(MPI_COMM_WORLD, 1);
}

static void put_all(const struct table *t, uint64_t notes_to_live)
{
	uint64_t done = t->mine[0].key;

	MPI_Allreduce(MPI_IN_PLACE, &done, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
	if (t->rank == 0)
		printf("going on after %" PRIu64 " of %" PRIu64 " keys\n", done, t->keys);
	fflush(stdout);
	while (done < t->keys) {
		uint64_t end = t->keys - done > KEYS_PER_NOTE ? done + KEYS_PER_NOTE : t->keys;

		for (; done < end; done++)
			put(t, key_of(t->rank, done), value_of(key_of(t->rank, done)));
		note(t, done);
		if (--notes_to_live > 0)
			continue;
		/* All ranks have taken the note. */
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

/* Half of the slots stay free, so that keys seldom meet. */
static void open_table(struct table *t, const char *file)
{
	MPI_Info info;

	t->slots = 2 * t->keys;
	MPI_Info_create(&info);
	MPI_Info_set(info, "alloc_type", "storage");
	MPI_Info_set(info, "storage_alloc_filename", file);
	MPI_Info_set(info, "storage_alloc_segsize", "4096");
	MPI_Info_set(info, "access_style", "random");
	MPI_Win_allocate((MPI_Aint)((t->slots + 1) * sizeof(struct slot)), 1, info, MPI_COMM_WORLD, &t->mine, &t->win);
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
			fprintf(stderr, "usage: dht FILE KEYS [DIE], FILE with %%r for the rank\n");
		MPI_Finalize();
		return 2;
	}
	open_table(&t, argv[1]);
	put_all(&t, argc > 3 ? strtoull(argv[3], NULL, 10) : 0);
	MPI_Barrier(MPI_COMM_WORLD);
	wrong = look_up_all(&t);
	if (t.rank == 0)
		printf("%" PRIu64 " keys are in, %" PRIu64 " are wrong\n", t.keys * (uint64_t)t.ranks, wrong);
	MPI_Win_unlock_all(t.win);
	MPI_Win_free(&t.win);
	MPI_Finalize();
	return wrong != 0;
}
