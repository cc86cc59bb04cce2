/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is read of a file for a task begins one byte before the task's part: whether a record begins with the part is known
 * by the byte before. Two tasks that meet ask the same question of the same bytes, so they agree on who has which record.
 */
#include "mapreduce/input.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <fts.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define MIB ((uint64_t)1 << 20)

/* ---- Looking for files: rank 0 ---- */

struct found {
	uint64_t size, time;
};

struct list {
	char *names;      /* each with its NUL */
	struct found *files;
	uint64_t bytes, count, names_room, files_room;
};

uint64_t input_time_of(const struct stat *st)
{
	return (uint64_t)st->st_mtim.tv_sec * 1000000000 + (uint64_t)st->st_mtim.tv_nsec;
}

static int list_add(struct list *l, const char *path, const struct stat *st)
{
	size_t length = strlen(path) + 1;

	if (l->bytes + length > l->names_room) {
		l->names_room = 2 * (l->bytes + length);
		l->names = realloc(l->names, l->names_room);
	}
	if (l->count == l->files_room) {
		l->files_room = 2 * l->files_room + 16;
		l->files = realloc(l->files, l->files_room * sizeof(*l->files));
	}
	if (!l->names || !l->files)
		return fail(ENOMEM, "cannot list the input: no memory for the names of %llu files",
			    (unsigned long long)l->count);
	memcpy(l->names + l->bytes, path, length);
	l->bytes += length;
	l->files[l->count++] = (struct found){ (uint64_t)st->st_size, input_time_of(st) };
	return 0;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* How long the name is before "-NUMBER" at its end; 0: there is none. */
static size_t before_number(const char *name, size_t length)
{
	size_t digits = 0;

	while (digits < length && name[length - digits - 1] >= '0' && name[length - digits - 1] <= '9')
		digits++;
	return digits > 0 && digits < length && name[length - digits - 1] == '-' ? length - digits - 1 : 0;
}

/* OpenMPI's MPI-IO makes a NAME-NUMBER-NUMBER.lock beside each file that it opens: of a job that runs, or was killed there. */
static bool is_lock(const FTSENT *e)
{
	static const char end[] = ".lock";
	size_t length = strlen(e->fts_name), rest;
	char path[strlen(e->fts_path) + 1];

	if (length < strlen(end) || strcmp(e->fts_name + length - strlen(end), end) != 0)
		return false;
	rest = before_number(e->fts_name, before_number(e->fts_name, length - strlen(end)));
	strcpy(path, e->fts_path);
	path[strlen(path) - length + rest] = 0;
	return rest > 0 && access(path, F_OK) == 0;
}

/* Files that jobs leave: the folder may be one for storage, too. */
static bool is_of_job(const FTSENT *e)
{
	return strncmp(e->fts_name, "ummr.", strlen("ummr.")) == 0 || is_lock(e);
}

/* What is neither file nor folder counts only if it was named. */
static int list_entry(struct list *l, const FTSENT *e)
{
	if (e->fts_level > 0 && is_of_job(e))
		return 0;
	switch (e->fts_info) {
	case FTS_F:
		if (access(e->fts_accpath, R_OK) != 0)
			return fail(errno, "cannot read '%s': %s", e->fts_path, strerror(errno));
		return list_add(l, e->fts_path, e->fts_statp);
	case FTS_DNR:
	case FTS_ERR:
	case FTS_NS:
		return fail(e->fts_errno, "cannot read '%s': %s", e->fts_path,
			    strerror(e->fts_errno));
	case FTS_DEFAULT:
		return e->fts_level > 0 ? 0 : fail(EINVAL, "cannot read '%s': it is neither a file "
				"nor a folder", e->fts_path);
	default:
		return 0;
	}
}

static int list_input(struct list *l, const char *input)
{
	char path[strlen(input) + 1], *roots[] = { path, NULL };
	FTS *walk;
	FTSENT *e;
	int result = 0;

	memcpy(path, input, sizeof(path));
	/* fts takes the empty name for no name. */
	if (!*path)
		return fail(ENOENT, "cannot read an input: its name is empty");
	walk = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
	if (!walk)
		return fail(errno, "cannot read '%s': %s", input, strerror(errno));
	while (result == 0 && (errno = 0, e = fts_read(walk)))
		result = list_entry(l, e);
	if (result == 0 && errno)
		result = fail(errno, "cannot read '%s': %s", input, strerror(errno));
	fts_close(walk);
	return result;
}

static int list_inputs(struct list *l, const char *const *inputs)
{
	for (; *inputs; inputs++)
		if (list_input(l, *inputs) < 0)
			return -1;
	return 0;
}

/* ---- The same list at all ranks ---- */

static void broadcast(void *data, uint64_t size, MPI_Comm comm)
{
	while (size > 0) {
		int part = (int)(size < MPI_CALL_MAX ? size : MPI_CALL_MAX);

		MPI_Bcast(data, part, MPI_BYTE, 0, comm);
		data = (char *)data + part;
		size -= (uint64_t)part;
	}
}

static int share(struct input *in, MPI_Comm comm, struct list *l)
{
	uint64_t sizes[2] = { l->count, l->bytes };
	int rank, result = 0;

	MPI_Comm_rank(comm, &rank);
	broadcast(sizes, sizeof(sizes), comm);
	if (rank > 0) {
		*l = (struct list){ .count = sizes[0], .bytes = sizes[1] };
		l->names = malloc(l->bytes + 1);
		l->files = malloc((l->count + 1) * sizeof(*l->files));
	}
	in->files = malloc((l->count + 1) * sizeof(*in->files));
	if ((l->count > 0 && (!l->names || !l->files)) || !in->files)
		result = fail(ENOMEM, "cannot list the input: no memory for the names of %llu "
			      "files", (unsigned long long)sizes[0]);
	if (agree(comm, result) < 0)
		return -1;
	broadcast(l->names, l->bytes, comm);
	broadcast(l->files, l->count * sizeof(*l->files), comm);
	return 0;
}

static void take(struct input *in, struct list *l)
{
	char *name = l->names;

	for (uint64_t i = 0; i < l->count; i++) {
		in->files[i] = (struct file){ name, in->size, l->files[i].size, l->files[i].time };
		in->size += l->files[i].size;
		name += strlen(name) + 1;
	}
	in->count = l->count;
	in->stamp = XXH3_64bits_withSeed(l->files, l->count * sizeof(*l->files), XXH3_64bits(l->names, l->bytes));
	in->names = l->names;
	l->names = NULL;
}

static void cut(struct input *in, int ranks)
{
	in->task_size = in->config->task_size;
	if (in->task_size == 0) {
		in->task_size = in->size / ((uint64_t)ranks * 16);
		if (in->task_size < MIB)
			in->task_size = MIB;
		if (in->task_size > 64 * MIB)
			in->task_size = 64 * MIB;
	}
	in->tasks = (int64_t)(in->size / in->task_size + (in->size % in->task_size != 0));
}

/* Collective, but all ranks have the same files. */
static int check_records(const struct input *in)
{
	uint64_t size = in->config->record_size;

	for (uint64_t i = 0; in->config->split == UMMR_SPLIT_FIXED && i < in->count; i++)
		if (in->files[i].size % size != 0)
			return fail(EINVAL, "cannot split '%s': its %llu bytes are not a whole "
				    "number of records of %llu bytes", in->files[i].path,
				    (unsigned long long)in->files[i].size,
				    (unsigned long long)size);
	return 0;
}

int input_open(struct input *in, MPI_Comm comm, const struct ummr_config *config)
{
	struct list list = { 0 };
	int rank, ranks, result;

	*in = (struct input){ .config = config };
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &ranks);
	result = agree(comm, rank == 0 ? list_inputs(&list, config->inputs) : 0);
	if (result == 0)
		result = share(in, comm, &list);
	if (result == 0) {
		take(in, &list);
		cut(in, ranks);
		result = check_records(in);
	}
	free(list.names);
	free(list.files);
	return result;
}

void input_close(struct input *in)
{
	infile_close(&in->reading);
	infile_close(&in->expected);
	kept_close(&in->kept);
	together_close(&in->together);
	free(in->view.data);
	free(in->files);
	free(in->names);
	*in = (struct input){ 0 };
}

bool input_has(const struct input *in, const char *path)
{
	struct stat file, st;

	if (stat(path, &file) < 0)
		return false;
	for (uint64_t i = 0; i < in->count; i++)
		if (stat(in->files[i].path, &st) == 0 && st.st_dev == file.st_dev && st.st_ino == file.st_ino)
			return true;
	return false;
}

/* ---- Tasks, and their parts in files ---- */

uint64_t input_file_at(const struct input *in, uint64_t at)
{
	uint64_t low = 0, high = in->count;

	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		if (in->files[middle].start <= at)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Sizes are less than half of what fits, and so is what they come to. */
static void set_range(const struct input *in, struct part *p)
{
	uint64_t record = in->config->record_size, size = in->files[p->number].size;

	if (in->config->split == UMMR_SPLIT_FIXED) {
		p->from = (p->a + record - 1) / record * record;
		p->to = (p->b + record - 1) / record * record;
	} else {
		p->from = p->a > 0 ? p->a - 1 : 0;
		p->to = size - p->b < INPUT_LOOK_AHEAD ? size : p->b + INPUT_LOOK_AHEAD;
	}
}

bool input_next_part(const struct input *in, int64_t task, uint64_t *at, struct part *part)
{
	uint64_t begin = (uint64_t)task * in->task_size,
		 end = in->size - begin < in->task_size ? in->size : begin + in->task_size, file_end;
	const struct file *f;

	if (*at < begin)
		*at = begin;
	if (*at >= end)
		return false;
	part->number = input_file_at(in, *at);
	f = &in->files[part->number];
	file_end = f->start + f->size;
	part->a = *at - f->start;
	part->b = (end < file_end ? end : file_end) - f->start;
	*at = f->start + part->b;
	set_range(in, part);
	return true;
}

/* ---- Reading ---- */

static int open_infile(struct input *in, struct infile *s, uint64_t number)
{
	const struct file *f = &in->files[number];

	if (!kept_take(&in->kept, number, s))
		return infile_open(s, in->config, f, number);
	if (infile_check(f) == 0)
		return 0;
	infile_close(s);
	return -1;
}

static bool is_open(const struct infile *s, uint64_t number)
{
	return s->way && s->number == number;
}

static int open_file(struct input *in, uint64_t number)
{
	if (is_open(&in->reading, number))
		return 0;
	kept_put(&in->kept, &in->reading);
	if (!is_open(&in->expected, number))
		return open_infile(in, &in->reading, number);
	in->reading = in->expected;
	in->expected = (struct infile){ 0 };
	return 0;
}

/* Bytes of a file in in->view. */
struct view {
	struct input *in;
	const struct file *file;
	uint64_t number;
};

/* Begins at `from`, with what was read ahead from there on. */
static void begin_view(struct view *v, uint64_t from)
{
	struct input *in = v->in;

	in->view.size = 0;
	in->view.from = from;
	if (!together_take(&in->together, v->number, from, &in->view))
		infile_take(&in->reading, from, &in->view);
}

/* Makes the view reach as far as `to`. */
static int extend(struct view *v, uint64_t to)
{
	struct piece *p = &v->in->view;
	size_t need = (size_t)(to - p->from);

	if (p->size >= need)
		return 0;
	if (piece_make_room(p, need, v->file->path) < 0 ||
	    infile_read(&v->in->reading, p->data + p->size, need - p->size, p->from + p->size) < 0)
		return -1;
	p->size = need;
	return 0;
}

static size_t find_line(const char *data, size_t size, void *arg)
{
	const char *end = memchr(data, '\n', size);

	(void)arg;
	return end ? (size_t)(end - data) + 1 : 0;
}

/*
 * Where the first record at `at` or behind begins; the file's size: nowhere. `until`: it is of no interest whether it begins
 * there or behind that.
 */
static int find_record(struct view *v, uint64_t at, uint64_t until, uint64_t *found)
{
	const struct ummr_config *c = v->in->config;
	bool lines = c->split == UMMR_SPLIT_LINES;
	const struct piece *p = &v->in->view;
	uint64_t end = p->from + p->size, step = INPUT_LOOK_AHEAD;

	*found = at;
	if (at == 0 || at == v->file->size)
		return 0;
	for (;;) {
		const char *data = p->data + (at - 1 - p->from);
		size_t size = (size_t)(end - (at - 1));
		size_t there = lines ? find_line(data, size, NULL) : c->find_record(data, size, c->arg);

		if (there > size)
			return fail(EINVAL, "cannot split '%s': find_record returned a record "
				    "behind the %zu bytes that it was given", v->file->path, size);
		*found = there > 0 ? at - 1 + there : v->file->size;
		/* A record that is cut short may hide its beginning from a function that we do not know. */
		if (there > 0 || end == v->file->size || (lines && end >= until))
			return 0;
		if (extend(v, v->file->size - end < step ? v->file->size : end + step) < 0)
			return -1;
		end = p->from + p->size;
		step *= 2;
	}
}

/* Where the records that begin in the part begin, and where the last one ends. */
static int find_records(struct view *v, const struct part *part, uint64_t *first, uint64_t *end)
{
	begin_view(v, part->from);
	if (extend(v, part->to) < 0)
		return -1;
	if (v->in->config->split == UMMR_SPLIT_FIXED) {
		*first = part->from;
		*end = part->to;
		return 0;
	}
	if (find_record(v, part->a, part->b, first) < 0)
		return -1;
	*end = part->b;
	return *first < part->b ? find_record(v, part->b, UINT64_MAX, end) : 0;
}

int input_map(struct input *in, int64_t task, int (*map)(const struct ummr_task *task, void *arg), void *arg)
{
	uint64_t at = 0, first, end;
	struct part part;

	while (input_next_part(in, task, &at, &part)) {
		struct view v = { in, &in->files[part.number], part.number };

		/* Collective reads may take for read what is not there any more. */
		if (open_file(in, part.number) < 0 || find_records(&v, &part, &first, &end) < 0 || infile_check(v.file) < 0)
			return -1;
		if (first < part.b && first < end) {
			struct ummr_task t = { in->view.data + (first - in->view.from), (size_t)(end - first), v.file->path, first };

			if (map(&t, arg) < 0)
				return -1;
		}
	}
	return 0;
}

void input_expect(struct input *in, int64_t task)
{
	uint64_t at = 0;
	struct part part;
	struct infile *s = &in->reading;

	if (!input_next_part(in, task, &at, &part) || part.from == part.to)
		return;
	if (!is_open(s, part.number)) {
		s = &in->expected;
		if (!is_open(s, part.number)) {
			kept_put(&in->kept, s);
			/* Whatever is wrong with it is said when it is wanted. */
			if (open_infile(in, s, part.number) < 0)
				return;
		}
	}
	infile_expect(s, part.from, (size_t)(part.to - part.from));
}
