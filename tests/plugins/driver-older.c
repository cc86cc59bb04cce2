/* SPDX-License-Identifier: BSD-3-Clause */
/* A driver whose table ends after `flush`, as in an older release. Further fields are ignored. */
#include "count.h"

#include <stddef.h>

static int unused_size(void *h, uint64_t *size)
{
	(void)h;
	(void)size;
	abort();
}

static void unused_set_notice(void *h, ummap_notice *notice, void *arg)
{
	(void)h;
	(void)notice;
	(void)arg;
	abort();
}

const struct ummap_driver ummap_driver = {
	.struct_size = offsetof(struct ummap_driver, resize),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "older",
	.open = count_open,
	.close = count_close,
	.read = count_read,
	.size = unused_size,
	.filter = 1,
	.set_notice = unused_set_notice,
};
