/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Offsets of a file cost nothing, so the number of an arena determines its part of the file, and
 * other processes can compute the offset of a frame from its number. A public call creates the
 * object, which stays; faults only map it. Lock: `lock`, while the object is created.
 */
#include "memory/shared_pool.h"

#include "base/log.h"
#include "base/sys.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic int object = -1;
static _Atomic uint32_t lock;

/* Returns whether this kernel moves shared memory as it moves private memory. */
static bool can_move(int fd)
{
	void *from = raw_mmap(NULL, sys_page(), PROT_NONE, MAP_SHARED, fd, 0), *to;

	if (from == MAP_FAILED)
		return false;
	to = raw_mremap(from, sys_page(), sys_page(), MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	if (to != MAP_FAILED)
		raw_munmap(to, sys_page());
	raw_munmap(from, sys_page());
	return to != MAP_FAILED;
}

static int create_object(void)
{
	uint64_t size = (uint64_t)SHARED_POOL_SPANS << SHARED_POOL_SPAN_SHIFT;
	int fd = sys_create_memfd("ummap-pool", size);

	if (fd < 0)
		return fail(-fd, "cannot create the shared memory for UMMAP_SHARED: %s",
			    strerror(-fd));
	if (!can_move(fd)) {
		close(fd);
		return fail(EOPNOTSUPP, "cannot use UMMAP_SHARED: this kernel does not move "
			    "mappings of shared memory. Try Linux 5.13 or later");
	}
	object = fd;
	return 0;
}

int shared_pool_open(void)
{
	int err = 0;

	futex_lock(&lock);
	if (object < 0)
		err = create_object();
	futex_unlock(&lock);
	return err;
}

int shared_pool_fd(void)
{
	return object;
}

void shared_pool_forget(void)
{
	if (object >= 0)
		close(object);
	object = -1;
	lock = 0;
}

bool shared_pool_map(uint32_t arena, void *base, size_t len)
{
	return sys_map_inaccessible(base, len, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, object,
			(int64_t)arena << SHARED_POOL_SPAN_SHIFT) != MAP_FAILED;
}

void shared_pool_drop(uint32_t arena, size_t at, size_t len)
{
	fallocate(object, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		  ((off_t)arena << SHARED_POOL_SPAN_SHIFT) + (off_t)at, (off_t)len);
}
