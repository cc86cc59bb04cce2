/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/checkpoint_2s.h"

#include "mapreduce/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

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
	return image->data ? 0 : fail(ENOMEM, "cannot write a checkpoint of %llu bytes: no memory",
				      (unsigned long long)image->size);
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

/* ---- Files: a head, the size and the checksum of each rank's image, and the images in order of ranks ---- */

static const char magic[8] = "ummr2s1\n";

struct head {
	char magic[8];
	uint64_t checksum;           /* of all that follows, but for images */
	uint64_t facts[STATE_FACTS];
	uint64_t run;
	uint64_t tasks;              /* whose pairs are there; 0: these are runs */
};

struct place {
	uint64_t size, checksum;
};

static uint64_t checksum_of(const struct head *h, const struct place *places, int ranks)
{
	const size_t begin = offsetof(struct head, facts);
	uint64_t sum = XXH3_64bits((const char *)h + begin, sizeof(*h) - begin);

	return XXH3_64bits_withSeed(places, (size_t)ranks * sizeof(*places), sum);
}

/* One rank's image. All make as many calls as the largest one takes. */
static int transfer(MPI_File file, const ummr_job *job, const struct image *image, const char *path, bool write)
{
	const uint64_t begin = sizeof(struct head) + (uint64_t)job->ranks * sizeof(struct place);
	uint64_t end = 0, largest = 0;
	int result = 0;

	MPI_Scan(&image->size, &end, 1, MPI_UINT64_T, MPI_SUM, job->comm);
	MPI_Allreduce(&image->size, &largest, 1, MPI_UINT64_T, MPI_MAX, job->comm);
	for (uint64_t done = 0; done < largest; done += MPI_CALL_MAX) {
		uint64_t at = done < image->size ? done : image->size, part = image->size - at;
		MPI_Offset to = (MPI_Offset)(begin + end - image->size + at);
		int size = (int)(part < MPI_CALL_MAX ? part : MPI_CALL_MAX);
		int code = write ? MPI_File_write_at_all(file, to, image->data + at, size, MPI_BYTE, MPI_STATUS_IGNORE)
				 : MPI_File_read_at_all(file, to, image->data + at, size, MPI_BYTE, MPI_STATUS_IGNORE);

		if (result == 0)
			result = check_mpi(code, path);
	}
	return result;
}

static int open_together(const ummr_job *job, const char *path, int mode, MPI_File *file)
{
	return check_all(job->comm, infile_open_mpiio(job->comm, path, mode, &job->config, file));
}

/* ---- Writing ---- */

/* On a full disk, OpenMPI's own MPI-IO calls what was written in part a success. */
static int reserve(const char *path, uint64_t size)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), error = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)size);

	if (fd >= 0)
		close(fd);
	return error == 0 ? 0 : fail(error, "cannot write '%s': %s", path, strerror(error));
}

/* Rank 0's, with what it gathers. */
static int write_head(MPI_File file, const ummr_job *job, const struct image *image, const char *path, uint64_t tasks)
{
	const struct place mine = { image->size, XXH3_64bits(image->data, image->size) };
	struct place places[job->ranks];
	struct head h = { .run = job->acknowledged.run, .tasks = tasks };
	uint64_t size = sizeof(h) + sizeof(places);
	int code;

	MPI_Gather(&mine, sizeof(mine), MPI_BYTE, places, sizeof(mine), MPI_BYTE, 0, job->comm);
	if (job->rank > 0)
		return 0;
	memcpy(h.magic, magic, sizeof(magic));
	memcpy(h.facts, job->acknowledged.facts, sizeof(h.facts));
	h.checksum = checksum_of(&h, places, job->ranks);
	for (int i = 0; i < job->ranks; i++)
		size += places[i].size;
	if (reserve(path, size) < 0)
		return -1;
	code = MPI_File_write_at(file, 0, &h, sizeof(h), MPI_BYTE, MPI_STATUS_IGNORE);
	if (code == MPI_SUCCESS)
		code = MPI_File_write_at(file, sizeof(h), places, (int)sizeof(places), MPI_BYTE, MPI_STATUS_IGNORE);
	return check_mpi(code, path);
}

static int write_file(const ummr_job *job, const char *path, const struct image *image, uint64_t tasks)
{
	MPI_File file;
	int result = open_together(job, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, &file);

	if (result != 0)
		return result;
	result = check_mpi(MPI_File_set_size(file, 0), path);
	if (write_head(file, job, image, path, tasks) < 0)
		result = -1;
	result = check_all(job->comm, result);
	if (result == 0) {
		result = transfer(file, job, image, path, true);
		/* Also after an error of this rank's: the call is all ranks'. */
		if (check_mpi(MPI_File_sync(file), path) < 0)
			result = -1;
	}
	if (check_mpi(MPI_File_close(&file), path) < 0)
		result = -1;
	return result;
}

/* Its name is durable, too. */
static int replace(const ummr_job *job, const char *from, const char *to)
{
	int fd, result = 0;

	if (rename(from, to) < 0)
		return fail(errno, "cannot write '%s': %s", to, strerror(errno));
	fd = open(job->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) < 0)
		result = fail(errno, "cannot make the folder '%s' durable: %s", job->folder,
			      strerror(errno));
	if (fd >= 0)
		close(fd);
	return result;
}

static int write_checkpoint(const ummr_job *job, const char *path, const struct image *image, uint64_t tasks)
{
	char unfinished[strlen(path) + sizeof(".new")];
	int result;

	snprintf(unfinished, sizeof(unfinished), "%s.new", path);
	result = check_all(job->comm, write_file(job, unfinished, image, tasks));
	if (job->rank == 0 && result == 0)
		result = replace(job, unfinished, path);
	else if (job->rank == 0)
		unlink(unfinished);
	return result;
}

typedef int image_function(const ummr_job *job, struct image *image);

static int make_checkpoint(ummr_job *job, int result, image_function *make, const char *path, uint64_t tasks)
{
	struct image image = { 0 };

	if (result == 0)
		result = make(job, &image);
	result = check_all(job->comm, result);
	if (result == 0)
		result = write_checkpoint(job, path, &image, tasks);
	free(image.data);
	timeline_add(&job->timeline, tasks > 0 ? UMMR_PHASE_MAP : UMMR_PHASE_REDUCE, EVENT_SYNC);
	return result;
}

int checkpoint_pairs(ummr_job *job, int result, int64_t tasks)
{
	return make_checkpoint(job, result, image_pairs, job->checkpoint.pairs, (uint64_t)tasks);
}

int checkpoint_run(ummr_job *job, int result)
{
	return make_checkpoint(job, result, image_run, job->checkpoint.runs[job->acknowledged.run % 2], 0);
}

/* ---- Finding, at rank 0 ---- */

static int damaged(const char *path)
{
	return fail(EUCLEAN, "cannot continue from '%s': the file is damaged. Try to remove all "
		    "files ummr.* there, to begin again", path);
}

/* 1, 0: there is no such file, or -1. */
static int read_head(const ummr_job *job, const char *path, struct head *h)
{
	struct place places[job->ranks];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got, places_got;

	if (fd < 0)
		return errno == ENOENT ? 0 : fail(errno, "cannot read '%s': %s", path,
				strerror(errno));
	got = pread(fd, h, sizeof(*h), 0);
	places_got = pread(fd, places, sizeof(places), sizeof(*h));
	close(fd);
	if (got < 0 || places_got < 0)
		return fail(errno, "cannot read '%s': %s", path, strerror(errno));
	if (got < (ssize_t)sizeof(*h) || memcmp(h->magic, magic, sizeof(magic)) != 0)
		return damaged(path);
	/* Another number of ranks makes another sum. */
	if (state_compare(&job->acknowledged, job->folder, h->facts) < 0)
		return -1;
	if (places_got < (ssize_t)sizeof(places) || h->checksum != checksum_of(h, places, job->ranks))
		return damaged(path);
	return syncs(job) ? 1 : state_refuse(job->folder);
}

/* What is there of the newest run, and of the one before, whose result it may need. */
static int read_heads(const ummr_job *job, struct checkpoint *c, uint64_t *run)
{
	struct head pairs = { .run = 0 }, runs[2] = { { .run = 0 }, { .run = 0 } };

	if (read_head(job, c->pairs, &pairs) < 0 || read_head(job, c->runs[0], &runs[0]) < 0 ||
	    read_head(job, c->runs[1], &runs[1]) < 0)
		return -1;
	*run = runs[0].run > runs[1].run ? runs[0].run : runs[1].run;
	c->reduced = *run > 0 && *run >= pairs.run;
	if (!c->reduced) {
		*run = pairs.run;
		c->tasks = (int64_t)pairs.tasks;
	}
	if (*run > 1 && runs[(*run - 1) % 2].run != *run - 1)
		return fail(EUCLEAN, "cannot continue from '%s', which an earlier job wrote: it is "
			    "missing, or of another run. Try to remove all files ummr.* there, to "
			    "begin again",
			    c->runs[(*run - 1) % 2]);
	return 0;
}

static int name_files(ummr_job *job)
{
	struct checkpoint *c = &job->checkpoint;

	if (asprintf(&c->pairs, "%s/ummr.checkpoint", job->folder) < 0)
		c->pairs = NULL;
	for (int i = 0; i < 2; i++)
		if (asprintf(&c->runs[i], "%s/ummr.runs.%d", job->folder, i) < 0)
			c->runs[i] = NULL;
	return c->pairs && c->runs[0] && c->runs[1] ? 0 : fail(ENOMEM, "cannot name the files of "
			"checkpoints: no memory");
}

int checkpoint_find(ummr_job *job)
{
	uint64_t found[3] = { 0 };
	int result;

	if (!job->folder)
		return 0;
	result = name_files(job);
	if (result == 0 && job->rank == 0)
		result = read_heads(job, &job->checkpoint, &found[0]);
	result = check_all(job->comm, result);
	if (result != 0)
		return result;
	found[1] = (uint64_t)job->checkpoint.tasks;
	found[2] = job->checkpoint.reduced;
	MPI_Bcast(found, 3, MPI_UINT64_T, 0, job->comm);
	job->complete = found[0] > 0 ? found[0] - 1 : 0;
	job->checkpoint.tasks = (int64_t)found[1];
	job->checkpoint.reduced = found[2];
	return 0;
}

/* ---- Reading ---- */

/* Its size and sum: rank 0 has seen that this part of the file is whole. */
static int read_image(MPI_File file, const ummr_job *job, const char *path, struct image *image)
{
	const MPI_Offset at = (MPI_Offset)(sizeof(struct head) + (size_t)job->rank * sizeof(struct place));
	struct place mine = { 0, 0 };
	int result = check_mpi(MPI_File_read_at_all(file, at, &mine, sizeof(mine), MPI_BYTE, MPI_STATUS_IGNORE), path);

	image->size = mine.size;
	if (result == 0)
		result = allocate(image);
	result = check_all(job->comm, result);
	if (result != 0)
		return result;
	result = transfer(file, job, image, path, false);
	if (result == 0 && XXH3_64bits(image->data, image->size) != mine.checksum)
		result = damaged(path);
	return check_all(job->comm, result);
}

static int take(ummr_job *job, const char *path, int (*use)(ummr_job *job, const struct image *image))
{
	struct image image = { 0 };
	MPI_File file;
	int result = open_together(job, path, MPI_MODE_RDONLY, &file);

	if (result != 0)
		return result;
	result = read_image(file, job, path, &image);
	MPI_File_close(&file);
	if (result == 0)
		result = use(job, &image);
	free(image.data);
	return check_all(job->comm, result);
}

/* What map takes back later goes no further than here. */
static int use_pairs(ummr_job *job, const struct image *image)
{
	for (uint64_t at = 0; at < image->size;) {
		struct pair p;

		at += pair_at(image->data + at, &p);
		if (stream_append(&job->buckets[rank_of(p.head.hash, job->ranks)], &p) < 0)
			return -1;
	}
	for (int i = 0; i < job->ranks; i++)
		stream_save(&job->buckets[i], &job->acknowledged.buckets[i]);
	return 0;
}

static int use_run(ummr_job *job, const struct image *image)
{
	return stream_append_bytes(&job->run, image->data, image->size);
}

int checkpoint_take_pairs(ummr_job *job)
{
	return take(job, job->checkpoint.pairs, use_pairs);
}

int checkpoint_take_run(ummr_job *job, uint64_t run)
{
	return take(job, job->checkpoint.runs[run % 2], use_run);
}

/* ---- The end ---- */

/* A job that was killed may have left one that was not complete; and OpenMPI, among machines, files of its own beside that, with
 * names that begin like it. */
static bool is_ours(const char *name)
{
	static const char *const ours[] = { "ummr.checkpoint", "ummr.runs.0", "ummr.runs.1" };

	for (int i = 0; i < 3; i++) {
		size_t length = strlen(ours[i]);

		if (strncmp(name, ours[i], length) == 0 && (!name[length] || strncmp(name + length, ".new", 4) == 0))
			return true;
	}
	return false;
}

static void remove_files(const char *folder)
{
	DIR *d = opendir(folder);
	const struct dirent *e;

	while (d && (e = readdir(d)))
		if (is_ours(e->d_name))
			unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
}

void checkpoint_close(ummr_job *job, bool through)
{
	struct checkpoint *c = &job->checkpoint;

	if (c->pairs && job->rank == 0 && through)
		remove_files(job->folder);
	free(c->pairs);
	free(c->runs[0]);
	free(c->runs[1]);
	*c = (struct checkpoint){ 0 };
}
