/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/files.h"

#include "mapreduce/error.h"

#include <ctype.h>
#include <errno.h>
#include <fts.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- Finding files, at rank 0 ---- */

/* The attributes of a file, as rank 0 sends them. */
struct found_file {
	uint64_t size;     /* bytes */
	uint64_t mtime_ns; /* time of the last change */
};

/* The files that rank 0 has found so far. */
struct found {
	char *names;              /* names, each with its final zero byte */
	uint64_t bytes;           /* size of names */
	uint64_t names_capacity;  /* bytes of memory for names */
	struct found_file *files; /* attributes of the files */
	uint64_t count;           /* number of files */
	uint64_t files_capacity;  /* number of files that fit into memory */
};

static uint64_t mtime_ns(const struct stat *st)
{
	return (uint64_t)st->st_mtim.tv_sec * 1000000000 + (uint64_t)st->st_mtim.tv_nsec;
}

static int add_file(struct found *l, const char *path, const struct stat *st)
{
	size_t length = strlen(path) + 1;

	if (l->bytes + length > l->names_capacity) {
		l->names_capacity = 2 * (l->bytes + length);
		l->names = realloc(l->names, l->names_capacity);
	}
	if (l->count == l->files_capacity) {
		l->files_capacity = 2 * l->files_capacity + 16;
		l->files = realloc(l->files, l->files_capacity * sizeof(*l->files));
	}
	if (!l->names || !l->files)
		return set_error(ENOMEM, "cannot list the input: no memory for the names of %llu "
				 "files", (unsigned long long)l->count);
	memcpy(l->names + l->bytes, path, length);
	l->bytes += length;
	l->files[l->count++] = (struct found_file){ (uint64_t)st->st_size, mtime_ns(st) };
	return 0;
}

static int compare_names(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* Returns the length of the name without "-NUMBER" at its end, or 0 if it has no such end. */
static size_t length_before_number(const char *name, size_t length)
{
	size_t digits = 0;

	while (digits < length && isdigit((unsigned char)name[length - digits - 1]))
		digits++;
	return digits > 0 && digits < length && name[length - digits - 1] == '-'
	       ? length - digits - 1 : 0;
}

/* Open MPI's MPI-IO makes a file NAME-NUMBER-NUMBER.lock beside each file that it opens, and leaves
 * it when it is killed. */
static bool is_mpiio_lock(const FTSENT *e)
{
	static const char end[] = ".lock";
	size_t length = strlen(e->fts_name), rest;
	char path[strlen(e->fts_path) + 1];

	if (length < strlen(end) || strcmp(e->fts_name + length - strlen(end), end) != 0)
		return false;
	rest = length_before_number(e->fts_name, length - strlen(end));
	rest = length_before_number(e->fts_name, rest);
	strcpy(path, e->fts_path);
	path[strlen(path) - length + rest] = 0;
	return rest > 0 && access(path, F_OK) == 0;
}

/* The folder may be the storage folder of a job, too. */
static bool is_job_file(const FTSENT *e)
{
	return strncmp(e->fts_name, "ummr.", strlen("ummr.")) == 0 || is_mpiio_lock(e);
}

/* Something that is neither a file nor a folder is an error only if it was named as an input. */
static int add_entry(struct found *l, const FTSENT *e)
{
	if (e->fts_level > 0 && is_job_file(e))
		return 0;
	switch (e->fts_info) {
	case FTS_F:
		if (access(e->fts_accpath, R_OK) != 0)
			return set_error(errno, "cannot read '%s': %m", e->fts_path);
		return add_file(l, e->fts_path, e->fts_statp);
	case FTS_DNR:
	case FTS_ERR:
	case FTS_NS:
		return set_error(e->fts_errno, "cannot read '%s': %m", e->fts_path);
	case FTS_DEFAULT:
		return e->fts_level > 0 ? 0 : set_error(EINVAL, "cannot read '%s': it is neither a "
							"file nor a folder", e->fts_path);
	default:
		return 0;
	}
}

static int find_input(struct found *l, const char *input)
{
	char path[strlen(input) + 1], *roots[] = { path, NULL };
	FTS *walk;
	FTSENT *e;
	int result = 0;

	memcpy(path, input, sizeof(path));
	/* fts_open(3) ends its list of names at an empty one. */
	if (!*path)
		return set_error(ENOENT, "cannot read an input: its name is empty");
	walk = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, compare_names);
	if (!walk)
		return set_error(errno, "cannot read '%s': %m", input);
	while (result == 0 && (errno = 0, e = fts_read(walk)))
		result = add_entry(l, e);
	if (result == 0 && errno)
		result = set_error(errno, "cannot read '%s': %m", input);
	fts_close(walk);
	return result;
}

static int find_inputs(struct found *l, const char *const *inputs)
{
	for (; *inputs; inputs++)
		if (find_input(l, *inputs) < 0)
			return -1;
	return 0;
}

/* ---- The same list at all ranks ---- */

static void broadcast_bytes(void *data, uint64_t size, MPI_Comm comm)
{
	while (size > 0) {
		int part = (int)(size < MAX_MPI_CALL_BYTES ? size : MAX_MPI_CALL_BYTES);

		MPI_Bcast(data, part, MPI_BYTE, 0, comm);
		data = (char *)data + part;
		size -= (uint64_t)part;
	}
}

static int broadcast_list(struct file_list *to, MPI_Comm comm, struct found *l)
{
	uint64_t sizes[2] = { l->count, l->bytes };
	int rank, result = 0;

	MPI_Comm_rank(comm, &rank);
	broadcast_bytes(sizes, sizeof(sizes), comm);
	if (rank > 0) {
		*l = (struct found){ .count = sizes[0], .bytes = sizes[1] };
		l->names = malloc(l->bytes + 1);
		l->files = malloc((l->count + 1) * sizeof(*l->files));
	}
	to->files = malloc((l->count + 1) * sizeof(*to->files));
	if ((l->count > 0 && (!l->names || !l->files)) || !to->files)
		result = set_error(ENOMEM, "cannot list the input: no memory for the names of %llu "
				   "files", (unsigned long long)sizes[0]);
	if (agree_result(comm, result) < 0)
		return -1;
	broadcast_bytes(l->names, l->bytes, comm);
	broadcast_bytes(l->files, l->count * sizeof(*l->files), comm);
	return 0;
}

static void fill_list(struct file_list *to, struct found *l)
{
	char *name = l->names;

	for (uint64_t i = 0; i < l->count; i++) {
		to->files[i] = (struct input_file){ name, to->size, l->files[i].size,
						      l->files[i].mtime_ns };
		to->size += l->files[i].size;
		name += strlen(name) + 1;
	}
	to->count = l->count;
	to->stamp = XXH3_64bits_withSeed(l->files, l->count * sizeof(*l->files),
					 XXH3_64bits(l->names, l->bytes));
	to->names = l->names;
	l->names = NULL;
}

int files_find(struct file_list *to, MPI_Comm comm, const char *const *inputs)
{
	struct found found = { 0 };
	int rank, result;

	*to = (struct file_list){ 0 };
	MPI_Comm_rank(comm, &rank);
	result = agree_result(comm, rank == 0 ? find_inputs(&found, inputs) : 0);
	if (result == 0)
		result = broadcast_list(to, comm, &found);
	if (result == 0)
		fill_list(to, &found);
	free(found.names);
	free(found.files);
	return result;
}

void files_close(struct file_list *l)
{
	free(l->files);
	free(l->names);
	*l = (struct file_list){ 0 };
}

int files_check(const struct input_file *f)
{
	const char *path = f->path;
	struct stat st;

	if (stat(path, &st) < 0)
		return set_error(errno, "cannot read '%s': %m", path);
	if ((uint64_t)st.st_size != f->size)
		return set_error(ESTALE, "cannot read '%s': it had %llu bytes when the job was "
				 "created, and has %llu bytes now", path,
				 (unsigned long long)f->size, (unsigned long long)st.st_size);
	if (mtime_ns(&st) != f->mtime_ns)
		return set_error(ESTALE, "cannot read '%s': it has changed since the job was "
				 "created", path);
	return 0;
}
