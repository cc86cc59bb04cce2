/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls that include/ummap_coarray.f90 declares. pcaf_sync and pcaf_config are made by all
 * images, the others by any image. Nothing in the folder of the earlier run changes, so another job
 * can read it again if this one dies.
 */
#include "coarray/earlier.h"
#include "coarray/job.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define MAX_FORTRAN_RANK 15

/* The beginning of CFI_cdesc_t, by which Fortran describes any argument to C. */
struct argument {
	char *base;             /* address of the first element */
	size_t element;         /* bytes of an element */
	int version;
	signed char rank, attribute;
	short type;
	struct {
		ptrdiff_t lower, extent, stride;
	} dim[MAX_FORTRAN_RANK];
};

#pragma GCC visibility push(default)
bool pcaf_restarted(void);
int64_t pcaf_epoch(void);
void pcaf_sync(void);
void pcaf_config(const struct argument *array, bool persistent, const char *path);
int pcaf_images(void);
void pcaf_open_image(const struct argument *array, int image, const struct argument *copy);
#pragma GCC visibility pop

bool pcaf_restarted(void)
{
	return job.restart > 0;
}

int64_t pcaf_epoch(void)
{
	return (int64_t)job.epoch;
}

void pcaf_sync(void)
{
	coarray_sync();
}

static struct coarray *find_coarray(const struct argument *array)
{
	struct coarray *c = job.coarrays;

	while (c && c->base != array->base)
		c = c->next;
	return c;
}

/* ---- Keeping coarrays ---- */

static const char no_coarray[] = "cannot find the coarray: the argument must be a whole coarray";

/* A coarray in memory can only be kept from now on if it is small, because the pool copies it. */
static void check_config(const struct coarray *c, bool persistent, const char *path,
			 struct error *e)
{
	if (!c)
		error_set(e, MPI_ERR_ARG, "pcaf_config: %s", no_coarray);
	else if (persistent && !c->is_kept && c->size > MAX_SMALL_BYTES)
		error_set(e, MPI_ERR_ARG,
			  "pcaf_config: cannot keep coarray %u of %zu bytes: it is in memory, and "
			  "only coarrays of at most %d bytes can be moved from memory to a file. "
			  "Try to allocate it again, or PCAF_MIN=%zu",
			  c->order, c->size, MAX_SMALL_BYTES, c->size);
	else if (persistent && *path && (c->is_small || !c->is_kept))
		error_set(e, MPI_ERR_ARG,
			  "pcaf_config: cannot keep coarray %u of %zu bytes in '%.60s': all "
			  "coarrays of at most %d bytes share one file in PCAF_PATH. Try without "
			  "the path",
			  c->order, c->size, path, MAX_SMALL_BYTES);
}

void pcaf_config(const struct argument *array, bool persistent, const char *path)
{
	struct coarray *c = find_coarray(array);
	struct error e = { 0 };
	bool is_former;

	if (!coarray_is_active() || job.config.unlink)
		return;
	check_config(c, persistent, path, &e);
	job_check(job.comm, &e);
	job_end_sync();
	if (!persistent && c->is_kept)
		job_drop(c);
	if (persistent && !c->is_kept) {
		c->is_small = job_enter(c->order, c->size, &is_former)->small;
		if (!c->is_small)
			error_set(&e, MPI_ERR_NO_MEM,
				  "pcaf_config: cannot keep coarray %u of %zu bytes: the file for "
				  "small coarrays is full. Try to allocate it again, or "
				  "PCAF_MIN=%zu",
				  c->order, c->size, c->size);
		job_check(job.comm, &e);
		c->is_kept = true;
	}
	if (persistent && *path)
		job_move(c, path);
}

/* ---- An earlier run, in PCAF_RECOVER ---- */

static struct earlier run;
static bool is_open;

/* Another job that continues the earlier run would change the files. */
static void check_lock(struct error *e)
{
	struct flock whole = { .l_type = F_RDLCK, .l_whence = SEEK_SET };
	char path[MANIFEST_PATH];
	int fd;

	manifest_lock(path, &run.names, 1);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK)
		error_set(e, MPI_ERR_IO,
			  "cannot read the coarrays in PCAF_RECOVER, '%s': another job uses them. "
			  "Try again when that job has ended",
			  run.names.folder);
	if (fd >= 0)
		close(fd);
}

static void open_run(struct error *e)
{
	if (is_open)
		return;
	strcpy(run.names.folder, job.config.recover);
	strcpy(run.names.prefix, job.config.prefix);
	/* Small segments also fit into a small memory limit. */
	run.seg_size = (size_t)sysconf(_SC_PAGESIZE);
	check_lock(e);
	if (e->class == MPI_SUCCESS && !earlier_open(&run))
		error_set(e, MPI_ERR_IO, "PCAF_RECOVER: %s", run.wrong);
	is_open = e->class == MPI_SUCCESS;
}

int pcaf_images(void)
{
	struct error e = { 0 };

	if (!coarray_is_active() || !*job.config.recover)
		return 0;
	open_run(&e);
	job_check(MPI_COMM_SELF, &e);
	return run.manifest.images;
}

static size_t count_bytes(const struct argument *array)
{
	size_t bytes = array->element;

	for (int i = 0; i < array->rank; i++)
		bytes *= (size_t)array->dim[i].extent;
	return bytes;
}

static void copy_contents(const struct coarray *c, int image, const struct argument *copy,
			  struct error *e)
{
	const struct entry *entry = manifest_find(&run.manifest, c->order);
	const char *bytes;
	struct view v;

	if (!entry) {
		error_set(e, MPI_ERR_ARG,
			  "pcaf_open_image: cannot copy coarray %u: the run in PCAF_RECOVER did "
			  "not keep a coarray with this number",
			  c->order);
		return;
	}
	if (count_bytes(copy) != entry->size) {
		error_set(e, MPI_ERR_ARG,
			  "pcaf_open_image: cannot copy coarray %u: the array for the copy has %zu "
			  "bytes, and the coarray in PCAF_RECOVER has %" PRIu64
			  ". Try an array of that size",
			  c->order, count_bytes(copy), entry->size);
		return;
	}
	bytes = earlier_contents(&run, entry, image, &v);
	if (!bytes) {
		error_set(e, MPI_ERR_ARG, "pcaf_open_image: %s", run.wrong);
		return;
	}
	memcpy(copy->base, bytes, entry->size);
	earlier_close_view(&v);
}

void pcaf_open_image(const struct argument *array, int image, const struct argument *copy)
{
	struct coarray *c = coarray_is_active() ? find_coarray(array) : NULL;
	struct error e = { 0 };

	if (!coarray_is_active() || !*job.config.recover)
		error_set(&e, MPI_ERR_ARG,
			  "pcaf_open_image: cannot copy from an earlier run: %s. Try "
			  "PCAF_ENABLED=true with PCAF_RECOVER=FOLDER, the folder of that run",
			  coarray_is_active() ? "PCAF_RECOVER is not set"
					   : "no coarrays are kept in files");
	else if (!c)
		error_set(&e, MPI_ERR_ARG, "pcaf_open_image: %s", no_coarray);
	else
		open_run(&e);
	if (e.class == MPI_SUCCESS)
		copy_contents(c, image, copy, &e);
	job_check(MPI_COMM_SELF, &e);
}
