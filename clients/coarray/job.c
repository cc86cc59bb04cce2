/* SPDX-License-Identifier: BSD-3-Clause */
#include "coarray/job.h"

#include "coarray/libcaf.h"
#include "window/window.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ummap.h>
#include <unistd.h>

#define POOL_BYTES ((uint64_t)64 << 20)
/* Time for the launcher to read a message before all images end. */
#define MESSAGE_SLEEP_NS 100000000

struct job job = { .comm = MPI_COMM_NULL, .stopped = MPI_COMM_NULL };

/* ---- Errors ---- */

void job_check(MPI_Comm comm, const struct error *e)
{
	int first = error_first(comm, e), rank;

	if (first < 0)
		return;
	PMPI_Comm_rank(comm, &rank);
	/* A launcher may drop output that it has not read when the images end. */
	if (first == rank) {
		fprintf(stderr, "ummap-coarray: image %d: %s\n",
			comm == MPI_COMM_SELF ? job.image : rank + 1, e->text);
		nanosleep(&(struct timespec){ .tv_nsec = MESSAGE_SLEEP_NS }, NULL);
	}
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

void job_set_no_memory(struct error *e)
{
	error_errno(e, ENOMEM, "cannot list the coarrays: %m");
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
}

/* ---- Entries ---- */

static struct entry *entry_of(const struct coarray *c)
{
	return manifest_find(&job.manifest, c->order);
}

/* Returns whether the type of the coarray that is registered, if known, is that of the entry. */
static bool has_same_type(const struct entry *x)
{
	const char *type = libcaf_type();

	return !*type || !*x->type || strcmp(type, x->type) == 0;
}

static void check_entry(const struct entry *x, size_t size, struct error *e)
{
	if (x->taken || x->state == ENTRY_ENDED || job.config.force)
		return;
	if (x->size != size)
		error_set(e, MPI_ERR_ARG,
			  "cannot open coarray %u of %zu bytes: the one in PCAF_PATH has %" PRIu64
			  " bytes. Try another PCAF_PATH or PCAF_PREFIX, or PCAF_FORCE=true, which "
			  "begins that coarray anew",
			  x->order, size, x->size);
	else if (!has_same_type(x))
		error_set(e, MPI_ERR_ARG,
			  "cannot open coarray %u of type '%s': the one in PCAF_PATH has type "
			  "'%s'. Try another PCAF_PATH or PCAF_PREFIX, or PCAF_FORCE=true, which "
			  "begins that coarray anew",
			  x->order, libcaf_type(), x->type);
}

/* Returns whether an earlier run has left the entry for a coarray of this size. */
static bool is_of_earlier_run(const struct entry *x, size_t size)
{
	return x && !x->taken && x->size == size && has_same_type(x) &&
	       (!x->small || x->since <= job.restart);
}

static void place_entry(struct entry *x)
{
	x->at = 0;
	if (x->small || job.config.shared_file)
		x->at = manifest_place(&job.manifest, x,
				       x->small ? ENTRY_TRAILER : job.config.segsize);
}

/* If the pool is full, a small coarray is mapped. */
static struct entry *new_entry(unsigned order, size_t size, bool is_small, struct error *e)
{
	struct entry x = { .order = order, .size = size, .small = is_small,
			   .since = job.epoch + 1, .id = job.manifest.next_id++ };
	struct entry *entry;

	if (order != ENTRY_POOL)
		snprintf(x.type, sizeof(x.type), "%s", libcaf_type());
	place_entry(&x);
	if (is_small && x.at + entry_room(&x) > POOL_BYTES) {
		x.small = false;
		place_entry(&x);
	}
	if (!x.small)
		store_remove(&job.store, &x);
	entry = manifest_add(&job.manifest, &x);
	if (!entry)
		job_set_no_memory(e);
	return entry;
}

/* Maps the pool if there is one, because each sync must then include it, or if it is needed. */
static void open_pool(bool is_needed, struct error *e)
{
	struct entry *pool = manifest_find(&job.manifest, ENTRY_POOL);

	if (!pool && is_needed)
		pool = new_entry(ENTRY_POOL, POOL_BYTES, false, e);
	if (pool && !job.pool)
		job.pool = store_map(&job.store, pool, e);
}

struct entry *job_enter(unsigned order, size_t size, bool *is_former)
{
	struct entry *x = manifest_find(&job.manifest, order);
	bool is_small = size <= MAX_SMALL_BYTES;
	struct error e = { 0 };

	/* The entry's first sync is then the one after job.epoch. */
	job_end_sync();
	if (x)
		check_entry(x, size, &e);
	job_check(job.comm, &e);
	*is_former = is_of_earlier_run(x, size);
	if (x && !*is_former)
		x->state = ENTRY_DOOMED;
	open_pool(is_small, &e);
	x = manifest_find(&job.manifest, order);
	if (!x && e.class == MPI_SUCCESS)
		x = new_entry(order, size, is_small, &e);
	job_check(job.comm, &e);
	x->state = ENTRY_LIVE;
	x->taken = true;
	if (*is_former && !x->small)
		x->since = job.epoch + 1;
	job.is_changed = true;
	return x;
}

void job_drop(struct coarray *c)
{
	if (!c->is_small)
		c->former = *entry_of(c);
	entry_of(c)->state = ENTRY_DOOMED;
	c->is_kept = c->must_restore = false;
	job.is_changed = true;
}

struct coarray *job_find(MPI_Win win)
{
	struct coarray *c = job.coarrays;

	while (c && c->win != win)
		c = c->next;
	return c;
}

/* Returns the address of a small coarray's contents in the pool. */
static char *place_in_pool(const struct coarray *c)
{
	return job.pool + entry_of(c)->at;
}

/* ---- Initial values ---- */

static void undo_changes(struct coarray *c, struct error *e)
{
	struct umstat st = { .struct_size = sizeof(st) };
	void *base = c->base;

	if (umstat(base, &st) < 0)
		error_errno(e, errno, "%s", umerrormsg());
	else if (st.write_bytes && job.config.consistent)
		store_read_back(&job.store, entry_of(c), c->base, e);
	else if (st.write_bytes)
		error_set(e, MPI_ERR_NO_MEM,
			  "cannot restore coarray %u of %zu bytes: its initializer does not fit "
			  "into memory, and has overwritten the file. Try a larger UMMAP_MEM_LIMIT",
			  c->order, c->size);
	else if (st.dirty_bytes && umremap(base, 0, -1, -1, UMMAP_SWITCH, &base) < 0)
		error_errno(e, errno, "%s", umerrormsg());
}

void job_restore_contents(void)
{
	struct error e = { 0 };
	bool any = false;

	for (struct coarray *c = job.coarrays; c; c = c->next) {
		any = any || c->must_restore;
		if (c->must_restore && c->is_whole && c->is_small)
			memcpy(c->base, place_in_pool(c), c->size);
		else if (c->must_restore && c->is_whole)
			undo_changes(c, &e);
		c->must_restore = false;
	}
	/* No image may put data into a coarray that another image has not restored. */
	if (any)
		job_check(job.comm, &e);
}

/* ---- Syncs ---- */

void job_replace_manifest(const char *path, const char *text, struct error *e)
{
	int err = text ? manifest_replace(path, text) : -ENOMEM;

	if (err)
		error_errno(e, -err, "cannot write the manifest '%s': %m", path);
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

/* Copies only coarrays that have changed, so that other segments stay clean. */
static void fill_pool(void)
{
	for (const struct coarray *c = job.coarrays; c; c = c->next) {
		if (c->is_kept && c->is_small && memcmp(place_in_pool(c), c->base, c->size) != 0)
			memcpy(place_in_pool(c), c->base, c->size);
	}
}

static struct region *region_of(const struct coarray *c)
{
	return window_of(c->win)->region;
}

/* only_begin: the commits end later, in region_wait_sync and umsync_wait. */
static void sync_own(uint64_t epoch, bool only_begin, struct error *e)
{
	if (job.pool) {
		fill_pool();
		entry_stamp(job.pool, manifest_find(&job.manifest, ENTRY_POOL), epoch);
		if ((only_begin ? umsync_begin(job.pool, 0, &job.pool_commit)
				: umsync(job.pool, 0)) < 0)
			error_errno(e, errno, "%s", umerrormsg());
	}
	for (const struct coarray *c = job.coarrays; c && e->class == MPI_SUCCESS; c = c->next) {
		if (!c->is_kept || c->is_small)
			continue;
		entry_stamp(c->base, entry_of(c), epoch);
		if (only_begin)
			region_begin_sync(region_of(c), e);
		else
			window_sync(window_of(c->win), e);
	}
}

static double clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

bool job_is_due(void)
{
	return clock_ms() - job.last_sync_ms >= (double)job.config.syncfreq;
}

/* Files that are still mapped are removed when the mapping ends. */
static void remove_file(const struct entry *entry)
{
	const struct coarray *c = job.coarrays;

	while (c && c->former.id != entry->id)
		c = c->next;
	if (!entry->small && !c)
		store_remove(&job.store, entry);
}

void job_end_sync(void)
{
	struct error e = { 0 };

	if (!job.in_flight)
		return;
	if (job.pool_commit && umsync_wait(&job.pool_commit) < 0)
		error_errno(&e, errno, "%s", umerrormsg());
	for (const struct coarray *c = job.coarrays; c; c = c->next) {
		if (c->is_kept && !c->is_small)
			region_wait_sync(region_of(c), &e);
	}
	job_check(job.comm, &e);
	job.in_flight = false;
	job.epoch++;
}

void job_sync(bool wait)
{
	struct error e = { 0 };

	job_end_sync();
	job.in_flight = job.config.async && !wait && !job.is_changed;
	if (job.is_changed)
		job_write_manifest(&e);
	if (e.class == MPI_SUCCESS)
		sync_own(job.epoch + 1, job.in_flight, &e);
	/* Until all images are here, none may put newer values into coarrays of another one. */
	job_check(job.comm, &e);
	job.last_sync_ms = clock_ms();
	if (job.in_flight)
		return;
	job.epoch++;
	job.is_changed = false;
	manifest_sweep(&job.manifest, remove_file);
}

void job_sync_alone(void)
{
	struct error e = { 0 };

	sync_own(job.epoch + job.in_flight, false, &e);
	job_check(MPI_COMM_SELF, &e);
	job.last_sync_ms = clock_ms();
}

/* ORDER: all images have synced the new files before the manifest names them. The old files are
 * complete until then. */
void job_move(struct coarray *c, const char *path)
{
	struct entry before = *entry_of(c), after = before;
	struct error e = { 0 };

	if (!config_take_folder(after.folder, path))
		error_set(&e, MPI_ERR_ARG,
			  "pcaf_config: cannot keep coarray %u in '%.100s': the path must be a "
			  "folder that exists, with a name of one line and less than %d bytes",
			  c->order, path, MANIFEST_FOLDER);
	job_check(job.comm, &e);
	job_end_sync();
	if (strcmp(after.folder, job.config.path) == 0)
		*after.folder = '\0';
	if (strcmp(before.folder, after.folder) == 0)
		return;
	store_remove(&job.store, &after);
	store_move(&job.store, &after, c->base, &e);
	job_check(job.comm, &e);
	job_restore_contents();
	job_sync(true);
	strcpy(entry_of(c)->folder, after.folder);
	job_write_manifest(&e);
	job_check(job.comm, &e);
	store_remove(&job.store, &before);
	/* If the job died while another image has its old files, no later run would remove them. */
	PMPI_Barrier(job.comm);
}

/* ---- The end ---- */

/* Applies all logs after the last coarray, also those of coarrays that this run has not used. */
static void close_files(void)
{
	struct error e = { 0 };

	if (job.pool && umunmap(job.pool, job.config.consistent ? 0 : 1) < 0)
		error_errno(&e, errno, "%s", umerrormsg());
	job.pool = NULL;
	if (job.is_changed && !job.config.unlink)
		job_write_manifest(&e);
	for (size_t i = 0; i < job.manifest.n; i++)
		store_apply(&job.store, &job.manifest.entries[i], &e);
	job_check(job.comm, &e);
	job.is_changed = false;
}

void job_leave(struct coarray *c, bool is_deallocated)
{
	struct coarray **at = &job.coarrays;
	bool any = false;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	for (const struct coarray *other = job.coarrays; other; other = other->next)
		any = any || other->is_kept;
	if (c->is_kept && is_deallocated) {
		entry_of(c)->state = ENTRY_ENDED;
		job.is_changed = true;
	}
	if (c->former.id)
		store_remove(&job.store, &c->former);
	if (c->is_kept && !any)
		close_files();
	free(c);
}
