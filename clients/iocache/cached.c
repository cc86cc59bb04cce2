/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of all ranks on a file: open, close, sync, and changes of the size. */
#include "iocache/cached.h"

#include "iocache/former.h"
#include "iocache/gone.h"
#include "iocache/share.h"
#include "window/window.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Opening ---- */

/* All ranks use the name that rank 0 makes. */
static void make_name(struct cached *c)
{
	open_file_name(c->name, c->path);
	PMPI_Bcast(c->name, sizeof(c->name), MPI_CHAR, 0, c->comm);
}

/* Rank 0 finds the absolute path for all ranks, because this is slow in a remote file system. */
static void find_path(struct cached *c, const char *name, struct error *e)
{
	char path[HEAD_PATH] = "";
	char *real = NULL;

	if (c->rank == 0)
		real = realpath(name, NULL);
	if (c->rank == 0 && !real)
		real = realpath(config_plain_name(name), NULL);
	if (c->rank == 0 && !real)
		error_errno(e, errno,
			    "cannot cache '%s': %m. Try a path that can be opened without MPI",
			    name);
	else if (c->rank == 0 && strlen(real) >= sizeof(path))
		error_errno(e, ENAMETOOLONG, "cannot cache '%.150s...': %m", real);
	else if (c->rank == 0)
		strcpy(path, real);
	free(real);
	PMPI_Bcast(path, sizeof(path), MPI_CHAR, 0, c->comm);
	c->path = strdup(path);
}

static void open_file(struct cached *c, const char *name, struct error *e)
{
	find_path(c, name, e);
	if (!c->path)
		error_errno(e, ENOMEM, "cannot allocate the cache of '%s': %m", name);
	else if (*c->path && c->nodes.owns && open_file_fd(c) < 0)
		error_errno(e, errno,
			    "cannot cache '%s': %m. Try a path that can be opened without MPI",
			    c->path);
}

static void open_folder(struct cached *c, struct error *e)
{
	if (c->nodes.owns)
		c->folder = realpath(c->config.path, NULL);
	if (c->nodes.owns && (!c->folder || access(c->folder, W_OK | X_OK) < 0))
		error_errno(e, errno,
			    "cannot use the folder '%s' (pmem_path): %m. Try a folder that exists "
			    "at each node, and can be written", c->config.path);
}

static void release(struct cached *c)
{
	if (c->fd >= 0)
		close(c->fd);
	share_close_turn(c);
	pthread_mutex_destroy(&c->lock);
	nodes_free(&c->nodes);
	view_free(&c->view);
	if (c->comm != MPI_COMM_NULL)
		PMPI_Comm_free(&c->comm);
	free(c->path);
	free(c->folder);
	free(c);
}

static void open_all(struct cached *c, const char *name, struct error *e)
{
	if (!nodes_find(&c->nodes, c->comm))
		error_errno(e, ENOMEM, "cannot allocate the cache of '%s': %m", name);
	open_file(c, name, e);
	if (e->class == MPI_SUCCESS)
		open_folder(c, e);
	error_agree(c->comm, e);
	if (e->class != MPI_SUCCESS)
		return;
	make_name(c);
	gone_note(c);
	gone_sweep(GONE_CHECKS_PER_OPEN);
	share_open(c, e);
	if (e->class == MPI_SUCCESS && c->amode & MPI_MODE_APPEND)
		c->pointer = share_size(c, e);
}

struct cached *cached_open(MPI_Comm comm, const char *name, int amode, MPI_File file,
			   const struct config *config, struct error *e)
{
	struct cached *c = calloc(1, sizeof(*c));
	int there = c != NULL;

	PMPI_Allreduce(MPI_IN_PLACE, &there, 1, MPI_INT, MPI_MIN, comm);
	if (!there || window_own_comm(comm, &c->comm) != MPI_SUCCESS) {
		error_errno(e, ENOMEM, "cannot allocate the cache of '%s': %m", name);
		free(c);
		return NULL;
	}
	c->file = file;
	c->amode = amode;
	c->config = *config;
	c->fd = -1;
	c->turn.win = c->share.data.win = c->share.words.win = MPI_WIN_NULL;
	pthread_mutex_init(&c->lock, NULL);
	view_init(&c->view);
	PMPI_Comm_rank(c->comm, &c->rank);
	PMPI_Comm_size(c->comm, &c->ranks);
	open_all(c, name, e);
	if (e->class == MPI_SUCCESS) {
		/* The shared pointer begins at the end of the file, too. */
		if (c->amode & MPI_MODE_APPEND && c->nodes.owns && c->nodes.mine == 0)
			atomic_store(&c->share.word[WORD_SHARED], c->pointer);
		PMPI_Barrier(c->comm);
		open_file_add(c);
		return c;
	}
	release(c);
	return NULL;
}

/* ---- The calls of all ranks ---- */

void cached_sync(struct cached *c, struct error *e)
{
	PMPI_Barrier(c->comm);
	share_sync(c, e);
	cached_sync_far(c, e);
	error_agree(c->comm, e);
}

void cached_sync_far(struct cached *c, struct error *e)
{
	if (!atomic_exchange(&c->wrote_far, false) || fdatasync(c->fd) == 0)
		return;
	error_errno(e, errno, "cannot sync '%s': %m", c->path);
	c->wrote_far = true;
}

/* Rank 0 removes the file: MPI was not asked to (calls.c). */
static void remove_file(struct cached *c, struct error *e)
{
	int err = 0;

	if (c->rank == 0 && unlink(c->path) < 0 && errno != ENOENT)
		err = errno;
	PMPI_Bcast(&err, 1, MPI_INT, 0, c->comm);
	if (err)
		error_errno(e, err, "cannot remove '%s': %m", c->path);
}

void cached_close(struct cached *c, struct error *e)
{
	bool gone = c->amode & MPI_MODE_DELETE_ON_CLOSE;

	/* Data that cannot be made durable would be lost, so the file stays open. */
	if (c->broken.class == MPI_SUCCESS && !c->left && !gone)
		cached_sync(c, e);
	if (e->class != MPI_SUCCESS)
		return;
	open_file_remove(c);
	if (c->broken.class == MPI_SUCCESS && !c->left)
		share_close(c, gone ? SHARE_DROP : c->config.keep ? SHARE_KEEP : SHARE_FLUSH, e);
	if (gone)
		remove_file(c, e);
	release(c);
}

/* If there is not enough space, the file keeps its size. */
static int allocate_all(int fd, int64_t size)
{
	if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, size) < 0 && errno != EOPNOTSUPP)
		return errno;
	return posix_fallocate(fd, 0, size);
}

/* Rank 0 sets the size. */
static void set_length(struct cached *c, int64_t size, bool allocate, struct error *e)
{
	int err = 0;

	if (c->rank == 0 && allocate)
		err = allocate_all(c->fd, size);
	else if (c->rank == 0 && ftruncate(c->fd, size) < 0)
		err = errno;
	PMPI_Bcast(&err, 1, MPI_INT, 0, c->comm);
	if (err)
		error_errno(e, err, "cannot resize '%s' to %lld bytes: %m", c->path,
			    (long long)size);
}

/* Makes the file shorter and opens the cache again, because bytes that are cut off must read as
 * zeros when the file grows. */
static void shorten(struct cached *c, int64_t size, struct error *e)
{
	int64_t shared =
		c->nodes.owns && c->nodes.mine == 0 ? atomic_load(&c->share.word[WORD_SHARED]) : 0;
	struct error again = { 0 };

	share_close(c, SHARE_FLUSH, e);
	if (e->class == MPI_SUCCESS)
		set_length(c, size, false, e);
	share_open(c, &again);
	if (again.class != MPI_SUCCESS)
		c->broken = again;
	else if (c->nodes.owns && c->nodes.mine == 0)
		atomic_store(&c->share.word[WORD_SHARED], shared);
	if (e->class == MPI_SUCCESS)
		*e = again;
	PMPI_Barrier(c->comm);
}

/* Makes the file shorter, and keeps the parts open. After a crash meanwhile, the file has the old
 * or the new size, and may have zeros beyond the new size. */
static void cut(struct cached *c, int64_t now, int64_t size, struct error *e)
{
	share_begin_cut(c, size, e);
	if (e->class != MPI_SUCCESS)
		return;
	set_length(c, size, false, e);
	if (e->class != MPI_SUCCESS) {
		share_undo_cut(c, now);
		return;
	}
	share_end_cut(c, now, size, e);
	if (e->class == MPI_SUCCESS)
		return;
	/* A part that could not be cut would restore the bytes that were cut off, so the parts
	 * are written back and end. */
	c->broken = *e;
	share_close(c, SHARE_FLUSH, &(struct error){ 0 });
}

void cached_resize(struct cached *c, int64_t size, bool allocate, struct error *e)
{
	int64_t now;

	PMPI_Barrier(c->comm);
	now = share_size(c, e);
	error_agree(c->comm, e);
	PMPI_Barrier(c->comm);
	if (e->class != MPI_SUCCESS || (size == 0 && allocate))
		return;
	if (size < now && !allocate && share_can_cut(c, now, size)) {
		cut(c, now, size, e);
		PMPI_Barrier(c->comm);
		return;
	}
	if (size < now && !allocate) {
		cached_sync(c, e);
		if (e->class == MPI_SUCCESS)
			shorten(c, size, e);
		return;
	}
	share_mark(c, e);
	error_agree(c->comm, e);
	if (e->class == MPI_SUCCESS)
		set_length(c, size, allocate, e);
	if (e->class == MPI_SUCCESS)
		share_explain(e, share_reach(c, 0, size));
	PMPI_Barrier(c->comm);
}

void cached_leave(struct cached *c, struct error *e)
{
	cached_sync(c, e);
	if (e->class != MPI_SUCCESS)
		return;
	share_close(c, SHARE_FLUSH, e);
	if (e->class == MPI_SUCCESS)
		c->left = true;
	else
		c->broken = *e;
}
