/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Offsets of a file cost nothing, so the number of an arena determines its part of the file, and
 * other processes can compute the offset of a frame from its number. A public call creates the
 * object, which stays; faults only map it. Lock: `lock`, while the object is created.
 */
#include "memory/shared_pool.h"

#include "base/log.h"
#include "base/sys.h"

#include <string.h>
#include <unistd.h>

static _Atomic int object = -1;
static _Atomic uint32_t lock;

static int create_object(void)
{
	uint64_t size = (uint64_t)SHARED_POOL_SPANS << SHARED_POOL_SPAN_SHIFT;
	int fd = sys_create_memfd("ummap-pool", size);

	if (fd < 0)
		return fail(-fd, "cannot create the shared memory for UMMAP_SHARED: %s",
			    strerror(-fd));
	if (!sys_can_move_shared(fd)) {
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
