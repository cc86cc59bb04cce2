/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The beginning of a job: finds the manifest of the earlier run in the folder, or a copy of the
 * manifest, compares the run with it, and takes all images back to the newest sync that all of them
 * have completed. All functions are collective.
 */
#include "coarray/job.h"

#include "coarray/earlier.h"
#include "common/minmax.h"
#include "window/moment.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The epoch of an image without files. */
#define NO_EPOCH UINT64_MAX

/* ---- The manifest and its copies ---- */

/* Returns NULL if the file does not exist, or after an error. */
static char *read_text(const char *path, struct error *e)
{
	char *text = manifest_read_text(path);

	if (!text && errno == ENODATA)
		error_set(e, MPI_ERR_IO,
			  "cannot read the manifest '%s': it is empty. Try to remove it: the copy "
			  "of an image is used then",
			  path);
	else if (!text && errno != ENOENT)
		error_errno(e, errno, "cannot read the manifest '%s': %m", path);
	return text;
}

/* Sends the text of image `from` to all images; NULL: that image has none. */
static char *share_text(char *text, int from, struct error *e)
{
	int len = text ? (int)strlen(text) + 1 : 0;

	PMPI_Bcast(&len, 1, MPI_INT, from - 1, job.comm);
	if (len && job.image != from)
		text = malloc((size_t)len);
	if (len && !text)
		job_set_no_memory(e);
	job_check(job.comm, e);
	if (len)
		PMPI_Bcast(text, len, MPI_CHAR, from - 1, job.comm);
	return len ? text : NULL;
}

/* This image's copy; NULL: it has none that is whole. *age: the number of its sync, plus 1; 0:
 * there is none. */
static char *read_copy(uint64_t *age)
{
	char path[MANIFEST_PATH], *text;
	struct manifest m = { 0 };
	struct error ignored = { 0 };

	manifest_copy(path, &job.store.names, job.image);
	text = read_text(path, &ignored);
	*age = 0;
	if (text && !manifest_read(&m, text)) {
		*age = m.sync + 1;
	} else {
		free(text);
		text = NULL;
	}
	free(m.entries);
	return text;
}

/* Without a manifest, coarrays cannot be distinguished from leftover files: nothing is overwritten
 * unless the user asks for it. */
static void check_empty(struct error *e)
{
	char file[NAME_MAX + 1];

	if (!job.config.force && store_has_files(&job.store, file))
		error_set(e, MPI_ERR_IO,
			  "cannot begin anew in PCAF_PATH: '%.50s' has contents, but "
			  "'%.40smanifest' and its copies are missing. Try to restore the "
			  "manifest, another PCAF_PATH, or PCAF_FORCE=true, which overwrites the "
			  "files",
			  file, job.config.prefix);
	job_check(job.comm, e);
}

/* The newest copy of all images; NULL: no image has one, and none has files that a new run would
 * overwrite. */
static char *find_copy(const char *path, struct error *e)
{
	uint64_t mine, newest;
	char *own = read_copy(&mine), *text;
	int from;

	PMPI_Allreduce(&mine, &newest, 1, MPI_UINT64_T, MPI_MAX, job.comm);
	from = mine == newest ? job.image : job.images + 1;
	PMPI_Allreduce(MPI_IN_PLACE, &from, 1, MPI_INT, MPI_MIN, job.comm);
	if (!newest) {
		check_empty(e);
		return NULL;
	}
	if (job.image == 1)
		fprintf(stderr,
			"ummap-coarray: the manifest '%s' is missing; using the copy of image %d\n",
			path, from);
	text = share_text(from == job.image ? own : NULL, from, e);
	if (from != job.image)
		free(own);
	return text;
}

/* Image 1 reads the manifest, because machines may have folders of their own. NULL: this run is the
 * first in the folder. */
static char *find_manifest(struct error *e)
{
	char path[MANIFEST_PATH], *text = NULL;

	manifest_path(path, &job.store.names);
	if (job.image == 1 && e->class == MPI_SUCCESS)
		text = read_text(path, e);
	job_check(job.comm, e);
	text = share_text(text, 1, e);
	return text ? text : find_copy(path, e);
}

/* ---- Other coarrays in the folder ---- */

/* Whether coarrays with other names have a file of the same name. A manifest that cannot be read
 * does not count. */
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

/* Refuses names that other coarrays in the folder use. Image 1 checks this, because the manifests
 * are in its folder. */
static void check_prefixes(struct error *e)
{
	static const char name[] = "manifest";
	struct names other = job.store.names;
	DIR *folder = opendir(other.folder);
	const struct dirent *file;

	while (folder && (file = readdir(folder))) {
		size_t len = strlen(file->d_name), prefix = len - strlen(name);

		if (len < strlen(name) || strcmp(file->d_name + prefix, name) != 0 ||
		    prefix >= sizeof(other.prefix))
			continue;
		snprintf(other.prefix, sizeof(other.prefix), "%.*s", (int)prefix, file->d_name);
		if (clashes(&other))
			error_set(e, MPI_ERR_ARG,
				  "cannot use PCAF_PREFIX '%.40s' with %d images: some files would "
				  "have the same names as files of the coarrays with prefix "
				  "'%.40s' in PCAF_PATH. Try another PCAF_PATH or PCAF_PREFIX",
				  job.config.prefix, job.images, other.prefix);
	}
	if (folder)
		closedir(folder);
}

/* ---- The earlier run ---- */

static void compare_runs(const struct manifest *m, struct error *e)
{
	struct program own;
	char theirs[PROGRAM_TEXT], ours[PROGRAM_TEXT];

	program_find(&own);
	program_describe(theirs, &m->program);
	program_describe(ours, &own);
	if (!job.config.force && !program_is_same(&m->program, &own))
		error_set(e, MPI_ERR_ARG,
			  "cannot use PCAF_PATH: its coarrays are of the program %s, and this is "
			  "%s. Try another PCAF_PATH, or PCAF_FORCE=true if the coarrays match",
			  theirs, ours);
	if (!job.config.force && m->images != job.images)
		error_set(e, MPI_ERR_ARG,
			  "cannot open the coarrays in PCAF_PATH: they are of a run with %d "
			  "images, and this one has %d. Try %d images, this folder as PCAF_RECOVER "
			  "and another PCAF_PATH, or PCAF_FORCE=true, which leaves files of other "
			  "images alone",
			  m->images, job.images, m->images);
	if (m->shared_file != job.config.shared_file)
		error_set(e, MPI_ERR_ARG,
			  "cannot open the coarrays in PCAF_PATH: they were created with "
			  "PCAF_SHAREDFILE=%s. Try that value, or another PCAF_PATH",
			  m->shared_file ? "true" : "false");
}

/* The epoch of an entry at this image, for the search of the common moment. An entry that no sync
 * has reached yet has the epoch before its first one. */
static uint64_t epoch_of(const struct entry *x, const struct holding *h)
{
	uint64_t before = x->since ? x->since - 1 : 0;

	return h->synced && h->epoch > before ? h->epoch : before;
}

/* An image creates the file of a coarray before the manifest lists the coarray. If the file is
 * missing, it was removed. Without it the coarray would begin with zeros. A file that no sync has
 * reached is not missing: its job ended before the first sync. */
static void check_file_exists(const struct manifest *m, const struct entry *x,
			      const struct holding *h, struct error *e)
{
	char path[MANIFEST_PATH], list[MANIFEST_PATH];

	if (h->file || job.config.force || e->class != MPI_SUCCESS)
		return;
	store_path(&job.store, x, path);
	manifest_path(list, &job.store.names);
	error_set(e, MPI_ERR_IO,
		  "cannot go on from the coarrays in PCAF_PATH: '%.200s' of image %d is missing, "
		  "although '%.200s' of %d images lists it. Try to restore the file, another "
		  "PCAF_PATH, or PCAF_FORCE=true, which begins anew",
		  path, job.image, list, m->images);
}

/* Finds the newest moment that all images have, and takes all images back to it. */
static void agree_on_sync(const struct manifest *m, struct error *e)
{
	struct holding *held = calloc(m->n + 1, sizeof(*held));
	uint64_t mine = NO_EPOCH, newest = 0;
	bool had_part = job.image <= m->images;
	struct agreement a;

	if (!held)
		job_set_no_memory(e);
	for (size_t i = 0; i < m->n && had_part && e->class == MPI_SUCCESS; i++) {
		const struct entry *x = &m->entries[i];

		if (x->small || x->state != ENTRY_LIVE)
			continue;
		store_look(&job.store, x, &held[i], e);
		check_file_exists(m, x, &held[i], e);
		mine = min_u64(mine, epoch_of(x, &held[i]));
		newest = max_u64(newest, held[i].epoch);
		if (x->order == ENTRY_POOL && held[i].synced)
			job.pool_epoch = held[i].epoch;
	}
	moment_agree(job.comm, mine, newest, &a);
	job.epoch = !job.config.consistent || a.common == NO_EPOCH ? a.newest : a.common;
	job_check(job.comm, e);
	for (size_t i = 0; i < m->n && job.config.consistent; i++) {
		if (held[i].synced && held[i].epoch > job.epoch)
			store_go_back(&job.store, &m->entries[i], &held[i], job.epoch, a.behind + 1,
				      e);
	}
	job.pool_epoch = min_u64(job.pool_epoch, job.epoch);
	job_check(job.comm, e);
	/* All images have the common moment now. Its commits are applied, so that the files have
	 * the contents of the moment until the first sync: see undo_changes in job.c. */
	for (size_t i = 0; i < m->n && had_part; i++) {
		if (m->entries[i].state == ENTRY_LIVE)
			store_apply(&job.store, &m->entries[i], e);
	}
	job_check(job.comm, e);
	free(held);
}

/* Goes on with the coarrays that a manifest lists. */
static void take_over(const char *text, struct error *e)
{
	struct manifest *m = &job.manifest;
	const char *wrong = manifest_read(m, text);
	char path[MANIFEST_PATH];

	manifest_path(path, &job.store.names);
	if (wrong)
		error_set(e, MPI_ERR_IO,
			  "cannot use the manifest '%s': %s. Try to remove it: the copy of an "
			  "image is used then",
			  path, wrong);
	/* Without entries, no coarray was stored. */
	if (e->class == MPI_SUCCESS && m->n)
		compare_runs(m, e);
	job_check(job.comm, e);
	agree_on_sync(m, e);
	job.restart = job.epoch;
	if (job.restart && job.config.report && job.image == 1)
		fprintf(stderr, "ummap-coarray: restarted from sync %" PRIu64 "\n", job.restart);
	for (size_t i = 0; i < m->n; i++) {
		if (m->entries[i].state == ENTRY_LIVE && m->entries[i].order != ENTRY_POOL)
			m->entries[i].state = ENTRY_PARKED;
	}
}

/* Before this image creates files, their folder has a copy of the manifest. */
static void complete_copies(const char *text, struct error *e)
{
	char path[MANIFEST_PATH];
	uint64_t age;
	char *own = read_copy(&age);

	if (!own || strcmp(own, text) != 0) {
		manifest_copy(path, &job.store.names, job.image);
		job_replace_manifest(path, text, e);
	}
	free(own);
	manifest_path(path, &job.store.names);
	if (job.image == 1 && access(path, F_OK) < 0)
		job_replace_manifest(path, text, e);
	job_check(job.comm, e);
}

void restart_begin(void)
{
	struct manifest *m = &job.manifest;
	struct error e = { 0 };
	char *text;

	if (job.image == 1)
		check_prefixes(&e);
	text = find_manifest(&e);
	if (text)
		take_over(text, &e);
	program_find(&m->program);
	m->images = job.images;
	m->shared_file = job.config.shared_file;
	m->next_id = m->next_id ? m->next_id : 1;
	if (text) {
		complete_copies(text, &e);
	} else {
		job_write_manifest(&e);
		job_check(job.comm, &e);
	}
	free(text);
	store_clear(&job.store, m->next_id);
	job.is_changed = true;
}
