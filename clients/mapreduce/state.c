/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/state.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char magic[8] = "ummr 1\n";

/* In the order of job.c, which has the numbers. */
static const char *const fact_names[STATE_FACTS] = {
	"number of ranks", "number of input files", "size of the input", "input (a file's name, size or time of its last change)",
	"task_size", "bucket_size", "split", "record_size", "order", "seed", "kind of reduce function", "tag", "byte order",
};

/* A hash, which tells nobody anything. */
#define FACT_INPUT 3

/* A record: this, then each stream (its blocks, used, and the places of these blocks): buckets and runs; then the tasks. */
struct head {
	char magic[8];
	uint64_t checksum; /* of all that follows */
	uint64_t size;     /* of the record */
	uint64_t number;
	uint64_t id;
	uint64_t facts[STATE_FACTS];
	uint64_t run, reduced;
};

int state_open(struct state *s, const uint64_t facts[STATE_FACTS], unsigned streams, uint64_t tasks)
{
	memcpy(s->facts, facts, sizeof(s->facts));
	s->streams = streams;
	s->task_bytes = tasks / 8 + 1;
	s->buckets = calloc(streams, sizeof(*s->buckets));
	s->tasks = calloc(s->task_bytes, 1);
	return s->buckets && s->tasks ? 0 : fail(ENOMEM, "cannot keep the state of %llu tasks: no "
			"memory", (unsigned long long)tasks);
}

void state_begin_run(struct state *s, uint64_t run)
{
	s->run = run;
	s->reduced = false;
	s->runs[run % 2] = (struct saved_stream){ 0 };
	memset(s->buckets, 0, s->streams * sizeof(*s->buckets));
	memset(s->tasks, 0, s->task_bytes);
}

void state_forget(struct state *s)
{
	state_begin_run(s, 0);
	memset(s->runs, 0, sizeof(s->runs));
}

/* ---- Records as bytes ---- */

static struct saved_stream *stream_at(struct state *s, unsigned i)
{
	return i < s->streams ? &s->buckets[i] : &s->runs[i - s->streams];
}

static size_t record_size(struct state *s)
{
	size_t size = sizeof(struct head) + s->task_bytes;

	for (unsigned i = 0; i < s->streams + 2; i++)
		size += (2 + stream_at(s, i)->blocks) * sizeof(uint64_t);
	return size;
}

static void encode(struct state *s, char *record, size_t size)
{
	struct head h = { .size = size, .number = s->number + 1, .id = s->id, .run = s->run, .reduced = s->reduced };
	char *to = record + sizeof(h);

	memcpy(h.magic, magic, sizeof(magic));
	memcpy(h.facts, s->facts, sizeof(h.facts));
	for (unsigned i = 0; i < s->streams + 2; i++) {
		size_t bytes = (2 + stream_at(s, i)->blocks) * sizeof(uint64_t);

		memcpy(to, stream_at(s, i), bytes);
		to += bytes;
	}
	memcpy(to, s->tasks, s->task_bytes);
	memcpy(record, &h, sizeof(h));
	h.checksum = XXH3_64bits(record + 16, size - 16);
	memcpy(record + 8, &h.checksum, sizeof(h.checksum));
}

/* The record is whole, and of the same facts: what is in it has the sizes that this state expects. */
static void decode(struct state *s, const char *record)
{
	struct head h;
	const char *from = record + sizeof(h);

	memcpy(&h, record, sizeof(h));
	s->number = h.number;
	s->id = h.id;
	s->run = h.run;
	s->reduced = h.reduced;
	for (unsigned i = 0; i < s->streams + 2; i++) {
		uint64_t blocks;
		size_t bytes;

		memcpy(&blocks, from, sizeof(blocks));
		bytes = (2 + blocks) * sizeof(uint64_t);
		memcpy(stream_at(s, i), from, bytes);
		from += bytes;
	}
	memcpy(s->tasks, from, s->task_bytes);
}

static bool is_whole(const char *record, size_t size)
{
	struct head h;

	if (size < sizeof(h))
		return false;
	memcpy(&h, record, sizeof(h));
	return memcmp(h.magic, magic, sizeof(magic)) == 0 && h.size >= sizeof(h) && h.size <= size &&
	       h.checksum == XXH3_64bits(record + 16, h.size - 16);
}

int state_compare(const struct state *s, const char *folder, const uint64_t facts[STATE_FACTS])
{
	char numbers[64] = "";
	int i;

	for (i = 0; i < STATE_FACTS && facts[i] == s->facts[i]; i++)
		;
	if (i == STATE_FACTS)
		return 0;
	if (i != FACT_INPUT)
		snprintf(numbers, sizeof(numbers), " (%llu, and %llu now)", (unsigned long long)facts[i],
			 (unsigned long long)s->facts[i]);
	return fail(EEXIST, "cannot use the folder '%s': it has files of an unfinished job with "
		    "another %s%s. Try to continue that job, to remove all files ummr.* there, or "
		    "another folder", folder, fact_names[i], numbers);
}

int state_refuse(const char *folder)
{
	return fail(EEXIST, "cannot use the folder '%s': it has files of an unfinished job that "
		    "syncs. Try its sync_tasks to continue it, to remove all files ummr.* there, "
		    "or another folder", folder);
}

static int compare_facts(const struct state *s, const char *record)
{
	struct head h;

	memcpy(&h, record, sizeof(h));
	return state_compare(s, s->folder, h.facts);
}

/* ---- Files ---- */

static int cannot(const char *path, const char *what)
{
	return fail(errno, "cannot %s '%s': %s", what, path, strerror(errno));
}

/* NULL in *record: the file is empty. */
static int read_record(const struct state *s, int which, char **record, size_t *size)
{
	struct stat st;
	ssize_t got;

	*record = NULL;
	if (fstat(s->files[which], &st) < 0)
		return cannot(s->paths[which], "read");
	*size = (size_t)st.st_size;
	if (*size == 0)
		return 0;
	*record = malloc(*size);
	if (!*record)
		return fail(ENOMEM, "cannot read '%s': no memory for %zu bytes", s->paths[which],
			    *size);
	got = pread(s->files[which], *record, *size, 0);
	if (got == (ssize_t)*size)
		return 0;
	free(*record);
	*record = NULL;
	return got < 0 ? cannot(s->paths[which], "read") :
		fail(EIO, "cannot read '%s' to its end", s->paths[which]);
}

static uint64_t number_of(const char *record)
{
	struct head h;

	memcpy(&h, record, sizeof(h));
	return h.number;
}

/* The first record of all may be cut short, and then there is no other; two that are not whole are no job's doing. */
static int choose(struct state *s, char *const records[2], const size_t sizes[2])
{
	const char *newest = NULL;
	int damaged = 0;

	for (int i = 0; i < 2; i++) {
		if (records[i] && !is_whole(records[i], sizes[i]))
			damaged++;
		else if (records[i] && (!newest || number_of(records[i]) > number_of(newest)))
			newest = records[i];
	}
	if (damaged == 2)
		return fail(EUCLEAN, "cannot continue from '%s' and '%s': both are damaged. Try to "
			    "remove all files ummr.* there, to begin again", s->paths[0],
			    s->paths[1]);
	if (!newest)
		return 0;
	if (compare_facts(s, newest) < 0)
		return -1;
	if (!s->writes)
		return state_refuse(s->folder);
	decode(s, newest);
	return 0;
}

static int read_records(struct state *s)
{
	char *records[2] = { NULL, NULL };
	size_t sizes[2] = { 0, 0 };
	int result = 0;

	for (int i = 0; i < 2 && result == 0; i++)
		result = read_record(s, i, &records[i], &sizes[i]);
	if (result == 0)
		result = choose(s, records, sizes);
	free(records[0]);
	free(records[1]);
	return result;
}

static int name_files(struct state *s, int rank)
{
	const char *f = s->folder;

	if (asprintf(&s->pairs, "%s/ummr.pairs.%d", f, rank) < 0)
		s->pairs = NULL;
	for (int i = 0; i < 2; i++) {
		if (asprintf(&s->results[i], "%s/ummr.result.%d.%d", f, i, rank) < 0)
			s->results[i] = NULL;
		if (asprintf(&s->paths[i], "%s/ummr.state.%d.%d", f, i, rank) < 0)
			s->paths[i] = NULL;
	}
	return s->pairs && s->results[0] && s->results[1] && s->paths[0] && s->paths[1]
	       ? 0 : fail(ENOMEM, "cannot name the files of the job: no memory");
}

static int open_file(struct state *s, int which)
{
	s->files[which] = open(s->paths[which], O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	return s->files[which] >= 0 ? 0 : cannot(s->paths[which], "open");
}

int state_find(struct state *s, const char *folder, int rank, bool writes)
{
	s->folder = folder;
	s->writes = writes;
	if (name_files(s, rank) < 0)
		return -1;
	s->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->folder_fd < 0)
		return fail(errno, "cannot use the storage folder '%s': %s", folder,
			    strerror(errno));
	return open_file(s, 0) < 0 || open_file(s, 1) < 0 ? -1 : read_records(s);
}

/* Names in the folder come last: without one, a file that is named in a record would not be found after a loss of power. */
static int put_record(struct state *s, const char *record, size_t size)
{
	int which = (int)((s->number + 1) % 2);
	ssize_t put = pwrite(s->files[which], record, size, 0);

	if (put < 0)
		return cannot(s->paths[which], "write");
	if (put < (ssize_t)size)
		return fail(ENOSPC, "cannot write '%s': %s", s->paths[which], strerror(ENOSPC));
	if (fsync(s->folder_fd) < 0)
		return cannot(s->folder, "sync");
	return fdatasync(s->files[which]) == 0 ? 0 : cannot(s->paths[which], "sync");
}

int state_write(struct state *s)
{
	size_t size;
	char *record;
	int result;

	if (!s->writes)
		return 0;
	size = record_size(s);
	record = malloc(size);
	if (!record)
		return fail(ENOMEM, "cannot write the state of the job: no memory for %zu bytes",
			    size);
	encode(s, record, size);
	result = put_record(s, record, size);
	free(record);
	if (result == 0)
		s->number++;
	return result;
}

static void close_file(char *path, bool remove)
{
	if (path && remove)
		unlink(path);
	free(path);
}

/* A job that was refused has made files for records, and nothing else. */
static bool is_empty(int file)
{
	struct stat st;

	return file >= 0 && fstat(file, &st) == 0 && st.st_size == 0;
}

void state_close(struct state *s, bool remove)
{
	bool any = s->folder != NULL && s->files[1] >= 0 && remove;

	/* Without a record, nobody looks at the windows. */
	for (int i = 0; i < 2; i++)
		close_file(s->paths[i], any || is_empty(s->files[i]));
	for (int i = 0; i < 2; i++)
		close_file(s->results[i], any);
	close_file(s->pairs, any);
	for (int i = 0; i < 2; i++)
		if (s->files[i] >= 0)
			close(s->files[i]);
	if (s->folder_fd >= 0)
		close(s->folder_fd);
	free(s->buckets);
	free(s->tasks);
}
