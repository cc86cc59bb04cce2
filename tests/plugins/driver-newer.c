/* SPDX-License-Identifier: BSD-3-Clause */
/* A driver whose table has more fields than this library knows. */
#include "count.h"

extern const struct newer {
	struct ummap_driver known;
	void (*unknown[8])(void);
} newer __asm__("ummap_driver") __attribute__((visibility("default")));

const struct newer newer = {
	.known = {
		.struct_size = sizeof(struct newer),
		.abi = UMMAP_DRIVER_ABI,
		.scheme = "newer",
		.open = count_open,
		.close = count_close,
		.read = count_read,
	},
	.unknown = { abort, abort, abort, abort, abort, abort, abort, abort },
};
