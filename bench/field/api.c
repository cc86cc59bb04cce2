/* SPDX-License-Identifier: BSD-3-Clause */
/* Files exist when they are opened to be written. */
#include "api.h"
#include "job.h"

#include <strings.h>

#include "kit/data.h"
#include "ummap.h"

/* ---- POSIX ---- */

static void posix_open(struct file *f, const struct access *a, const char *path, bool write)
{
	f->fd = open_file(path, (write ? O_RDWR : O_RDONLY) | (a->direct ? O_DIRECT : 0));
}

static void posix_read(struct file *f, void *buf, size_t len, uint64_t off)
{
	read_whole(f->fd, buf, len, off);
}

static void posix_write(struct file *f, const void *buf, size_t len, uint64_t off)
{
	write_whole(f->fd, buf, len, off);
}

static void posix_sync(struct file *f)
{
	if (fsync(f->fd))
		die("fsync: %s", strerror(errno));
}

static void posix_close(struct file *f)
{
	if (close(f->fd))
		die("close: %s", strerror(errno));
}

/* ---- MPI-IO ---- */

/* A call that moved less than asked for is no success, whatever it returned. */
static void check_moved(MPI_Status *status, size_t len, const char *call)
{
	int moved;

	MPI_Get_count(status, MPI_BYTE, &moved);
	if (moved != (int)len)
		die("%s: %d of %zu bytes", call, moved, len);
}

static void mpiio_open(struct file *f, const struct access *a, const char *path, bool write)
{
	MPI_Comm comm = a->per_process ? MPI_COMM_SELF : MPI_COMM_WORLD;

	job_check(MPI_File_open(comm, path, write ? MPI_MODE_RDWR : MPI_MODE_RDONLY, MPI_INFO_NULL,
				&f->mpi),
		  path);
}

static void mpiio_read(struct file *f, void *buf, size_t len, uint64_t off)
{
	MPI_Status status;

	job_check(MPI_File_read_at(f->mpi, (MPI_Offset)off, buf, (int)len, MPI_BYTE, &status),
		  "MPI_File_read_at");
	check_moved(&status, len, "MPI_File_read_at");
}

static void mpiio_write(struct file *f, const void *buf, size_t len, uint64_t off)
{
	MPI_Status status;

	job_check(MPI_File_write_at(f->mpi, (MPI_Offset)off, buf, (int)len, MPI_BYTE, &status),
		  "MPI_File_write_at");
	check_moved(&status, len, "MPI_File_write_at");
}

static void mpiio_sync(struct file *f)
{
	job_check(MPI_File_sync(f->mpi), "MPI_File_sync");
}

static void mpiio_close(struct file *f)
{
	job_check(MPI_File_close(&f->mpi), "MPI_File_close");
}

/* ---- Memory over the file ---- */

static void memory_begin(struct file *f, const struct access *a, const char *path, bool write)
{
	int fd = open_file(path, write ? O_RDWR : O_RDONLY);

	f->memory = memory_open(&a->alloc, fd, a->file_size, write, write);
	memory_advise(f->memory, a->random);
}

static void memory_read(struct file *f, void *buf, size_t len, uint64_t off)
{
	memcpy(buf, f->memory->base + off, len);
}

static void memory_write(struct file *f, const void *buf, size_t len, uint64_t off)
{
	memcpy(f->memory->base + off, buf, len);
}

static void memory_foresee(struct file *f, size_t len, uint64_t off)
{
	memory_expect(f->memory, off, len);
}

static void memory_fsync(struct file *f)
{
	memory_sync(f->memory);
}

static void memory_end(struct file *f)
{
	memory_close(f->memory);
}

/* Like close(2), hands all changes to the store without waiting until they are durable. */
static void library_end(struct file *f)
{
	if (f->memory->write && umsync_range(f->memory->base, f->memory->size, UMMAP_NOFLUSH))
		die("umsync_range: %s", umerrormsg());
	memory_close(f->memory);
}

/* ---- Memory alone: the same memory for writing and for reading. ---- */

static struct memory *alone;

static void alone_open(struct file *f, const struct access *a, const char *path, bool write)
{
	(void)path;
	if (write && alone) {
		memory_close(alone);
		alone = NULL;
	}
	if (!alone)
		alone = memory_open(&a->alloc, -1, a->file_size, true, true);
	f->memory = alone;
}

static void alone_close(struct file *f)
{
	f->memory = NULL;
}

static const struct api apis[] = {
	{ "POSIX", NULL, true, true, posix_open, posix_read, posix_write, NULL, posix_sync,
	  posix_close },
	{ "MPIIO", NULL, true, true, mpiio_open, mpiio_read, mpiio_write, NULL, mpiio_sync,
	  mpiio_close },
	{ "UMMAP", "ummap", true, false, memory_begin, memory_read, memory_write, memory_foresee,
	  memory_fsync,
	  library_end },
	{ "MMAP", "mmap", true, true, memory_begin, memory_read, memory_write, memory_foresee,
	  memory_fsync,
	  memory_end },
	{ "MEMORY", "memory", false, false, alone_open, memory_read, memory_write, NULL,
	  memory_fsync, alone_close },
};

void access_choose(struct access *a, const char *name)
{
	a->api = NULL;
	for (size_t i = 0; i < sizeof(apis) / sizeof(apis[0]); i++)
		if (!strcasecmp(apis[i].name, name))
			a->api = &apis[i];
	if (!a->api)
		die("-a: there is no '%s': it must be " API_NAMES, name);
	a->alloc.kind = a->api->kind ? alloc_find(a->api->kind) : NULL;
}

bool access_is(const struct access *a, const char *kind)
{
	return a->api->kind && !strcmp(a->api->kind, kind);
}

void access_create(const struct access *a, const char *path)
{
	int fd = open_file(path, O_RDWR | O_CREAT | O_TRUNC);

	if (a->api->kind && ftruncate(fd, (off_t)a->file_size))
		die("%s: %s", path, strerror(errno));
	close(fd);
}

void access_cool(const struct access *a, const char *path)
{
	int fd = open_file(path, O_RDONLY);

	if (!drop_cache(fd, a->file_size))
		fprintf(stderr, "the page cache still has parts of %s\n", path);
	close(fd);
}

/* Two ranks with the same segment would overwrite each other's part of it, unless UMMAP_WRITERS is
 * 1. All ranks map the whole file, but each stores only into its own segments. */
void access_check_segments(const struct access *a, size_t unit)
{
	if (!access_is(a, "ummap") || a->per_process || alloc_writers())
		return;
	setenv("UMMAP_LOCK", "no", 1);
	if (!a->alloc.seg)
		die("--seg: say which segment: ranks share the file, each %zu bytes, and a segment "
		    "must not have two owners",
		    unit);
	if (unit % a->alloc.seg)
		die("--seg: segments of %zu would be shared by ranks, whose parts are of %zu "
		    "bytes; take smaller ones, or -F",
		    a->alloc.seg, unit);
}
