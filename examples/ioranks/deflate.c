/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * deflate - an operation of I/O processes (ummap-operation(3)): appends all data that are written
 * to FILE to a compressed file, by default FILE.z. Its records are three numbers of 8 bytes (offset
 * in FILE, length, compressed length) and the compressed data of zlib. To restore the contents,
 * write the records in their order.
 *
 *	cc -shared -fPIC -o deflate.so deflate.c -lz
 *	ummap ioranks ./program 'ioranks+posix:data?ioranks.operation=./deflate.so,/backup/data.z'
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <ummap-operation.h>
#include <zlib.h>

static int deflate_open(struct ummap_operation_file *file)
{
	char path[PATH_MAX];
	FILE *out;

	if (*file->argument)
		snprintf(path, sizeof(path), "%s", file->argument);
	else
		snprintf(path, sizeof(path), "%.4000s.z", file->path);
	out = fopen(path, "ae");
	if (!out) {
		int err = errno;

		snprintf(file->why, sizeof(file->why), "cannot open '%.150s': %s", path,
			 strerror(err));
		return -err;
	}
	file->state = out;
	return 0;
}

static int deflate_write(struct ummap_operation_file *file, const void *data, size_t len,
			 uint64_t off)
{
	uLongf room = compressBound(len);
	Bytef *packed = malloc(room);
	uint64_t head[3] = { off, len, 0 };
	int err = -ENOMEM;

	if (packed && compress2(packed, &room, data, len, Z_BEST_SPEED) == Z_OK) {
		head[2] = room;
		err = fwrite(head, sizeof(head), 1, file->state) == 1 &&
		      fwrite(packed, room, 1, file->state) == 1 ? 0 : -errno;
	}
	free(packed);
	return err;
}

static int deflate_commit(struct ummap_operation_file *file)
{
	return fflush(file->state) == 0 && fdatasync(fileno(file->state)) == 0 ? 0 : -errno;
}

static int deflate_close(struct ummap_operation_file *file)
{
	return fclose(file->state) == 0 ? 0 : -errno;
}

const struct ummap_operation ummap_operation = {
	.struct_size = sizeof(struct ummap_operation),
	.abi = UMMAP_OPERATION_ABI,
	.open = deflate_open,
	.write = deflate_write,
	.commit = deflate_commit,
	.close = deflate_close,
};
