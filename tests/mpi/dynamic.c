/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dynamic - windows in ordinary memory, which components of the MPI serve. They must work with the
 * components that the library chooses, whether one thread or several may call MPI
 * (DYNAMIC_THREADS=1). Several blocks of a dynamic window are read at a time by MPI_Rget. A window
 * of MPI_Win_create is written and read in epochs of each kind.
 */
#include "common.h"

#define BLOCKS 3
#define BLOCK_WORDS 8192
#define READ_WORDS 100
#define ROUNDS 20

static int64_t word_of_block(int owner, int block, int at)
{
	return ((int64_t)owner * BLOCKS + block) * BLOCK_WORDS + at;
}

static void read_blocks(MPI_Win win, int target, const MPI_Aint *addresses)
{
	static int64_t got[BLOCKS][READ_WORDS];
	MPI_Request requests[BLOCKS];

	for (int i = 0; i < BLOCKS; i++)
		check(MPI_Rget(got[i], READ_WORDS, MPI_INT64_T, target, addresses[i], READ_WORDS,
			       MPI_INT64_T, win, &requests[i]) == MPI_SUCCESS);
	for (int i = 0; i < BLOCKS; i++) {
		MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
		for (int at = 0; at < READ_WORDS; at++)
			check(got[i][at] == word_of_block(target, i, at),
			      "block %d of rank %d, word %d: %" PRId64, i, target, at, got[i][at]);
	}
}

static void check_dynamic_window(void)
{
	MPI_Aint mine[BLOCKS], *all = malloc((size_t)ranks * sizeof(mine));
	int64_t *blocks[BLOCKS];
	MPI_Win win;

	check(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win) == MPI_SUCCESS);
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = malloc(BLOCK_WORDS * sizeof(int64_t));
		for (int at = 0; at < BLOCK_WORDS; at++)
			blocks[i][at] = word_of_block(rank, i, at);
		check(MPI_Win_attach(win, blocks[i], BLOCK_WORDS * sizeof(int64_t)) == MPI_SUCCESS);
		MPI_Get_address(blocks[i], &mine[i]);
	}
	MPI_Allgather(mine, BLOCKS, MPI_AINT, all, BLOCKS, MPI_AINT, MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	for (int round = 0; round < ROUNDS; round++) {
		for (int target = 0; target < ranks; target++)
			read_blocks(win, target, all + (size_t)target * BLOCKS);
	}
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < BLOCKS; i++) {
		check(MPI_Win_detach(win, blocks[i]) == MPI_SUCCESS);
		free(blocks[i]);
	}
	MPI_Win_free(&win);
	free(all);
}

/* Writes the words of a round to the next rank, in an epoch of a lock or of fences. */
static void write_next(MPI_Win win, const int64_t *words, bool by_lock)
{
	int next = (rank + 1) % ranks;

	if (by_lock)
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, win);
	else
		MPI_Win_fence(0, win);
	check(MPI_Put(words, BLOCK_WORDS, MPI_INT64_T, next, 0, BLOCK_WORDS, MPI_INT64_T, win) ==
	      MPI_SUCCESS);
	if (by_lock)
		MPI_Win_unlock(next, win);
	else
		MPI_Win_fence(0, win);
}

/* After the epoch, the target has the words without another call for the window. */
static void check_created_window(void)
{
	int64_t *part = calloc(BLOCK_WORDS, sizeof(*part)),
		*words = malloc(BLOCK_WORDS * sizeof(*words));
	int64_t *got = malloc(BLOCK_WORDS * sizeof(*got));
	int next = (rank + 1) % ranks;
	MPI_Win win;

	check(MPI_Win_create(part, BLOCK_WORDS * sizeof(*part), sizeof(*part), MPI_INFO_NULL,
			     MPI_COMM_WORLD, &win) == MPI_SUCCESS);
	for (int round = 0; round < 2 * ROUNDS; round++) {
		for (int at = 0; at < BLOCK_WORDS; at++)
			words[at] = word_of_block(rank, round, at);
		write_next(win, words, round % 2);
		memset(got, 0, BLOCK_WORDS * sizeof(*got));
		MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
		MPI_Get(got, BLOCK_WORDS, MPI_INT64_T, next, 0, BLOCK_WORDS, MPI_INT64_T, win);
		MPI_Win_unlock(next, win);
		check(memcmp(got, words, BLOCK_WORDS * sizeof(*got)) == 0,
		      "round %d: other words than were put", round);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Win_free(&win);
	free(part);
	free(words);
	free(got);
}

/* Operations on single words, for which Open MPI has separate code. */
static void check_single_words(void)
{
	const MPI_Op ops[] = { MPI_SUM, MPI_REPLACE, MPI_MAX, MPI_MIN };
	const int64_t want[] = { 12, 5, 7, 5 };
	int64_t with = 5, was, back;
	_Alignas(16) int64_t word;
	MPI_Win win;

	check(MPI_Win_create(&word, sizeof(word), sizeof(word), MPI_INFO_NULL, MPI_COMM_WORLD,
			     &win) == MPI_SUCCESS);
	for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
		int next = (rank + 1) % ranks;

		word = 7;
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, win);
		MPI_Fetch_and_op(&with, &was, MPI_INT64_T, next, 0, ops[i], win);
		MPI_Win_flush(next, win);
		MPI_Get(&back, 1, MPI_INT64_T, next, 0, 1, MPI_INT64_T, win);
		MPI_Win_unlock(next, win);
		check(was == 7 && back == want[i], "operation %zu: %" PRId64 " was %" PRId64, i,
		      back, was);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	bool threads = getenv("DYNAMIC_THREADS");

	start_mpi(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
	check_dynamic_window();
	check_created_window();
	if (!threads)
		check_single_words();
	MPI_Finalize();
	return 0;
}
