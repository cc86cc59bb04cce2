/* SPDX-License-Identifier: BSD-3-Clause */
/* older - built when a table ended behind `flush`: what follows there is no part of it. */
#include "count.h"

#include <stddef.h>

static int nobody_calls_me(void *h, uint64_t *size)
{
	(void)h;
	(void)size;
	abort();
}

static void nobody_tells_me(void *h, ummap_notice *notice, void *arg)
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
	.size = nobody_calls_me,
	.filter = 1,
	.set_notice = nobody_tells_me,
};
