/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Syncs are numbered, by epochs of the job. One begins when all images have come to a barrier, and ends when all have made
 * all of their coarrays durable with that number in the trailers; no image goes on before. So after a crash each coarray is
 * of the last epoch that all images have, or of the one that was being made; a restart goes back to the former. What is
 * new in the manifest is written by image 1 before its own part of a sync: if that does not get through, neither does the
 * sync. Files are removed, or used again, only after a sync without them.
 *
 * Small coarrays are memory, which the pool, a mapping of each image's, gets a copy of. So locks and atomic operations are as
 * fast as ever, and a sync costs one commit for all of them.
 */
#include "coarray/job.h"

#include "coarray/libcaf.h"
#include "window/window.h"

#include <dirent.h>
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
/* Which none is: what an image without files has. */
#define NO_EPOCH UINT64_MAX

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

static void lacks_memory(struct error *e)
{
	error_errno(e, ENOMEM, "there is no memory to note coarrays in");
}

/* ---- The manifest of an earlier run ---- */

static char *read_text(const char *path, struct error *e)
{
	FILE *f = fopen(path, "re");
	char *text = NULL;
	size_t room = 0;
	ssize_t len;

	if (!f && errno == ENOENT)
		return NULL;
	len = f ? getdelim(&text, &room, '\0', f) : -1;
	if (f && len < 0 && feof(f))
		error_set(e, MPI_ERR_IO, "%s is empty: remove it, and with it the coarrays, to begin anew", path);
	else if (len < 0)
		error_errno(e, errno, "%s cannot be read: %s", path, strerror(errno));
	if (f)
		fclose(f);
	return text;
}

/* Image 1 reads, for folders may be each machine's own. NULL: there is none. */
static char *share_text(char *text, struct error *e)
{
	int len = text ? (int)strlen(text) + 1 : 0;

	PMPI_Bcast(&len, 1, MPI_INT, 0, job.comm);
	if (len && job.image > 1)
		text = malloc((size_t)len);
	if (len && !text)
		lacks_memory(e);
	job_check(job.comm, e);
	if (len)
		PMPI_Bcast(text, len, MPI_CHAR, 0, job.comm);
	return len ? text : NULL;
}

/* The kernel marks one that was replaced or removed since it was started. */
static void own_name(char *name)
{
	static const char mark[] = " (deleted)";
	char path[1000];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *last;

	path[len < 0 ? 0 : len] = '\0';
	if (len > (ssize_t)strlen(mark) && strcmp(path + len - strlen(mark), mark) == 0)
		path[len - (ssize_t)strlen(mark)] = '\0';
	last = strrchr(path, '/');
	snprintf(name, MANIFEST_PROGRAM, "%.255s", last ? last + 1 : path);
}

/* One that cannot be read says nothing. */
static bool clashes(const struct names *other)
{
	char path[MANIFEST_PATH], *text;
	struct manifest m = { 0 };
	struct error e = { 0 };
	bool clash = false;

	manifest_path(path, other);
	text = read_text(path, &e);
	if (text && !manifest_read(&m, text)) {
		struct names theirs = *other;

		theirs.shared = m.shared_file;
		clash = manifest_clash(&job.store.names, job.images, &theirs, m.images);
	}
	free(m.entries);
	free(text);
	return clash;
}

/* Other coarrays in the folder keep their files: image 1 looks, for it has the manifests. */
static void check_prefixes(struct error *e)
{
	static const char name[] = "manifest";
	struct names other = job.store.names;
	DIR *folder = opendir(other.folder);
	const struct dirent *file;

	while (folder && (file = readdir(folder))) {
		size_t len = strlen(file->d_name), prefix = len - strlen(name);

		if (len < strlen(name) || strcmp(file->d_name + prefix, name) != 0 || prefix >= sizeof(other.prefix))
			continue;
		snprintf(other.prefix, sizeof(other.prefix), "%.*s", (int)prefix, file->d_name);
		if (clashes(&other))
			error_set(e, MPI_ERR_ARG, "PCAF_PREFIX is \"%.60s\", and PCAF_PATH has coarrays with \"%.60s\", whose files "
				  "would have the same names as some of %d images: take another folder or PCAF_PREFIX",
				  job.config.prefix, other.prefix, job.images);
	}
	if (folder)
		closedir(folder);
}

static void compare(const struct manifest *m, struct error *e)
{
	char program[MANIFEST_PROGRAM];

	own_name(program);
	if (!job.config.force && strcmp(m->program, program) != 0)
		error_set(e, MPI_ERR_ARG, "the coarrays in PCAF_PATH are of the program \"%.60s\", and this is \"%.60s\": take "
			  "another folder or PCAF_PREFIX, or PCAF_FORCE=true", m->program, program);
	if (!job.config.force && m->images != job.images)
		error_set(e, MPI_ERR_ARG, "the coarrays in PCAF_PATH are of a run with %d images, and this one has %d: take as many, "
			  "or another folder and this one as PCAF_RECOVER, or PCAF_FORCE=true, with which those of other images "
			  "are left alone", m->images, job.images);
	if (m->shared_file != job.config.shared_file)
		error_set(e, MPI_ERR_ARG, "the coarrays in PCAF_PATH were made with PCAF_SHAREDFILE=%s: it must be so again",
			  m->shared_file ? "true" : "false");
}

/* What an entry is of at this image, as far as the common moment is concerned: one that no sync has reached yet is of that
 * before it came. */
static uint64_t epoch_of(const struct entry *x, const struct holding *h)
{
	uint64_t before = x->since ? x->since - 1 : 0;

	return h->there && h->epoch > before ? h->epoch : before;
}

/* All images find the newest moment that all have, and go back to it. */
static void agree(const struct manifest *m, struct error *e)
{
	struct holding *held = calloc(m->n + 1, sizeof(*held));
	uint64_t mine = NO_EPOCH, newest = 0, common;
	bool had_part = job.image <= m->images;
	int behind;

	if (!held)
		lacks_memory(e);
	for (size_t i = 0; i < m->n && had_part && e->class == MPI_SUCCESS; i++) {
		const struct entry *x = &m->entries[i];

		if (x->small || x->state != ENTRY_LIVE)
			continue;
		store_look(&job.store, x, &held[i], e);
		mine = epoch_of(x, &held[i]) < mine ? epoch_of(x, &held[i]) : mine;
		newest = held[i].epoch > newest ? held[i].epoch : newest;
		if (x->order == ENTRY_POOL && held[i].there)
			job.pool_epoch = held[i].epoch;
	}
	PMPI_Allreduce(&mine, &common, 1, MPI_UINT64_T, MPI_MIN, job.comm);
	PMPI_Allreduce(MPI_IN_PLACE, &newest, 1, MPI_UINT64_T, MPI_MAX, job.comm);
	job.epoch = !job.config.consistent || common == NO_EPOCH ? newest : common;
	behind = mine == common ? job.image : job.images + 1;
	PMPI_Allreduce(MPI_IN_PLACE, &behind, 1, MPI_INT, MPI_MIN, job.comm);
	job_check(job.comm, e);
	for (size_t i = 0; i < m->n && job.config.consistent; i++) {
		if (held[i].there && held[i].epoch > job.epoch)
			store_go_back(&job.store, &m->entries[i], &held[i], job.epoch, behind, e);
	}
	job.pool_epoch = job.pool_epoch > job.epoch ? job.epoch : job.pool_epoch;
	job_check(job.comm, e);
	/* All have that moment now. Files that are plain say what it was until the first sync: see forget_changes. */
	for (size_t i = 0; i < m->n && had_part; i++) {
		if (m->entries[i].state == ENTRY_LIVE)
			store_apply(&job.store, &m->entries[i], e);
	}
	job_check(job.comm, e);
	free(held);
}

static void take_over(struct error *e)
{
	char path[MANIFEST_PATH], *text;
	struct manifest *m = &job.manifest;
	const char *wrong;

	manifest_path(path, &job.store.names);
	if (job.image == 1)
		check_prefixes(e);
	text = job.image == 1 && e->class == MPI_SUCCESS ? read_text(path, e) : NULL;
	job_check(job.comm, e);
	text = share_text(text, e);
	if (text) {
		wrong = manifest_read(m, text);
		if (wrong)
			error_set(e, MPI_ERR_IO, "%s", wrong);
		if (e->class == MPI_SUCCESS)
			compare(m, e);
		job_check(job.comm, e);
		agree(m, e);
		job.restart = job.epoch;
		if (job.restart && job.config.report && job.image == 1)
			fprintf(stderr, "ummap-coarray: going on from sync %" PRIu64 "\n", job.restart);
	}
	free(text);
	for (size_t i = 0; i < m->n; i++) {
		if (m->entries[i].state == ENTRY_LIVE && m->entries[i].order != ENTRY_POOL)
			m->entries[i].state = ENTRY_PARKED;
	}
	own_name(m->program);
	m->images = job.images;
	m->shared_file = job.config.shared_file;
	m->next_id = m->next_id ? m->next_id : 1;
	store_clear(&job.store, m->next_id);
	job.changed = true;
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
		take_over(&e);
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
		error_set(e, MPI_ERR_ARG, "coarray %u has %zu bytes, and that in PCAF_PATH has %" PRIu64 ": take another folder or "
			  "PCAF_PREFIX, or PCAF_FORCE=true, with which it begins anew", x->order, size, x->size);
	else if (!same_type(x))
		error_set(e, MPI_ERR_ARG, "coarray %u is of the type \"%s\", and that in PCAF_PATH of \"%s\": take another folder or "
			  "PCAF_PREFIX, or PCAF_FORCE=true, with which it begins anew", x->order, libcaf_type(), x->type);
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
		lacks_memory(e);
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

void job_cover(struct coarray *c)
{
	struct error e = { 0 };

	if (!job.config.kernel || !c->pending || c->small || !c->whole)
		return;
	store_cover(&job.store, manifest_find(&job.manifest, c->order), c->base, true, &e);
	job_check(MPI_COMM_SELF, &e);
	c->covered = true;
}

/* What has been stored meanwhile counts now. */
static void take_cover_off(struct coarray *c)
{
	char *stored = malloc(c->size);
	struct error e = { 0 };

	if (stored) {
		memcpy(stored, c->base, c->size);
		store_cover(&job.store, manifest_find(&job.manifest, c->order), c->base, false, &e);
		memcpy(c->base, stored, c->size);
	} else {
		lacks_memory(&e);
	}
	free(stored);
	job_check(MPI_COMM_SELF, &e);
	c->covered = false;
}

void job_drop(struct coarray *c)
{
	if (c->covered)
		take_cover_off(c);
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

	if (c->covered)
		store_cover(&job.store, manifest_find(&job.manifest, c->order), c->base, c->covered = false, e);
	else if (umstat(base, &st) < 0)
		error_errno(e, errno, "%s", umerrormsg());
	else if (st.write_bytes && job.config.consistent)
		store_read_back(&job.store, manifest_find(&job.manifest, c->order), c->base, e);
	else if (st.write_bytes)
		error_set(e, MPI_ERR_NO_MEM, "the initialiser of coarray %u, of %zu bytes, does not fit into memory, so what it has "
			  "overwritten cannot be brought back: set PCAF_MEM_LIMIT", c->order, c->size);
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

static void write_manifest(struct error *e)
{
	char path[MANIFEST_PATH], *text = manifest_write(&job.manifest);
	int err;

	manifest_path(path, &job.store.names);
	err = text ? manifest_replace(path, text) : -ENOMEM;
	if (err)
		error_errno(e, -err, "the manifest %s cannot be written: %s", path, strerror(-err));
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

	if (job.image == 1 && job.changed)
		write_manifest(&e);
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

	if (job.config.kernel)
		error_set(&e, MPI_ERR_ARG, "pcaf_config: with PCAF_ENGINE=kernel, coarrays stay in the folder where they are");
	else if (!config_folder(after.folder, path))
		error_set(&e, MPI_ERR_ARG, "pcaf_config: \"%.100s\" must be a folder that exists, with a name of less than %d "
			  "characters in one line", path, MANIFEST_FOLDER);
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
	if (job.image == 1)
		write_manifest(&e);
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
	if (job.image == 1 && job.changed && !job.config.unlink)
		write_manifest(&e);
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
