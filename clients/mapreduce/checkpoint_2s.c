/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/checkpoint_2s.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- What is written ---- */

struct image {
	char *data;
	uint64_t size;
};

static uint64_t entry_size(const struct entry *e)
{
	return sizeof(e->head) + padded(e->head.key_size) + padded(e->head.value_size);
}

static int allocate(struct image *image)
{
	image->data = malloc(image->size + 1);
	return image->data ? 0 : fail(ENOMEM, "no memory for a checkpoint of %llu bytes", (unsigned long long)image->size);
}

/* What fills up keys and values to multiples of 8 is zeros in entries, too. */
static char *put_entry(char *to, const struct entry *e)
{
	memcpy(to, &e->head, sizeof(e->head));
	to += sizeof(e->head);
	memset(to, 0, padded(e->head.key_size));
	memcpy(to, e->key, e->head.key_size);
	to += padded(e->head.key_size);
	memset(to, 0, padded(e->head.value_size));
	memcpy(to, e->value, e->head.value_size);
	return to + padded(e->head.value_size);
}

static int image_pairs(const ummr_job *job, struct image *image)
{
	char *to;

	for (const struct entry *e = job->table.first; e; e = e->next)
		image->size += entry_size(e);
	for (int i = 0; i < job->ranks; i++)
		image->size += stream_size(&job->buckets[i]);
	if (allocate(image) < 0)
		return -1;
	to = image->data;
	for (int i = 0; i < job->ranks; i++) {
		stream_copy(&job->buckets[i], to);
		to += stream_size(&job->buckets[i]);
	}
	for (const struct entry *e = job->table.first; e; e = e->next)
		to = put_entry(to, e);
	return 0;
}

static int image_run(const ummr_job *job, struct image *image)
{
	image->size = stream_size(&job->run);
	if (allocate(image) < 0)
		return -1;
	stream_copy(&job->run, image->data);
	return 0;
}

/* ---- Writing ---- */

/* The images, in order of ranks. All make as many calls as the largest one takes. */
static int write_images(MPI_File file, const ummr_job *job, const struct image *image)
{
	uint64_t end = 0, largest = 0;
	int result = 0;

	MPI_Scan(&image->size, &end, 1, MPI_UINT64_T, MPI_SUM, job->comm);
	MPI_Allreduce(&image->size, &largest, 1, MPI_UINT64_T, MPI_MAX, job->comm);
	for (uint64_t done = 0; done < largest; done += MPI_CALL_MAX) {
		uint64_t at = done < image->size ? done : image->size, part = image->size - at;
		int code = MPI_File_write_at_all(file, (MPI_Offset)(end - image->size + at), image->data + at,
						 (int)(part < MPI_CALL_MAX ? part : MPI_CALL_MAX), MPI_BYTE, MPI_STATUS_IGNORE);

		if (result == 0)
			result = check_mpi(code, job->checkpoint);
	}
	return result;
}

static int write_file(const ummr_job *job, const char *path, const struct image *image)
{
	MPI_Info hints = infile_hints(&job->config);
	MPI_File file;
	int result = check_mpi(MPI_File_open(job->comm, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, hints, &file), path), all;

	MPI_Info_free(&hints);
	all = check_all(job->comm, result);
	if (all != 0)
		return all;
	result = check_mpi(MPI_File_set_size(file, 0), path);
	if (write_images(file, job, image) < 0 || (check_mpi(MPI_File_sync(file), path) < 0 && result == 0))
		result = -1;
	if (check_mpi(MPI_File_close(&file), path) < 0)
		result = -1;
	return result;
}

static int write_checkpoint(const ummr_job *job, const struct image *image)
{
	char path[strlen(job->checkpoint) + sizeof(".new")];
	int result;

	snprintf(path, sizeof(path), "%s.new", job->checkpoint);
	result = check_all(job->comm, write_file(job, path, image));
	if (result == 0 && job->rank == 0 && rename(path, job->checkpoint) < 0)
		result = fail(errno, "%s cannot be written: %s", job->checkpoint, strerror(errno));
	else if (result != 0 && job->rank == 0)
		unlink(path);
	return result;
}

static int make_checkpoint(ummr_job *job, int phase, int result, int (*make)(const ummr_job *job, struct image *image))
{
	struct image image = { 0 };

	if (result == 0)
		result = make(job, &image);
	result = check_all(job->comm, result);
	if (result == 0)
		result = write_checkpoint(job, &image);
	free(image.data);
	timeline_add(&job->timeline, phase, EVENT_SYNC);
	return result;
}

int checkpoint_pairs(ummr_job *job, int result)
{
	return make_checkpoint(job, UMMR_PHASE_MAP, result, image_pairs);
}

int checkpoint_run(ummr_job *job, int result)
{
	return make_checkpoint(job, UMMR_PHASE_REDUCE, result, image_run);
}
