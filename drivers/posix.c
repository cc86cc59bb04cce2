/* SPDX-License-Identifier: BSD-3-Clause */
/* posix - regular files and block devices, by one system call after another (file.c, file_open.c). */
#include "file.h"

#include "keys.h"

extern const struct ummap_driver ummap_driver_posix;

const struct ummap_driver ummap_driver_posix = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "posix",
	.keys = POSIX_KEYS(KEY_NAME),
	.help = "a file or block device, past the page cache where it can (direct=auto|always|never, cached=copy|map, fd=N)",
	.open = file_open,
	.open_fd = file_open_fd,
	.close = file_close,
	.read = file_read,
	.write = file_write,
	.flush = file_flush,
	.resize = file_resize,
	.readv = file_readv,
	.writev = file_writev,
	.size = file_size,
	.map_pagecache = file_map_pagecache,
	.data = file_data,
	.lock = file_lock,
	.hand_over = file_hand_over,
};
