/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * minmax - an operation of I/O processes (ummap-operation(3)): writes the minimum and the maximum
 * of the doubles that each sync or commit has written to FILE as a line of FILE.minmax.
 *
 *	cc -shared -fPIC -o minmax.so minmax.c
 *	UMMAP_DRIVER='ioranks+posix:?ioranks.operation=./minmax.so' ummap ioranks ./program
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ummap-operation.h>

struct range {
	FILE *out;
	double min, max;
	size_t count;          /* number of doubles since the last line */
};

static int minmax_open(struct ummap_operation_file *file)
{
	struct range *r = calloc(1, sizeof(*r));
	char path[PATH_MAX];

	if (!r)
		return -ENOMEM;
	snprintf(path, sizeof(path), "%.4000s.minmax", file->path);
	r->out = fopen(path, "ae");
	if (!r->out) {
		snprintf(file->why, sizeof(file->why), "cannot open '%.150s': %s", path,
			 strerror(errno));
		free(r);
		return -EIO;
	}
	file->state = r;
	return 0;
}

static int minmax_write(struct ummap_operation_file *file, const void *data, size_t len,
			uint64_t off)
{
	struct range *r = file->state;
	double value;

	/* A write may begin or end within a double, if only some of its bytes have changed. */
	for (size_t at = -off % sizeof(value); at + sizeof(value) <= len; at += sizeof(value)) {
		memcpy(&value, (const char *)data + at, sizeof(value));
		if (r->count == 0 || value < r->min)
			r->min = value;
		if (r->count == 0 || value > r->max)
			r->max = value;
		r->count++;
	}
	return 0;
}

static int minmax_commit(struct ummap_operation_file *file)
{
	struct range *r = file->state;

	if (r->count > 0)
		fprintf(r->out, "%g %g %zu\n", r->min, r->max, r->count);
	r->count = 0;
	return fflush(r->out) == 0 ? 0 : -errno;
}

static int minmax_close(struct ummap_operation_file *file)
{
	struct range *r = file->state;
	int err = fclose(r->out) == 0 ? 0 : -errno;

	free(r);
	return err;
}

const struct ummap_operation ummap_operation = {
	.struct_size = sizeof(struct ummap_operation),
	.abi = UMMAP_OPERATION_ABI,
	.open = minmax_open,
	.write = minmax_write,
	.commit = minmax_commit,
	.close = minmax_close,
};
