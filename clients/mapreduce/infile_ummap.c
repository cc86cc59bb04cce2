/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * By a mapping of the library's, so that the input shares the process's memory limit with the windows. It is pinned a part
 * at a time while it is copied: an error of storage is one of umpin then, and no signal.
 */
#include "mapreduce/infile.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ummap.h>

#define PINNED_MAX ((size_t)1 << 20)

static int open_ummap(struct infile *s, const struct ummr_config *config)
{
	void *mapping;
	int fd = open(s->path, O_RDONLY | O_CLOEXEC), result;

	(void)config;
	if (fd < 0)
		return fail(errno, "cannot read '%s': %s", s->path, strerror(errno));
	result = ummap((size_t)s->size, 0, PROT_READ, fd, 0, -1, 1, UMMAP_PTYPE_FIFO, &mapping);
	if (result < 0)
		result = fail(errno, "cannot map '%s': %s", s->path, umerrormsg());
	else
		s->mapping = mapping;
	close(fd);
	return result;
}

static int read_ummap(struct infile *s, char *to, size_t size, uint64_t from)
{
	while (size > 0) {
		size_t part = size < PINNED_MAX ? size : PINNED_MAX;

		if (umpin(s->mapping + from, part, PROT_READ) < 0)
			return fail(errno, "cannot read '%s' at %llu: %s", s->path,
				    (unsigned long long)from, umerrormsg());
		memcpy(to, s->mapping + from, part);
		umunpin(s->mapping + from, part);
		to += part;
		size -= part;
		from += part;
	}
	return 0;
}

static void expect_ummap(struct infile *s, uint64_t from, size_t size)
{
	umadvise(s->mapping + from, size, UMMAP_ADV_WILLNEED);
}

static void close_ummap(struct infile *s)
{
	umunmap(s->mapping, 0);
}

const struct infile_way infile_ummap = { open_ummap, read_ummap, expect_ummap, NULL, close_ummap, true };
