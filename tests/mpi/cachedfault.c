/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cachedfault - the file system of a file with an MPI-IO cache fails, or that of the cache, at each
 * request in turn. Reads, syncs and closing return an MPI error or succeed, no process ends, and
 * acknowledged data is not lost.
 */
#include "common.h"

#include <stdlib.h>
#include <sys/resource.h>

#define BLOCK 5000
#define BLOCKS 60

static char path[400];
static MPI_File file;

static int open_cached(void)
{
	MPI_Info info;
	int code;

	MPI_Info_create(&info);
	MPI_Info_set(info, "pmem_path", folder);
	MPI_Info_set(info, "pmem_size", "5M");
	code = MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE, info, &file);
	MPI_Info_free(&info);
	return code;
}

static void fill_block(char *block, int i, int version)
{
	for (int k = 0; k < BLOCK; k++)
		block[k] = (char)(i * 13 + k * 7 + version * 101);
}

/* Writes or checks the blocks of another rank. Returns the number of failed calls. */
static int transfer_blocks(bool writing, int version)
{
	static char block[BLOCK], found[BLOCK];
	int failed = 0;

	for (int i = (rank + 1) % ranks; i < BLOCKS; i += ranks) {
		MPI_Offset at = (MPI_Offset)i * BLOCK * 20;
		MPI_Status s;
		int n;

		fill_block(block, i, version);
		if (writing) {
			failed += MPI_File_write_at(file, at, block, BLOCK, MPI_BYTE, &s) !=
				  MPI_SUCCESS;
		} else if (MPI_File_read_at(file, at, found, BLOCK, MPI_BYTE, &s) != MPI_SUCCESS) {
			failed++;
		} else {
			MPI_Get_count(&s, MPI_BYTE, &n);
			check(n == BLOCK && memcmp(block, found, BLOCK) == 0, "block %d", i);
		}
	}
	MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	return failed;
}

static const char *const places[] = { "UMMAP_TEST_IOCACHE_FAR", "UMMAP_TEST_IOCACHE_NEAR" };

static void set_fault(const char *place, const char *op, int nth)
{
	char text[100];

	snprintf(text, sizeof(text), "error+?error.op=%s&error.nth=%d&error.times=5", op, nth);
	setenv(place, text, 1);
}

/* Each node counts its own requests. */
static void test_failing_reads(const char *place)
{
	int all = 0;

	for (int nth = 1; nth <= 5; nth++) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0)
			check(system("rm -f \"$UMMAP_TEST_FOLDER\"/*.cache "
				     "\"$UMMAP_TEST_FOLDER\"/*.head") == 0);
		MPI_Barrier(MPI_COMM_WORLD);
		set_fault(place, "read", nth);
		check(open_cached() == MPI_SUCCESS);
		all += transfer_blocks(false, 1);
		/* After the failure, the file can be read. */
		while (transfer_blocks(false, 1) > 0)
			all++;
		unsetenv(place);
		check(MPI_File_close(&file) == MPI_SUCCESS);
	}
	check(all > 0);
}

static void test_failing_writes(const char *place)
{
	int failed = 0;

	for (int nth = 1; nth <= 5; nth++) {
		set_fault(place, nth % 2 ? "write" : "flush", nth);
		check(open_cached() == MPI_SUCCESS);
		unsetenv(place);
		check(transfer_blocks(true, nth) == 0);
		/* While dirty data cannot be made durable, the parts remain. */
		for (bool left = true; left; left = file != MPI_FILE_NULL)
			failed += MPI_File_close(&file) != MPI_SUCCESS;
		check(open_cached() == MPI_SUCCESS);
		check(transfer_blocks(false, nth) == 0);
		check(MPI_File_close(&file) == MPI_SUCCESS);
	}
	check(failed > 0);
}

/* A limit on the size of files that near files meet, but not the far store. */
static void test_file_size_limit(void)
{
	struct rlimit was, limit;

	check(getrlimit(RLIMIT_FSIZE, &was) == 0);
	limit = was;
	limit.rlim_cur = 5600000;
	check(open_cached() == MPI_SUCCESS);
	check(transfer_blocks(true, 77) == 0);
	signal(SIGXFSZ, SIG_IGN);
	check(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	check_error(MPI_File_close(&file), MPI_ERR_IO, "keeps the changes");
	check(setrlimit(RLIMIT_FSIZE, &was) == 0);
	check(open_cached() == MPI_SUCCESS);
	check(transfer_blocks(false, 77) == 0);
	check(MPI_File_close(&file) == MPI_SUCCESS);
}

int main(int argc, char **argv)
{
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	snprintf(folder, sizeof(folder), "%s", getenv("UMMAP_TEST_FOLDER"));
	snprintf(path, sizeof(path), "%s/file", folder);
	for (int i = 0; i < 2; i++) {
		check(open_cached() == MPI_SUCCESS);
		check(transfer_blocks(true, 1) == 0);
		check(MPI_File_close(&file) == MPI_SUCCESS);
		test_failing_reads(places[i]);
		test_failing_writes(places[i]);
	}
	test_file_size_limit();
	MPI_Finalize();
#ifdef __SANITIZE_THREAD__  /* exit(3) reports that umcopy(3) left memcpy by siglongjmp(3) */
	syscall(SYS_exit_group, 0);
#endif
	return 0;
}
