/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls on files that have a cache. A call is complete when it returns, also if it is
 * non-blocking or split. Collective calls wait for other ranks only if all need one number. Handles
 * and views belong to MPI as well, so that other calls find them: those on groups, hints, types and
 * error handlers. With a data representation that needs conversion, the file is left to MPI, and
 * has no cache from then on.
 */
#include "iocache/cached.h"
#include "iocache/gone.h"
#include "iocache/share.h"
#include "pmpi/pmpi.h"
#include "pmpi/request.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static struct pmpi_feature files;

/* ---- Results ---- */

static int tell_error(struct cached *c, struct error *e)
{
	return e->class == MPI_SUCCESS ? MPI_SUCCESS : error_tell_file(c->file, e);
}

static void put_status(MPI_Status *status, int64_t bytes)
{
	if (status == MPI_STATUS_IGNORE)
		return;
	PMPI_Status_set_elements_x(status, MPI_BYTE, bytes);
	PMPI_Status_set_cancelled(status, 0);
	status->MPI_SOURCE = MPI_UNDEFINED;
	status->MPI_TAG = MPI_UNDEFINED;
}

/* Whether the cache of the file still works; false with an error. */
static bool is_whole(const struct cached *c, struct error *e)
{
	if (c->broken.class != MPI_SUCCESS)
		*e = c->broken;
	return c->broken.class == MPI_SUCCESS;
}

static struct cached *find(MPI_File file)
{
	struct cached *c = open_file_find(file);

	return c && !c->left ? c : NULL;
}

/* ---- Pointers ---- */

/* Advances the shared pointer, and returns its old value. */
static int64_t take_shared(struct cached *c, int64_t etypes, struct error *e)
{
	return share_word(c, 0, WORD_SHARED, etypes, MPI_SUM, e);
}

/* Collective: advances the shared pointer in the order of ranks, also if ranks have errors. */
static int64_t take_ordered(struct cached *c, int64_t etypes, struct error *e)
{
	int64_t before = 0, sum = 0, begin = 0;
	int64_t mine = e->class == MPI_SUCCESS ? etypes : 0;

	/* The sum also waits until earlier calls of all ranks have advanced the pointer. */
	PMPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, c->comm);
	PMPI_Exscan(&mine, &before, 1, MPI_INT64_T, MPI_SUM, c->comm);
	if (c->rank == 0)
		begin = take_shared(c, sum, e);
	PMPI_Bcast(&begin, 1, MPI_INT64_T, 0, c->comm);
	return begin + (c->rank == 0 ? 0 : before);
}

static int64_t take_offset(struct cached *c, const struct request *r, enum pmpi_position p,
			   int64_t at, struct error *e)
{
	int64_t bytes;

	if (p == PMPI_AT_OFFSET)
		return at;
	transfer_check(c, r, &bytes, e);
	if (p == PMPI_AT_ORDERED)
		return take_ordered(c, bytes / c->view.etype, e);
	return e->class == MPI_SUCCESS ? take_shared(c, bytes / c->view.etype, e) : 0;
}

/* Performs a call. *bytes: result, the bytes that were moved. */
static int perform(struct cached *c, const struct request *r, enum pmpi_position p, int64_t at,
		   int64_t *bytes)
{
	struct error e = { 0 };
	bool alone = p == PMPI_AT_POINTER || c->atomic;

	*bytes = 0;
	/* The wait for other ranks must not hold the lock. */
	if (is_whole(c, &e) && p != PMPI_AT_POINTER)
		at = take_offset(c, r, p, at, &e);
	if (alone)
		pthread_mutex_lock(&c->lock);
	if (p == PMPI_AT_POINTER)
		at = c->pointer;
	if (e.class == MPI_SUCCESS)
		*bytes = transfer(c, r, at, &e);
	if (p == PMPI_AT_POINTER)
		c->pointer += *bytes / c->view.etype;
	if (alone)
		pthread_mutex_unlock(&c->lock);
	return tell_error(c, &e);
}

/* ---- Data ---- */

static int move_data(struct cached *c, const struct pmpi_transfer *t, int64_t *bytes)
{
	const struct request r = { t->buf, t->n, t->type, t->writes };

	return perform(c, &r, t->position, t->at, bytes);
}

static int move_blocking(struct cached *c, const struct pmpi_transfer *t, MPI_Status *status)
{
	int64_t bytes;
	int code = move_data(c, t, &bytes);

	put_status(status, bytes);
	return code;
}

/* A nonblocking call is complete when it returns. If it fails, there is no request. */
static int move_nonblocking(struct cached *c, const struct pmpi_transfer *t)
{
	MPI_Status *done = calloc(1, sizeof(*done));
	int code = done ? move_blocking(c, t, done) : MPI_ERR_NO_MEM;

	if (code == MPI_SUCCESS)
		return request_complete(done, t->request);
	*t->request = MPI_REQUEST_NULL;
	free(done);
	return code;
}

/* The split call to which one of its halves belongs. */
static enum split split_of(const struct pmpi_transfer *t)
{
	enum split read = SPLIT_READ_ALL;

	if (t->position == PMPI_AT_OFFSET)
		read = SPLIT_READ_AT_ALL;
	else if (t->position == PMPI_AT_ORDERED)
		read = SPLIT_READ_ORDERED;
	return t->writes ? read + (SPLIT_WRITE_ALL - SPLIT_READ_ALL) : read;
}

static int begin_split(struct cached *c, const struct pmpi_transfer *t)
{
	struct error e = { 0 };
	int code;

	if (c->split != SPLIT_NONE) {
		error_set(&e, MPI_ERR_OTHER,
			  "cannot begin a split collective call on '%s': another one has not ended",
			  c->path);
		return tell_error(c, &e);
	}
	code = move_data(c, t, &c->split_bytes);
	if (code == MPI_SUCCESS)
		c->split = split_of(t);
	return code;
}

static int end_split(struct cached *c, const struct pmpi_transfer *t)
{
	enum split which = split_of(t);
	struct error e = { 0 };

	if (c->split == which)
		put_status(t->status, c->split_bytes);
	else
		error_set(&e, MPI_ERR_OTHER,
			  "cannot end a split collective call on '%s': no such call has begun",
			  c->path);
	if (c->split == which)
		c->split = SPLIT_NONE;
	return tell_error(c, &e);
}

static int transfer_data(const struct pmpi_transfer *t)
{
	struct cached *c = find(t->file);

	if (!c)
		return files.next.File_transfer(t);
	switch (t->form) {
	case PMPI_BLOCKING: return move_blocking(c, t, t->status);
	case PMPI_NONBLOCKING: return move_nonblocking(c, t);
	case PMPI_BEGIN: return begin_split(c, t);
	default: return end_split(c, t);
	}
}

/* ---- Seeks ---- */

/* The end of the file in etypes of the view. */
static int64_t end_of(struct cached *c, struct error *e)
{
	int64_t data = view_data(&c->view, share_size(c, e));

	return data / c->view.etype + (data % c->view.etype != 0);
}

static int64_t seek_target(struct cached *c, int64_t at, int64_t now, int64_t last, int whence,
		      struct error *e)
{
	int64_t from = whence == MPI_SEEK_CUR ? now : whence == MPI_SEEK_END ? last : 0, to;

	if (whence != MPI_SEEK_SET && whence != MPI_SEEK_CUR && whence != MPI_SEEK_END)
		error_set(e, MPI_ERR_ARG,
			  "cannot seek in '%s': whence is %d. Try MPI_SEEK_SET, MPI_SEEK_CUR or "
			  "MPI_SEEK_END",
			  c->path, whence);
	if (__builtin_add_overflow(at, from, &to))
		error_set(e, MPI_ERR_ARG,
			  "cannot seek in '%s': the position is too large for a file", c->path);
	else if (to < 0)
		error_set(e, MPI_ERR_ARG,
			  "cannot seek in '%s': position %lld is before the beginning of the view",
			  c->path, (long long)to);
	return to;
}

static int seek(MPI_File file, MPI_Offset at, int whence)
{
	struct cached *c = find(file);
	struct error e = { 0 };
	int64_t to = 0;

	if (!c)
		return files.next.File_seek(file, at, whence);
	pthread_mutex_lock(&c->lock);
	if (is_whole(c, &e))
		to = seek_target(c, at, c->pointer, whence == MPI_SEEK_END ? end_of(c, &e) : 0,
				 whence, &e);
	if (e.class == MPI_SUCCESS)
		c->pointer = to;
	pthread_mutex_unlock(&c->lock);
	return tell_error(c, &e);
}

/* All ranks pass the same offset. The call takes effect between earlier and later calls. */
static int seek_shared(MPI_File file, MPI_Offset at, int whence)
{
	struct cached *c = find(file);
	struct error e = { 0 };
	int64_t to = 0;

	if (!c)
		return files.next.File_seek_shared(file, at, whence);
	if (is_whole(c, &e)) {
		PMPI_Barrier(c->comm);
		to = seek_target(c, at, share_word(c, 0, WORD_SHARED, 0, MPI_NO_OP, &e),
			    whence == MPI_SEEK_END ? end_of(c, &e) : 0, whence, &e);
		error_agree(c->comm, &e);
		if (e.class == MPI_SUCCESS && c->rank == 0)
			share_word(c, 0, WORD_SHARED, to, MPI_REPLACE, &e);
		PMPI_Barrier(c->comm);
	}
	return tell_error(c, &e);
}

static int get_position(MPI_File file, MPI_Offset *at)
{
	struct cached *c = find(file);

	if (!c)
		return files.next.File_get_position(file, at);
	pthread_mutex_lock(&c->lock);
	*at = c->pointer;
	pthread_mutex_unlock(&c->lock);
	return MPI_SUCCESS;
}

static int get_position_shared(MPI_File file, MPI_Offset *at)
{
	struct cached *c = find(file);
	struct error e = { 0 };

	if (!c)
		return files.next.File_get_position_shared(file, at);
	if (is_whole(c, &e))
		*at = share_word(c, 0, WORD_SHARED, 0, MPI_NO_OP, &e);
	return tell_error(c, &e);
}

/* ---- The file ---- */

static void remove_made(MPI_Comm comm, const char *name)
{
	int rank;

	PMPI_Comm_rank(comm, &rank);
	if (rank == 0)
		PMPI_File_delete(name, MPI_INFO_NULL);
	PMPI_Barrier(comm);
}

/* Opens a file with a cache. If one rank fails, all ranks fail. */
static int open_cached(MPI_Comm comm, const char *name, int amode, const struct config *config,
		       int code, MPI_File *file)
{
	int good = code == MPI_SUCCESS, all;
	struct error e = { 0 };

	PMPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, comm);
	if (!all && good) {
		files.next.File_close(file);
		error_set(&e, MPI_ERR_FILE, "cannot open '%.200s': another rank could not open it",
			  name);
		return error_tell_open(comm, &e);
	}
	if (!good || cached_open(comm, name, amode, *file, config, &e))
		return code;
	/* The file is still open, so that its error handler can run, which may end the program. */
	code = error_tell_file(*file, &e);
	files.next.File_close(file);
	/* This call has created the file. */
	if (amode & MPI_MODE_EXCL)
		remove_made(comm, name);
	return code;
}

static int open_file(MPI_Comm comm, const char *name, int amode, MPI_Info info, MPI_File *file)
{
	struct error e = { 0 };
	struct config config;
	int code, inter = 1;

	if (comm == MPI_COMM_NULL || !name || PMPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS ||
	    inter)
		return files.next.File_open(comm, name, amode, info, file);
	config_agree(&config, info, name, comm, &e);
	if (e.class != MPI_SUCCESS)
		return error_tell_open(comm, &e);
	/* A file that is read once, from its beginning, gains nothing from a cache. */
	if (!config.wanted || amode & MPI_MODE_SEQUENTIAL)
		return files.next.File_open(comm, name, amode, info, file);
	/* The cache removes the file: MPI would also do so after an open that fails. */
	code = files.next.File_open(comm, name, amode & ~MPI_MODE_DELETE_ON_CLOSE, info, file);
	return open_cached(comm, name, amode, &config, code, file);
}

/* MPI's handle is closed even if the file could not be written: the near files have the data. */
static int close_file(MPI_File *file)
{
	struct cached *c = open_file_find(*file);
	struct error e = { 0 };
	int code;

	if (!c)
		return files.next.File_close(file);
	cached_close(c, &e);
	/* The file is still open if its data could not be made durable. */
	if (e.class != MPI_SUCCESS) {
		code = error_tell_file(*file, &e);
		if (!open_file_find(*file))
			files.next.File_close(file);
		return code;
	}
	return files.next.File_close(file);
}

/* Also removes the parts of the file's cache that this process can reach. */
static int delete_file(const char *name, MPI_Info info)
{
	struct gone gone;
	int code;

	gone_find(&gone, name, info);
	code = files.next.File_delete(name, info);
	if (code == MPI_SUCCESS)
		gone_remove(&gone, info);
	gone_free(&gone);
	return code;
}

static bool is_native(const char *datarep)
{
	return strcasecmp(datarep, "native") == 0 || strcasecmp(datarep, "internal") == 0;
}

static void set_view_here(struct cached *c, MPI_Offset disp, MPI_Datatype etype,
			  MPI_Datatype filetype, struct error *e)
{
	if (disp == MPI_DISPLACEMENT_CURRENT || disp < 0)
		error_set(e, MPI_ERR_ARG,
			  "cannot set the view of '%s': the displacement is %lld. Try 0 or more",
			  c->path, (long long)disp);
	else if (!view_set(&c->view, disp, etype, filetype))
		error_set(e, MPI_ERR_TYPE,
			  "cannot set the view of '%s': the layout of the filetype cannot be "
			  "determined",
			  c->path);
	c->pointer = 0;
	error_agree(c->comm, e);
	if (e->class == MPI_SUCCESS && c->rank == 0)
		share_word(c, 0, WORD_SHARED, 0, MPI_REPLACE, e);
	PMPI_Barrier(c->comm);
}

/* MPI checks the arguments first. Data written under the old view stays in the cache. */
static int set_view(MPI_File file, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype,
		    const char *datarep, MPI_Info info)
{
	struct cached *c = find(file);
	struct error e = { 0 };
	int code = files.next.File_set_view(file, disp, etype, filetype, datarep, info);

	if (!c || code != MPI_SUCCESS)
		return code;
	if (!is_whole(c, &e))
		return tell_error(c, &e);
	if (is_native(datarep))
		set_view_here(c, disp, etype, filetype, &e);
	else
		cached_leave(c, &e);
	return tell_error(c, &e);
}

static int get_size(MPI_File file, MPI_Offset *size)
{
	struct cached *c = find(file);
	struct error e = { 0 };

	if (!c)
		return files.next.File_get_size(file, size);
	if (is_whole(c, &e))
		*size = share_size(c, &e);
	return tell_error(c, &e);
}

/* All ranks must pass the same size: ranks with different sizes would wait in different calls. */
static void agree_on_size(struct cached *c, MPI_Offset size, struct error *e)
{
	int64_t most[2] = { size, -size };

	PMPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_INT64_T, MPI_MAX, c->comm);
	if (most[0] != -most[1])
		error_set(e, MPI_ERR_ARG,
			  "cannot resize '%s': the ranks give different sizes, %lld to %lld bytes. "
			  "Try the same size at all ranks",
			  c->path, (long long)-most[1], (long long)most[0]);
}

static int resize(struct cached *c, MPI_Offset size, bool allocate)
{
	struct error e = { 0 };

	if (!is_whole(c, &e))
		return tell_error(c, &e);
	if (size < 0)
		error_set(&e, MPI_ERR_ARG, "cannot resize '%s': the size %lld is negative", c->path,
			  (long long)size);
	else if (c->amode & MPI_MODE_RDONLY)
		error_set(&e, MPI_ERR_READ_ONLY,
			  "cannot resize '%s': it was opened read-only. Try MPI_MODE_RDWR",
			  c->path);
	error_agree(c->comm, &e);
	if (e.class == MPI_SUCCESS)
		agree_on_size(c, size, &e);
	if (e.class == MPI_SUCCESS)
		cached_resize(c, size, allocate, &e);
	return tell_error(c, &e);
}

static int set_size(MPI_File file, MPI_Offset size)
{
	struct cached *c = find(file);

	return c ? resize(c, size, false) : files.next.File_set_size(file, size);
}

static int preallocate(MPI_File file, MPI_Offset size)
{
	struct cached *c = find(file);

	return c ? resize(c, size, true) : files.next.File_preallocate(file, size);
}

static int sync_file(MPI_File file)
{
	struct cached *c = find(file);
	struct error e = { 0 };

	if (!c)
		return files.next.File_sync(file);
	if (is_whole(c, &e))
		cached_sync(c, &e);
	return tell_error(c, &e);
}

/* The first call makes the lock, which exists until the file is closed. */
static int set_atomicity(MPI_File file, int flag)
{
	struct cached *c = find(file);
	struct error e = { 0 };
	int code = files.next.File_set_atomicity(file, flag);

	if (!c || code != MPI_SUCCESS)
		return code;
	if (!is_whole(c, &e))
		return tell_error(c, &e);
	if (flag && c->turn.win == MPI_WIN_NULL)
		share_open_turn(c, &e);
	if (e.class == MPI_SUCCESS)
		c->atomic = flag;
	PMPI_Barrier(c->comm);
	return tell_error(c, &e);
}

static int get_amode(MPI_File file, int *amode)
{
	struct cached *c = open_file_find(file);
	int code = files.next.File_get_amode(file, amode);

	if (c && code == MPI_SUCCESS)
		*amode = c->amode;
	return code;
}

static int get_info(MPI_File file, MPI_Info *info)
{
	struct cached *c = find(file);
	int code = files.next.File_get_info(file, info);

	if (c && code == MPI_SUCCESS)
		config_write(&c->config, *info);
	return code;
}

static struct pmpi_feature files = {
	.place = PMPI_FILES,
	.take = {
		.File_transfer = transfer_data, .File_open = open_file,
		.File_close = close_file, .File_delete = delete_file,
		.File_set_view = set_view, .File_get_size = get_size,
		.File_set_size = set_size, .File_preallocate = preallocate,
		.File_sync = sync_file, .File_seek = seek, .File_seek_shared = seek_shared,
		.File_get_position = get_position,
		.File_get_position_shared = get_position_shared,
		.File_set_atomicity = set_atomicity, .File_get_info = get_info,
		.File_get_amode = get_amode,
	},
};

PMPI_FEATURE(files)
