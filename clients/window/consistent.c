/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A moment is made in two steps. First every rank writes its changes to its log without committing
 * them. If a disk is full, this step fails, and all ranks keep the last moment. When all ranks have
 * succeeded, each commits. If a rank dies in the second step, other ranks may be one commit ahead;
 * their logs can go back by one commit (MOMENT_KEEP). After an error in the second step, the window
 * is broken: one more commit could make the common moment unreachable.
 *
 * When a window opens, the manifests are durable at all ranks before any file is mapped. A moment
 * at any rank therefore proves that every rank had a manifest and a file. A missing file is
 * reported, and never mistaken for a new one.
 */
#include "window/consistent.h"

#include "common/random.h"
#include "window/kernel.h"
#include "window/moment.h"
#include "window/region.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ummap.h>
#include <unistd.h>

#define URI_ROOM (20 * HINT_TEXT)

/* This rank's file, before the window opens it. */
struct found {
	char path[PATH_MAX];         /* path of the file, without symbolic links */
	char manifest[PATH_MAX + 10], log[PATH_MAX + 10];
	struct extent extent;        /* first byte of the file: ranks must have different files */
	uint64_t size;
	bool listed;                 /* a manifest exists */
	struct holding held;
};

/* ---- The files of the last job ---- */

static void find_file(struct found *f, const struct hints *h, struct error *e)
{
	int fd = open(h->filename, O_RDWR | O_CREAT | O_CLOEXEC, h->perm);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !realpath(h->filename, f->path)) {
		error_errno(e, errno, "cannot open '%s' for reading and writing: %m", h->filename);
	} else if (!S_ISREG(st.st_mode)) {
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use '%s' with storage_alloc_consistent: it is not a regular file",
			  h->filename);
	} else {
		extent_file(&f->extent, fd, 0, 1);
		f->size = (uint64_t)st.st_size;
		snprintf(f->manifest, sizeof(f->manifest), "%s.manifest", f->path);
		snprintf(f->log, sizeof(f->log), "%s.wal", f->path);
	}
	if (fd >= 0)
		close(fd);
}

static int compare_extents(const void *a, const void *b)
{
	return memcmp(a, b, offsetof(struct extent, from));
}

/* Collective. Two ranks with one file would each write the other's part. */
static void check_files(const struct found *f, MPI_Comm comm, int ranks, struct error *e)
{
	struct extent *all = malloc((size_t)ranks * sizeof(*all));

	if (!all)
		error_errno(e, ENOMEM, "cannot compare the files of ranks: %m");
	error_agree(comm, e);
	if (e->class == MPI_SUCCESS) {
		PMPI_Allgather(&f->extent, sizeof(*all), MPI_BYTE, all, sizeof(*all), MPI_BYTE,
			       comm);
		qsort(all, (size_t)ranks, sizeof(*all), compare_extents);
		for (int i = 1; i < ranks; i++) {
			if (extent_overlaps(&all[i - 1], &all[i]))
				error_set(e, MPI_ERR_INFO_VALUE,
					  "cannot use '%s' for several ranks: "
					  "storage_alloc_consistent needs a file for each rank. "
					  "Try %%r in storage_alloc_filename",
					  f->path);
		}
		error_agree(comm, e);
	}
	free(all);
}

static char *read_text(const char *path, struct error *e)
{
	char *text = manifest_read_text(path);

	if (!text && errno != ENOENT)
		error_set(e, MPI_ERR_IO, "cannot read the manifest '%s': %s", path,
			  errno == ENODATA ? "it is empty" : strerror(errno));
	return text;
}

/* Compares the manifest with this rank. */
static void check_manifest(const struct consistent *c, const struct found *f,
			   const struct manifest *m, struct error *e)
{
	const struct entry *was = m->n ? &m->entries[0] : NULL;

	if (!was)
		error_set(e, MPI_ERR_IO, "cannot use the manifest '%s': it has no entry",
			  f->manifest);
	else if (m->images != c->ranks)
		error_set(e, MPI_ERR_ARG,
			  "cannot open '%s' with %d ranks: it was written by a job of %d ranks. "
			  "Try %d ranks, or other files",
			  f->path, c->ranks, m->images, m->images);
	else if (was->order != c->entry.order)
		error_set(e, MPI_ERR_ARG, "cannot open '%s' at rank %u: it was written by rank %u",
			  f->path, c->entry.order - 1, was->order - 1);
	else if (was->size != c->entry.size)
		error_set(e, MPI_ERR_ARG,
			  "cannot open '%s' with %" PRIu64 " bytes: it was written with %" PRIu64
			  " bytes. Try that size, or other files",
			  f->path, c->entry.size, was->size);
}

/* A file without a manifest may provide the initial contents of the window, unless it has moments
 * of another job. */
static void check_unlisted(const struct consistent *c, const struct found *f, struct error *e)
{
	if (access(f->log, F_OK) == 0)
		error_set(e, MPI_ERR_IO,
			  "cannot open '%s': it has a log, but no manifest '%s'. Try 'ummap wal "
			  "apply', or to restore the manifest",
			  f->path, f->manifest);
	else if (f->size > c->entry.size)
		error_set(e, MPI_ERR_IO,
			  "cannot open '%s': it is longer than the window's part, and has no "
			  "manifest '%s'. Try to restore the manifest, or another file",
			  f->path, f->manifest);
}

static void read_manifest(const struct consistent *c, struct found *f, struct error *e)
{
	char *text = read_text(f->manifest, e);
	struct manifest m = { 0 };
	const char *wrong = text ? manifest_read(&m, text) : NULL;

	f->listed = text;
	if (wrong)
		error_set(e, MPI_ERR_IO, "cannot use the manifest '%s': %s", f->manifest, wrong);
	else if (text)
		check_manifest(c, f, &m, e);
	else if (e->class == MPI_SUCCESS)
		check_unlisted(c, f, e);
	free(m.entries);
	free(text);
}

/* ---- The common moment ---- */

static void make_uri(char *uri, const struct hints *h, const struct found *f, const char *key)
{
	char driver[4 * HINT_TEXT];

	region_log_driver(driver, sizeof(driver), region_driver(h), key);
	region_uri(uri, URI_ROOM, driver, f->path);
}

static bool is_mapped_before(const struct consistent *c, const struct found *f)
{
	return f->listed && f->size >= entry_room(&c->entry);
}

static void find_moment(const struct consistent *c, const struct hints *h, struct found *f,
			struct error *e)
{
	char uri[URI_ROOM];

	if (!is_mapped_before(c, f))
		return;
	make_uri(uri, h, f, "");
	moment_look(uri, &c->entry, true, &f->held, e);
}

static void go_back(const struct consistent *c, const struct hints *h, const struct found *f,
		    const struct agreement *a, struct error *e)
{
	char uri[URI_ROOM], key[MOMENT_KEY];
	char *base;

	if (!moment_key(&f->held, a->common, key)) {
		error_set(e, MPI_ERR_IO,
			  "cannot go back from checkpoint %" PRIu64 " of '%s' to checkpoint "
			  "%" PRIu64
			  ", the newest one of rank %d: the log does not keep it. Try to "
			  "restore the file of rank %d",
			  f->held.epoch, f->path, a->common, a->behind, a->behind);
		return;
	}
	make_uri(uri, h, f, key);
	base = moment_map(uri, &c->entry, PROT_READ | PROT_WRITE, e);
	if (base)
		umunmap(base, 0);
}

/* Collective: finds the newest moment that all ranks have, and takes all ranks back to it. */
static void restore_moment(struct consistent *c, const struct hints *h, struct found *f,
			   MPI_Comm comm, struct error *e)
{
	struct agreement a;

	find_moment(c, h, f, e);
	error_agree(comm, e);
	if (e->class != MPI_SUCCESS)
		return;
	moment_agree(comm, f->held.epoch, f->held.epoch, &a);
	if (a.newest && !is_mapped_before(c, f))
		error_set(e, MPI_ERR_IO,
			  "cannot open '%s': its contents or its manifest '%s' are missing, and "
			  "other ranks have checkpoint %" PRIu64 ". Try to restore them",
			  f->path, f->manifest, a.newest);
	error_agree(comm, e);
	if (e->class != MPI_SUCCESS)
		return;
	if (f->held.epoch > a.common)
		go_back(c, h, f, &a, e);
	c->epoch = a.common;
	error_agree(comm, e);
}

static void write_manifest(const struct consistent *c, const struct found *f, struct error *e)
{
	struct manifest m = { .images = c->ranks,
			      .next_id = c->entry.id + 1,
			      .entries = (struct entry *)&c->entry,
			      .n = 1 };
	char *text = manifest_write(&m);
	int err = text ? manifest_replace(f->manifest, text) : -ENOMEM;

	if (err)
		error_errno(e, -err, "cannot write the manifest '%s': %m", f->manifest);
	free(text);
}

static void init_part(struct consistent *c, const struct hints *h, size_t size, MPI_Comm comm)
{
	*c = (struct consistent){ .ranks = h->ranks, .id = random_id() & INT64_MAX };
	c->entry =
		(struct entry){ .order = (unsigned)h->rank + 1, .id = 1, .since = 1, .size = size };
	PMPI_Bcast(&c->id, 1, MPI_UINT64_T, 0, comm);
}

struct consistent *consistent_open(const struct hints *h, size_t size, MPI_Comm comm,
				   struct error *e)
{
	struct consistent *c = malloc(sizeof(*c));
	struct found *f = calloc(1, sizeof(*f));

	if (!c || !f)
		error_errno(e, ENOMEM, "cannot allocate a window: %m");
	else if (e->class == MPI_SUCCESS)
		find_file(f, h, e);
	error_agree(comm, e);
	if (e->class == MPI_SUCCESS) {
		init_part(c, h, size, comm);
		check_files(f, comm, h->ranks, e);
	}
	if (e->class == MPI_SUCCESS) {
		read_manifest(c, f, e);
		error_agree(comm, e);
	}
	if (e->class == MPI_SUCCESS)
		restore_moment(c, h, f, comm, e);
	if (e->class == MPI_SUCCESS) {
		if (!f->listed)
			write_manifest(c, f, e);
		error_agree(comm, e);
	}
	free(f);
	if (e->class == MPI_SUCCESS)
		return c;
	free(c);
	return NULL;
}

size_t consistent_room(const struct consistent *c)
{
	return entry_room(&c->entry);
}

/* ---- Syncs ---- */

bool consistent_is_whole(MPI_Comm comm, const struct consistent *c, struct error *e)
{
	int64_t id = c ? (int64_t)c->id : 0, most[4] = { c != NULL, !c, id, c ? -id : INT64_MIN };
	int ranks;

	PMPI_Comm_size(comm, &ranks);
	PMPI_Allreduce(MPI_IN_PLACE, most, 4, MPI_INT64_T, MPI_MAX, comm);
	if (!most[0])
		return false;
	if (most[1] || most[2] != -most[3] || c->ranks != ranks)
		error_set(e, MPI_ERR_ARG,
			  "cannot make a checkpoint: the ranks of the call are not those of one "
			  "window with storage_alloc_consistent. Try the window's communicator, "
			  "and an address of the rank's own part at each rank");
	return e->class == MPI_SUCCESS;
}

void consistent_stamp(struct region *region, struct error *e)
{
	const struct consistent *c = region->consistent;

	if (c->broken)
		error_set(e, MPI_ERR_IO,
			  "cannot make a checkpoint of '%s': an earlier one failed after some "
			  "ranks had committed it. Try to start the job again; it continues from "
			  "checkpoint %" PRIu64 " or the next one",
			  region->hints.filename, c->epoch);
	else
		entry_stamp(region->stored, &c->entry, c->epoch + 1);
}

void consistent_end(struct consistent *c, const struct error *e)
{
	c->broken = e->class != MPI_SUCCESS;
	c->epoch += !c->broken;
}

void consistent_sync(MPI_Comm comm, struct region *region, struct error *e)
{
	consistent_stamp(region, e);
	if (e->class == MPI_SUCCESS &&
	    umsync_range(region->stored, region->stored_len, UMMAP_NOFLUSH) < 0)
		error_errno(e, errno, "cannot sync '%s': %s", region->hints.filename, umerrormsg());
	error_agree(comm, e);
	if (e->class != MPI_SUCCESS)
		return;
	if (umsync_range(region->stored, region->stored_len, 0) < 0)
		error_errno(e, errno, "cannot sync '%s': %s", region->hints.filename, umerrormsg());
	error_agree(comm, e);
	consistent_end(region->consistent, e);
}
