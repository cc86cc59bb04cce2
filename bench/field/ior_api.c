/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * IOR's ways of reading and writing a file. Files exist, empty, when they are opened to be written; those that are
 * written through memory have been made as long as they will be.
 */
#include "ior.h"

#include <strings.h>

#include "../data.h"
#include "ummap.h"

/* ---- POSIX ---- */

static void posix_open(struct ior_file *f, const struct ior *t, const char *path, bool write)
{
	f->fd = open_file(path, (write ? O_RDWR : O_RDONLY) | (t->direct ? O_DIRECT : 0));
}

static void posix_read(struct ior_file *f, void *buf, size_t len, uint64_t off)
{
	read_whole(f->fd, buf, len, off);
}

static void posix_write(struct ior_file *f, const void *buf, size_t len, uint64_t off)
{
	write_whole(f->fd, buf, len, off);
}

static void posix_sync(struct ior_file *f)
{
	if (fsync(f->fd))
		die("fsync: %s", strerror(errno));
}

static void posix_close(struct ior_file *f)
{
	if (close(f->fd))
		die("close: %s", strerror(errno));
}

/* ---- MPI-IO ---- */

static void check_mpi(int err, const char *call)
{
	char text[MPI_MAX_ERROR_STRING];
	int len;

	if (err == MPI_SUCCESS)
		return;
	MPI_Error_string(err, text, &len);
	die("%s: %s", call, text);
}

/* A call that moved less than asked for is no success, whatever it returned. */
static void check_moved(MPI_Status *status, size_t len, const char *call)
{
	int moved;

	MPI_Get_count(status, MPI_BYTE, &moved);
	if (moved != (int)len)
		die("%s: %d of %zu bytes", call, moved, len);
}

static void mpiio_open(struct ior_file *f, const struct ior *t, const char *path, bool write)
{
	MPI_Comm comm = t->per_process ? MPI_COMM_SELF : MPI_COMM_WORLD;

	check_mpi(MPI_File_open(comm, path, write ? MPI_MODE_RDWR : MPI_MODE_RDONLY, MPI_INFO_NULL, &f->mpi), path);
}

static void mpiio_read(struct ior_file *f, void *buf, size_t len, uint64_t off)
{
	MPI_Status status;

	check_mpi(MPI_File_read_at(f->mpi, (MPI_Offset)off, buf, (int)len, MPI_BYTE, &status), "MPI_File_read_at");
	check_moved(&status, len, "MPI_File_read_at");
}

static void mpiio_write(struct ior_file *f, const void *buf, size_t len, uint64_t off)
{
	MPI_Status status;

	check_mpi(MPI_File_write_at(f->mpi, (MPI_Offset)off, buf, (int)len, MPI_BYTE, &status), "MPI_File_write_at");
	check_moved(&status, len, "MPI_File_write_at");
}

static void mpiio_sync(struct ior_file *f)
{
	check_mpi(MPI_File_sync(f->mpi), "MPI_File_sync");
}

static void mpiio_close(struct ior_file *f)
{
	check_mpi(MPI_File_close(&f->mpi), "MPI_File_close");
}

/* ---- Memory over the file ---- */

static void memory_begin(struct ior_file *f, const struct ior *t, const char *path, bool write)
{
	int fd = open_file(path, write ? O_RDWR : O_RDONLY);

	f->memory = memory_open(&t->alloc, fd, t->file_size, write, write);
	memory_advise(f->memory, t->random);
}

static void memory_read(struct ior_file *f, void *buf, size_t len, uint64_t off)
{
	memcpy(buf, f->memory->base + off, len);
}

static void memory_write(struct ior_file *f, const void *buf, size_t len, uint64_t off)
{
	memcpy(f->memory->base + off, buf, len);
}

static void memory_fsync(struct ior_file *f)
{
	memory_sync(f->memory);
}

static void memory_end(struct ior_file *f)
{
	memory_close(f->memory);
}

/* As close(2), which leaves what is not durable yet to the system: all is with the store, none is waited for. */
static void library_end(struct ior_file *f)
{
	if (f->memory->write && umsync_range(f->memory->base, f->memory->size, UMMAP_NOFLUSH))
		die("umsync_range: %s", umerrormsg());
	memory_close(f->memory);
}

/* ---- Memory alone: the same memory for writing and for reading. ---- */

static struct memory *alone;

static void alone_open(struct ior_file *f, const struct ior *t, const char *path, bool write)
{
	(void)path;
	if (write && alone) {
		memory_close(alone);
		alone = NULL;
	}
	if (!alone)
		alone = memory_open(&t->alloc, -1, t->file_size, true, true);
	f->memory = alone;
}

static void alone_close(struct ior_file *f)
{
	f->memory = NULL;
}

static const struct ior_api apis[] = {
	{ "POSIX", NULL, true, true, posix_open, posix_read, posix_write, posix_sync, posix_close },
	{ "MPIIO", NULL, true, true, mpiio_open, mpiio_read, mpiio_write, mpiio_sync, mpiio_close },
	{ "UMMAP", "ummap", true, false, memory_begin, memory_read, memory_write, memory_fsync, library_end },
	{ "MMAP", "mmap", true, true, memory_begin, memory_read, memory_write, memory_fsync, memory_end },
	{ "MEMORY", "memory", false, false, alone_open, memory_read, memory_write, memory_fsync, alone_close },
};

const struct ior_api *ior_find(const char *name)
{
	for (size_t i = 0; i < sizeof(apis) / sizeof(apis[0]); i++)
		if (!strcasecmp(apis[i].name, name))
			return &apis[i];
	return NULL;
}
