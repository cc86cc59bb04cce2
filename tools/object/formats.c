/* SPDX-License-Identifier: BSD-3-Clause */
#include "formats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const names[] = { "",       "int8",  "uint8",  "int16", "uint16", "int32",
				     "uint32", "int64", "uint64", "float", "double", "ldouble" };

enum umobject_type type_of_name(const char *name)
{
	size_t i;

	for (i = 1; i < sizeof(names) / sizeof(*names); i++)
		if (strcmp(names[i], name) == 0)
			return (enum umobject_type)i;
	return 0;
}

const char *name_of_type(enum umobject_type type)
{
	return names[type];
}

int array_fail(struct array *a, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(a->why, sizeof(a->why), format, args);
	va_end(args);
	return -1;
}

static uint64_t count_bytes(const struct array *a, const uint64_t *count)
{
	uint64_t bytes = umobject_type_size(a->shape.type);

	for (unsigned d = 0; d < a->shape.rank; d++)
		bytes *= count[d];
	return bytes;
}

int read_bytes(struct array *a, void *to, uint64_t size, const char *end)
{
	for (char *p = to; size;) {
		ssize_t n = read(a->fd, p, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return array_fail(a, "cannot read '%s': %m", a->path);
		if (n == 0)
			return array_fail(a, "cannot read '%s': %s", a->path, end);
		p += n;
		size -= (uint64_t)n;
	}
	return 0;
}

int write_bytes(struct array *a, const void *from, uint64_t size)
{
	for (const char *p = from; size;) {
		ssize_t n = write(a->fd, p, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return array_fail(a, "cannot write '%s': %m", a->path);
		p += n;
		size -= (uint64_t)n;
	}
	return 0;
}

/* Transfers are in order, so that pipes work. */
static int plain_read(struct array *a, void *to, const uint64_t *start, const uint64_t *count)
{
	(void)start;
	return read_bytes(a, to, count_bytes(a, count), "it has fewer bytes than the array");
}

int array_ends(struct array *a)
{
	char more;
	ssize_t n;

	if (a->read != plain_read)
		return 0;
	do
		n = read(a->fd, &more, 1);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return array_fail(a, "cannot read '%s': %m", a->path);
	return n ? array_fail(a, "cannot put '%s': it has more bytes than the array", a->path) : 0;
}

static int plain_write(struct array *a, const void *from, const uint64_t *start,
		       const uint64_t *count)
{
	(void)start;
	return write_bytes(a, from, count_bytes(a, count));
}

static int plain_close(struct array *a)
{
	/* Standard input and output stay open. */
	if (a->fd > STDERR_FILENO && close(a->fd) < 0)
		return array_fail(a, "cannot write '%s': %m", a->path);
	return 0;
}

static bool ends_with(const char *path, const char *end)
{
	size_t n = strlen(path), m = strlen(end);

	return n > m && strcmp(path + n - m, end) == 0;
}

bool is_hdf5(const char *path)
{
	return ends_with(path, ".h5") || ends_with(path, ".hdf5") || strstr(path, ".h5:/") ||
	       strstr(path, ".hdf5:/");
}

/* The length of a pipe is unknown. */
static int complete_plain(struct array *a, const struct umobject_shape *plain)
{
	struct stat st;

	a->shape = *plain;
	if (a->shape.rank)
		return 0;
	if (fstat(a->fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
		return array_fail(a,
				  "cannot put '%s': it is empty, or of unknown length. Try --dims",
				  a->path);
	if ((uint64_t)st.st_size % umobject_type_size(a->shape.type))
		return array_fail(a, "%s has %lld bytes, which are no whole elements of %s",
				  a->path, (long long)st.st_size, name_of_type(a->shape.type));
	a->shape.rank = 1;
	a->shape.dims[0] = (uint64_t)st.st_size / umobject_type_size(a->shape.type);
	return 0;
}

int array_open(struct array *a, const char *path, const struct umobject_shape *plain)
{
	*a = (struct array){ .path = path,
			     .fd = -1,
			     .read = plain_read,
			     .write = plain_write,
			     .close = plain_close };
	if (is_hdf5(path))
		return hdf5_open(a);
	a->fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	if (a->fd < 0)
		return array_fail(a, "cannot open '%s': %m", path);
	if ((ends_with(path, ".npy") ? npy_open(a) : complete_plain(a, plain)) == 0)
		return 0;
	plain_close(a);
	return -1;
}

int array_create(struct array *a, const char *path, const struct umobject_shape *shape)
{
	*a = (struct array){ .path = path,
			     .fd = -1,
			     .shape = *shape,
			     .read = plain_read,
			     .write = plain_write,
			     .close = plain_close };
	if (is_hdf5(path))
		return hdf5_create(a);
	a->fd = strcmp(path, "-") == 0 ? STDOUT_FILENO :
					 open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (a->fd < 0)
		return array_fail(a, "cannot make '%s': %m", path);
	if (!ends_with(path, ".npy") || npy_create(a) == 0)
		return 0;
	plain_close(a);
	return -1;
}
