/* SPDX-License-Identifier: BSD-3-Clause */
#include "umalloc/store.h"

#include "common/fd_path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ummap.h>

/* Maps the file of a descriptor by io_uring, or by posix if io_uring cannot be used. */
static int map_descriptor(int fd, size_t size, const struct ummap_attr *attr, void **base)
{
	static const char *const drivers[] = { "uring", "posix" };
	char uri[64];
	int result = -1;

	for (size_t i = 0; i < 2 && result < 0; i++) {
		snprintf(uri, sizeof(uri), "%s:" FD_FOLDER "%d", drivers[i], fd);
		result = ummap_open(uri, size, 0, PROT_READ | PROT_WRITE, attr, base);
	}
	return result;
}

static int map_unnamed(size_t size, const struct ummap_attr *attr, void **base)
{
	const char *folder = secure_getenv("TMPDIR");
	char path[PATH_MAX];
	int fd, result;

	if (!folder || !*folder)
		folder = "/var/tmp";
	if (snprintf(path, sizeof(path), "%s/umalloc-XXXXXX", folder) >= (int)sizeof(path))
		return umseterror(ENAMETOOLONG, "cannot create a heap in TMPDIR: the path "
				  "'%.100s...' is too long", folder);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return umseterror(errno, "cannot create the temporary file of a heap in '%.200s': "
				  "%m. Try another folder in TMPDIR", folder);
	unlink(path);
	result = map_descriptor(fd, size, attr, base);
	if (result < 0)
		umseterror(errno, "cannot map the temporary file of a heap in '%.200s': %s", folder,
			   umerrormsg());
	close(fd);
	return result;
}

int store_map(const char *uri, size_t size, const struct ummap_attr *attr, void **base)
{
	if (!uri)
		return map_unnamed(size, attr, base);
	if (ummap_open(uri, size, 0, PROT_READ | PROT_WRITE, attr, base) < 0)
		return umseterror(errno, "cannot map the store '%.200s' of a heap: %s", uri,
				  umerrormsg());
	return 0;
}
