/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A collective write consists of rounds. In each round, a rank lets libummap write a part of its
 * changes, which the driver puts into the staging buffer because the gate is closed. Then all ranks
 * write these by collective calls, in which MPI joins the stripes of all ranks. Staged data is
 * removed when all ranks know that no rank has failed.
 *
 * No lock of a segment is held while a rank waits for others, so faults are always served, also
 * those of MPI inside a collective call. The gate is closed only while all ranks are in this file.
 */
#include "mpiio/driver.h"

#include "common/minmax.h"
#include "common/size.h"
#include "transport/engine.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <ummap.h>

/* Data that a rank stages in a round, approximately. */
#define ROUND_BYTES ((size_t)16 << 20)
/* Limit for the data of a round and what was staged before: MPI counts bytes with an int. */
#define MAX_ROUND_BYTES ((size_t)256 << 20)
/* Size of MPI's buffers if MPI does not tell it. */
#define DEFAULT_BUFFER_BYTES (1 << 20)

static bool agree_all(MPI_Comm comm, bool good)
{
	int all = good;

	PMPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, comm);
	return all;
}

/* ---- One file ---- */

/* The file of a collective write, as bytes that ranks send. */
struct target {
	char path[PATH_MAX];
	char hints[PATH_MAX];
	uint64_t offset, stripe;
};

/* Finds the file, at ranks without a mapping, too. Returns false at all ranks if the mappings are
 * not stripes of one file that these ranks share among them: a collective write may also write the
 * bytes between the stripes. */
static bool find_target(MPI_Comm comm, const struct mpiio_handle *h, bool must_not,
			struct target *t)
{
	struct target own = { .path = "" };
	int rank, ranks, most[2];

	PMPI_Comm_rank(comm, &rank);
	PMPI_Comm_size(comm, &ranks);
	if (h) {
		const struct stripes *s = &h->stripes;

		must_not |= !s->stripe || s->ranks != (uint32_t)ranks ||
			    strlen(h->path) >= PATH_MAX || strlen(h->hints) >= PATH_MAX;
		strncpy(own.path, h->path, PATH_MAX - 1);
		strncpy(own.hints, h->hints, PATH_MAX - 1);
		own.offset = s->offset;
		own.stripe = s->stripe;
	}
	most[0] = must_not || ranks == 1 || !transport_writes_together();
	most[1] = h ? ranks - rank : 0;
	PMPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_INT, MPI_MAX, comm);
	if (most[0] || !most[1])
		return false;
	*t = own;
	PMPI_Bcast(t, sizeof(*t), MPI_BYTE, ranks - most[1], comm);
	return agree_all(comm, !h || memcmp(t, &own, sizeof(own)) == 0);
}

static int open_target(MPI_Comm comm, const struct target *t, MPI_File *file)
{
	char value[MPI_MAX_INFO_VAL];
	MPI_Info info;
	int code = mpiio_make_info(t->hints, &info), found = 0;

	/* A few more writes are better than reading the bytes between them. */
	if (code == MPI_SUCCESS)
		PMPI_Info_get(info, "romio_ds_write", sizeof(value) - 1, value, &found);
	if (code == MPI_SUCCESS && !found)
		PMPI_Info_set(info, "romio_ds_write", "disable");
	errno = 0;
	code = PMPI_File_open(comm, t->path, MPI_MODE_RDWR, info, file);
	if (info != MPI_INFO_NULL)
		PMPI_Info_free(&info);
	return mpiio_errno(code);
}

/* Returns the size of the buffers of the ranks that write for others. */
static int64_t find_buffer_size(MPI_File file)
{
	char value[MPI_MAX_INFO_VAL + 1] = "";
	uint64_t size = 0;
	MPI_Info used;
	int found = 0;

	if (PMPI_File_get_info(file, &used) == MPI_SUCCESS) {
		PMPI_Info_get(used, "cb_buffer_size", MPI_MAX_INFO_VAL, value, &found);
		PMPI_Info_free(&used);
	}
	return found && size_parse(value, &size) == 0 && size > 0 ? (int64_t)size
								   : DEFAULT_BUFFER_BYTES;
}

/* ---- A round ---- */

/* The data of one rank. A row is contiguous in the file, and lies in one block of buffer_size. */
struct round {
	char *data;    /* bytes of all rows, one after the other */
	MPI_Aint *to;  /* offset of each row in the file, in ascending order */
	int *len;      /* bytes of each row */
	int rows;      /* number of rows */
	int next;      /* first row that is not written */
	int done;      /* bytes of the rows before it */
	bool is_empty; /* whether no data was staged */
};

static void stage_changes(struct mpiio_handle *h, char **at, const char *end, struct error *e)
{
	bool is_full = false;

	while (*at < end && !is_full) {
		size_t len = min_size((size_t)(end - *at), ROUND_BYTES);

		if (umsync_range(*at, len, UMMAP_NOFLUSH) < 0)
			error_errno(e, errno, "cannot sync '%s': %s", h->path, umerrormsg());
		*at += len;
		pthread_mutex_lock(&h->lock);
		is_full = h->staging.bytes >= ROUND_BYTES;
		pthread_mutex_unlock(&h->lock);
	}
}

static void add_rows(struct round *r, const struct stripes *s, const struct staged_write *w,
		     int64_t buffer)
{
	uint64_t run;

	for (uint64_t done = 0; done < w->len; done += run, r->rows++) {
		uint64_t to = stripes_locate(s, w->off + done, &run);

		run = min_u64(run, w->len - done);
		run = min_u64(run, (uint64_t)buffer - to % (uint64_t)buffer);
		r->to[r->rows] = (MPI_Aint)to;
		r->len[r->rows] = (int)run;
	}
}

/* Takes what is staged. Without memory it stays there, and the round has no rows. */
static void begin_round(struct mpiio_handle *h, struct round *r, int64_t buffer)
{
	struct staged_write **list;
	size_t count = 0, rows = 1, bytes = 1, done = 0;
	uint64_t stripe = h->stripes.stripe;

	pthread_mutex_lock(&h->lock);
	list = malloc((h->staging.count + 1) * sizeof(*list));
	if (list)
		count = staging_take(&h->staging, list, MAX_ROUND_BYTES);
	r->is_empty = h->staging.count == 0;
	pthread_mutex_unlock(&h->lock);
	for (size_t i = 0; i < count; i++) {
		bytes += list[i]->len;
		/* Each stripe that the write touches has rows in the blocks that it touches. */
		rows += (list[i]->len / stripe + 2) * (stripe / (uint64_t)buffer + 2);
	}
	r->to = malloc(rows * (sizeof(*r->to) + sizeof(*r->len)) + bytes);
	if (r->to) {
		r->len = (int *)(r->to + rows);
		r->data = (char *)(r->len + rows);
	}
	for (size_t i = 0; i < count && r->to; done += list[i++]->len) {
		add_rows(r, &h->stripes, list[i], buffer);
		memcpy(r->data + done, list[i]->data, list[i]->len);
	}
	free(list);
}

static void end_round(struct mpiio_handle *h, struct round *r, bool are_written)
{
	pthread_mutex_lock(&h->lock);
	staging_end_take(&h->staging, are_written);
	pthread_mutex_unlock(&h->lock);
	free(r->to);
}

/* Makes the file as long as it will be after the round; collective. ROMIO leaves arbitrary bytes
 * between writes behind the end of a file. */
static int extend_file(MPI_Comm comm, MPI_File file, const struct round *r)
{
	int64_t most[2] = { 0, 0 };
	MPI_Offset size = 0;
	int code = PMPI_File_get_size(file, &size);

	most[0] = size;
	if (r->rows > 0)
		most[1] = r->to[r->rows - 1] + r->len[r->rows - 1];
	PMPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_INT64_T, MPI_MAX, comm);
	errno = 0;
	if (most[1] > most[0])
		code = PMPI_File_set_size(file, most[1]);
	return mpiio_errno(code);
}

/* Writes the rows that begin before this offset of the file; collective. */
static int write_rows(MPI_File file, struct round *r, int64_t end)
{
	int first = r->next, rows, code, bytes = 0, written = 0;
	MPI_Aint begin = first < r->rows ? r->to[first] : 0;
	MPI_Datatype places = MPI_BYTE;
	MPI_Status status;

	/* ROMIO ignores the displacement of a type with one row, so the view begins at the row. */
	for (; r->next < r->rows && r->to[r->next] < end; r->next++) {
		bytes += r->len[r->next];
		r->to[r->next] -= begin;
	}
	rows = r->next - first;
	if (rows > 0) {
		PMPI_Type_create_hindexed(rows, r->len + first, r->to + first, MPI_BYTE, &places);
		PMPI_Type_commit(&places);
	}
	errno = 0;
	code = PMPI_File_set_view(file, rows ? begin : 0, MPI_BYTE, places, "native",
				  MPI_INFO_NULL);
	if (code == MPI_SUCCESS)
		code = PMPI_File_write_at_all(file, 0, r->data + r->done, bytes, MPI_BYTE, &status);
	if (code == MPI_SUCCESS)
		PMPI_Get_count(&status, MPI_BYTE, &written);
	if (rows > 0)
		PMPI_Type_free(&places);
	r->done += bytes;
	if (code != MPI_SUCCESS)
		return mpiio_errno(code);
	/* Some ROMIOs do not set the count of an empty write. */
	return rows > 0 && written != bytes ? -EIO : 0;
}

/* Writes all rows; collective. Each call writes one block of buffer_size: if a call needs several
 * buffers and one of them fails, ROMIO leaves the call at this rank only, and the others hang. */
static int write_round(MPI_Comm comm, MPI_File file, int64_t buffer, struct round *r)
{
	int err = extend_file(comm, file, r);

	for (;;) {
		int64_t least[2] = { r->next < r->rows ? r->to[r->next] : INT64_MAX, !err };

		PMPI_Allreduce(MPI_IN_PLACE, least, 2, MPI_INT64_T, MPI_MIN, comm);
		if (!least[1] || least[0] == INT64_MAX)
			return err;
		err = write_rows(file, r, (least[0] / buffer + 1) * buffer);
	}
}

/* ---- All rounds ---- */

static void set_write_error(struct error *e, const char *path, int err)
{
	if (err)
		error_errno(e, -err, "cannot write '%s' collectively: %m", path);
}

static bool write_rounds(MPI_Comm comm, MPI_File file, struct mpiio_handle *h, const char *path,
			 char *at, const char *end, struct error *e)
{
	int64_t buffer = find_buffer_size(file);
	int state[2] = { true, false }; /* no rank has failed, all ranks are at their ends */

	while (state[0] && !state[1]) {
		struct round r = { .is_empty = true };

		if (h) {
			stage_changes(h, &at, end, e);
			begin_round(h, &r, buffer);
		}
		set_write_error(e, path, write_round(comm, file, buffer, &r));
		if (!r.is_empty && !r.rows)
			set_write_error(e, path, -ENOMEM);
		state[0] = e->class == MPI_SUCCESS;
		state[1] = at >= end;
		PMPI_Allreduce(MPI_IN_PLACE, state, 2, MPI_INT, MPI_LAND, comm);
		if (h)
			end_round(h, &r, state[0]);
	}
	return state[0];
}

/* Writes with the gate closed at all ranks. *is_lost: written data may be lost. */
static bool write_target(MPI_Comm comm, const struct target *t, struct mpiio_handle *h, char *base,
			 size_t len, bool *is_lost, struct error *e)
{
	MPI_File file = MPI_FILE_NULL;
	int err = open_target(comm, t, &file);
	bool good;

	set_write_error(e, t->path, err);
	good = agree_all(comm, !err) && write_rounds(comm, file, h, t->path, base, base + len, e);
	if (good) {
		errno = 0;
		err = mpiio_errno(PMPI_File_sync(file));
		set_write_error(e, t->path, err);
		good = agree_all(comm, !err);
		*is_lost = !good;
	}
	if (file != MPI_FILE_NULL)
		PMPI_File_close(&file);
	return good;
}

void write_collectively(MPI_Comm comm, struct mpiio_handle *h, bool must_not, char *base,
			size_t len, struct error *e)
{
	bool is_closed, is_lost = false, good = true;
	struct target t;

	if (!find_target(comm, h, must_not, &t))
		return;
	/* Threads that wait for the gate do not wait for other ranks, so all ranks come here. */
	is_closed = mpiio_close_gate();
	if (agree_all(comm, is_closed))
		good = write_target(comm, &t, h, base, len, &is_lost, e);
	if (h && !good)
		h->is_unsynced = true;
	if (h && is_lost)
		h->is_lost = true;
	if (is_closed)
		mpiio_open_gate();
}
