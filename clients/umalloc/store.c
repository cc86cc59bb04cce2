/* SPDX-License-Identifier: BSD-3-Clause */
/* The store of a heap for which none was named: a file that is unlinked as soon as it is mapped. */
#include "umalloc/store.h"

#include "umalloc/error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ummap.h>

/* As the path of a URI. */
static int encode(const char *path, char *to, size_t room)
{
	size_t at = 0;

	for (; *path && at + 4 < room; path++) {
		if (strchr("%?{}&", *path))
			at += (size_t)snprintf(to + at, room - at, "%%%02X", (unsigned)(unsigned char)*path);
		else
			to[at++] = *path;
	}
	to[at] = '\0';
	return *path ? -1 : 0;
}

/* By io_uring, where it can be. */
static int map_path(const char *path, size_t size, const struct ummap_attr *attr, void **base)
{
	static const char *const drivers[] = { "uring:", "posix:" };
	char uri[3 * PATH_MAX];
	int result = -1;

	for (size_t i = 0; i < 2 && result < 0; i++) {
		strcpy(uri, drivers[i]);
		if (encode(path, uri + strlen(uri), sizeof(uri) - strlen(uri)) < 0)
			return heap_fail(ENAMETOOLONG, "cannot create a heap in TMPDIR: the "
					 "path '%.100s...' is too long", path);
		result = ummap_open(uri, size, 0, PROT_READ | PROT_WRITE, attr, base);
	}
	return result < 0 ? heap_fail(errno, "cannot map the temporary file '%.200s' of a heap: %s",
				      path, umerrormsg()) : 0;
}

int store_map_unnamed(size_t size, const struct ummap_attr *attr, void **base)
{
	const char *folder = secure_getenv("TMPDIR");
	char path[PATH_MAX];
	int fd, result, error;

	if (!folder || !*folder)
		folder = "/var/tmp";
	if (snprintf(path, sizeof(path), "%s/umalloc-XXXXXX", folder) >= (int)sizeof(path))
		return heap_fail(ENAMETOOLONG, "cannot create a heap in TMPDIR: the path "
				 "'%.100s...' is too long", folder);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return heap_fail(errno, "cannot create the temporary file of a heap in '%.200s': "
				 "%s. Try another folder in TMPDIR", folder, strerror(errno));
	result = map_path(path, size, attr, base);
	error = errno;
	unlink(path);
	close(fd);
	errno = error;
	return result;
}
