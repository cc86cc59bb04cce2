/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/infile.h"

#include "mapreduce/error.h"
#include "mapreduce/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct infile_way *const ways[] = {
	[UMMR_INPUT_POSIX] = &infile_posix,
	[UMMR_INPUT_MPIIO] = &infile_mpiio,
	[UMMR_INPUT_MPIIO_AHEAD] = &infile_mpiio_ahead,
	[UMMR_INPUT_UMMAP] = &infile_ummap,
};

int infile_check(const struct file *file)
{
	const char *path = file->path;
	struct stat st;

	if (stat(path, &st) < 0)
		return fail(errno, "cannot read '%s': %s", path, strerror(errno));
	if ((uint64_t)st.st_size != file->size)
		return fail(ESTALE, "cannot read '%s': it had %llu bytes when the job was created, "
			    "and has %llu bytes now", path, (unsigned long long)file->size,
			    (unsigned long long)st.st_size);
	if (input_time_of(&st) != file->time)
		return fail(ESTALE, "cannot read '%s': it has changed since the job was created",
			    path);
	return 0;
}

int infile_open(struct infile *s, const struct ummr_config *config, const struct file *file, uint64_t number)
{
	*s = (struct infile){ .path = file->path, .number = number, .size = file->size, .fd = -1, .file = MPI_FILE_NULL,
			      .request = MPI_REQUEST_NULL };
	if (infile_check(file) < 0)
		return -1;
	if (ways[config->input]->open(s, config) < 0)
		return -1;
	s->way = ways[config->input];
	return 0;
}

void infile_close(struct infile *s)
{
	if (s->way)
		s->way->close(s);
	free(s->ahead.data);
	*s = (struct infile){ 0 };
}

int infile_read(struct infile *s, char *to, size_t size, uint64_t from)
{
	return s->way->read(s, to, size, from);
}

void infile_expect(struct infile *s, uint64_t from, size_t size)
{
	s->way->expect(s, from, size);
}

bool infile_take(struct infile *s, uint64_t from, struct piece *piece)
{
	return s->way->take && s->way->take(s, from, piece);
}

int piece_make_room(struct piece *piece, size_t size, const char *path)
{
	char *data;

	if (size <= piece->room)
		return 0;
	data = realloc(piece->data, size);
	if (!data)
		return fail(ENOMEM, "cannot read '%s': no memory for %zu bytes of records at %llu. "
			    "Try a smaller task_size", path, size, (unsigned long long)piece->from);
	piece->data = data;
	piece->room = size;
	return 0;
}

/* ---- By read(2), for which the system reads ahead ---- */

static int open_posix(struct infile *s, const struct ummr_config *config)
{
	(void)config;
	s->fd = open(s->path, O_RDONLY | O_CLOEXEC);
	return s->fd >= 0 ? 0 : fail(errno, "cannot read '%s': %s", s->path, strerror(errno));
}

static int read_posix(struct infile *s, char *to, size_t size, uint64_t from)
{
	while (size > 0) {
		ssize_t got = pread(s->fd, to, size, (off_t)from);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return fail(got < 0 ? errno : ESTALE, "cannot read '%s' at %llu: %s",
				    s->path, (unsigned long long)from,
				    got < 0 ? strerror(errno) : "the file has become shorter");
		to += got;
		size -= (size_t)got;
		from += (uint64_t)got;
	}
	return 0;
}

static void expect_posix(struct infile *s, uint64_t from, size_t size)
{
	posix_fadvise(s->fd, (off_t)from, (off_t)size, POSIX_FADV_WILLNEED);
}

static void close_posix(struct infile *s)
{
	close(s->fd);
}

const struct infile_way infile_posix = { open_posix, read_posix, expect_posix, NULL, close_posix, false };
