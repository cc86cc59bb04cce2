/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checkpoints of MapReduce-2S. They cost as much as checkpoints that a job can continue from: all
 * pairs with checksums, written and made durable before the next round. No program reads them.
 */
#include <fcntl.h>
#include <unistd.h>

#include "kit/common.h"
#include "kit/data.h"
#include "job.h"
#include "mapreduce_2s.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAX_CALL_BYTES ((size_t)1 << 30) /* of one call of MPI-IO, which has an int for them */

struct place {
	uint64_t size;     /* bytes of the image of a rank */
	uint64_t checksum; /* XXH3 of the image */
};

/* All ranks make as many calls as the largest image takes. */
static void write_images(MPI_File file, const char *path, const struct buffer *image)
{
	uint64_t size = image->size, end = 0, largest = 0;
	uint64_t header_size = (uint64_t)job.ranks * sizeof(struct place);

	MPI_Scan(&size, &end, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	MPI_Allreduce(&size, &largest, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
	for (uint64_t done = 0; done < largest; done += MAX_CALL_BYTES) {
		uint64_t at = done < size ? done : size, part = size - at;

		part = part < MAX_CALL_BYTES ? part : MAX_CALL_BYTES;
		job_check(MPI_File_write_at_all(file, (MPI_Offset)(header_size + end - size + at),
						image->data + at, (int)part, MPI_BYTE,
						MPI_STATUS_IGNORE), path);
	}
}

static void write_header(MPI_File file, const char *path, const struct buffer *image)
{
	struct place mine = { image->size, XXH3_64bits(image->data, image->size) };
	struct place places[job.ranks];

	MPI_Gather(&mine, sizeof(mine), MPI_BYTE, places, sizeof(mine), MPI_BYTE, 0,
		   MPI_COMM_WORLD);
	if (job.rank == 0)
		job_check(MPI_File_write_at(file, 0, places, (int)sizeof(places), MPI_BYTE,
					    MPI_STATUS_IGNORE), path);
}

static void replace_file(const char *folder, const char *from, const char *to)
{
	int fd = open_file(folder, O_RDONLY | O_DIRECTORY);

	if (rename(from, to) < 0 || fsync(fd) < 0)
		die("%s: %s", to, strerror(errno));
	close(fd);
}

void write_checkpoint(const char *folder, const char *name, const struct buffer *image)
{
	char path[strlen(folder) + strlen(name) + sizeof("/ummr.")];
	char unfinished[sizeof(path) + sizeof(".new")];
	MPI_File file;

	snprintf(path, sizeof(path), "%s/ummr.%s", folder, name);
	snprintf(unfinished, sizeof(unfinished), "%s.new", path);
	job_check(MPI_File_open(MPI_COMM_WORLD, unfinished, MPI_MODE_CREATE | MPI_MODE_WRONLY,
				MPI_INFO_NULL, &file), unfinished);
	job_check(MPI_File_set_size(file, 0), unfinished);
	write_header(file, unfinished, image);
	write_images(file, unfinished, image);
	job_check(MPI_File_sync(file), unfinished);
	job_check(MPI_File_close(&file), unfinished);
	if (job.rank == 0)
		replace_file(folder, unfinished, path);
}
