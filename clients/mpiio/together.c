/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writing together. In rounds: each rank has libummap write some of what has changed, which the driver takes into its
 * staging buffer while its gate is closed; then all write these by one collective call, in which MPI brings neighbours
 * together; what a round has written leaves the buffers when all know that it went well at all. No lock of a segment is held
 * while a rank waits for others, so faults are served all the time, those that MPI itself makes in the middle of such a call
 * too. The gate is closed only while every rank is in here.
 */
#include "mpiio/driver.h"
#include "common/size.h"
#include "mpiio/gate.h"
#include "mpiio/shareio.h"
#include "pmpi/pmpi.h"
#include "transport/engine.h"
#include "window/consistent.h"
#include "window/shared.h"
#include "window/versioned.h"
#include "window/window.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <ummap-mpi.h>

/* What a rank adds to a round, more or less. */
#define ROUND ((size_t)16 << 20)
/* If MPI does not say what its buffers are. */
#define BUFFER (1 << 20)
/* And when it is enough for one, with what was staged before: MPI counts in ints. */
#define ENOUGH ((size_t)256 << 20)

/* One collective write under way. */
struct round {
	struct staged **staged;
	size_t count;
	char *data;                 /* all of theirs, one behind the other */
	int *len;                   /* the same, as rows of the file */
	MPI_Aint *to;
	int rows, bytes;
	int next, done;             /* those that have been written: rows, bytes */
};

/* What all ranks have to have alike to write together; each number in both directions, for the greatest is agreed on. */
struct common {
	int64_t alone;              /* this rank has something that does not go together */
	int64_t first;              /* ranks - rank, of those that have a share */
	int64_t hash, unhash;       /* of the file and how it is shared out */
};

#define COMMON_WORDS ((int)(sizeof(struct common) / sizeof(int64_t)))

static struct pmpi_feature together;

static bool all_agree(MPI_Comm comm, bool yes)
{
	int all = yes;

	PMPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, comm);
	return all;
}

/* ---- A round ---- */

static size_t staged_bytes(struct mpiio *m)
{
	size_t bytes;

	pthread_mutex_lock(&m->lock);
	bytes = m->staging.bytes;
	pthread_mutex_unlock(&m->lock);
	return bytes;
}

/* Has libummap write from *at on. */
static void fill_staging(struct mpiio *m, char **at, const char *end, struct error *e)
{
	while (*at < end && staged_bytes(m) < ROUND) {
		size_t len = (size_t)(end - *at) < ROUND ? (size_t)(end - *at) : ROUND;

		if (umsync_range(*at, len, UMMAP_NOFLUSH) < 0)
			error_errno(e, errno, "cannot sync '%s': %s", m->path, umerrormsg());
		*at += len;
	}
}

static void free_round(struct round *r)
{
	free(r->staged);
	free(r->len);
	free(r->data);
	free(r->to);
}

static size_t count_rows(const struct round *r, const struct layout *l)
{
	size_t rows = 0;
	uint64_t row;

	for (size_t i = 0; i < r->count; i++) {
		for (uint64_t done = 0; done < r->staged[i]->len; done += row, rows++)
			layout_place(l, r->staged[i]->off + done, &row);
	}
	return rows;
}

static void lay_rows(struct round *r, const struct layout *l)
{
	for (size_t i = 0; i < r->count; i++) {
		struct staged *p = r->staged[i];
		uint64_t row;

		for (uint64_t done = 0; done < p->len; done += row, r->rows++) {
			uint64_t to = layout_place(l, p->off + done, &row);

			row = row < p->len - done ? row : p->len - done;
			memcpy(r->data + r->bytes, p->data + done, row);
			r->bytes += (int)row;
			r->to[r->rows] = (MPI_Aint)to;
			r->len[r->rows] = (int)row;
		}
	}
}

/* What is staged now. Without memory for that it stays there. */
static void submit(struct mpiio *m, struct round *r)
{
	size_t rows, bytes = 0, most = 0;

	*r = (struct round){ 0 };
	pthread_mutex_lock(&m->lock);
	for (const struct staged *p = m->staging.first; p; p = p->next)
		most++;
	r->staged = malloc((most + 1) * sizeof(*r->staged));
	r->count = r->staged ? staging_submit(&m->staging, r->staged, most, ENOUGH) : 0;
	pthread_mutex_unlock(&m->lock);
	for (size_t i = 0; i < r->count; i++)
		bytes += r->staged[i]->len;
	rows = count_rows(r, &m->layout) + 1;
	r->data = malloc(bytes + 1);
	r->len = malloc(rows * sizeof(*r->len));
	r->to = malloc(rows * sizeof(*r->to));
	if (r->data && r->len && r->to)
		lay_rows(r, &m->layout);
}

static void complete(struct mpiio *m, struct round *r, bool written)
{
	pthread_mutex_lock(&m->lock);
	staging_complete(&m->staging, r->staged, r->count, written);
	pthread_mutex_unlock(&m->lock);
	free_round(r);
}

/* Collective. What is written between them behind the end of the file may be anything, says MPI, and is with ROMIO. So the
 * file is made as long as it will be before, by the last byte. Returns 0 or a negative errno. */
static int make_long(MPI_Comm comm, MPI_File file, struct mpiio *m, const struct round *r)
{
	MPI_Offset size = 0, end = r->rows > 0 ? r->to[r->rows - 1] + r->len[r->rows - 1] : 0;
	int64_t most[2];
	int err = shareio_errno(PMPI_File_get_size(file, &size));

	most[0] = size;
	most[1] = end;
	PMPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_INT64_T, MPI_MAX, comm);
	if (most[1] <= most[0])
		return err;
	if (end == most[1]) {
		const struct staged *last = r->staged[r->count - 1];

		err = shareio(m->file, &m->layout, &(struct iovec){ (char *)last->data + last->len - 1, 1 }, 1,
			       last->off + last->len - 1, true);
		m->unsynced = true;
	}
	PMPI_Barrier(comm);
	return err;
}

/* Collective: len and to are of rows, whose bytes are at data. Returns 0 or a negative errno. */
static int write_rows(MPI_File file, const char *data, const int *len, MPI_Aint *to, int rows)
{
	MPI_Aint from = rows > 0 ? to[0] : 0;
	MPI_Datatype place = MPI_BYTE;
	MPI_Status status;
	int code, bytes = 0, got = 0;

	/* From the first on: of a type that is in one row, ROMIO does not look where it begins. */
	for (int i = 0; i < rows; i++) {
		bytes += len[i];
		to[i] -= from;
	}
	if (rows > 0) {
		PMPI_Type_create_hindexed(rows, len, to, MPI_BYTE, &place);
		PMPI_Type_commit(&place);
	}
	errno = 0;
	code = PMPI_File_set_view(file, from, MPI_BYTE, place, "native", MPI_INFO_NULL);
	if (code == MPI_SUCCESS)
		code = PMPI_File_write_at_all(file, 0, data, bytes, MPI_BYTE, &status);
	if (code == MPI_SUCCESS)
		PMPI_Get_count(&status, MPI_BYTE, &got);
	for (int i = 0; i < rows; i++)
		to[i] += from;
	if (rows > 0)
		PMPI_Type_free(&place);
	if (code != MPI_SUCCESS)
		return shareio_errno(code);
	/* Of nothing, not every ROMIO says how much it was. */
	return rows > 0 && got != bytes ? -EIO : 0;
}

/* What lies before `end` of the rows that are left. */
static int write_until(MPI_File file, struct round *r, MPI_Aint end)
{
	int first = r->next, last = first, bytes = 0, cut = 0, err;

	while (last < r->rows && r->to[last] < end)
		bytes += r->len[last++];
	if (last > first && r->to[last - 1] + r->len[last - 1] > end)
		cut = (int)(r->to[last - 1] + r->len[last - 1] - end);
	if (cut)
		r->len[last - 1] -= cut;
	err = write_rows(file, r->data + r->done, r->len + first, r->to + first, last - first);
	r->done += bytes - cut;
	r->next = last;
	if (cut) {
		r->next--;
		r->to[last - 1] = end;
		r->len[last - 1] = cut;
	}
	return err;
}

/* Collective. A rank that has nothing, or cannot say what, writes nothing. No call is for more of the file than one buffer
 * of the rank that writes it: of several, ROMIO gives up at the first that fails, and the other ranks wait for the next.
 * Returns 0 or a negative errno: that of err, or of this rank's writes. */
static int write_round(MPI_Comm comm, MPI_File file, int64_t buffer, struct round *r, int err)
{
	for (;;) {
		int64_t least[2] = { r->next < r->rows ? r->to[r->next] : INT64_MAX, !err };

		PMPI_Allreduce(MPI_IN_PLACE, least, 2, MPI_INT64_T, MPI_MIN, comm);
		if (!least[1] || least[0] == INT64_MAX)
			return err;
		err = write_until(file, r, (MPI_Aint)(least[0] + buffer));
	}
}

/* Of the ranks that write for the others. */
static int64_t buffer_size(MPI_File file)
{
	char value[MPI_MAX_INFO_VAL + 1] = "";
	uint64_t size = 0;
	MPI_Info used;
	int found = 0;

	if (PMPI_File_get_info(file, &used) == MPI_SUCCESS) {
		PMPI_Info_get(used, "cb_buffer_size", MPI_MAX_INFO_VAL, value, &found);
		PMPI_Info_free(&used);
	}
	return found && size_parse(value, &size) == 0 && size > 0 ? (int64_t)size : BUFFER;
}

static void no_round(struct error *e, const char *path, int err)
{
	error_errno(e, -err, "cannot write '%s' collectively: %s", path, strerror(-err));
}

/* Whether all went well at all ranks. m NULL: this rank has nothing. */
static bool write_rounds(MPI_Comm comm, MPI_File file, struct mpiio *m, const char *path, char *at, const char *end,
			 struct error *e)
{
	int64_t buffer = buffer_size(file);
	int state[2] = { true, false }; /* all is well, all are at their end */

	while (state[0] && !state[1]) {
		struct round r = { 0 };
		int err;

		if (m) {
			fill_staging(m, &at, end, e);
			submit(m, &r);
		}
		err = write_round(comm, file, buffer, &r, make_long(comm, file, m, &r));
		if (err || (r.count && !r.rows))
			no_round(e, path, err ? err : -ENOMEM);
		state[0] = e->class == MPI_SUCCESS;
		state[1] = at >= end;
		PMPI_Allreduce(MPI_IN_PLACE, state, 2, MPI_INT, MPI_LAND, comm);
		if (m)
			complete(m, &r, state[0]);
	}
	return state[0];
}

/* ---- All of it ---- */

static void hash_bytes(uint64_t *hash, const void *bytes, size_t len)
{
	for (const unsigned char *b = bytes; len > 0; len--)
		*hash = (*hash ^ *b++) * 0x100000001b3;
}

/* Whether all shares are stripes of one file, and no others are in it: what lies between them may be written, too. */
static bool goes_together(MPI_Comm comm, const struct mpiio *m, bool alone, int *from)
{
	uint64_t hash = 0xcbf29ce484222325;
	struct common c = { .alone = alone || !transport_writes_together() };
	int rank, ranks;

	PMPI_Comm_rank(comm, &rank);
	PMPI_Comm_size(comm, &ranks);
	if (m) {
		hash_bytes(&hash, m->path, strlen(m->path) + 1);
		hash_bytes(&hash, m->hints, strlen(m->hints));
		hash_bytes(&hash, &m->layout.offset, sizeof(m->layout.offset));
		hash_bytes(&hash, &m->layout.stripe, sizeof(m->layout.stripe));
		c.alone = c.alone || !m->layout.stripe || m->layout.ranks != (uint32_t)ranks;
		c.hash = (int64_t)(hash >> 2);
		c.unhash = -c.hash;
	} else {
		c.hash = c.unhash = INT64_MIN;
	}
	c.first = m ? ranks - rank : 0;
	PMPI_Allreduce(MPI_IN_PLACE, &c, COMMON_WORDS, MPI_INT64_T, MPI_MAX, comm);
	*from = ranks - (int)c.first;
	return ranks > 1 && !c.alone && c.first > 0 && c.hash == -c.unhash;
}

/* The path of the file and the hints for it, from a rank that has them; NULL: there is no memory. Both in one piece. */
static char *share_name(MPI_Comm comm, const struct mpiio *m, int from)
{
	int rank, len[2] = { 0 };
	char *name;

	PMPI_Comm_rank(comm, &rank);
	if (rank == from) {
		len[0] = (int)strlen(m->path) + 1;
		len[1] = (int)strlen(m->hints) + 1;
	}
	PMPI_Bcast(len, 2, MPI_INT, from, comm);
	name = malloc((size_t)len[0] + (size_t)len[1]);
	if (!all_agree(comm, name)) {
		free(name);
		return NULL;
	}
	if (rank == from) {
		memcpy(name, m->path, (size_t)len[0]);
		memcpy(name + len[0], m->hints, (size_t)len[1]);
	}
	PMPI_Bcast(name, len[0] + len[1], MPI_CHAR, from, comm);
	return name;
}

/* Collective. */
static int open_together(MPI_Comm comm, const char *name, MPI_File *file)
{
	char set[MPI_MAX_INFO_VAL];
	MPI_Info info;
	int code = mpiio_info(name + strlen(name) + 1, &info), found = 0;

	/* Better a few writes than to read what lies between. */
	if (code == MPI_SUCCESS)
		PMPI_Info_get(info, "romio_ds_write", sizeof(set) - 1, set, &found);
	if (code == MPI_SUCCESS && !found)
		PMPI_Info_set(info, "romio_ds_write", "disable");
	errno = 0;
	code = PMPI_File_open(comm, name, MPI_MODE_RDWR, info, file);
	if (info != MPI_INFO_NULL)
		PMPI_Info_free(&info);
	return shareio_errno(code);
}

/* Returns whether all is in the file and durable; *lost: if not, what was written may be lost. Else it is in the staging
 * buffers, or in the file and has to be made durable. */
static bool write_together(MPI_Comm comm, const char *name, struct mpiio *m, char *base, size_t len, bool *lost,
			   struct error *e)
{
	MPI_File file = MPI_FILE_NULL;
	int err = open_together(comm, name, &file);
	bool good;

	if (err)
		no_round(e, name, err);
	good = all_agree(comm, !err) && write_rounds(comm, file, m, name, base, base + len, e);
	if (good) {
		errno = 0;
		err = shareio_errno(PMPI_File_sync(file));
		if (err)
			no_round(e, name, err);
		good = all_agree(comm, !err);
		*lost = !good;
	}
	if (file != MPI_FILE_NULL)
		PMPI_File_close(&file);
	return good;
}

/* For the flush of libummap, which then takes what was written for changed again. */
static void set_failed(struct mpiio *m, int err)
{
	if (err)
		m->unsynced = true;
	pthread_mutex_lock(&m->lock);
	m->failed = err;
	pthread_mutex_unlock(&m->lock);
}

/* Nobody closes the gate before all are here, and the flushes of threads which wait for that depend on nobody else. Returns
 * false if it went wrong, which all ranks know then. */
static bool sync_together(MPI_Comm comm, struct mpiio *m, int from, char *base, size_t len, struct error *e)
{
	bool closed = mpiio_close_gate(), good = true, lost = false;
	char *name;

	if (all_agree(comm, closed) && (name = share_name(comm, m, from))) {
		good = write_together(comm, name, m, base, len, &lost, e);
		free(name);
	}
	if (!good)
		error_agree(comm, e);
	if (!good && m)
		set_failed(m, lost ? -EIO : EIO);
	if (closed)
		gate_open();
	return good;
}

/* What was not written together, or has changed since; and libummap learns what is durable. */
static void sync_alone(char *base, size_t len, const char *name, struct error *e)
{
	const struct region *region = region_find(base);

	if (region)
		region_sync(region, base, len, e);
	else if ((len ? umsync_range(base, len, 0) : umsync(base, 0)) < 0)
		error_errno(e, errno, *name ? "cannot sync '%s': %s" : "%s%s", name, umerrormsg());
}

/* Makes the mappings of all ranks durable, or [base, base + len) of each. base NULL: this rank has none; len 0: all of one
 * that begins at base; skip: not this one. All have the error of one. */
static void collective_sync(MPI_Comm comm, char *base, size_t len, bool skip, struct error *e)
{
	struct mpiio *m = base && !skip ? mpiio_find(base) : NULL;
	bool good = true;
	int from;

	if (goes_together(comm, m, base && !m, &from))
		good = sync_together(comm, m, from, base, len ? len : m ? m->size : 0, e);
	if (base && !skip)
		sync_alone(base, len, m ? m->path : "", e);
	if (m)
		set_failed(m, 0);
	if (good)
		error_agree(comm, e);
}

/* The same for the parts of a window. */
static void sync_window(struct window *w, bool skip, struct error *e)
{
	const struct region *region = w->region && w->region->stored_len ? w->region : NULL;

	if (region && region->consistent) {
		consistent_sync(w->comm, w->region, e);
		return;
	}
	if (!w->shared && !w->versioned && !w->alone) {
		collective_sync(w->comm, region ? region->stored : NULL, region ? region->stored_len : 0, skip, e);
		return;
	}
	if (!skip && w->shared)
		shared_sync(w->shared, e);
	if (!skip && region)
		region_sync(region, region->stored, region->stored_len, e);
	error_agree(w->comm, e);
	if (!skip && w->versioned && e->class == MPI_SUCCESS)
		versioned_commit(w->comm, w->versioned, e);
}

/* ---- The calls ---- */

static void sync_others(MPI_Comm comm, void *addr, const struct region *region, struct error *e)
{
	/* The part of it that is in storage, if any. */
	if (region)
		collective_sync(comm, region->stored_len ? region->stored : NULL,
				region->stored_len, false, e);
	else
		collective_sync(comm, addr, 0, false, e);
	if (e->class == MPI_SUCCESS)
		versioned_commit(comm, region ? region->versioned : NULL, e);
}

int ummpi_sync_all(MPI_Comm comm, void *addr)
{
	struct region *region = addr ? region_find(addr) : NULL;
	struct error e = { 0 };

	if (consistent_is_whole(comm, region ? region->consistent : NULL, &e))
		consistent_sync(comm, region, &e);
	else if (e.class == MPI_SUCCESS)
		sync_others(comm, addr, region, &e);
	return e.class == MPI_SUCCESS ? MPI_SUCCESS : error_tell_comm(comm, &e);
}

/* For windows that want it then. */
static int fence(int assert, MPI_Win win)
{
	int code = together.next.Win_fence(assert, win);
	struct window *w = window_of(win);
	struct error e = { 0 };

	if (code != MPI_SUCCESS || !w || !w->fencesync)
		return code;
	sync_window(w, false, &e);
	return e.class == MPI_SUCCESS ? MPI_SUCCESS : error_tell_win(win, &e);
}

/* What is in memory only is lost with the window, so that stands unless all could write theirs. */
static int free_window(MPI_Win *win)
{
	struct window *w = window_of(*win);
	struct error e = { 0 };

	if (w && w->comm != MPI_COMM_NULL && !w->discarded) {
		/* From here on nobody else comes in. */
		PMPI_Barrier(w->comm);
		sync_window(w, !window_hints(w) || window_hints(w)->discard, &e);
	}
	return e.class == MPI_SUCCESS ? together.next.Win_free(win) : error_tell_win(*win, &e);
}

static struct pmpi_feature together = {
	.place = PMPI_TOGETHER,
	.take = { .Win_fence = fence, .Win_free = free_window },
};
PMPI_FEATURE(together)
