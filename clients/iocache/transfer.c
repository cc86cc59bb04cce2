/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A request is split into runs of the view, and at the boundaries of parts. Each run is one put or
 * get, or a copy if the part is this rank's own; flushes at the end complete them. Bytes that are
 * in no part are read and written past the cache. A write that makes the file longer first moves
 * the end of the file, because the owner of a part writes nothing back beyond it.
 */
#include "iocache/cached.h"

#include "iocache/share.h"
#include "pmpi/pmpi.h"
#include "rma/local.h"

#include <errno.h>
#include <string.h>
#include <ummap.h>
#include <unistd.h>

#define NO_RANK (-1)
#define SEVERAL_RANKS (-2)

struct move {
	struct cached *c;
	bool writing;
	int touched;             /* owner to flush, or NO_RANK, SEVERAL_RANKS */
	bool written;            /* whether a part was written that must become durable */
};

/* ---- One run ---- */

static void move_far(struct cached *c, char *bytes, int64_t len, int64_t off, bool writing,
		     struct error *e)
{
	int fd = open_file_fd(c);

	if (fd < 0) {
		error_errno(e, errno,
			    "cannot open '%s': %m. Each rank opens the file itself for bytes "
			    "beyond its cache", c->path);
		return;
	}
	while (len > 0) {
		ssize_t n = writing ? pwrite(fd, bytes, (size_t)len, off) :
				      pread(fd, bytes, (size_t)len, off);

		if (n < 0 && errno != EINTR) {
			error_errno(e, errno, "cannot %s '%s': %m", writing ? "write" : "read",
				    c->path);
			return;
		}
		if (n == 0) {
			memset(bytes, 0, (size_t)len);
			return;
		}
		n = n < 0 ? 0 : n;
		bytes += n;
		off += n;
		len -= n;
		if (writing)
			c->wrote_far = true;
	}
}

static void move_own(struct cached *c, char *bytes, int64_t len, uint64_t at, bool writing,
		struct error *e)
{
	char *here = c->share.base + at;

	if (umcopy(writing ? here : bytes, writing ? bytes : here, (size_t)len) < 0)
		error_errno(e, errno, "cannot %s the cache of '%s': %s", writing ? "write" : "read",
			    c->path, umerrormsg());
}

static void move_other(struct move *m, char *bytes, int64_t len, uint64_t at, int rank,
		       struct error *e)
{
	MPI_Win win = m->c->share.data.win;
	struct pmpi_operation o = {
		.from = bytes, .n = len, .type = MPI_BYTE,
		.to = bytes, .to_n = len, .to_type = MPI_BYTE,
		.rank = rank, .disp = (MPI_Aint)at, .target_n = len, .target_type = MPI_BYTE,
		.win = win,
	};
	int code = m->writing ? pmpi_first.Put(&o) : pmpi_first.Get(&o);

	m->touched = m->touched == NO_RANK || m->touched == rank ? rank : SEVERAL_RANKS;
	share_explain(e, code);
}

/* Moves the bytes from `off` on that one owner has in a row. Returns how many. */
static int64_t move_run(struct move *m, char *bytes, int64_t len, int64_t off, struct error *e)
{
	struct cached *c = m->c;
	uint64_t at, run;
	uint32_t node = spread_find(&c->share.spread, (uint64_t)off, &at, &run);
	bool is_far = node == c->share.spread.nodes;

	len = (uint64_t)len < run ? len : (int64_t)run;
	len = len < LAYOUT_PACKED ? len : LAYOUT_PACKED;
	if (m->writing)
		share_explain(e, share_reach(c, is_far ? 0 : node, off + len));
	if (e->class != MPI_SUCCESS)
		return 0;
	if (is_far)
		move_far(c, bytes, len, off, m->writing, e);
	else if (c->nodes.owner[node] == c->rank)
		move_own(c, bytes, len, at, m->writing, e);
	else
		move_other(m, bytes, len, at, c->nodes.owner[node], e);
	if (m->writing && !is_far && c->config.durable_write)
		m->written = true;
	return len;
}

static void flush_ranks(struct move *m, struct error *e)
{
	MPI_Win win = m->c->share.data.win;

	if (m->touched >= 0)
		share_explain(e, pmpi_first.Win_flush(m->touched, win));
	else if (m->touched == SEVERAL_RANKS)
		share_explain(e, pmpi_first.Win_flush_all(win));
}

/* ---- A request ---- */

/* Makes the written parts durable, one node after the other. */
static void commit_parts(struct cached *c, int64_t data, int64_t bytes, struct error *e)
{
	int64_t run;

	for (uint32_t node = 0; node < c->share.spread.nodes && e->class == MPI_SUCCESS; node++) {
		for (int64_t done = 0; done < bytes; done += run) {
			int64_t off = view_place(&c->view, data + done, &run);
			uint64_t at, row;

			if (spread_find(&c->share.spread, (uint64_t)off, &at, &row) == node) {
				share_commit(c, node, e);
				break;
			}
			run = (uint64_t)run < row ? run : (int64_t)row;
		}
	}
}

static int64_t move_all(struct cached *c, char *bytes, int64_t len, int64_t data, bool writing,
			struct error *e)
{
	struct move m = { .c = c, .writing = writing, .touched = NO_RANK };
	int64_t run, done = 0;

	while (done < len && e->class == MPI_SUCCESS) {
		int64_t off = view_place(&c->view, data + done, &run);

		run = run < len - done ? run : len - done;
		done += move_run(&m, bytes + done, run, off, e);
	}
	flush_ranks(&m, e);
	if (m.written && e->class == MPI_SUCCESS)
		commit_parts(c, data, done, e);
	if (writing && c->config.durable_write)
		cached_sync_far(c, e);
	return e->class == MPI_SUCCESS ? done : 0;
}

/* The number of bytes, at most len, from byte `data` of the view to the end of the file. */
static int64_t readable_bytes(struct cached *c, int64_t data, int64_t len, struct error *e)
{
	int64_t run, last, end;

	if (len == 0 || c->view.size == 0)
		return 0;
	last = view_place(&c->view, data + len - 1, &run);
	if (last < c->share.size || last < share_size(c, e))
		return len;
	end = view_data(&c->view, c->share.size);
	return end > data ? end - data : 0;
}

void transfer_check(const struct cached *c, const struct request *r, int64_t *bytes,
		    struct error *e)
{
	const char *verb = r->writing ? "write" : "read";
	MPI_Count size = 0;
	int wants = r->writing ? MPI_MODE_RDONLY : MPI_MODE_WRONLY;

	*bytes = 0;
	if (r->count < 0) {
		error_set(e, MPI_ERR_COUNT, "cannot %s '%s': the count %lld is negative", verb,
			  c->path, (long long)r->count);
	} else if (r->type == MPI_DATATYPE_NULL ||
		   PMPI_Type_size_x(r->type, &size) != MPI_SUCCESS || size == MPI_UNDEFINED) {
		error_set(e, MPI_ERR_TYPE, "cannot %s '%s': the datatype is null, or has no size",
			  verb, c->path);
	} else if (c->amode & wants) {
		error_set(e, r->writing ? MPI_ERR_READ_ONLY : MPI_ERR_ACCESS,
			  "cannot %s '%s': it was opened %s-only. Try MPI_MODE_RDWR", verb, c->path,
			  r->writing ? "read" : "write");
	} else if (__builtin_mul_overflow(size, r->count, bytes)) {
		error_set(e, MPI_ERR_COUNT,
			  "cannot %s '%s': %lld items are more than a file can have", verb, c->path,
			  (long long)r->count);
	} else if (*bytes % c->view.etype) {
		error_set(e, MPI_ERR_ARG,
			  "cannot %s '%s': %lld bytes are not a multiple of the etype's %lld bytes",
			  verb, c->path, (long long)*bytes, (long long)c->view.etype);
	}
}

/* Moves items that are too large to be packed: each block by itself. */
static int64_t move_blocks(struct cached *c, const struct request *r, int64_t data, int64_t len,
			   struct error *e)
{
	const struct layout *l = layout_of(r->type);
	struct layout_cursor at = layout_cursor_begin(l, (int64_t)(intptr_t)r->buf, r->count);
	int64_t done = 0;

	if (!l)
		error_set(e, MPI_ERR_TYPE,
			  "cannot %s '%s': the datatype has more than 1 GiB, and its layout cannot "
			  "be determined. Try a smaller datatype",
			  r->writing ? "write" : "read", c->path);
	while (done < len && e->class == MPI_SUCCESS) {
		uint64_t n;
		char *here = (char *)(intptr_t)layout_cursor_address(&at, &n);

		n = n < (uint64_t)(len - done) ? n : (uint64_t)(len - done);
		done += move_all(c, here, (int64_t)n, data + done, r->writing, e);
		layout_cursor_advance(&at, n);
	}
	return done;
}

/* Moves items with gaps through a contiguous buffer. */
static int64_t move_packed(struct cached *c, const struct request *r, int64_t data, int64_t len,
			   struct error *e)
{
	int64_t bytes = (int64_t)local_size(r->type, r->count), done = 0;
	struct local l;

	/* A short read must leave the rest of the program's buffer unchanged. */
	if (!local_take(&l, r->buf, r->type, r->count, true, r->writing || len < bytes)) {
		error_errno(e, ENOMEM, "cannot %s %lld bytes of '%s': %m",
			    r->writing ? "write" : "read", (long long)bytes, c->path);
		return 0;
	}
	done = move_all(c, l.at, len, data, r->writing, e);
	if (!r->writing && e->class == MPI_SUCCESS)
		local_return(&l, r->buf, r->type, r->count);
	local_drop(&l);
	return done;
}

/* Keeps other ranks from writing in atomic mode. The lock may be delayed until the first operation,
 * so this function makes one. */
static void take_turn(struct cached *c, bool alone, struct error *e)
{
	int64_t word;
	struct pmpi_operation get = { .to = &word, .to_n = 1, .to_type = MPI_INT64_T, .target_n = 1,
				      .target_type = MPI_INT64_T, .win = c->turn.win };

	share_explain(e, pmpi_first.Win_lock(alone ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, 0, 0,
					     c->turn.win));
	share_explain(e, pmpi_first.Get(&get));
	share_explain(e, pmpi_first.Win_flush(0, c->turn.win));
}

int64_t transfer(struct cached *c, const struct request *r, int64_t at, struct error *e)
{
	int64_t len, data, done = 0;
	bool large;

	transfer_check(c, r, &len, e);
	if (e->class == MPI_SUCCESS && at < 0)
		error_set(e, MPI_ERR_ARG, "cannot %s '%s': the offset %lld is negative",
			  r->writing ? "write" : "read", c->path, (long long)at);
	if (r->writing && len > 0 && c->view.size == 0)
		error_set(e, MPI_ERR_ARG, "cannot write '%s': the filetype of the view is empty",
			  c->path);
	if (e->class != MPI_SUCCESS || len == 0)
		return 0;
	if (__builtin_mul_overflow(at, c->view.etype, &data) || data > INT64_MAX / 4 ||
	    len > INT64_MAX / 4 || !view_has(&c->view, data + len - 1)) {
		error_set(e, MPI_ERR_ARG,
			  "cannot %s '%s': the offset %lld is too large for a file",
			  r->writing ? "write" : "read", c->path, (long long)at);
		return 0;
	}
	/* Items without gaps need no packing. */
	large = len / r->count > LAYOUT_PACKED && !type_bytes(r->type, r->count);
	if (c->atomic)
		take_turn(c, r->writing, e);
	if (!r->writing && e->class == MPI_SUCCESS)
		len = readable_bytes(c, data, len, e);
	if (e->class == MPI_SUCCESS && len > 0)
		done = large ? move_blocks(c, r, data, len, e) : move_packed(c, r, data, len, e);
	if (c->atomic)
		pmpi_first.Win_unlock(0, c->turn.win);
	return done;
}
