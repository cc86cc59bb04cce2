/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stream is written by its rank alone, and read only after it was published and the rank's status says so; from then on
 * it does not change until all ranks are through. So readers need no more than a lock of MPI's for their epoch.
 */
#include "mapreduce/stream.h"

#include "mapreduce/error.h"
#include "mapreduce/wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ummap.h>

/* Blocks of files begin at multiples of this. */
#define FILE_STEP ((uint64_t)1 << 16)

/* ---- Windows ---- */

/* A place for a block of this number. */
struct spare {
	struct spare *next;
	uint64_t place;
	unsigned block;
};

int space_open(struct space *s, MPI_Comm comm, unsigned streams, size_t first_block, size_t transfer_limit, int lock,
	       MPI_Info info)
{
	MPI_Aint size = (MPI_Aint)(streams * STREAM_BLOCKS * sizeof(struct block));

	*s = (struct space){ .win = MPI_WIN_NULL, .places = MPI_WIN_NULL, .info = info, .first_block = first_block,
			     .transfer_limit = transfer_limit, .lock = lock };
	MPI_Comm_rank(comm, &s->rank);
	if (check_mpi(MPI_Win_create_dynamic(info, comm, &s->win),
		      "cannot create a window for pairs") < 0 ||
	    check_mpi(MPI_Win_allocate(size, 1, MPI_INFO_NULL, comm, &s->mine, &s->places),
		      "cannot create a window for the places of pairs") < 0)
		return -1;
	MPI_Win_set_errhandler(s->win, MPI_ERRORS_RETURN);
	MPI_Win_lock_all(0, s->places);
	return 0;
}

void space_open_local(struct space *s, int rank, size_t first_block, size_t transfer_limit)
{
	*s = (struct space){ .win = MPI_WIN_NULL, .places = MPI_WIN_NULL, .info = MPI_INFO_NULL, .first_block = first_block,
			     .transfer_limit = transfer_limit, .rank = rank };
}

static void forget_spares(struct space *s)
{
	struct spare *next;

	for (; s->spares; s->spares = next) {
		next = s->spares->next;
		free(s->spares);
	}
}

void space_close(struct space *s)
{
	if (s->places != MPI_WIN_NULL) {
		MPI_Win_unlock_all(s->places);
		MPI_Win_free(&s->places);
	}
	if (s->win != MPI_WIN_NULL)
		MPI_Win_free(&s->win);
	if (s->info != MPI_INFO_NULL)
		MPI_Info_free(&s->info);
	forget_spares(s);
}

void space_use_file(struct space *s, const char *file)
{
	forget_spares(s);
	s->file = file;
	s->file_end = 0;
}

/* MPIs want an epoch for windows without memory, of which the library knows nothing. */
int space_sync(struct space *s)
{
	return s->file && s->blocks > 0 ? check_mpi(MPI_Win_sync(s->win), s->file) : 0;
}

static uint64_t size_of(const struct space *s, unsigned block)
{
	return (uint64_t)s->first_block << block;
}

static void reserve(struct space *s, uint64_t place, uint64_t size)
{
	uint64_t end = place + (size + FILE_STEP - 1) / FILE_STEP * FILE_STEP;

	if (end > s->file_end)
		s->file_end = end;
}

static uint64_t take_place(struct space *s, unsigned block)
{
	uint64_t place = s->file_end;

	for (struct spare **p = &s->spares, *spare; (spare = *p); p = &spare->next) {
		if (spare->block != block)
			continue;
		place = spare->place;
		*p = spare->next;
		free(spare);
		return place;
	}
	reserve(s, place, size_of(s, block));
	return place;
}

/* Without memory for the note, the place is lost. */
static void free_place(struct space *s, uint64_t place, unsigned block)
{
	struct spare *spare = s->file ? malloc(sizeof(*spare)) : NULL;

	if (!spare)
		return;
	*spare = (struct spare){ s->spares, place, block };
	s->spares = spare;
}

/* ---- Writing ---- */

void stream_open(struct stream *s, struct space *space)
{
	*s = (struct stream){ .space = space };
}

static void drop_block(struct stream *s)
{
	unsigned last = --s->blocks;

	if (s->space->win == MPI_WIN_NULL) {
		free(s->memory[last]);
	} else {
		MPI_Win_detach(s->space->win, s->memory[last]);
		MPI_Free_mem(s->memory[last]);
	}
	s->space->blocks--;
	if (!s->kept)
		free_place(s->space, s->place[last], last);
}

void stream_close(struct stream *s)
{
	while (s->blocks > 0)
		drop_block(s);
}

/* In names, libummap takes %% for a %. */
static void set_hints(const struct space *s, uint64_t place)
{
	char offset[24], name[2 * strlen(s->file) + 1], *to = name;

	for (const char *from = s->file; *from; from++) {
		*to++ = *from;
		if (*from == '%')
			*to++ = '%';
	}
	*to = 0;
	snprintf(offset, sizeof(offset), "%llu", (unsigned long long)place);
	MPI_Info_set(s->info, "alloc_type", "storage");
	MPI_Info_set(s->info, "storage_alloc_filename", name);
	MPI_Info_set(s->info, "storage_alloc_offset", offset);
	MPI_Info_set(s->info, "storage_alloc_discard", "true");
}

/* That of MPI_Alloc_mem, which would end the program without our sentence. */
static MPI_Errhandler replace_handler(MPI_Comm comm, MPI_Errhandler by)
{
	MPI_Errhandler before;

	MPI_Comm_get_errhandler(comm, &before);
	MPI_Comm_set_errhandler(comm, by);
	return before;
}

static void restore_handler(MPI_Comm comm, MPI_Errhandler before)
{
	MPI_Comm_set_errhandler(comm, before);
	if (before != MPI_ERRORS_ARE_FATAL && before != MPI_ERRORS_RETURN)
		MPI_Errhandler_free(&before);
}

/* MPICH 4.0 does not notice that there was no memory: what it returns is its own header behind NULL. */
static bool is_memory(const char *memory)
{
	return (uintptr_t)memory >= 4096;
}

/* MPIs differ in whom it reports to. */
static int allocate(MPI_Aint size, MPI_Info info, char **memory)
{
	MPI_Errhandler world = replace_handler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Errhandler self = replace_handler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	int code = MPI_Alloc_mem(size, info, memory);

	restore_handler(MPI_COMM_SELF, self);
	restore_handler(MPI_COMM_WORLD, world);
	if (code == MPI_SUCCESS && !is_memory(*memory))
		return fail(ENOMEM, "cannot enlarge a window for pairs: no memory for %lld bytes",
			    (long long)size);
	return check_mpi(code, "cannot enlarge a window for pairs");
}

static char *local_memory(size_t size)
{
	char *memory = malloc(size);

	if (!memory)
		fail(ENOMEM, "cannot store pairs: no memory for %zu bytes. Try more ranks, or "
		     "UMMR_METHOD_1S with storage", size);
	return memory;
}

static int attach_block(struct stream *s, char *memory, size_t size)
{
	struct space *space = s->space;

	if (space->file && access(space->file, F_OK) != 0)
		return fail(ENOSYS, "cannot store pairs in '%s': MPI did not create the file. Try "
			    "to link the program with libummap-mpi-* before MPI, or to preload "
			    "that library", space->file);
	return check_mpi(MPI_Win_attach(space->win, memory, (MPI_Aint)size),
			 "cannot enlarge a window for pairs");
}

/* In the space's window, and its file. */
static char *window_memory(struct stream *s, size_t size, uint64_t place)
{
	char *memory;

	if (s->space->file)
		set_hints(s->space, place);
	if (allocate((MPI_Aint)size, s->space->info, &memory) < 0)
		return NULL;
	if (attach_block(s, memory, size) < 0) {
		MPI_Free_mem(memory);
		return NULL;
	}
	return memory;
}

static int add_block(struct stream *s, uint64_t place)
{
	size_t size = size_of(s->space, s->blocks);
	char *memory = s->space->win == MPI_WIN_NULL ? local_memory(size) : window_memory(s, size, place);

	if (!memory)
		return -1;
	MPI_Get_address(memory, &s->block[s->blocks].at);
	s->block[s->blocks].used = 0;
	s->place[s->blocks] = place;
	s->memory[s->blocks++] = memory;
	s->space->blocks++;
	return 0;
}

static int grow(struct stream *s)
{
	if (s->blocks == STREAM_BLOCKS || s->space->first_block > (size_t)PTRDIFF_MAX / 2 >> s->blocks)
		return fail(EFBIG, "cannot enlarge a window for pairs: it has the greatest "
			    "possible size. Try a larger bucket_size, or more ranks");
	return add_block(s, take_place(s->space, s->blocks));
}

int stream_append_bytes(struct stream *s, const void *data, size_t size)
{
	while (size > 0) {
		struct block *b = s->blocks > 0 ? &s->block[s->blocks - 1] : NULL;
		size_t part = b ? size_of(s->space, s->blocks - 1) - (size_t)b->used : 0;

		if (part == 0) {
			if (grow(s) < 0)
				return -1;
			continue;
		}
		if (part > size)
			part = size;
		memcpy(s->memory[s->blocks - 1] + b->used, data, part);
		b->used += (MPI_Aint)part;
		data = (const char *)data + part;
		size -= part;
	}
	return 0;
}

static int append_padded(struct stream *s, const void *data, size_t size)
{
	static const char zeros[8];

	if (stream_append_bytes(s, data, size) < 0)
		return -1;
	return stream_append_bytes(s, zeros, padded(size) - size);
}

int stream_append(struct stream *s, const struct pair *p)
{
	if (stream_append_bytes(s, &p->head, sizeof(p->head)) < 0 || append_padded(s, p->key, p->head.key_size) < 0)
		return -1;
	return append_padded(s, p->value, p->head.value_size);
}

uint64_t stream_size(const struct stream *s)
{
	uint64_t size = 0;

	for (unsigned i = 0; i < s->blocks; i++)
		size += (uint64_t)s->block[i].used;
	return size;
}

void stream_copy(const struct stream *s, char *to)
{
	for (unsigned i = 0; i < s->blocks; i++) {
		memcpy(to, s->memory[i], (size_t)s->block[i].used);
		to += s->block[i].used;
	}
}

/* By a copy: what is paged cannot be given to system calls. */
static int write_block(const char *memory, size_t size, FILE *out)
{
	char part[1 << 16];

	for (size_t at = 0, n; at < size; at += n) {
		n = size - at < sizeof(part) ? size - at : sizeof(part);
		memcpy(part, memory + at, n);
		if (fwrite(part, 1, n, out) != n)
			return -1;
	}
	return 0;
}

int stream_write(const struct stream *s, FILE *out)
{
	for (unsigned i = 0; i < s->blocks; i++)
		if (write_block(s->memory[i], (size_t)s->block[i].used, out) < 0)
			return -1;
	return 0;
}

void stream_publish(struct stream *s, unsigned number)
{
	memcpy(&s->space->mine[number * STREAM_BLOCKS], s->block, s->blocks * sizeof(struct block));
	if (s->blocks < STREAM_BLOCKS)
		s->space->mine[number * STREAM_BLOCKS + s->blocks].used = 0;
	MPI_Win_sync(s->space->places);
}

/* ---- Saving ---- */

/* Windows that are no mapping of libummap's, or only in part, are left to space_sync. */
int stream_start_write(const struct stream *s)
{
	for (unsigned i = 0; s->space->file && i < s->blocks; i++)
		if (umsync_range(s->memory[i], size_of(s->space, i), UMMAP_ASYNC | UMMAP_NOFLUSH) < 0 && errno != EINVAL &&
		    errno != ENOMEM)
			return fail(errno, "cannot write '%s': %s", s->space->file, umerrormsg());
	return 0;
}

void stream_save(const struct stream *s, struct saved_stream *to)
{
	to->blocks = s->blocks;
	to->used = s->blocks > 0 ? (uint64_t)s->block[s->blocks - 1].used : 0;
	memcpy(to->place, s->place, s->blocks * sizeof(*s->place));
}

void stream_cut(struct stream *s, const struct saved_stream *saved)
{
	while (s->blocks > saved->blocks)
		drop_block(s);
	if (s->blocks > 0)
		s->block[s->blocks - 1].used = (MPI_Aint)saved->used;
}

/* A window would take what is missing in its file for zeros. */
static int check_file(const struct space *space, const struct saved_stream *saved)
{
	struct stat st;

	if (stat(space->file, &st) < 0)
		return fail(errno == ENOENT ? EUCLEAN : errno, "cannot continue from '%s', which "
			    "an earlier job wrote: %s. Try to remove all files ummr.* there, to "
			    "begin again", space->file, strerror(errno));
	for (unsigned i = 0; i < saved->blocks; i++) {
		uint64_t used = i + 1 < saved->blocks ? size_of(space, i) : saved->used;

		if ((uint64_t)st.st_size < saved->place[i] + used)
			return fail(EUCLEAN, "cannot continue from '%s': it is shorter than the "
				    "earlier job recorded. Try to remove all files ummr.* there, "
				    "to begin again", space->file);
	}
	return 0;
}

int stream_restore(struct stream *s, struct space *space, const struct saved_stream *saved)
{
	stream_open(s, space);
	if (saved->blocks > 0 && check_file(space, saved) < 0)
		return -1;
	for (unsigned i = 0; i < saved->blocks; i++) {
		reserve(space, saved->place[i], size_of(space, i));
		if (add_block(s, saved->place[i]) < 0)
			return -1;
		s->block[i].used = (MPI_Aint)size_of(space, i);
	}
	if (saved->blocks > 0)
		s->block[s->blocks - 1].used = (MPI_Aint)saved->used;
	return 0;
}

/* ---- Reading ---- */

int reader_open(struct reader *r, struct space *space, int rank, unsigned number)
{
	MPI_Request request;

	*r = (struct reader){ .space = space, .rank = rank };
	MPI_Rget(r->block, sizeof(r->block), MPI_BYTE, rank, (MPI_Aint)(number * sizeof(r->block)), sizeof(r->block), MPI_BYTE,
		 space->places, &request);
	wait_for(&request);
	if (check_mpi(MPI_Win_lock(space->lock, rank, 0, space->win),
		      "cannot lock the window of another rank") == 0)
		return 0;
	r->space = NULL;
	return -1;
}

void reader_open_own(struct reader *r, const struct stream *stream)
{
	*r = (struct reader){ .space = stream->space, .stream = stream, .rank = stream->space->rank };
	memcpy(r->block, stream->block, stream->blocks * sizeof(struct block));
}

void reader_close(struct reader *r)
{
	if (r->space && !r->stream)
		MPI_Win_unlock(r->rank, r->space->win);
	free(r->buffer);
	*r = (struct reader){ 0 };
}

void reader_rewind(struct reader *r)
{
	r->current = 0;
	r->at = 0;
	r->from = r->to = 0;
}

/* Each transfer waits for the other rank to serve it, however short it is: so short ones go together, up to these bounds. */
#define TOGETHER_BYTES ((size_t)16 << 10)
#define TOGETHER_MAX 64

/* Begins with as many transfers as go together, and ends with what they have brought. */
static int transfer(struct reader *r, char *to, MPI_Aint at, size_t size, size_t *brought)
{
	MPI_Request requests[TOGETHER_MAX];
	unsigned begun = 0;
	int code = MPI_SUCCESS;

	*brought = 0;
	do {
		size_t rest = size - *brought, part = rest < r->space->transfer_limit ? rest : r->space->transfer_limit;

		code = MPI_Rget(to + *brought, (int)part, MPI_BYTE, r->rank, at + (MPI_Aint)*brought, (int)part, MPI_BYTE,
				r->space->win, &requests[begun]);
		if (code != MPI_SUCCESS)
			break;
		begun++;
		*brought += part;
	} while (*brought < size && *brought < TOGETHER_BYTES && begun < TOGETHER_MAX);
	while (begun > 0) {
		int ended = wait_for(&requests[--begun]);

		code = code == MPI_SUCCESS ? ended : code;
	}
	return check_mpi(code, "cannot read pairs of another rank");
}

/* So many bytes behind those in the buffer. */
static int fetch(struct reader *r, size_t size)
{
	size_t brought = size;

	if (r->stream)
		memcpy(r->buffer + r->to, r->stream->memory[r->current] + r->at, size);
	else if (transfer(r, r->buffer + r->to, r->block[r->current].at + r->at, size, &brought) < 0)
		return -1;
	r->to += brought;
	r->at += (MPI_Aint)brought;
	return 0;
}

/* Room for so many bytes from r->from on, and for a transfer at least, or for several short ones. */
static int make_room(struct reader *r, size_t need)
{
	size_t least = r->space->transfer_limit > TOGETHER_BYTES ? r->space->transfer_limit : TOGETHER_BYTES,
	       room = need > least ? need : least;
	char *buffer;

	if (r->from > 0)
		memmove(r->buffer, r->buffer + r->from, r->to - r->from);
	r->to -= r->from;
	r->from = 0;
	if (room <= r->room)
		return 0;
	buffer = realloc(r->buffer, room);
	if (!buffer)
		return fail(ENOMEM, "cannot read a pair of %zu bytes: no memory", need);
	r->buffer = buffer;
	r->room = room;
	return 0;
}

/* Bytes that are to come, those in the buffer included. */
static size_t left(const struct reader *r)
{
	size_t size = r->to - r->from;

	for (unsigned i = r->current; i < STREAM_BLOCKS && r->block[i].used > 0; i++)
		size += (size_t)r->block[i].used;
	return size - (size_t)r->at;
}

/* So many bytes are in the buffer: 1; 0: the stream ends before. What is damaged may ask for more than memory has. */
static int have(struct reader *r, size_t need)
{
	if (r->to - r->from >= need)
		return 1;
	if (left(r) < need)
		return 0;
	if (make_room(r, need) < 0)
		return -1;
	while (r->to < need) {
		size_t size = (size_t)(r->block[r->current].used - r->at);

		if (fetch(r, size < r->room - r->to ? size : r->room - r->to) < 0)
			return -1;
		if (r->at == r->block[r->current].used) {
			r->current++;
			r->at = 0;
		}
	}
	return 1;
}

int reader_next(struct reader *r, struct pair *p)
{
	const uint64_t most = (uint64_t)1 << 60; /* of what can be added up */
	size_t size;
	int there = have(r, sizeof(p->head));

	if (there <= 0)
		return there;
	memcpy(&p->head, r->buffer + r->from, sizeof(p->head));
	size = sizeof(p->head) + padded(p->head.key_size) + padded(p->head.value_size);
	there = p->head.key_size < most && p->head.value_size < most ? have(r, size) : 0;
	if (there < 0)
		return -1;
	if (!there)
		return fail(EIO, "cannot read the pairs of rank %d: they are damaged, and one is "
			    "longer than the rest of them", r->rank);
	p->key = r->buffer + r->from + sizeof(p->head);
	p->value = (const char *)p->key + padded(p->head.key_size);
	r->from += size;
	return 1;
}
