/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fileio - MPI-IO with buffers in windows in storage, most of which is not resident: every call
 * that has a buffer. Written data is read back from the file, and read data is compared in the
 * window.
 */
#include "common.h"

#include <stdlib.h>

#define SEG (64 << 10)
#define BLOCK (5 * SEG + 100) /* bytes of each rank; four blocks fit into memory */
#define BLOCKS 16
#define SIZE ((size_t)BLOCKS * BLOCK)

static unsigned char *window;
static MPI_Win win;
static MPI_File file;
static unsigned turn;

static unsigned char expected(unsigned salt, size_t i)
{
	return (unsigned char)(i * 31 + i / 251 + salt * 17 + 1);
}

/* Returns a block of the window. Others were touched since, so most of it is not resident. */
static unsigned char *block(unsigned n)
{
	volatile unsigned char *other = window;

	for (size_t i = 0; i < SIZE; i += SEG) {
		if (i / BLOCK != n)
			(void)other[i];
	}
	return window + (size_t)n * BLOCK;
}

static void fill_block(unsigned char *p, unsigned salt)
{
	for (size_t i = 0; i < BLOCK; i++)
		p[i] = expected(salt, i);
}

static void compare(const unsigned char *p, unsigned salt)
{
	for (size_t i = 0; i < BLOCK; i++)
		check(p[i] == expected(salt, i));
}

static MPI_Offset place(void)
{
	return (MPI_Offset)rank * BLOCK;
}

static unsigned salt_of(int of)
{
	return turn * 16 + (unsigned)of;
}

static unsigned char *next_block(void)
{
	unsigned n = turn++ % BLOCKS;

	fill_block(window + (size_t)n * BLOCK, salt_of(rank));
	return block(n);
}

/* Checks the block of this rank in the file, which is at offset `at`. */
static void check_written(MPI_Offset at)
{
	static unsigned char found[BLOCK];
	MPI_Status status;

	MPI_Barrier(MPI_COMM_WORLD);
	memset(found, 0, sizeof(found));
	check(MPI_File_read_at_all(file, at, found, BLOCK, MPI_BYTE, &status) == MPI_SUCCESS);
	compare(found, salt_of(rank));
	MPI_Barrier(MPI_COMM_WORLD);
}

static void check_count(const MPI_Status *status)
{
	int count;

	check(MPI_Get_count(status, MPI_BYTE, &count) == MPI_SUCCESS && count == BLOCK);
}

static void check_into(const unsigned char *p)
{
	compare(p, salt_of(rank));
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Returns another block of the window, for reads. */
static unsigned char *far_block(void)
{
	unsigned n = (turn + BLOCKS / 2) % BLOCKS;

	memset(window + (size_t)n * BLOCK, 0, BLOCK);
	return block(n);
}

#define WAIT check(MPI_Wait(&request, &status) == MPI_SUCCESS)
#define SEEK MPI_File_seek(file, place(), MPI_SEEK_SET)

static void explicit_offsets(void)
{
	MPI_Request request;
	MPI_Status status;
	unsigned char *p;

#define WRITE(call) p = next_block(); check(call == MPI_SUCCESS)
#define READ(call) p = far_block(); check(call == MPI_SUCCESS)
	WRITE(MPI_File_write_at(file, place(), p, BLOCK, MPI_BYTE, &status));
	check_count(&status);
	check_written(place());
	READ(MPI_File_read_at(file, place(), p, BLOCK, MPI_BYTE, &status));
	check_count(&status);
	check_into(p);
	WRITE(MPI_File_write_at_all(file, place(), p, BLOCK, MPI_BYTE, &status));
	check_written(place());
	READ(MPI_File_read_at_all(file, place(), p, BLOCK, MPI_BYTE, &status)); check_into(p);
	WRITE(MPI_File_iwrite_at(file, place(), p, BLOCK, MPI_BYTE, &request));
	WAIT;
	check_count(&status);
	check_written(place());
	READ(MPI_File_iread_at(file, place(), p, BLOCK, MPI_BYTE, &request));
	WAIT;
	check_count(&status);
	check_into(p);
	WRITE(MPI_File_iwrite_at_all(file, place(), p, BLOCK, MPI_BYTE, &request));
	WAIT;
	check_written(place());
	READ(MPI_File_iread_at_all(file, place(), p, BLOCK, MPI_BYTE, &request));
	WAIT;
	check_into(p);
	WRITE(MPI_File_write_at_all_begin(file, place(), p, BLOCK, MPI_BYTE));
	check(MPI_File_write_at_all_end(file, p, &status) == MPI_SUCCESS); check_written(place());
	READ(MPI_File_read_at_all_begin(file, place(), p, BLOCK, MPI_BYTE));
	check(MPI_File_read_at_all_end(file, p, &status) == MPI_SUCCESS); check_into(p);
}

static void own_pointers(void)
{
	MPI_Request request;
	MPI_Status status;
	unsigned char *p;

	SEEK; WRITE(MPI_File_write(file, p, BLOCK, MPI_BYTE, &status)); check_written(place());
	SEEK; READ(MPI_File_read(file, p, BLOCK, MPI_BYTE, &status)); check_into(p);
	SEEK; WRITE(MPI_File_write_all(file, p, BLOCK, MPI_BYTE, &status)); check_written(place());
	SEEK; READ(MPI_File_read_all(file, p, BLOCK, MPI_BYTE, &status)); check_into(p);
	SEEK;
	WRITE(MPI_File_iwrite(file, p, BLOCK, MPI_BYTE, &request));
	WAIT;
	check_written(place());
	SEEK; READ(MPI_File_iread(file, p, BLOCK, MPI_BYTE, &request)); WAIT; check_into(p);
	SEEK;
	WRITE(MPI_File_iwrite_all(file, p, BLOCK, MPI_BYTE, &request));
	WAIT;
	check_written(place());
	SEEK; READ(MPI_File_iread_all(file, p, BLOCK, MPI_BYTE, &request)); WAIT; check_into(p);
	SEEK; WRITE(MPI_File_write_all_begin(file, p, BLOCK, MPI_BYTE));
	check(MPI_File_write_all_end(file, p, &status) == MPI_SUCCESS); check_written(place());
	SEEK; READ(MPI_File_read_all_begin(file, p, BLOCK, MPI_BYTE));
	check(MPI_File_read_all_end(file, p, &status) == MPI_SUCCESS); check_into(p);
}

/* Calls with the shared file pointer: in the order of ranks, or one rank after the other. */
static void shared_pointer(void)
{
	MPI_Request request;
	MPI_Status status;
	unsigned char *p;

#define REWIND \
	MPI_Barrier(MPI_COMM_WORLD); \
	MPI_File_seek_shared(file, 0, MPI_SEEK_SET); \
	MPI_Barrier(MPI_COMM_WORLD)
#define ONE_BY_ONE for (int r = 0; r < ranks; r++, MPI_Barrier(MPI_COMM_WORLD)) if (r == rank)
	REWIND;
	WRITE(MPI_File_write_ordered(file, p, BLOCK, MPI_BYTE, &status));
	check_written(place());
	REWIND; READ(MPI_File_read_ordered(file, p, BLOCK, MPI_BYTE, &status)); check_into(p);
	REWIND; WRITE(MPI_File_write_ordered_begin(file, p, BLOCK, MPI_BYTE));
	check(MPI_File_write_ordered_end(file, p, &status) == MPI_SUCCESS); check_written(place());
	REWIND; READ(MPI_File_read_ordered_begin(file, p, BLOCK, MPI_BYTE));
	check(MPI_File_read_ordered_end(file, p, &status) == MPI_SUCCESS); check_into(p);
	REWIND; p = next_block();
	ONE_BY_ONE check(MPI_File_write_shared(file, p, BLOCK, MPI_BYTE, &status) == MPI_SUCCESS);
	check_written(place());
	REWIND; p = far_block();
	ONE_BY_ONE check(MPI_File_read_shared(file, p, BLOCK, MPI_BYTE, &status) == MPI_SUCCESS);
	check_into(p);
	REWIND; p = next_block();
	ONE_BY_ONE
	{
		check(MPI_File_iwrite_shared(file, p, BLOCK, MPI_BYTE, &request) == MPI_SUCCESS);
		WAIT;
	}
	check_written(place());
	REWIND; p = far_block();
	ONE_BY_ONE
	{
		check(MPI_File_iread_shared(file, p, BLOCK, MPI_BYTE, &request) == MPI_SUCCESS);
		WAIT;
	}
	check_into(p);
}

/* Tests one split call of each kind. */
static void large_counts(void)
{
#if MPI_VERSION >= 4
	MPI_Request request;
	MPI_Status status;
	unsigned char *p;

	WRITE(MPI_File_write_at_c(file, place(), p, BLOCK, MPI_BYTE, &status));
	check_count(&status);
	check_written(place());
	READ(MPI_File_read_at_c(file, place(), p, BLOCK, MPI_BYTE, &status));
	check_count(&status);
	check_into(p);
	WRITE(MPI_File_iwrite_at_c(file, place(), p, BLOCK, MPI_BYTE, &request));
	WAIT;
	check_count(&status);
	check_written(place());
	READ(MPI_File_iread_at_all_c(file, place(), p, BLOCK, MPI_BYTE, &request));
	WAIT;
	check_into(p);
	WRITE(MPI_File_write_at_all_begin_c(file, place(), p, BLOCK, MPI_BYTE));
	check(MPI_File_write_at_all_end(file, p, &status) == MPI_SUCCESS); check_written(place());
	SEEK; READ(MPI_File_read_all_begin_c(file, p, BLOCK, MPI_BYTE));
	check(MPI_File_read_all_end(file, p, &status) == MPI_SUCCESS); check_into(p);
#endif
}

/* Transfers every second byte of a range by a type with holes. The other bytes must not change. */
static void with_holes(void)
{
	unsigned char *p = block(3);
	MPI_Datatype second;
	MPI_Status status;

	MPI_Type_vector(BLOCK / 2, 1, 2, MPI_BYTE, &second);
	MPI_Type_commit(&second);
	turn++;
	fill_block(p, salt_of(rank));
	p = block(3);
	check(MPI_File_write_at_all(file, place(), p, 1, second, &status) == MPI_SUCCESS);
	memset(p, 0, BLOCK);
	p = block(3);
	check(MPI_File_read_at_all(file, place(), p, 1, second, &status) == MPI_SUCCESS);
	for (size_t i = 0; i < BLOCK; i++)
		check(p[i] == (i % 2 ? 0 : expected(salt_of(rank), i)));
	MPI_Type_free(&second);
}

/* A buffer that is larger than memory: an error, or success with uffd, but never without data. */
static void larger_than_memory(void)
{
	MPI_Status status;
	int code;

	for (unsigned n = 0; n < BLOCKS; n++)
		fill_block(window + (size_t)n * BLOCK, n);
	/* The parts of the file are larger than before, and contain blocks of other ranks. */
	MPI_Barrier(MPI_COMM_WORLD);
	code = MPI_File_write_at_all(file, (MPI_Offset)rank * (MPI_Offset)SIZE, window, (int)SIZE,
				     MPI_BYTE, &status);
	if (code == MPI_SUCCESS) {
		memset(window, 0, SIZE);
		check(MPI_File_read_at_all(file, (MPI_Offset)rank * (MPI_Offset)SIZE, window,
					   (int)SIZE, MPI_BYTE, &status) == MPI_SUCCESS);
	} else {
		char text[MPI_MAX_ERROR_STRING];
		int len;

		MPI_Error_string(code, text, &len);
		check(strstr(text, "smaller transfers"));
	}
	for (unsigned n = 0; n < BLOCKS; n++)
		compare(window + (size_t)n * BLOCK, n);
}

/* MPI reports invalid arguments. */
static void types_that_are_none(void)
{
	int n = 0;

	check_error(MPI_File_write_at(file, 0, &n, 1, MPI_DATATYPE_NULL, MPI_STATUS_IGNORE),
		    MPI_ERR_TYPE, "");
	check_error(MPI_File_read(file, &n, 1, MPI_DATATYPE_NULL, MPI_STATUS_IGNORE), MPI_ERR_TYPE,
		    "");
}

int main(int argc, char **argv)
{
	char name[400];
	MPI_Info info;

	setenv("UMMAP_MEM_LIMIT", "3M", 1); /* for about two ranks */
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	info = storage_hints("window.%r", "storage_alloc_segsize", "64K", NULL);
	check(MPI_Win_allocate((MPI_Aint)SIZE, 1, info, MPI_COMM_WORLD, &window, &win) ==
	      MPI_SUCCESS);
	MPI_Info_free(&info);
	snprintf(name, sizeof(name), "%s/file", folder);
	check(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL,
			    &file) == MPI_SUCCESS);
	for (unsigned n = 0; n < BLOCKS; n++)
		fill_block(window + (size_t)n * BLOCK, 0);
	explicit_offsets();
	own_pointers();
	shared_pointer();
	large_counts();
	with_holes();
	larger_than_memory();
	types_that_are_none();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	/* All pins were removed. */
	check(umunpin(window, SIZE) == -1);
	MPI_Win_free(&win);
	MPI_Finalize();
	return 0;
}
