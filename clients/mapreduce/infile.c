/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/infile.h"

#include "mapreduce/error.h"
#include "mapreduce/files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int infile_open(struct infile *f, const struct input_file *file)
{
	*f = (struct infile){ 0 };
	if (files_check(file) < 0)
		return -1;
	f->fd = open(file->path, O_RDONLY | O_CLOEXEC);
	if (f->fd < 0)
		return set_error(errno, "cannot read '%s': %s", file->path, strerror(errno));
	f->file = file;
	return 0;
}

void infile_close(struct infile *f)
{
	if (f->file)
		close(f->fd);
	f->file = NULL;
}

int infile_read(struct infile *f, char *to, size_t size, uint64_t offset)
{
	while (size > 0) {
		ssize_t count = pread(f->fd, to, size, (off_t)offset);

		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0)
			return set_error(count < 0 ? errno : ESTALE, "cannot read '%s' at %llu: %s",
					 f->file->path, (unsigned long long)offset,
					 count < 0 ? strerror(errno)
						   : "the file has become shorter");
		to += count;
		size -= (size_t)count;
		offset += (uint64_t)count;
	}
	return 0;
}

void infile_prefetch(struct infile *f, uint64_t offset, size_t size)
{
	posix_fadvise(f->fd, (off_t)offset, (off_t)size, POSIX_FADV_WILLNEED);
}
