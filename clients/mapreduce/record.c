/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/record.h"

#include "mapreduce/error.h"
#include "mapreduce/lock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char magic[8] = "ummr 2\n";

/* The names of facts, for messages. lifecycle.c has the values, in the same order. */
static const char *const fact_names[RECORD_FACTS] = {
	"number of ranks", "number of input files", "size of the input",
	"input (a file's name, size or time of its last change)", "task_size", "bucket_size",
	"split", "record_size", "order", "kind of reduce function", "tag", "byte order",
};

/* This fact is a hash, so messages do not show its value. */
#define FACT_INPUT 3

int record_open(struct record *r, const uint64_t facts[RECORD_FACTS], unsigned streams,
		uint64_t tasks)
{
	memcpy(r->header.facts, facts, sizeof(r->header.facts));
	memcpy(r->header.magic, magic, sizeof(magic));
	r->streams = streams;
	r->task_bytes = tasks / 8 + 1;
	r->buckets = calloc(streams + 2, sizeof(*r->buckets));
	r->tasks = calloc(r->task_bytes, 1);
	if (!r->buckets || !r->tasks)
		return set_error(ENOMEM, "cannot keep the state of %llu tasks: no memory",
				 (unsigned long long)tasks);
	r->runs = r->buckets + streams;
	return 0;
}

void record_begin_run(struct record *r, uint64_t run)
{
	r->header.run = run;
	r->header.is_reduced = false;
	r->runs[run % 2] = (struct saved_stream){ 0 };
	memset(r->buckets, 0, r->streams * sizeof(*r->buckets));
	memset(r->tasks, 0, r->task_bytes);
}

void record_clear(struct record *r)
{
	record_begin_run(r, 0);
	memset(r->runs, 0, 2 * sizeof(*r->runs));
}

/* ---- Records in memory: the header, the extents of buckets and runs, and the tasks ---- */

static size_t extent_size(const struct saved_stream *extent)
{
	return (2 + extent->blocks) * sizeof(uint64_t);
}

static size_t record_size(const struct record *r)
{
	size_t size = sizeof(r->header) + r->task_bytes;

	for (unsigned i = 0; i < r->streams + 2; i++)
		size += extent_size(&r->buckets[i]);
	return size;
}

static uint64_t checksum(const struct record_header *h)
{
	return XXH3_64bits(&h->size, h->size - offsetof(struct record_header, size));
}

static void encode_record(const struct record *r, struct record_header *record, size_t size)
{
	char *to = (char *)(record + 1);

	*record = r->header;
	record->size = size;
	record->number++;
	for (unsigned i = 0; i < r->streams + 2; to += extent_size(&r->buckets[i++]))
		memcpy(to, &r->buckets[i], extent_size(&r->buckets[i]));
	memcpy(to, r->tasks, r->task_bytes);
	record->checksum = checksum(record);
}

/* The caller has checked the checksum and the facts, so the sizes in the record are those that this
 * job expects. */
static void decode_record(struct record *r, const struct record_header *record)
{
	const char *from = (const char *)(record + 1);

	r->header = *record;
	for (unsigned i = 0; i < r->streams + 2; from += extent_size(&r->buckets[i++])) {
		memcpy(&r->buckets[i].blocks, from, sizeof(uint64_t));
		memcpy(&r->buckets[i], from, extent_size(&r->buckets[i]));
	}
	memcpy(r->tasks, from, r->task_bytes);
}

static bool is_valid(const struct record_header *h, size_t size)
{
	return size >= sizeof(*h) && memcmp(h->magic, magic, sizeof(magic)) == 0 &&
	       h->size >= sizeof(*h) && h->size <= size && h->checksum == checksum(h);
}

static int compare_facts(const struct record *r, const struct record_header *h)
{
	const uint64_t *facts = r->header.facts;
	char numbers[64] = "";
	int i;

	for (i = 0; i < RECORD_FACTS && h->facts[i] == facts[i]; i++)
		;
	if (i == RECORD_FACTS)
		return 0;
	if (i != FACT_INPUT)
		snprintf(numbers, sizeof(numbers), " (%llu, and %llu now)",
			 (unsigned long long)h->facts[i], (unsigned long long)facts[i]);
	return set_error(EEXIST, "cannot use the folder '%s': it has files of an unfinished job "
			 "with another %s%s. Try to continue that job, to remove all files ummr.* "
			 "there, or another folder", r->folder, fact_names[i], numbers);
}

/* ---- Files ---- */

static int report_failure(const char *path, const char *action)
{
	return set_error(errno, "cannot %s '%s': %m", action, path);
}

/* Sets *record to NULL if the file is empty. */
static int read_record(const struct record *r, int which, struct record_header **record,
		       size_t *size)
{
	struct stat st;
	ssize_t count;

	if (fstat(r->files[which], &st) < 0)
		return report_failure(r->paths[which], "read");
	*size = (size_t)st.st_size;
	if (*size == 0)
		return 0;
	*record = malloc(*size);
	if (!*record)
		return set_error(ENOMEM, "cannot read '%s': no memory for %zu bytes",
				 r->paths[which], *size);
	count = pread(r->files[which], *record, *size, 0);
	if (count < 0)
		return report_failure(r->paths[which], "read");
	return count == (ssize_t)*size ? 0 : set_error(EIO, "cannot read '%s' to its end",
							r->paths[which]);
}

/* The first record of a job may be incomplete, and there is no other one then. Two damaged records
 * are never the work of a job. */
static int choose_record(struct record *r, struct record_header *const records[2],
			 const size_t sizes[2])
{
	const struct record_header *newest = NULL;
	int damaged = 0;

	for (int i = 0; i < 2; i++) {
		if (records[i] && !is_valid(records[i], sizes[i]))
			damaged++;
		else if (records[i] && (!newest || records[i]->number > newest->number))
			newest = records[i];
	}
	if (damaged == 2)
		return set_error(EUCLEAN, "cannot continue from '%s' and '%s': both are damaged. "
				 "Try to remove all files ummr.* there, to begin again",
				 r->paths[0], r->paths[1]);
	if (!newest)
		return 0;
	if (compare_facts(r, newest) < 0)
		return -1;
	if (!r->is_durable)
		return set_error(EEXIST, "cannot use the folder '%s': it has files of an "
				 "unfinished job that syncs. Try its sync_tasks to continue it, to "
				 "remove all files ummr.* there, or another folder", r->folder);
	decode_record(r, newest);
	return 0;
}

static int read_records(struct record *r)
{
	struct record_header *records[2] = { NULL, NULL };
	size_t sizes[2];
	int result = read_record(r, 0, &records[0], &sizes[0]);

	if (result == 0)
		result = read_record(r, 1, &records[1], &sizes[1]);
	if (result == 0)
		result = choose_record(r, records, sizes);
	free(records[0]);
	free(records[1]);
	return result;
}

static int name_files(struct record *r, int rank)
{
	const char *f = r->folder;

	if (asprintf(&r->pairs, "%s/ummr.pairs.%d", f, rank) < 0)
		r->pairs = NULL;
	for (int i = 0; i < 2; i++) {
		if (asprintf(&r->results[i], "%s/ummr.result.%d.%d", f, i, rank) < 0)
			r->results[i] = NULL;
		if (asprintf(&r->paths[i], "%s/ummr.state.%d.%d", f, i, rank) < 0)
			r->paths[i] = NULL;
	}
	return r->pairs && r->results[0] && r->results[1] && r->paths[0] && r->paths[1]
	       ? 0 : set_error(ENOMEM, "cannot name the files of the job: no memory");
}

static int open_file(struct record *r, int which)
{
	r->files[which] = open(r->paths[which], O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	return r->files[which] >= 0 ? 0 : report_failure(r->paths[which], "open");
}

int record_find(struct record *r, const char *folder, int rank, bool is_durable)
{
	r->folder = folder;
	r->is_durable = is_durable;
	if (name_files(r, rank) < 0)
		return -1;
	r->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r->folder_fd < 0)
		return set_error(errno, "cannot use the storage folder '%s': %m", folder);
	return open_file(r, 0) < 0 || open_file(r, 1) < 0 ? -1 : read_records(r);
}

/* The folder is synced, too: otherwise a file that the record names might be missing after a power
 * cut. */
static int write_record(struct record *r, const struct record_header *record)
{
	int which = (int)(record->number % 2);
	ssize_t count = pwrite(r->files[which], record, record->size, 0);

	if (count >= 0 && (size_t)count < record->size)
		errno = ENOSPC;
	if (count < (ssize_t)record->size)
		return report_failure(r->paths[which], "write");
	if (fsync(r->folder_fd) < 0)
		return report_failure(r->folder, "sync");
	return fdatasync(r->files[which]) == 0 ? 0 : report_failure(r->paths[which], "sync");
}

int record_write(struct record *r)
{
	size_t size = record_size(r);
	struct record_header *record;
	int result;

	if (!r->is_durable)
		return 0;
	record = malloc(size);
	if (!record)
		return set_error(ENOMEM, "cannot write the state of the job: no memory for %zu "
				 "bytes", size);
	encode_record(r, record, size);
	result = write_record(r, record);
	if (result == 0)
		r->header.number = record->number;
	free(record);
	return result;
}

static void free_path(char *path, bool removes_file)
{
	if (path && removes_file)
		unlink(path);
	free(path);
}

/* A job that record_find has refused has made empty files for its records. */
static bool is_empty(int file)
{
	struct stat st;

	return file >= 0 && fstat(file, &st) == 0 && st.st_size == 0;
}

void record_close(struct record *r, bool removes_files)
{
	bool removes = r->folder != NULL && r->files[1] >= 0 && removes_files;

	/* Records are removed first: without a record, no job reads the windows. */
	for (int i = 0; i < 2; i++)
		free_path(r->paths[i], removes || is_empty(r->files[i]));
	for (int i = 0; i < 2; i++)
		free_path(r->results[i], removes);
	free_path(r->pairs, removes);
	for (int i = 0; i < 2; i++)
		if (r->files[i] >= 0)
			close(r->files[i]);
	if (r->folder_fd >= 0)
		close(r->folder_fd);
	free(r->buckets);
	free(r->tasks);
}

/* ---- Files of ranks beyond those of the job ---- */

/* Returns the rank in the name of a job's file, or -1 for other names. */
static int rank_of_file(const char *name)
{
	static const char *const formats[] = {
		"ummr.lock.%d%n", "ummr.pairs.%d%n", "ummr.result.%*d.%d%n", "ummr.state.%*d.%d%n",
	};
	int rank, end;

	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
		end = 0;
		if (sscanf(name, formats[i], &rank, &end) == 1)
			return name[end] == 0 ? rank : -1;
	}
	return -1;
}

/* Returns the largest rank below `limit` that has files, or -1. */
static int find_last_rank(DIR *d, int limit)
{
	const struct dirent *e;
	int last = -1;

	rewinddir(d);
	while ((e = readdir(d))) {
		int rank = rank_of_file(e->d_name);

		if (rank > last && rank < limit)
			last = rank;
	}
	return last;
}

static int remove_files_of(const struct record *r, const char *folder, int rank)
{
	struct record other = { .files = { -1, -1 }, .folder_fd = -1 };
	struct lock lock = { NULL, -1 };
	int result = lock_take(&lock, folder, rank);

	if (result < 0)
		return -1;
	result = record_open(&other, r->header.facts, r->streams, 0);
	if (result == 0)
		result = record_find(&other, folder, rank, r->is_durable);
	record_close(&other, result == 0);
	lock_release(&lock);
	return result;
}

int record_remove_stale(const struct record *r, const char *folder, int ranks)
{
	DIR *d = opendir(folder);
	int rank = INT_MAX, result = 0;

	if (!d)
		return set_error(errno, "cannot use the storage folder '%s': %m", folder);
	while (result == 0 && (rank = find_last_rank(d, rank)) >= ranks)
		result = remove_files_of(r, folder, rank);
	closedir(d);
	return result;
}
