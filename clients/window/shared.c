/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks of a machine load from and store to each other's parts, so all ranks map the whole file
 * by mmap(2). Space in the file is allocated at once, because a store would end the process when
 * the disk is full.
 */
#include "window/shared.h"

#include "transport/engine.h"
#include "window/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t page(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- The file ---- */

/* Checks the hints, of which mmap(2) supports some only. */
static void check_hints(const struct hints *h, MPI_Aint size, struct error *e)
{
	if (size < 0)
		error_set(e, MPI_ERR_SIZE,
			  "cannot allocate a window of %ld bytes: the size is negative",
			  (long)size);
	if (h->type != TYPE_STORAGE)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot allocate a shared window: other ranks have alloc_type=storage. "
			  "Try the same type at all ranks");
	if (h->engine != ENGINE_AUTO && h->engine != ENGINE_KERNEL)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use this storage_alloc_engine for '%.80s': the kernel maps a "
			  "shared window. Try storage_alloc_engine=kernel, or to leave it out",
			  h->filename);
	kernel_check(h, e);
}

static int open_file(const struct hints *h, struct error *e)
{
	int fd;

	if (e->class != MPI_SUCCESS)
		return -1;
	fd = open(h->filename, O_CREAT | O_RDWR | O_CLOEXEC, h->perm);
	if (fd < 0)
		error_errno(e, errno, "cannot open '%s' for reading and writing: %m", h->filename);
	return fd;
}

/* Checks that all ranks have opened the same file, with the same offset. */
static void check_same(int fd, const struct hints *h, MPI_Comm comm, struct error *e)
{
	struct extent mine = { 0 }, first;

	extent_file(&mine, fd, h->offset, 1);
	first = mine;
	PMPI_Bcast(&first, sizeof(first), MPI_BYTE, 0, comm);
	if (memcmp(&first, &mine, sizeof(mine)) != 0)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use '%.80s' for a shared window: rank 0 has another file, offset "
			  "or machine. Try one file on one machine, and one storage_alloc_offset",
			  h->filename);
}

/* ---- Places ---- */

/* Sets the place of each part, and returns the end of the last one. */
static uint64_t lay_out(struct shared *s, bool apart)
{
	uint64_t at = 0;

	for (int i = 0; i < s->ranks; i++) {
		s->places[i].at = at;
		at += s->places[i].size;
		if (apart)
			at = (at + page() - 1) & ~(page() - 1);
	}
	return at;
}

char *shared_part(const struct shared *s, const struct place *p)
{
	return p->size && s->first ? s->first + p->at : NULL;
}

static struct shared *new_shared(const struct hints *h, MPI_Comm comm, struct error *e)
{
	struct shared *s = calloc(1, sizeof(*s));

	if (s) {
		PMPI_Comm_size(comm, &s->ranks);
		s->hints = *h;
		s->hints.engine = ENGINE_KERNEL;
		s->places = calloc((size_t)s->ranks, sizeof(*s->places));
	}
	if (!s || !s->places)
		error_errno(e, ENOMEM, "cannot allocate a window: %m");
	return s;
}

/* Opens the file. Afterwards, either all ranks continue or none. */
static int open_same_file(struct shared *s, MPI_Aint size, const struct hints *h, MPI_Comm comm,
			  struct error *e)
{
	int fd;

	check_hints(h, size, e);
	fd = s ? open_file(h, e) : -1;
	error_agree(comm, e);
	if (e->class == MPI_SUCCESS) {
		check_same(fd, h, comm, e);
		error_agree(comm, e);
	}
	return fd;
}

static void map_parts(struct shared *s, const struct place *mine, int fd, bool apart, MPI_Comm comm,
		      struct error *e)
{
	uint64_t len;
	int rank;

	PMPI_Comm_rank(comm, &rank);
	PMPI_Allgather(mine, sizeof(*mine), MPI_BYTE, s->places, sizeof(*mine), MPI_BYTE, comm);
	len = lay_out(s, apart);
	if (rank == 0 && len)
		kernel_make_room(fd, s->hints.filename, s->hints.offset + len, e);
	if (e->class == MPI_SUCCESS && len)
		s->first = kernel_map(fd, &s->hints, len, e);
	s->size = s->places[rank].size;
	s->len = len;
	s->base = shared_part(s, &s->places[rank]);
	if (s->size)
		transport_check_base(s->base, e);
	error_agree(comm, e);
	if (e->class == MPI_SUCCESS && s->hints.unlink)
		s->path = realpath(s->hints.filename, NULL);
}

struct shared *shared_open(MPI_Aint size, MPI_Aint unit, const struct hints *h, bool apart,
			   MPI_Comm comm, struct error *e)
{
	struct place mine = { .size = (uint64_t)size, .unit = (uint64_t)unit };
	struct shared *s = new_shared(h, comm, e);
	int fd = open_same_file(s, size, h, comm, e);

	if (e->class == MPI_SUCCESS)
		map_parts(s, &mine, fd, apart, comm, e);
	if (fd >= 0)
		close(fd);
	if (e->class == MPI_SUCCESS)
		return s;
	if (s)
		shared_close(s);
	return NULL;
}

void shared_sync(const struct shared *s, struct error *e)
{
	kernel_sync(s->base, s->size, &s->hints, e);
}

void shared_close(struct shared *s)
{
	if (s->first)
		kernel_unmap(s->first, s->len, &s->hints);
	if (s->path)
		unlink(s->path);
	free(s->path);
	free(s->places);
	free(s);
}
