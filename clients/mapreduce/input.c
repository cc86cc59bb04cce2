/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading a task in a file begins one byte before the task: this byte tells whether a record begins
 * with the task. The tasks on both sides of a boundary examine the same bytes, so they agree on the
 * task that has the record there.
 */
#include "mapreduce/input.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

/* The default size of a task: an equal part of the input, within bounds. */
#define DEFAULT_TASKS_PER_RANK 16
#define MIN_DEFAULT_TASK_BYTES (1 * MIB)
#define MAX_DEFAULT_TASK_BYTES (64 * MIB)

/* Bytes that are read behind a task at first, to find the end of its last record. */
#define LOOKAHEAD_BYTES ((size_t)64 << 10)

static void divide_into_tasks(struct input *in, int ranks)
{
	in->task_size = in->config->task_size;
	if (in->task_size == 0) {
		in->task_size = in->list.size / ((uint64_t)ranks * DEFAULT_TASKS_PER_RANK);
		if (in->task_size < MIN_DEFAULT_TASK_BYTES)
			in->task_size = MIN_DEFAULT_TASK_BYTES;
		if (in->task_size > MAX_DEFAULT_TASK_BYTES)
			in->task_size = MAX_DEFAULT_TASK_BYTES;
	}
	in->tasks = (int64_t)(in->list.size / in->task_size +
			      (in->list.size % in->task_size != 0));
}

/* All ranks have the same list, so all get the same result. */
static int check_record_size(const struct input *in)
{
	uint64_t record = in->config->record_size;

	if (in->config->split != UMMR_SPLIT_FIXED)
		return 0;
	for (uint64_t i = 0; i < in->list.count; i++) {
		const struct input_file *f = &in->list.files[i];

		if (f->size % record != 0)
			return set_error(EINVAL, "cannot split '%s': its %llu bytes are not a "
					 "whole number of records of %llu bytes", f->path,
					 (unsigned long long)f->size, (unsigned long long)record);
	}
	return 0;
}

int input_open(struct input *in, MPI_Comm comm, const struct ummr_config *config)
{
	int ranks;

	*in = (struct input){ .config = config };
	MPI_Comm_size(comm, &ranks);
	if (files_find(&in->list, comm, config->inputs) < 0)
		return -1;
	divide_into_tasks(in, ranks);
	return check_record_size(in);
}

static void close_current(struct input *in)
{
	if (in->current)
		close(in->fd);
	in->current = NULL;
}

void input_close(struct input *in)
{
	close_current(in);
	files_close(&in->list);
	free(in->view.data);
	*in = (struct input){ 0 };
}

bool input_has_file(const struct input *in, const char *path)
{
	struct stat file, st;

	if (stat(path, &file) < 0)
		return false;
	for (uint64_t i = 0; i < in->list.count; i++)
		if (stat(in->list.files[i].path, &st) == 0 && st.st_dev == file.st_dev &&
		    st.st_ino == file.st_ino)
			return true;
	return false;
}

/* ---- Parts of tasks ---- */

/* The part of a task in one file. All offsets are those in the file. */
struct part {
	const struct input_file *file;
	uint64_t begin, end;           /* the part's records begin in [begin, end) */
	uint64_t read_begin, read_end; /* bytes that are read at first, to find these records */
};

/* Returns the last file that begins at this offset of the input or before it. */
static const struct input_file *find_file(const struct input *in, uint64_t offset)
{
	uint64_t low = 0, high = in->list.count;

	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		if (in->list.files[middle].start <= offset)
			low = middle;
		else
			high = middle;
	}
	return &in->list.files[low];
}

/* The configuration limits sizes to half of the largest number, so the sums do not overflow. */
static void set_read_range(const struct input *in, struct part *p)
{
	uint64_t record = in->config->record_size, size = p->file->size;

	if (in->config->split == UMMR_SPLIT_FIXED) {
		p->read_begin = (p->begin + record - 1) / record * record;
		p->read_end = (p->end + record - 1) / record * record;
	} else {
		p->read_begin = p->begin > 0 ? p->begin - 1 : 0;
		p->read_end = size - p->end < LOOKAHEAD_BYTES ? size : p->end + LOOKAHEAD_BYTES;
	}
}

/* Sets *part to the next part of a task, and returns false after the last one. *position is 0
 * before the first call. */
static bool next_part(const struct input *in, int64_t task, uint64_t *position, struct part *part)
{
	uint64_t begin = (uint64_t)task * in->task_size, file_end;
	uint64_t end = in->list.size - begin < in->task_size ? in->list.size
							      : begin + in->task_size;
	const struct input_file *f;

	if (*position < begin)
		*position = begin;
	if (*position >= end)
		return false;
	f = find_file(in, *position);
	file_end = f->start + f->size;
	part->file = f;
	part->begin = *position - f->start;
	part->end = (end < file_end ? end : file_end) - f->start;
	*position = f->start + part->end;
	set_read_range(in, part);
	return true;
}

/* ---- Reading ---- */

static int open_current(struct input *in, const struct input_file *file)
{
	if (in->current == file)
		return 0;
	close_current(in);
	if (files_check(file) < 0)
		return -1;
	in->fd = open(file->path, O_RDONLY | O_CLOEXEC);
	if (in->fd < 0)
		return set_error(errno, "cannot read '%s': %m", file->path);
	in->current = file;
	return 0;
}

/* Reads all of the bytes; fewer are an error. */
static int read_bytes(struct input *in, char *to, size_t size, uint64_t offset)
{
	while (size > 0) {
		ssize_t count = pread(in->fd, to, size, (off_t)offset);

		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0)
			return set_error(count < 0 ? errno : ESTALE, "cannot read '%s' at %llu: %s",
					 in->current->path, (unsigned long long)offset,
					 count < 0 ? strerror(errno)
						   : "the file has become shorter");
		to += count;
		size -= (size_t)count;
		offset += (uint64_t)count;
	}
	return 0;
}

static int reserve_view(struct view *v, size_t size, const char *path)
{
	char *data;

	if (size <= v->capacity)
		return 0;
	data = realloc(v->data, size);
	if (!data)
		return set_error(ENOMEM, "cannot read '%s': no memory for %zu bytes of records at "
				 "%llu. Try a smaller task_size", path, size,
				 (unsigned long long)v->offset);
	v->data = data;
	v->capacity = size;
	return 0;
}

/* Reads until the view ends at this offset of the current file, or behind it. */
static int extend_view(struct input *in, uint64_t end)
{
	struct view *v = &in->view;
	size_t size = (size_t)(end - v->offset);

	if (v->size >= size)
		return 0;
	if (reserve_view(v, size, in->current->path) < 0 ||
	    read_bytes(in, v->data + v->size, size - v->size, v->offset + v->size) < 0)
		return -1;
	v->size = size;
	return 0;
}

/* ---- Records ---- */

/* A find_record function for lines. */
static size_t find_line(const char *data, size_t size)
{
	const char *end = memchr(data, '\n', size);

	return end ? (size_t)(end - data) + 1 : 0;
}

/*
 * Sets *found to the offset of the first record that begins at `begin` or behind it, or to the
 * file's size if there is none. If a line begins at `until` or behind it, *found may be any offset
 * from there on.
 */
static int find_record(struct input *in, uint64_t begin, uint64_t until, uint64_t *found)
{
	const struct ummr_config *c = in->config;
	const struct input_file *file = in->current;
	bool has_lines = c->split == UMMR_SPLIT_LINES;
	const struct view *v = &in->view;
	uint64_t view_end = v->offset + v->size, step = LOOKAHEAD_BYTES;

	*found = begin;
	if (begin == 0 || begin == file->size)
		return 0;
	for (;;) {
		const char *data = v->data + (begin - 1 - v->offset);
		size_t size = (size_t)(view_end - (begin - 1));
		size_t record = has_lines ? find_line(data, size)
					  : c->find_record(data, size, c->arg);

		if (record > size)
			return set_error(EINVAL, "cannot split '%s': find_record returned a record "
					 "behind the %zu bytes that it was given", file->path,
					 size);
		*found = record > 0 ? begin - 1 + record : file->size;
		/* The search for lines ends at `until`. find_record of the program may need more
		 * bytes to find a record before `until`, so its search goes on. */
		if (record > 0 || view_end == file->size || (has_lines && view_end >= until))
			return 0;
		if (extend_view(in, file->size - view_end < step ? file->size
								 : view_end + step) < 0)
			return -1;
		view_end = v->offset + v->size;
		step *= 2;
	}
}

/* Reads the part, and finds the range of its records. */
static int read_records(struct input *in, const struct part *part, uint64_t *first, uint64_t *end)
{
	in->view.size = 0;
	in->view.offset = part->read_begin;
	if (extend_view(in, part->read_end) < 0)
		return -1;
	if (in->config->split == UMMR_SPLIT_FIXED) {
		*first = part->read_begin;
		*end = part->read_end;
		return 0;
	}
	if (find_record(in, part->begin, part->end, first) < 0)
		return -1;
	*end = part->end;
	return *first < part->end ? find_record(in, part->end, UINT64_MAX, end) : 0;
}

int input_map(struct input *in, int64_t task, int (*map)(const struct ummr_task *task, void *arg),
	      void *arg)
{
	uint64_t position = 0, first, end;
	struct part part;

	while (next_part(in, task, &position, &part)) {
		if (open_current(in, part.file) < 0 || read_records(in, &part, &first, &end) < 0 ||
		    files_check(part.file) < 0)
			return -1;
		if (first < part.end && first < end) {
			struct ummr_task t = { in->view.data + (first - in->view.offset),
					       (size_t)(end - first), part.file->path, first };

			if (map(&t, arg) < 0)
				return -1;
		}
	}
	return 0;
}

/* An error is reported when the task is mapped. */
void input_prefetch(struct input *in, int64_t task)
{
	uint64_t position = 0;
	struct part part;
	bool is_open;
	int fd;

	if (!next_part(in, task, &position, &part) || part.read_begin == part.read_end)
		return;
	is_open = part.file == in->current;
	fd = is_open ? in->fd : open(part.file->path, O_RDONLY | O_CLOEXEC);
	posix_fadvise(fd, (off_t)part.read_begin, (off_t)(part.read_end - part.read_begin),
		      POSIX_FADV_WILLNEED);
	if (!is_open && fd >= 0)
		close(fd);
}
