/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/window.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ranges of files begin at multiples of this number of bytes. */
#define FILE_ALIGNMENT ((uint64_t)1 << 16)

/* MPI returns no memory below this address. */
#define LOWEST_ADDRESS 4096

struct free_range {
	struct free_range *next; /* next one of the list */
	uint64_t offset;         /* offset in the file */
	unsigned number;         /* number of the block in its stream, which tells its size */
};

int window_open(struct pair_window *w, MPI_Comm comm, unsigned streams)
{
	MPI_Aint size = (MPI_Aint)(streams * MAX_STREAM_BLOCKS * sizeof(struct block));

	MPI_Comm_rank(comm, &w->rank);
	if (check_mpi(MPI_Win_create_dynamic(w->info, comm, &w->win),
		      "cannot create a window for pairs") < 0 ||
	    check_mpi(MPI_Win_allocate(size, 1, MPI_INFO_NULL, comm, &w->mine, &w->lists),
		      "cannot create a window for the places of pairs") < 0)
		return -1;
	MPI_Win_set_errhandler(w->win, MPI_ERRORS_RETURN);
	MPI_Win_lock_all(0, w->lists);
	return 0;
}

static void forget_free_ranges(struct pair_window *w)
{
	struct free_range *next;

	for (; w->free; w->free = next) {
		next = w->free->next;
		free(w->free);
	}
}

void window_close(struct pair_window *w)
{
	if (w->lists != MPI_WIN_NULL) {
		MPI_Win_unlock_all(w->lists);
		MPI_Win_free(&w->lists);
	}
	if (w->win != MPI_WIN_NULL)
		MPI_Win_free(&w->win);
	if (w->info != MPI_INFO_NULL)
		MPI_Info_free(&w->info);
	forget_free_ranges(w);
}

void window_use_file(struct pair_window *w, const char *file)
{
	forget_free_ranges(w);
	w->file = file;
	w->file_end = 0;
}

int window_sync(struct pair_window *w)
{
	/* MPI_Win_sync without blocks is skipped: MPIs require an epoch for a window that has no
	 * memory of the library. */
	return w->file && w->blocks > 0 ? check_mpi(MPI_Win_sync(w->win), w->file) : 0;
}

/* ---- Ranges of the file ---- */

uint64_t window_block_size(const struct pair_window *w, unsigned number)
{
	return (uint64_t)w->first_block << number;
}

void window_reserve_range(struct pair_window *w, uint64_t offset, unsigned number)
{
	uint64_t size = window_block_size(w, number);
	uint64_t end = offset + (size + FILE_ALIGNMENT - 1) / FILE_ALIGNMENT * FILE_ALIGNMENT;

	if (end > w->file_end)
		w->file_end = end;
}

uint64_t window_take_range(struct pair_window *w, unsigned number)
{
	uint64_t offset = w->file_end;

	for (struct free_range **p = &w->free, *range; (range = *p); p = &range->next) {
		if (range->number != number)
			continue;
		offset = range->offset;
		*p = range->next;
		free(range);
		return offset;
	}
	window_reserve_range(w, offset, number);
	return offset;
}

void window_free_range(struct pair_window *w, uint64_t offset, unsigned number)
{
	struct free_range *range = w->file ? malloc(sizeof(*range)) : NULL;

	/* Without memory for the list, this part of the file remains unused. */
	if (!range)
		return;
	*range = (struct free_range){ w->free, offset, number };
	w->free = range;
}

/* ---- Memory of blocks ---- */

static void set_hints(const struct pair_window *w, uint64_t file_offset)
{
	char offset[24], name[2 * strlen(w->file) + 1], *to = name;

	/* The hint treats % as the beginning of a placeholder, and %% as %. */
	for (const char *from = w->file; *from; from++) {
		*to++ = *from;
		if (*from == '%')
			*to++ = '%';
	}
	*to = 0;
	snprintf(offset, sizeof(offset), "%llu", (unsigned long long)file_offset);
	MPI_Info_set(w->info, "alloc_type", "storage");
	MPI_Info_set(w->info, "storage_alloc_filename", name);
	MPI_Info_set(w->info, "storage_alloc_offset", offset);
	MPI_Info_set(w->info, "storage_alloc_discard", "true");
}

/* Returns the previous error handler of the communicator. */
static MPI_Errhandler replace_handler(MPI_Comm comm, MPI_Errhandler handler)
{
	MPI_Errhandler previous;

	MPI_Comm_get_errhandler(comm, &previous);
	MPI_Comm_set_errhandler(comm, handler);
	return previous;
}

static void restore_handler(MPI_Comm comm, MPI_Errhandler previous)
{
	MPI_Comm_set_errhandler(comm, previous);
	if (previous != MPI_ERRORS_ARE_FATAL && previous != MPI_ERRORS_RETURN)
		MPI_Errhandler_free(&previous);
}

/* Calls MPI_Alloc_mem without its error handler, which would end the program without the message.
 * MPIs differ in the communicator whose handler they call. */
static int allocate_memory(MPI_Aint size, MPI_Info info, char **memory)
{
	MPI_Errhandler world = replace_handler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Errhandler self = replace_handler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	int code = MPI_Alloc_mem(size, info, memory);

	restore_handler(MPI_COMM_SELF, self);
	restore_handler(MPI_COMM_WORLD, world);
	/* Without memory, MPICH 4.0 reports success and returns NULL plus the size of a header. */
	if (code == MPI_SUCCESS && (uintptr_t)*memory < LOWEST_ADDRESS)
		return set_error(ENOMEM, "cannot enlarge a window for pairs: no memory for %lld "
				 "bytes", (long long)size);
	return check_mpi(code, "cannot enlarge a window for pairs");
}

static int attach_memory(struct pair_window *w, char *memory, uint64_t size)
{
	if (w->file && access(w->file, F_OK) != 0)
		return set_error(ENOSYS, "cannot store pairs in '%s': MPI did not create the file. "
				 "Try to link the program with libummap-mpi-* before MPI, or to "
				 "preload that library", w->file);
	return check_mpi(MPI_Win_attach(w->win, memory, (MPI_Aint)size),
			 "cannot enlarge a window for pairs");
}

char *window_attach_block(struct pair_window *w, unsigned number, uint64_t offset)
{
	uint64_t size = window_block_size(w, number);
	char *memory;

	if (w->file)
		set_hints(w, offset);
	if (allocate_memory((MPI_Aint)size, w->info, &memory) < 0)
		return NULL;
	if (attach_memory(w, memory, size) < 0) {
		MPI_Free_mem(memory);
		return NULL;
	}
	w->blocks++;
	return memory;
}

void window_detach_block(struct pair_window *w, char *memory)
{
	MPI_Win_detach(w->win, memory);
	MPI_Free_mem(memory);
	w->blocks--;
}
