/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/work.h"

#include "mapreduce/config.h"
#include "mapreduce/error.h"
#include "mapreduce/timeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ummap.h>

/* Without sync_tasks, the time between syncs is this multiple of the time that the last sync has
 * taken. */
#define SYNC_INTERVAL_FACTOR 25

/* The time that the first sync is expected to take: the first sync comes after a second. */
#define FIRST_SYNC_SECONDS (1.0 / SYNC_INTERVAL_FACTOR)

/* ---- Opening and closing ---- */

void work_clear(struct work *w)
{
	*w = (struct work){ .lock = { NULL, -1 } };
	w->pairs.win = w->pairs.lists = w->runs.win = w->runs.lists = MPI_WIN_NULL;
	w->pairs.info = w->runs.info = MPI_INFO_NULL;
	w->record.files[0] = w->record.files[1] = w->record.folder_fd = -1;
}

static int check_folder(const char *folder)
{
	struct stat st;

	if (stat(folder, &st) < 0)
		return set_error(errno, "cannot use the storage folder '%s': %m", folder);
	if (!S_ISDIR(st.st_mode))
		return set_error(ENOTDIR, "cannot use the storage folder '%s': it is not a folder",
				 folder);
	if (access(folder, W_OK | X_OK) < 0)
		return set_error(errno, "cannot use the storage folder '%s': %m", folder);
	return 0;
}

/* Makes a mapping, so that an invalid setting such as UMMAP_MEM_LIMIT is reported before Map. */
static int try_mapping(void)
{
	void *base;

	if (ummap_open("posix:/proc/self/exe", 1, 0, PROT_READ, NULL, &base) < 0)
		return set_error(errno, "%s", umerrormsg());
	umunmap(base, 0);
	return 0;
}

int work_open_storage(ummr_job *job)
{
	struct work *w = job->work;
	const char *folder = job->config.storage;

	if (!folder)
		return 0;
	if (try_mapping() < 0)
		return -1;
	w->folder = strdup(folder);
	if (!w->folder)
		return set_error(ENOMEM, "cannot use the storage folder: no memory for its name");
	if (check_folder(w->folder) < 0 || lock_take(&w->lock, w->folder, job->rank) < 0 ||
	    record_find(&w->record, w->folder, job->rank,
			job->config.sync_tasks != UMMR_SYNC_NEVER) < 0)
		return -1;
	return job->rank > 0 ? 0 : record_remove_stale(&w->record, w->folder, job->ranks);
}

/* Each window gets a copy, because hints for its memory are added. */
static MPI_Info copy_info(const struct ummr_config *c)
{
	MPI_Info copy;

	if (c->info && *c->info != MPI_INFO_NULL)
		MPI_Info_dup(*c->info, &copy);
	else
		MPI_Info_create(&copy);
	return copy;
}

static int open_window(ummr_job *job, struct pair_window *w, unsigned streams, int lock_type)
{
	w->info = copy_info(&job->config);
	w->first_block = job->config.bucket_size;
	w->transfer_size = config_transfer_size(&job->config);
	w->lock_type = lock_type;
	return agree_result(job->comm, window_open(w, job->comm, streams));
}

int work_open_windows(ummr_job *job)
{
	struct work *w = job->work;

	/* Several ranks read buckets of a rank at the same time, but only one reads its run. */
	if (open_window(job, &w->pairs, (unsigned)job->ranks, MPI_LOCK_SHARED) < 0 ||
	    open_window(job, &w->runs, 1, MPI_LOCK_EXCLUSIVE) < 0)
		return -1;
	for (int i = 0; i < job->ranks; i++)
		stream_open(&w->buckets[i], &w->pairs);
	stream_open(&w->run, &w->runs);
	return 0;
}

void work_close(ummr_job *job, bool removes_files)
{
	struct work *w = job->work;

	for (int i = 0; w->buckets && i < job->ranks; i++)
		stream_close(&w->buckets[i]);
	stream_close(&w->run);
	/* Closing windows is collective: no rank removes files that another rank still reads. */
	window_close(&w->pairs);
	window_close(&w->runs);
	record_close(&w->record, removes_files);
	lock_release(&w->lock);
	free(w->buckets);
	free(w->done_tasks);
	free(w->folder);
}

/* ---- Syncs ---- */

void work_start_sync_clock(struct work *w)
{
	w->tasks_since_sync = 0;
	w->last_sync_end = clock_seconds();
	w->last_sync_seconds = FIRST_SYNC_SECONDS;
}

bool work_is_sync_due(const ummr_job *job)
{
	const struct work *w = job->work;

	if (!w->record.is_durable)
		return false;
	if (job->config.sync_tasks > 0)
		return w->tasks_since_sync >= job->config.sync_tasks;
	return clock_seconds() - w->last_sync_end >= SYNC_INTERVAL_FACTOR * w->last_sync_seconds;
}

int work_start_sync(ummr_job *job, double start)
{
	struct work *w = job->work;

	if (!w->record.is_durable)
		return 0;
	for (int i = 0; i < job->ranks; i++)
		if (stream_start_write(&w->buckets[i]) < 0)
			return -1;
	w->has_pending_sync = true;
	w->tasks_since_sync = 0;
	w->last_sync_end = clock_seconds();
	w->last_sync_seconds = w->last_sync_end - start;
	return 0;
}

int work_finish_sync(ummr_job *job, int phase)
{
	struct work *w = job->work;
	double start = clock_seconds();

	if (!w->has_pending_sync)
		return 0;
	if (window_sync(&w->pairs) < 0 || record_write(&w->record) < 0)
		return -1;
	w->has_pending_sync = false;
	w->last_sync_end = clock_seconds();
	w->last_sync_seconds += w->last_sync_end - start;
	timeline_add(job->timeline, phase, EVENT_SYNC);
	return 0;
}

/* ---- The run of this rank ---- */

int work_begin_results(ummr_job *job)
{
	struct work *w = job->work;

	if (w->has_begun_results)
		return 0;
	w->has_begun_results = true;
	/* The file has the result of the run before the previous one. It may be removed when a
	 * record says that this run has begun. */
	if (work_finish_sync(job, UMMR_PHASE_REDUCE) < 0)
		return -1;
	if (w->runs.file)
		unlink(w->runs.file);
	return 0;
}

int work_acknowledge_run(ummr_job *job)
{
	struct work *w = job->work;

	if (!w->record.is_durable)
		return 0;
	if (window_sync(&w->runs) < 0)
		return -1;
	stream_save(&w->run, &w->record.runs[w->record.header.run % 2]);
	w->run.keeps_ranges = true;
	w->record.header.is_reduced = true;
	return record_write(&w->record);
}
