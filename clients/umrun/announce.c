/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An announcement is a socket whose abstract name contains the bytes of the file. The kernel gives
 * each name to one socket only, and frees it when the process ends in whatever way. If the process
 * that announced the bytes ends, the next one that maps them announces them again: at most one of
 * the programs that map a file has memory of its own for it.
 */
#include "umrun/announce.h"

#include "umrun/config.h"
#include "umrun/descriptors.h"
#include "umrun/next_calls.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Whether the page cache has the first, the middle and the last page of a region. A read with
 * RWF_NOWAIT would tell, too, but starts to read ahead. */
static bool has_pages(const struct region *r)
{
	size_t last = r->library_len - page_bytes();
	size_t at[] = { 0, last / 2 & ~(page_bytes() - 1), last };
	char *place = kernel_mmap(NULL, r->library_len, PROT_READ, MAP_SHARED, r->fd, r->off);
	bool has = place != MAP_FAILED;

	for (size_t i = 0; i < sizeof(at) / sizeof(*at) && has; i++) {
		unsigned char is_resident = 0;

		has = mincore(place + at[i], page_bytes(), &is_resident) == 0 &&
		      is_resident & 1;
	}
	if (place != MAP_FAILED)
		kernel_munmap(place, r->library_len);
	return has;
}

static int open_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), moved;

	if (fd < 0)
		return -1;
	moved = descriptors_copy(fd);
	close(fd);
	return moved;
}

/* A name that is too long is cut. Programs of two groups may then have the same name, so a program
 * has a copy that it shares with no other program. */
static int bind_name(int fd, const struct region *r)
{
	const char *group = secure_getenv("UMMAP_GROUP");
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int len = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1,
			   "umrun %u %" PRIx64 ":%" PRIx64 " %" PRIx64 "+%zx %s",
			   (unsigned)geteuid(), (uint64_t)r->file.dev, (uint64_t)r->file.ino,
			   (uint64_t)r->off, r->library_len, group ? group : "");

	len = len < (int)sizeof(name.sun_path) - 2 ? len : (int)sizeof(name.sun_path) - 2;
	return bind(fd, (const struct sockaddr *)&name,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len));
}

/* Another region of this process for the same bytes, or NULL. */
static const struct region *find_twin(const struct region *r)
{
	const struct region *twin = NULL;

	while ((twin = list_find_of_file(twin, r->file))) {
		if (twin->off == r->off && twin->library_len == r->library_len)
			break;
	}
	return twin;
}

bool announce_region(struct region *r)
{
	const struct region *twin = find_twin(r);
	int fd;

	if (twin)
		return twin->is_copy;
	fd = open_socket();
	if (fd < 0)
		return false;
	if (bind_name(fd, r) == 0) {
		r->announced = fd;
		return false;
	}
	close(fd);
	return errno == EADDRINUSE && !has_pages(r);
}
