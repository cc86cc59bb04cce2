/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Syncs are numbered, by epochs of the job. One begins when all images have come to a barrier, and
 * ends when all have made all of their coarrays durable with that number in the trailers; no image
 * goes on before. So after a crash each coarray is of the last epoch that all images have, or of
 * the one that was being made; a restart goes back to the former. What is new in the manifest is
 * written before a sync: image 1 writes the manifest, and each image writes its copy of the
 * manifest before its own part of the sync. If a write fails, so does the sync. No file of a
 * coarray is created before the first manifest and its copies are durable, so files without a
 * manifest mean that the manifest was lost. Files are removed, or used again, only after a sync
 * without them.
 *
 * Small coarrays are memory, which the pool, a mapping of each image's, gets a copy of. So locks
 * and atomic operations are as fast as ever, and a sync costs one commit for all of them.
 */
#include "coarray/job.h"

#include "coarray/libcaf.h"
#include "coarray/restart.h"
#include "window/window.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ummap.h>
#include <unistd.h>

#define POOL ((uint64_t)64 << 20)
#define SAY 100000000

struct job job = { .comm = MPI_COMM_NULL, .stopped = MPI_COMM_NULL };

/* ---- Errors ---- */

void job_check(MPI_Comm comm, const struct error *e)
{
	int rank, size, mine, first;

	PMPI_Comm_rank(comm, &rank);
	PMPI_Comm_size(comm, &size);
	mine = e->class == MPI_SUCCESS ? size : rank;
	PMPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm);
	if (first == size)
		return;
	if (first == rank)
		fprintf(stderr, "ummap-coarray: image %d: %s\n", comm == MPI_COMM_SELF ? job.image : rank + 1, e->text);
	/* Nobody ends the others before it is said, and a launcher may drop what it has not read by then. */
	if (first == rank)
		nanosleep(&(struct timespec){ .tv_nsec = SAY }, NULL);
	PMPI_Barrier(comm);
	PMPI_Abort(MPI_COMM_WORLD, 1);
	_exit(1);
}

void job_check_code(int code)
{
	struct error e = { .class = code };
	int len;

	if (code != MPI_SUCCESS)
		MPI_Error_string(code, e.text, &len);
	job_check(job.comm, &e);
}

void job_lacks_memory(struct error *e)
{
	error_errno(e, ENOMEM, "cannot list the coarrays: %s", strerror(ENOMEM));
}

void job_begin(MPI_Comm comm)
{
	struct error e = { 0 };

	job.comm = comm;
	PMPI_Comm_rank(comm, &job.image);
	PMPI_Comm_size(comm, &job.images);
	job.image++;
	PMPI_Comm_dup(comm, &job.stopped);
	store_open(&job.store, &job.config, job.image, &e);
	job_check(comm, &e);
	if (!job.config.unlink)
		restart_begin(&e);
}

/* ---- Entries ---- */

static bool same_type(const struct entry *x)
{
	const char *type = libcaf_type();

	return !*type || !*x->type || strcmp(type, x->type) == 0;
}

static void compare_entry(const struct entry *x, size_t size, struct error *e)
{
	if (x->taken || x->state == ENTRY_ENDED || job.config.force)
		return;
	if (x->size != size)
		error_set(e, MPI_ERR_ARG,
			  "cannot open coarray %u of %zu bytes: the one in PCAF_PATH has %" PRIu64
			  " bytes. Try another PCAF_PATH or PCAF_PREFIX, or PCAF_FORCE=true, which "
			  "begins that coarray anew",
			  x->order, size, x->size);
	else if (!same_type(x))
		error_set(e, MPI_ERR_ARG,
			  "cannot open coarray %u of type '%s': the one in PCAF_PATH has type "
			  "'%s'. Try another PCAF_PATH or PCAF_PREFIX, or PCAF_FORCE=true, which "
			  "begins that coarray anew",
			  x->order, libcaf_type(), x->type);
}

/* Whether it is what an earlier run has left for this coarray. */
static bool is_of_earlier(const struct entry *x, size_t size)
{
	return x && !x->taken && x->size == size && same_type(x) && (!x->small || x->since <= job.restart);
}

static void place(struct entry *x)
{
	x->at = 0;
	if (x->small || job.config.shared_file)
		x->at = manifest_place(&job.manifest, x, x->small ? ENTRY_TRAILER : job.config.segsize);
}

/* A small one for which the pool has no room is mapped. */
static struct entry *new_entry(unsigned order, size_t size, bool small, struct error *e)
{
	struct entry x = { .order = order, .size = size, .small = small, .since = job.epoch + 1, .id = job.manifest.next_id++ };
	struct entry *entry;

	if (order != ENTRY_POOL)
		snprintf(x.type, sizeof(x.type), "%s", libcaf_type());
	place(&x);
	if (small && x.at + entry_room(&x) > POOL) {
		x.small = false;
		place(&x);
	}
	if (!x.small)
		store_remove(&job.store, &x);
	entry = manifest_add(&job.manifest, &x);
	if (!entry)
		job_lacks_memory(e);
	return entry;
}

/* Every sync is one of the pool, too, once there is one. */
static void open_pool(bool small, struct error *e)
{
	struct entry *pool = manifest_find(&job.manifest, ENTRY_POOL);

	if (!pool && small)
		pool = new_entry(ENTRY_POOL, POOL, false, e);
	if (pool && !job.pool)
		job.pool = store_map(&job.store, pool, e);
}

struct entry *job_enter(unsigned order, size_t size, bool *earlier)
{
	struct entry *x = manifest_find(&job.manifest, order);
	bool small = size <= JOB_SMALL;
	struct error e = { 0 };

	if (x)
		compare_entry(x, size, &e);
	job_check(job.comm, &e);
	*earlier = is_of_earlier(x, size);
	if (x && !*earlier)
		x->state = ENTRY_DOOMED;
	open_pool(small, &e);
	x = manifest_find(&job.manifest, order);
	if (!x && e.class == MPI_SUCCESS)
		x = new_entry(order, size, small, &e);
	job_check(job.comm, &e);
	x->state = ENTRY_LIVE;
	x->taken = true;
	if (*earlier && !x->small)
		x->since = job.epoch + 1;
	job.changed = true;
	return x;
}

void job_drop(struct coarray *c)
{
	if (!c->small)
		c->former = *manifest_find(&job.manifest, c->order);
	manifest_find(&job.manifest, c->order)->state = ENTRY_DOOMED;
	c->kept = c->pending = false;
	job.changed = true;
}

struct coarray *job_find(MPI_Win win)
{
	struct coarray *c = job.coarrays;

	while (c && c->win != win)
		c = c->next;
	return c;
}

/* Where this image keeps a small one. */
static char *place_in_pool(const struct coarray *c)
{
	return job.pool + manifest_find(&job.manifest, c->order)->at;
}

/* ---- Initialisers ---- */

static void forget_changes(struct coarray *c, struct error *e)
{
	struct umstat st = { .struct_size = sizeof(st) };
	void *base = c->base;

	if (umstat(base, &st) < 0)
		error_errno(e, errno, "%s", umerrormsg());
	else if (st.write_bytes && job.config.consistent)
		store_read_back(&job.store, manifest_find(&job.manifest, c->order), c->base, e);
	else if (st.write_bytes)
		error_set(e, MPI_ERR_NO_MEM,
			  "cannot restore coarray %u of %zu bytes: its initializer does not fit "
			  "into memory, and has overwritten the file. Try a larger UMMAP_MEM_LIMIT",
			  c->order, c->size);
	else if (st.dirty_bytes && umremap(base, 0, -1, -1, UMMAP_SWITCH, &base) < 0)
		error_errno(e, errno, "%s", umerrormsg());
}

void job_bring_back(void)
{
	struct error e = { 0 };
	bool any = false;

	for (struct coarray *c = job.coarrays; c; c = c->next) {
		any = any || c->pending;
		if (c->pending && c->whole && c->small)
			memcpy(c->base, place_in_pool(c), c->size);
		else if (c->pending && c->whole)
			forget_changes(c, &e);
		c->pending = false;
	}
	/* Before that nobody puts anything there. */
	if (any)
		job_check(job.comm, &e);
}

/* ---- Syncs ---- */

void job_replace_manifest(const char *path, const char *text, struct error *e)
{
	int err = text ? manifest_replace(path, text) : -ENOMEM;

	if (err)
		error_errno(e, -err, "cannot write the manifest '%s': %s", path, strerror(-err));
}

void job_write_manifest(struct error *e)
{
	char path[MANIFEST_PATH], *text;

	job.manifest.sync = job.epoch + 1;
	text = manifest_write(&job.manifest);
	manifest_path(path, &job.store.names);
	if (job.image == 1)
		job_replace_manifest(path, text, e);
	manifest_copy(path, &job.store.names, job.image);
	job_replace_manifest(path, text, e);
	free(text);
}

/* What has not changed is not written. */
static void fill_pool(void)
{
	for (const struct coarray *c = job.coarrays; c; c = c->next) {
		if (c->kept && c->small && memcmp(place_in_pool(c), c->base, c->size) != 0)
			memcpy(place_in_pool(c), c->base, c->size);
	}
}

static void sync_own(uint64_t epoch, struct error *e)
{
	if (job.pool) {
		fill_pool();
		entry_stamp(job.pool, manifest_find(&job.manifest, ENTRY_POOL), epoch);
		if (umsync(job.pool, 0) < 0)
			error_errno(e, errno, "%s", umerrormsg());
	}
	for (const struct coarray *c = job.coarrays; c && e->class == MPI_SUCCESS; c = c->next) {
		if (!c->kept || c->small)
			continue;
		entry_stamp(c->base, manifest_find(&job.manifest, c->order), epoch);
		window_sync(window_of(c->win), e);
	}
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

bool job_is_due(void)
{
	return now() - job.synced >= (double)job.config.syncfreq;
}

/* What is mapped still takes its log away itself. */
static void remove_file(const struct entry *entry)
{
	const struct coarray *c = job.coarrays;

	while (c && c->former.id != entry->id)
		c = c->next;
	if (!entry->small && !c)
		store_remove(&job.store, entry);
}

void job_sync(void)
{
	struct error e = { 0 };

	if (job.changed)
		job_write_manifest(&e);
	if (e.class == MPI_SUCCESS)
		sync_own(job.epoch + 1, &e);
	job_check(job.comm, &e);
	job.epoch++;
	job.changed = false;
	manifest_sweep(&job.manifest, remove_file);
	job.synced = now();
}

void job_sync_alone(void)
{
	struct error e = { 0 };

	sync_own(job.epoch, &e);
	job_check(MPI_COMM_SELF, &e);
	job.synced = now();
}

/* All images have it there before the manifest says so; what they had before is complete until then. */
void job_move(struct coarray *c, const char *path)
{
	struct entry *x = manifest_find(&job.manifest, c->order), before = *x, after = *x;
	struct error e = { 0 };

	if (!config_folder(after.folder, path))
		error_set(&e, MPI_ERR_ARG,
			  "pcaf_config: cannot keep coarray %u in '%.100s': the path must be a "
			  "folder that exists, with a name of one line and less than %d bytes",
			  c->order, path, MANIFEST_FOLDER);
	job_check(job.comm, &e);
	if (strcmp(after.folder, job.config.path) == 0)
		*after.folder = '\0';
	if (strcmp(before.folder, after.folder) == 0)
		return;
	store_remove(&job.store, &after);
	store_move(&job.store, &after, c->base, &e);
	job_check(job.comm, &e);
	job_bring_back();
	job_sync();
	x = manifest_find(&job.manifest, c->order);
	strcpy(x->folder, after.folder);
	job_write_manifest(&e);
	job_check(job.comm, &e);
	store_remove(&job.store, &before);
	/* Nobody goes on, and dies, while another has its old files still: no later run would look for them. */
	PMPI_Barrier(job.comm);
}

/* ---- The end ---- */

/* After the last coarray the files are as they will be. */
static void rest(void)
{
	struct error e = { 0 };

	if (job.pool && umunmap(job.pool, job.config.consistent ? 0 : 1) < 0)
		error_errno(&e, errno, "%s", umerrormsg());
	job.pool = NULL;
	if (job.changed && !job.config.unlink)
		job_write_manifest(&e);
	/* Of what this run has not asked for. */
	for (size_t i = 0; i < job.manifest.n; i++)
		store_apply(&job.store, &job.manifest.entries[i], &e);
	job_check(job.comm, &e);
	job.changed = false;
}

void job_leave(struct coarray *c, bool deallocated)
{
	struct coarray **at = &job.coarrays;
	bool any = false;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	for (const struct coarray *other = job.coarrays; other; other = other->next)
		any = any || other->kept;
	if (c->kept && deallocated) {
		manifest_find(&job.manifest, c->order)->state = ENTRY_ENDED;
		job.changed = true;
	}
	if (c->former.id)
		store_remove(&job.store, &c->former);
	if (c->kept && !any)
		rest();
	free(c);
}
