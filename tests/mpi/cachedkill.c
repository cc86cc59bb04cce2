/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cachedkill - a job that dies at any time leaves all acknowledged data in its cache, and the next
 * job continues with any number of ranks and nodes. cachedkill.sh runs it:
 *
 *	cachedkill FOLDER MILLISECONDS
 *		writes versions to the records of a growing file until all ranks kill themselves
 *	cachedkill FOLDER lost
 *		writes versions until a machine fails
 *	cachedkill FOLDER check
 *		checks the records, and closes the file
 *	cachedkill FOLDER cut=N
 *		opens, writes and closes the file several times; each rank dies at its Nth call that
 *		changes or syncs durable data, which may happen during recovery
 *
 * With CACHED_DURABLE, each write is durable, and the job makes no syncs.
 */
#include "common.h"

#include <stdlib.h>

#define RECORD 5                         /* words of a record */
#define RECORDS (durable ? 60 : 3000)    /* records of the first version */
#define ADDED_RECORDS 40                 /* records that each version adds */
#define MAX_RECORDS 20000

static MPI_File file;
static bool durable, dying, keeping;

/* ---- Death at a chosen call ---- */

static _Atomic int calls_left;           /* calls until death; 0: the rank does not die */

static void count_down(void)
{
	if (calls_left && --calls_left == 0)
		kill(getpid(), SIGKILL);
}

__attribute__((visibility("default"))) int fdatasync(int fd)
{
	count_down();
	return (int)syscall(SYS_fdatasync, fd);
}

__attribute__((visibility("default"))) int unlinkat(int folder_fd, const char *name, int flags)
{
	count_down();
	return (int)syscall(SYS_unlinkat, folder_fd, name, flags);
}

__attribute__((visibility("default"))) int unlink(const char *name)
{
	return unlinkat(AT_FDCWD, name, 0);
}

/* ---- Versions ---- */

/* Ends the process quietly after an error, because other ranks may have died before. */
static void check_or_exit(int code)
{
	while (dying && code != MPI_SUCCESS)
		pause_ms(1000);
	check(code == MPI_SUCCESS);
}

static void open_cached(void)
{
	char path[400], cache[400];
	MPI_Info info;
	int code;

	snprintf(path, sizeof(path), "%s/file", folder);
	snprintf(cache, sizeof(cache), "%s/near", folder);
	MPI_Info_create(&info);
	MPI_Info_set(info, "pmem_path", cache);
	MPI_Info_set(info, "pmem_size", "4M");
	MPI_Info_set(info, "pmem_flush", "1");
	MPI_Info_set(info, "pmem_durable", durable ? "write" : "sync");
	MPI_Info_set(info, "pmem_close", keeping ? "keep" : "flush");
	code = MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE, info, &file);
	if (code != MPI_SUCCESS && !dying) {
		char text[MPI_MAX_ERROR_STRING];
		int len;

		MPI_Error_string(code, text, &len);
		check(code == MPI_SUCCESS, "%s", text);
	}
	check_or_exit(code);
	MPI_Info_free(&info);
}

static size_t records_of(uint64_t version)
{
	size_t n = version ? RECORDS + ADDED_RECORDS * (version - 1) : 0;

	return n < MAX_RECORDS ? n : MAX_RECORDS;
}

/* No word is older than the acknowledged version or newer than the last one. */
static void check_records(uint64_t acknowledged)
{
	size_t n = records_of(acknowledged);
	MPI_Offset size;

	check_or_exit(MPI_File_get_size(file, &size));
	check((uint64_t)size >= n * RECORD * 8, "%lld bytes, not %zu", (long long)size,
	      n * RECORD * 8);
	for (size_t i = (size_t)rank; i < n; i += (size_t)ranks) {
		uint64_t record[RECORD];

		check_or_exit(MPI_File_read_at(file, (MPI_Offset)(i * sizeof(record)), record,
					       RECORD, MPI_UINT64_T, MPI_STATUS_IGNORE));
		for (int w = 0; w < RECORD; w++)
			check(record[w] >= acknowledged && record[w] <= acknowledged + 1,
			      "record %zu is %" PRIu64 ", but %" PRIu64 " was acknowledged", i,
			      record[w], acknowledged);
	}
}

static void write_records(uint64_t version)
{
	size_t n = records_of(version);
	uint64_t record[RECORD];

	for (int w = 0; w < RECORD; w++)
		record[w] = version;
	for (size_t k = (size_t)rank; k < n; k += (size_t)ranks) {
		/*
		 * Records in a scattered order: n is never a multiple of 7919, so each record
		 * occurs once.
		 */
		size_t i = (k * 7919) % n;

		check_or_exit(MPI_File_write_at(file, (MPI_Offset)(i * sizeof(record)), record,
						RECORD, MPI_UINT64_T, MPI_STATUS_IGNORE));
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (!durable)
		check_or_exit(MPI_File_sync(file));
}

static void *kill_later(void *ms)
{
	pause_ms((unsigned)atoi(ms));
	kill(getpid(), SIGKILL);
	return NULL;
}

static void write_versions(int fd, uint64_t version, char *ms)
{
	pthread_t thread;

	/* This changes the file at once, and must not count as a change by another program. */
	check_or_exit(
		MPI_File_preallocate(file, (MPI_Offset)records_of(version) * RECORD * 8 + 1000));
	dying = true;
	if (strcmp(ms, "lost") != 0)
		check(pthread_create(&thread, NULL, kill_later, ms) == 0);
	for (;; version++) {
		write_records(version);
		if (rank == 0)
			check(pwrite(fd, &version, sizeof(version), 0) == sizeof(version));
		MPI_Barrier(MPI_COMM_WORLD);
	}
}

/* Opens the file after earlier jobs, writes, and closes it. */
static void open_and_write(int fd, uint64_t version)
{
	dying = true;
	for (int turn = 0; turn < 4; turn++, version++) {
		keeping = turn % 2;
		if (turn > 0)
			open_cached();
		check_records(version - 1);
		MPI_Barrier(MPI_COMM_WORLD);
		write_records(version);
		if (rank == 0)
			check(pwrite(fd, &version, sizeof(version), 0) == sizeof(version));
		MPI_Barrier(MPI_COMM_WORLD);
		/* The file is truncated behind the records, which remain. */
		check_or_exit(MPI_File_write_at(
			file, (MPI_Offset)(records_of(version) * RECORD * 8) + 5000, "x", 1,
			MPI_BYTE, MPI_STATUS_IGNORE));
		check_or_exit(
			MPI_File_set_size(file, (MPI_Offset)(records_of(version) * RECORD * 8)));
		check_or_exit(MPI_File_close(&file));
	}
	calls_left = 0;
	MPI_Finalize();
	exit(0);
}

int main(int argc, char **argv)
{
	uint64_t acknowledged = 0;
	int fd, cut = 0;

	check(argc == 3, "cachedkill.sh runs this");
	durable = getenv("CACHED_DURABLE");
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	snprintf(folder, sizeof(folder), "%s", argv[1]);  /* remains for the next job */
	fd = open_in_folder("acknowledged");
	check(pread(fd, &acknowledged, sizeof(acknowledged), 0) >= 0);
	if (sscanf(argv[2], "cut=%d", &cut) == 1)
		calls_left = cut;
	keeping = cut % 2;
	dying = strcmp(argv[2], "lost") == 0;
	open_cached();
	check_records(acknowledged);
	MPI_Barrier(MPI_COMM_WORLD);
	/* Later versions may be incomplete: they are written again. */
	if (acknowledged)
		write_records(acknowledged);
	if (cut)
		open_and_write(fd, acknowledged + 1);
	if (strcmp(argv[2], "check") != 0)
		write_versions(fd, acknowledged + 1, argv[2]);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	if (rank == 0)
		printf("version %" PRIu64 "\n", acknowledged);
	MPI_Finalize();
	return acknowledged < 1;
}
