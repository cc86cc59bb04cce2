/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each rank has a draft over the newest version, to which the mapping of its part writes. A flush
 * stages the draft: it puts the changed chunks into the version that all ranks are making, which is
 * not visible yet. One rank begins and commits that version; the others join it by its id.
 * libummap-object is loaded when the first object window is made: other programs do not need it.
 * Lock: `lock` of each window, because libummap reads and writes on threads of its own.
 */
#include "window/versioned.h"

#include "window/region.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ummap-driver.h>
#include <ummap-object.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define LIBRARY "libummap-object.so.0"
/* Default of storage_alloc_object_chunk. A change of one byte writes a chunk. */
#define DEFAULT_CHUNK_BYTES ((uint64_t)16 << 20)
/* Attribute with the bytes of each rank's part. The rows of the object have the largest size. */
#define SIZES "ummap.window.sizes"

struct versioned {
	MPI_Comm comm;
	int rank, ranks;
	int holders;                   /* number of ranks that have bytes */
	size_t size;                   /* bytes of this rank's part; 0: most fields are unused */
	uint64_t *sizes;
	umobject_container *container;
	char *name;
	struct umobject_shape shape;
	umobject_version *base;        /* version under the draft; NULL: none yet */
	umobject_draft *draft;
	umobject_put *put;             /* version in progress; NULL: the next commit begins one */
	struct umobject_id id;         /* id of that version */
	pthread_mutex_t lock;
};

/* ---- The library ---- */

#define CALLS(x)                                                                            \
	x(open_path) x(close) x(begin) x(join) x(begin_from) x(put_sync) x(put_attribute)   \
	x(commit_hold) x(put_end) x(abandon) x(hold) x(hold_id) x(release) x(stat)          \
	x(attribute) x(draft_begin) x(draft_read) x(draft_write) x(draft_is_written)        \
	x(draft_put) x(draft_rebase) x(draft_end) x(errormsg)

#define POINTER(name) __typeof__(umobject_##name) *name;
static struct { CALLS(POINTER) } call;

static const struct {
	const char *name;
	void **to;
} symbols[] = {
#define SYMBOL(name) { "umobject_" #name, (void **)&call.name },
	CALLS(SYMBOL)
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char cannot_load[512];

static void load(void)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	for (size_t i = 0; library && i < sizeof(symbols) / sizeof(*symbols); i++) {
		*symbols[i].to = dlsym(library, symbols[i].name);
		if (!*symbols[i].to)
			library = NULL;
	}
	if (!library)
		snprintf(cannot_load, sizeof(cannot_load), "%s", dlerror());
}

static void set_object_error(struct error *e, const char *object)
{
	int error = errno;

	error_errno(e, error, "%s: %s", object, call.errormsg());
}

/* ---- The store of a part ---- */

/* The handle belongs to the window. */
static int versioned_close_store(void *handle)
{
	(void)handle;
	return 0;
}

static uint64_t begin_of(const struct versioned *v)
{
	return (uint64_t)v->rank * v->shape.dims[1];
}

static int versioned_read(void *handle, void *buf, size_t len, uint64_t off)
{
	struct versioned *v = handle;
	int err;

	pthread_mutex_lock(&v->lock);
	err = call.draft_read(v->draft, buf, len, begin_of(v) + off) < 0 ? -errno : 0;
	pthread_mutex_unlock(&v->lock);
	return err;
}

static int versioned_write(void *handle, const void *buf, size_t len, uint64_t off)
{
	struct versioned *v = handle;
	int err;

	pthread_mutex_lock(&v->lock);
	err = call.draft_write(v->draft, buf, len, begin_of(v) + off) < 0 ? -errno : 0;
	pthread_mutex_unlock(&v->lock);
	return err;
}

/* Puts the changed chunks of this rank. */
static int stage_locked(struct versioned *v)
{
	uint64_t row = (v->shape.dims[1] + v->shape.chunk[1] - 1) / v->shape.chunk[1];

	if (call.draft_put(v->draft, v->put, (uint64_t)v->rank * row, row) < 0)
		return -1;
	return call.put_sync(v->put);
}

/* The result is positive after an error, because the draft still has all changes. */
static int versioned_flush(void *handle, uint64_t off, uint64_t len)
{
	struct versioned *v = handle;
	int err;

	(void)off, (void)len;
	pthread_mutex_lock(&v->lock);
	err = v->put && stage_locked(v) < 0 ? errno : 0;
	pthread_mutex_unlock(&v->lock);
	return err;
}

static const struct ummap_driver driver = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = OBJECT_DRIVER,
	.close = versioned_close_store,
	.read = versioned_read,
	.write = versioned_write,
	.flush = versioned_flush,
};

void versioned_store(struct versioned *v, struct region_store *store)
{
	*store = (struct region_store){
		.driver = driver,
		.handle = v,
		.geom = { .size = v->size, .align = 1, .optimal = 1 << 20,
			  .caps = UMMAP_CAP_WRITE },
	};
}

/* ---- Opening ---- */

/* Checks that all ranks name the same object. */
static void agree_on_name(struct versioned *v, const char *object, uint64_t *chunk, struct error *e)
{
	char first[MPI_MAX_INFO_VAL + 1] = "";
	uint64_t theirs = *chunk;

	snprintf(first, sizeof(first), "%s", object);
	PMPI_Bcast(first, sizeof(first), MPI_CHAR, 0, v->comm);
	PMPI_Bcast(&theirs, 1, MPI_UINT64_T, 0, v->comm);
	if (strcmp(first, object) != 0)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use storage_alloc_object '%.60s': rank 0 has '%.60s'. Try the "
			  "same object at all ranks",
			  object, first);
	else if (theirs != *chunk)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use this storage_alloc_object_chunk: rank 0 has another one. Try "
			  "the same value at all ranks");
	error_agree(v->comm, e);
}

static void share_sizes(struct versioned *v, uint64_t chunk)
{
	uint64_t mine = v->size, most = 1;

	PMPI_Allgather(&mine, 1, MPI_UINT64_T, v->sizes, 1, MPI_UINT64_T, v->comm);
	for (int i = 0; i < v->ranks; i++) {
		v->holders += v->sizes[i] > 0;
		most = v->sizes[i] > most ? v->sizes[i] : most;
	}
	chunk = chunk ? chunk : DEFAULT_CHUNK_BYTES;
	v->shape = (struct umobject_shape){ .type = UMOBJECT_UINT8, .rank = 2,
					    .dims = { (uint64_t)v->ranks, most },
					    .chunk = { 1, chunk < most ? chunk : most } };
}

/* Checks that a window with the same number of ranks, and the same sizes, has written the object.
 * The chunks may differ. */
static void check_base(struct versioned *v, const char *object, struct error *e)
{
	struct umobject_stat st = { .struct_size = sizeof(st) };
	const uint64_t *sizes;
	size_t size;

	call.stat(v->base, &st);
	sizes = call.attribute(v->base, SIZES, &size);
	if (!sizes || size % sizeof(*sizes) != 0 || st.shape.rank != 2 || st.shape.chunk[0] != 1)
		return error_set(e, MPI_ERR_INFO_VALUE,
				 "cannot open the object '%.100s' for a window: no window has "
				 "written it. Try another name",
				 object);
	if (size != (size_t)v->ranks * sizeof(*sizes))
		return error_set(e, MPI_ERR_INFO_VALUE,
				 "cannot open the object '%.100s' with %d ranks: a window of %zu "
				 "ranks has written it. Try %zu ranks, or another name",
				 object, v->ranks, size / sizeof(*sizes), size / sizeof(*sizes));
	for (int i = 0; i < v->ranks; i++) {
		uint64_t had;

		memcpy(&had, &sizes[i], sizeof(had));
		if (had != v->sizes[i])
			return error_set(e, MPI_ERR_INFO_VALUE,
					 "cannot open the object '%.60s': rank %d has %llu bytes "
					 "in it, and %llu bytes in this window. Try the same size, "
					 "or another name",
					 object, i, (unsigned long long)had,
					 (unsigned long long)v->sizes[i]);
	}
	v->shape = st.shape;
}

/* The lowest rank that has bytes finds the newest version, and all ranks hold it. */
static void hold_base(struct versioned *v, const char *object, int first, struct error *e)
{
	struct umobject_stat st = { .struct_size = sizeof(st) };
	int there = 0;

	if (v->rank == first && call.hold(v->container, v->name, 0, &v->base) == 0) {
		there = 1;
		check_base(v, object, e);
		call.stat(v->base, &st);
	} else if (v->rank == first && errno != ENOENT) {
		set_object_error(e, object);
	}
	error_agree(v->comm, e);
	if (e->class != MPI_SUCCESS)
		return;
	PMPI_Bcast(&there, 1, MPI_INT, first, v->comm);
	PMPI_Bcast(&st, sizeof(st), MPI_BYTE, first, v->comm);
	if (!there)
		return;
	v->shape = st.shape;
	if (v->size && v->rank != first && call.hold_id(v->container, &st.id, &v->base) < 0)
		set_object_error(e, object);
	error_agree(v->comm, e);
}

static int first_holder(const struct versioned *v)
{
	int i = 0;

	while (i < v->ranks - 1 && v->sizes[i] == 0)
		i++;
	return i;
}

static void open_object(struct versioned *v, const char *object, struct error *e)
{
	struct umobject_attr attr = UMOBJECT_ATTR_INIT;
	const char *name;

	if (!v->size)
		return;
	if (call.open_path(object, NULL, &attr, &v->container, &name) < 0) {
		v->container = NULL;
		set_object_error(e, object);
		return;
	}
	v->name = strdup(name);
	if (!v->name)
		error_errno(e, ENOMEM, "cannot allocate a window: %m");
	else if (!*v->name)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use storage_alloc_object '%.100s': it is a container. Try the "
			  "name of an object in it",
			  object);
}

/* ---- Versions in progress ---- */

static int begin_put(struct versioned *v, umobject_put **put)
{
	return v->base ? call.begin_from(v->base, put, &v->id) :
			 call.begin(v->container, v->name, &v->shape, put, &v->id);
}

/* Collective: rank `first` begins a version, and the ranks with v join it. After an error, no rank
 * has it. */
static void begin_version(MPI_Comm comm, struct versioned *v, int first, struct error *e)
{
	umobject_put *put = NULL;
	struct umobject_id id;
	int rank;

	PMPI_Comm_rank(comm, &rank);
	if (rank == first && begin_put(v, &put) < 0)
		set_object_error(e, v->name);
	if (rank == first)
		id = v->id;
	error_agree(comm, e);
	PMPI_Bcast(&id, sizeof(id), MPI_BYTE, first, comm);
	if (e->class == MPI_SUCCESS && v && rank != first) {
		v->id = id;
		if (call.join(v->container, &id, &put) < 0)
			set_object_error(e, v->name);
	}
	error_agree(comm, e);
	if (e->class != MPI_SUCCESS && put) {
		call.abandon(put);
		put = NULL;
	}
	if (v) {
		pthread_mutex_lock(&v->lock);
		v->put = put;
		pthread_mutex_unlock(&v->lock);
	}
}

struct versioned *versioned_open(const char *object, uint64_t chunk, size_t size, MPI_Comm comm,
				 struct error *e)
{
	struct versioned *v = calloc(1, sizeof(*v));
	struct error not_now = { 0 };
	int first, ranks;

	PMPI_Comm_size(comm, &ranks);
	pthread_once(&once, load);
	if (v)
		v->sizes = calloc((size_t)ranks, sizeof(*v->sizes));
	if (!v || !v->sizes)
		error_errno(e, ENOMEM, "cannot allocate a window: %m");
	else if (*cannot_load)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use alloc_type=object: libummap-object cannot be loaded (%s)",
			  cannot_load);
	error_agree(comm, e);
	if (e->class != MPI_SUCCESS) {
		if (v)
			free(v->sizes);
		free(v);
		return NULL;
	}
	pthread_mutex_init(&v->lock, NULL);
	v->size = size;
	v->comm = comm;
	PMPI_Comm_rank(comm, &v->rank);
	v->ranks = ranks;
	agree_on_name(v, object, &chunk, e);
	if (e->class == MPI_SUCCESS) {
		share_sizes(v, chunk);
		open_object(v, object, e);
		error_agree(comm, e);
	}
	first = first_holder(v);
	if (e->class == MPI_SUCCESS && v->holders)
		hold_base(v, object, first, e);
	if (e->class == MPI_SUCCESS && v->size &&
	    call.draft_begin(v->base, &v->shape, &v->draft) < 0)
		set_object_error(e, object);
	error_agree(comm, e);
	if (e->class != MPI_SUCCESS) {
		versioned_close(v);
		return NULL;
	}
	/* If this fails, for example on a full disk, the first commit reports the error. */
	if (v->holders)
		begin_version(comm, v->size ? v : NULL, first, &not_now);
	return v;
}

void versioned_close(struct versioned *v)
{
	if (!v)
		return;
	if (v->put)
		call.abandon(v->put);
	if (v->draft)
		call.draft_end(v->draft);
	if (v->base)
		call.release(v->base);
	if (v->container)
		call.close(v->container);
	pthread_mutex_destroy(&v->lock);
	free(v->sizes);
	free(v->name);
	free(v);
}

/* ---- Commits ---- */

static bool is_written(struct versioned *v)
{
	bool written;

	pthread_mutex_lock(&v->lock);
	written = call.draft_is_written(v->draft);
	pthread_mutex_unlock(&v->lock);
	return written;
}

/* Numbers of which one reduction computes the maximum of all ranks. */
enum { UNFIRST, WRITTEN, UNBEGUN, NAME, UNNAME, WORDS };

/* Returns the lowest rank that has a part; -1: nothing to commit, or an error. */
static int find_committer(MPI_Comm comm, struct versioned *v, bool *begun, struct error *e)
{
	int64_t words[WORDS] = { 0, 0, 0, INT64_MIN, INT64_MIN }, parts = v != NULL;
	int rank, ranks;

	PMPI_Comm_rank(comm, &rank);
	PMPI_Comm_size(comm, &ranks);
	PMPI_Allreduce(MPI_IN_PLACE, &parts, 1, MPI_INT64_T, MPI_SUM, comm);
	if (parts == 0)
		return -1;
	if (v) {
		int64_t name = (int64_t)(XXH3_64bits(v->name, strlen(v->name)) >> 1);

		words[UNFIRST] = ranks - rank;
		words[WRITTEN] = is_written(v);
		words[UNBEGUN] = v->put == NULL;
		words[NAME] = name;
		words[UNNAME] = -name;
	}
	PMPI_Allreduce(MPI_IN_PLACE, words, WORDS, MPI_INT64_T, MPI_MAX, comm);
	*begun = !words[UNBEGUN];
	if (words[NAME] != -words[UNNAME] || (v && parts != v->holders))
		error_set(e, MPI_ERR_ARG,
			  "cannot sync an object window: the ranks of the call are not those of "
			  "the window. Try all ranks, each with its own part of the window");
	error_agree(comm, e);
	return words[WRITTEN] && e->class == MPI_SUCCESS ? ranks - (int)words[UNFIRST] : -1;
}

/* Stages all changes of this rank, and takes the put out of v. */
static umobject_put *take_put(struct versioned *v, struct error *e)
{
	umobject_put *put;

	pthread_mutex_lock(&v->lock);
	if (stage_locked(v) < 0)
		set_object_error(e, v->name);
	put = v->put;
	v->put = NULL;
	pthread_mutex_unlock(&v->lock);
	return put;
}

/* The first rank commits, and holds the new version. */
static int end_put(struct versioned *v, umobject_put *put, bool first, umobject_version **made)
{
	if (!first)
		return call.put_end(put);
	if (call.put_attribute(put, SIZES, v->sizes, (size_t)v->ranks * sizeof(*v->sizes)) == 0)
		return call.commit_hold(put, UMOBJECT_SPARSE, made);
	call.abandon(put);
	return -1;
}

/* Ends the version in progress, also after an error. The other ranks end their puts before the
 * first rank commits. */
static void commit_put(MPI_Comm comm, struct versioned *v, int first, umobject_version **made,
		       struct error *e)
{
	umobject_put *put = v ? take_put(v, e) : NULL;
	int rank;

	PMPI_Comm_rank(comm, &rank);
	error_agree(comm, e);
	for (int turn = 0; turn < 2; turn++) {
		if (put && e->class == MPI_SUCCESS && (rank == first) == turn) {
			if (end_put(v, put, turn, made) < 0)
				set_object_error(e, v->name);
			put = NULL;
		}
		error_agree(comm, e);
	}
	if (put)
		call.abandon(put);
}

/* Bases the draft on the new version, which the first rank holds until the next commit, because
 * another job may replace it. A rank that cannot hold it keeps its changes and the old version. */
static void rebase_draft(struct versioned *v, umobject_version *made)
{
	umobject_version *old;

	if (!made && call.hold_id(v->container, &v->id, &made) < 0)
		return;
	pthread_mutex_lock(&v->lock);
	call.draft_rebase(v->draft, made);
	old = v->base;
	v->base = made;
	pthread_mutex_unlock(&v->lock);
	if (old)
		call.release(old);
}

/* No lock is held while the rank waits for others: meanwhile, MPI may put into this rank's part,
 * which can be a fault. */
void versioned_commit(MPI_Comm comm, struct versioned *v, struct error *e)
{
	struct error not_now = { 0 };
	umobject_version *made = NULL;
	bool begun;
	int first;

	v = v && v->size ? v : NULL;
	first = find_committer(comm, v, &begun, e);
	if (first < 0)
		return;
	if (!begun)
		begin_version(comm, v, first, e);
	if (e->class == MPI_SUCCESS)
		commit_put(comm, v, first, &made, e);
	if (e->class != MPI_SUCCESS)
		return;
	if (v)
		rebase_draft(v, made);
	begin_version(comm, v, first, &not_now);
}
