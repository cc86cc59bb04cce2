/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * By MPI-IO, each rank for itself. The non-blocking way reads what is expected into a buffer while map works; a rank that
 * wants it earlier waits for the rest of it.
 */
#include "mapreduce/infile.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static MPI_Info make_hints(const struct ummr_config *config)
{
	MPI_Info info;
	char text[24];

	MPI_Info_create(&info);
	if (config->stripe_count > 0) {
		snprintf(text, sizeof(text), "%zu", config->stripe_count);
		MPI_Info_set(info, "striping_factor", text);
	}
	if (config->stripe_size > 0) {
		snprintf(text, sizeof(text), "%zu", config->stripe_size);
		MPI_Info_set(info, "striping_unit", text);
	}
	return info;
}

/* Collective. An open file cannot be closed by some of the ranks: it is not tried again when any has it. */
static bool all_failed(MPI_Comm comm, int code)
{
	int any = code == MPI_SUCCESS;

	MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, comm);
	return !any;
}

/*
 * ROMIO takes what is before the first colon of a name for a file system, and knows none of a name that begins with "./" or "/":
 * it has to be told which. Other implementations of MPI-IO have no such names, and would take that for one more folder.
 */
static int open_with_colon(MPI_Comm comm, const char *path, int mode, MPI_Info hints, MPI_File *file)
{
	static const char file_system[] = "ufs:";
	char name[sizeof(file_system) + 2 + strlen(path)], *plain = name + strlen(file_system);
	int code;

	snprintf(name, sizeof(name), "%s%s%s", file_system, *path == '/' ? "" : "./", path);
	code = MPI_File_open(comm, plain, mode, hints, file);
	return all_failed(comm, code) ? MPI_File_open(comm, name, mode, hints, file) : code;
}

int infile_open_mpiio(MPI_Comm comm, const char *path, int mode, const struct ummr_config *config, MPI_File *file)
{
	MPI_Info hints = make_hints(config);
	int code = strchr(path, ':') ? open_with_colon(comm, path, mode, hints, file)
				     : MPI_File_open(comm, path, mode, hints, file);

	MPI_Info_free(&hints);
	return check_mpi(code, path);
}

static int open_mpiio(struct infile *s, const struct ummr_config *config)
{
	return infile_open_mpiio(MPI_COMM_SELF, s->path, MPI_MODE_RDONLY, config, &s->file);
}

static int check_read(const struct infile *s, int code, MPI_Status *status, size_t wanted, uint64_t from)
{
	int got;

	if (check_mpi(code, s->path) < 0)
		return -1;
	MPI_Get_count(status, MPI_BYTE, &got);
	if ((size_t)got == wanted)
		return 0;
	return fail(ESTALE, "cannot read '%s' at %llu: the file has become shorter", s->path,
		    (unsigned long long)from);
}

static int read_mpiio(struct infile *s, char *to, size_t size, uint64_t from)
{
	while (size > 0) {
		size_t part = size < MPI_CALL_MAX ? size : MPI_CALL_MAX;
		MPI_Status status;
		int code = MPI_File_read_at(s->file, (MPI_Offset)from, to, (int)part, MPI_BYTE, &status);

		if (check_read(s, code, &status, part, from) < 0)
			return -1;
		to += part;
		size -= part;
		from += part;
	}
	return 0;
}

static void expect_nothing(struct infile *s, uint64_t from, size_t size)
{
	(void)s, (void)from, (void)size;
}

static void close_mpiio(struct infile *s)
{
	MPI_File_close(&s->file);
}

const struct infile_way infile_mpiio = { open_mpiio, read_mpiio, expect_nothing, NULL, close_mpiio, false };

/* ---- Non-blocking ---- */

/* Whether all of it has come. */
static bool finish(struct infile *s)
{
	MPI_Status status;
	int code;

	if (s->request == MPI_REQUEST_NULL)
		return false;
	code = MPI_Wait(&s->request, &status);
	return check_read(s, code, &status, s->ahead.size, s->ahead.from) == 0;
}

/* OpenMPI's own MPI-IO never ends a non-blocking read that goes beyond the end of a file. */
static bool is_there(const struct infile *s, uint64_t end)
{
	struct stat st;

	return stat(s->path, &st) == 0 && (uint64_t)st.st_size >= end;
}

static void read_ahead(struct infile *s, uint64_t from, size_t size)
{
	if (size > MPI_CALL_MAX)
		size = MPI_CALL_MAX;
	finish(s);
	if (!is_there(s, from + size))
		return;
	s->ahead.from = from;
	if (piece_make_room(&s->ahead, size, s->path) < 0)
		return;
	s->ahead.size = size;
	if (MPI_File_iread_at(s->file, (MPI_Offset)from, s->ahead.data, (int)size, MPI_BYTE, &s->request) != MPI_SUCCESS)
		s->request = MPI_REQUEST_NULL;
}

static bool take_ahead(struct infile *s, uint64_t from, struct piece *piece)
{
	struct piece taken = s->ahead;

	if (s->request == MPI_REQUEST_NULL || s->ahead.from != from || !finish(s))
		return false;
	s->ahead = *piece;
	*piece = taken;
	return true;
}

static void close_ahead(struct infile *s)
{
	finish(s);
	MPI_File_close(&s->file);
}

const struct infile_way infile_mpiio_ahead = { open_mpiio, read_mpiio, read_ahead, take_ahead, close_ahead, false };
