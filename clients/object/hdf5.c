/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All calls of the HDF5 library. It lays out files of which only the head and the end are kept: data is written by the back ends, which
 * know more ways to be fast and durable. The library is not for threads, so that one at a time is in it.
 *
 * Lock: `turn`, around every call of HDF5 and around `last`.
 */
#include "object/hdf5.h"

#include "object/error.h"
#include "object/hdf5_attribute.h"
#include "object/shape.h"
#include "object/view.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static hid_t type_of(enum umobject_type type)
{
	switch (type) {
	case UMOBJECT_INT8: return H5T_NATIVE_INT8;
	case UMOBJECT_UINT8: return H5T_NATIVE_UINT8;
	case UMOBJECT_INT16: return H5T_NATIVE_INT16;
	case UMOBJECT_UINT16: return H5T_NATIVE_UINT16;
	case UMOBJECT_INT32: return H5T_NATIVE_INT32;
	case UMOBJECT_UINT32: return H5T_NATIVE_UINT32;
	case UMOBJECT_INT64: return H5T_NATIVE_INT64;
	case UMOBJECT_UINT64: return H5T_NATIVE_UINT64;
	case UMOBJECT_FLOAT: return H5T_NATIVE_FLOAT;
	case UMOBJECT_DOUBLE: return H5T_NATIVE_DOUBLE;
	case UMOBJECT_LDOUBLE: return H5T_NATIVE_LDOUBLE;
	}
	return H5I_INVALID_HID;
}

static hid_t space_of(unsigned rank, const uint64_t *count)
{
	hsize_t dims[UMOBJECT_RANK_MAX];
	unsigned d;

	for (d = 0; d < rank; d++)
		dims[d] = count[d];
	return rank ? H5Screate_simple((int)rank, dims, NULL) : H5Screate(H5S_SCALAR);
}

/* Files in the form of HDF5 1.8 where that has it: virtual datasets are of 1.10. */
static hid_t new_access(void)
{
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);

	H5Pset_libver_bounds(fapl, H5F_LIBVER_V18, H5F_LIBVER_V110);
	return fapl;
}

/* Bytes for what HDF5 writes of its own. */
#define HEADS ((off_t)64 << 10)

/* A file that HDF5 cannot close is one on which it crashes when the process ends. So what it is going to write has room before. */
static bool has_room(int fd, uint64_t bytes)
{
	if (ftruncate(fd, (off_t)bytes + HEADS) < 0)
		return false;
	if (fallocate(fd, 0, 0, HEADS) < 0 && errno != EOPNOTSUPP && errno != ENOSYS)
		return false;
	return ftruncate(fd, 0) == 0;
}

/* Sparse: its data stays a hole. */
static int temporary_file(char path[static PATH_MAX], uint64_t bytes)
{
	const char *folder = getenv("TMPDIR");
	int fd;

	snprintf(path, PATH_MAX, "%.4000s/ummap-object-XXXXXX", folder && *folder ? folder : "/tmp");
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return object_fail(errno, "cannot create the temporary file '%.600s' for HDF5: %s. "
				   "Try another folder in TMPDIR", path, strerror(errno));
	if (has_room(fd, bytes))
		return fd;
	object_fail(errno, "cannot use the temporary file '%.600s' for HDF5: %s. Try another "
		    "folder in TMPDIR", path, strerror(errno));
	unlink(path);
	close(fd);
	return -1;
}

/* ---- The frame of a chunk ---- */

/* Lays the file out, without its data, and says where that would be. */
static bool lay_out(const char *path, const struct umobject_shape *shape, const uint64_t *count, size_t skip, haddr_t *at)
{
	hid_t fcpl = H5Pcreate(H5P_FILE_CREATE), fapl = new_access(), dcpl = H5Pcreate(H5P_DATASET_CREATE);
	hid_t space = space_of(shape->rank, count), file, set = H5I_INVALID_HID;

	H5Pset_userblock(fcpl, skip);
	H5Pset_layout(dcpl, H5D_CONTIGUOUS);
	H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
	H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER);
	file = H5Fcreate(path, H5F_ACC_TRUNC, fcpl, fapl);
	/* Whoever is killed leaves nothing. */
	unlink(path);
	if (file >= 0)
		set = H5Dcreate2(file, HDF5_DATASET, type_of(shape->type), space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
	*at = set >= 0 ? H5Dget_offset(set) : HADDR_UNDEF;
	if (set >= 0)
		H5Dclose(set);
	if (file >= 0 && H5Fclose(file) < 0)
		*at = HADDR_UNDEF;
	H5Sclose(space);
	H5Pclose(dcpl);
	H5Pclose(fapl);
	H5Pclose(fcpl);
	return *at != HADDR_UNDEF;
}

/* What the system said where HDF5 only says that it failed. */
static int storage_error(int error)
{
	return error == ENOSPC || error == EDQUOT || error == EFBIG || error == EMFILE || error == ENFILE ||
	       error == ENOMEM ? error : EIO;
}

static void *copy_of(int fd, uint64_t at, size_t size)
{
	char *bytes = calloc(1, size + 1);

	if (bytes && pread(fd, bytes, size, (off_t)at) == (ssize_t)size)
		return bytes;
	free(bytes);
	return NULL;
}

static int take_frame(int fd, uint64_t at, uint64_t bytes, struct frame *frame)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size < at + bytes)
		return object_fail(EIO, "cannot lay out a chunk: HDF5 made its file shorter than "
				   "the data");
	frame->front_size = at;
	frame->back_size = (size_t)st.st_size - at - bytes;
	frame->front = copy_of(fd, 0, frame->front_size);
	frame->back = copy_of(fd, at + bytes, frame->back_size);
	if (frame->front && frame->back)
		return 0;
	frame_free(frame);
	return object_fail(ENOMEM, "cannot lay out a chunk: no memory for its header");
}

/* The last one that was made: many puts have chunks of one shape. Under `turn`. */
static struct {
	struct frame frame;
	enum umobject_type type;
	unsigned rank;
	uint64_t count[UMOBJECT_RANK_MAX];
	size_t skip;
} last;

static void *copy_bytes(const void *from, size_t size)
{
	void *copy = malloc(size + 1);

	return copy ? memcpy(copy, from, size) : NULL;
}

static bool copy_frame(const struct frame *from, struct frame *to)
{
	*to = (struct frame){ copy_bytes(from->front, from->front_size), from->front_size, copy_bytes(from->back, from->back_size), from->back_size };
	if (to->front && to->back)
		return true;
	frame_free(to);
	return false;
}

static bool is_last(const struct umobject_shape *shape, const uint64_t *count, size_t skip)
{
	return last.frame.front && last.type == shape->type && last.rank == shape->rank && last.skip == skip &&
		memcmp(last.count, count, shape->rank * sizeof(*count)) == 0;
}

static bool take_last(const struct umobject_shape *shape, const uint64_t *count, size_t skip, struct frame *frame)
{
	bool taken;

	pthread_mutex_lock(&turn);
	taken = is_last(shape, count, skip) && copy_frame(&last.frame, frame);
	pthread_mutex_unlock(&turn);
	return taken;
}

static void keep_last(const struct umobject_shape *shape, const uint64_t *count, size_t skip, const struct frame *frame)
{
	pthread_mutex_lock(&turn);
	frame_free(&last.frame);
	if (copy_frame(frame, &last.frame)) {
		last.type = shape->type;
		last.rank = shape->rank;
		last.skip = skip;
		memcpy(last.count, count, shape->rank * sizeof(*count));
	}
	pthread_mutex_unlock(&turn);
}

int frame_make(const struct umobject_shape *shape, const uint64_t *count, size_t skip, struct frame *frame)
{
	struct box all = { { 0 }, { 0 } };
	char path[PATH_MAX];
	haddr_t at;
	int fd, result, error;
	bool done;

	*frame = (struct frame){ 0 };
	if (take_last(shape, count, skip, frame))
		return 0;
	/* Its data is a hole. */
	memcpy(all.count, count, shape->rank * sizeof(*count));
	fd = temporary_file(path, skip + box_bytes(shape, &all));
	if (fd < 0)
		return -1;
	pthread_mutex_lock(&turn);
	errno = 0;
	H5E_BEGIN_TRY {
		done = lay_out(path, shape, count, skip, &at);
	} H5E_END_TRY;
	error = storage_error(errno);
	pthread_mutex_unlock(&turn);
	if (done)
		result = take_frame(fd, at, box_bytes(shape, &all), frame);
	else
		result = object_fail(error, "cannot lay out a chunk of this shape with HDF5 in "
				     "'%.600s': %s", path, strerror(error));
	close(fd);
	if (result == 0)
		keep_last(shape, count, skip, frame);
	return result;
}

void frame_free(struct frame *frame)
{
	free(frame->front);
	free(frame->back);
	*frame = (struct frame){ 0 };
}

/* ---- Views ---- */

static bool add_part(hid_t dcpl, hid_t whole, const struct object *o, uint64_t number, const char *file)
{
	uint64_t start[UMOBJECT_RANK_MAX], count[UMOBJECT_RANK_MAX];
	hsize_t from[UMOBJECT_RANK_MAX], n[UMOBJECT_RANK_MAX];
	hid_t part;
	bool added;
	unsigned d;

	umobject_chunk(&o->shape, number, start, count);
	for (d = 0; d < o->shape.rank; d++) {
		from[d] = start[d];
		n[d] = count[d];
	}
	part = space_of(o->shape.rank, count);
	if (o->shape.rank)
		H5Sselect_hyperslab(whole, H5S_SELECT_SET, from, NULL, n, NULL);
	added = H5Pset_virtual(dcpl, whole, file, HDF5_DATASET, part) >= 0;
	H5Sclose(part);
	return added;
}

/* In the names of a virtual dataset's files, %b would be the number of a block. */
static void escape(const char *plain, char *text)
{
	for (; *plain; plain++) {
		if (*plain == '%')
			*text++ = '%';
		*text++ = *plain;
	}
	*text = '\0';
}

static bool add_parts(hid_t dcpl, hid_t whole, const struct object *o,
		      void (*file)(void *, const struct umobject_id *, uint64_t, char *, size_t), void *arg)
{
	char plain[PATH_MAX], text[2 * PATH_MAX];
	uint64_t number;
	size_t i;

	for (i = 0; i < o->nsources; i++) {
		const struct source *s = &o->sources[i];

		for (number = s->first; number < s->first + s->count; number++) {
			file(arg, &s->id, number, plain, sizeof(plain));
			escape(plain, text);
			if (!add_part(dcpl, whole, o, number, text))
				return false;
		}
	}
	return true;
}

static bool fill_view(hid_t file, const struct object *o, void (*name)(void *, const struct umobject_id *, uint64_t, char *, size_t),
		      void *arg)
{
	hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), space = space_of(o->shape.rank, o->shape.dims), set = H5I_INVALID_HID;
	bool filled = add_parts(dcpl, space, o, name, arg);
	size_t i;

	if (filled) {
		H5Sselect_all(space);
		set = H5Dcreate2(file, HDF5_DATASET, type_of(o->shape.type), space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
	}
	filled = set >= 0;
	for (i = 0; i < o->nattributes && filled; i++)
		filled = hdf5_add_attribute(set, o->attributes[i].name, o->attributes[i].value, o->attributes[i].size);
	if (set >= 0)
		H5Dclose(set);
	H5Sclose(space);
	H5Pclose(dcpl);
	return filled;
}

/* What HDF5 has in memory of a file: it is complete when the file is closed, and not before. */
struct image {
	char *bytes;
	size_t size;
};

static void *image_resize(void *bytes, size_t size, H5FD_file_image_op_t op, void *arg)
{
	struct image *image = arg;
	void *larger = realloc(bytes, size);

	(void)op;
	if (larger)
		*image = (struct image){ larger, size };
	return larger;
}

static void *image_make(size_t size, H5FD_file_image_op_t op, void *arg)
{
	return image_resize(NULL, size, op, arg);
}

static herr_t image_keep(void *bytes, H5FD_file_image_op_t op, void *arg)
{
	(void)bytes, (void)op, (void)arg;
	return 0;
}

static void *same_image(void *arg)
{
	return arg;
}

static herr_t leave_image(void *arg)
{
	(void)arg;
	return 0;
}

/* A file in memory, with no more bytes than it has. */
static hid_t image_access(struct image *image)
{
	H5FD_file_image_callbacks_t calls = { .image_malloc = image_make, .image_realloc = image_resize, .image_free = image_keep,
		.udata_copy = same_image, .udata_free = leave_image, .udata = image };
	hid_t fapl = new_access();

	if (H5Pset_fapl_core(fapl, 1, false) >= 0 && H5Pset_file_image_callbacks(fapl, &calls) >= 0)
		return fapl;
	H5Pclose(fapl);
	return H5I_INVALID_HID;
}

void *view_make(const struct object *o, void (*name)(void *arg, const struct umobject_id *id, uint64_t number, char *text, size_t size),
		void *arg, size_t *size)
{
	struct image image = { NULL, 0 };
	bool filled = false;
	int error;
	hid_t fapl, fcpl, file = H5I_INVALID_HID;

	pthread_mutex_lock(&turn);
	errno = 0;
	H5E_BEGIN_TRY {
		fapl = image_access(&image);
		fcpl = H5Pcreate(H5P_FILE_CREATE);
		/* No file can have this path. */
		if (fapl >= 0 && H5Pset_userblock(fcpl, VIEW_HEADER_BYTES) >= 0)
			file = H5Fcreate("/dev/null/view", H5F_ACC_TRUNC, fcpl, fapl);
		if (file >= 0) {
			filled = fill_view(file, o, name, arg);
			filled = H5Fclose(file) >= 0 && filled;
		}
		if (fapl >= 0)
			H5Pclose(fapl);
		if (fcpl >= 0)
			H5Pclose(fcpl);
	} H5E_END_TRY;
	error = storage_error(errno);
	pthread_mutex_unlock(&turn);
	if (filled) {
		view_seal(image.bytes, image.size, &o->id);
		*size = image.size;
		return image.bytes;
	}
	free(image.bytes);
	if (error == ENOMEM)
		object_fail(ENOMEM, "cannot make a view of '%s': no memory", o->name);
	else
		object_fail(EIO, "cannot make a view of '%s': HDF5 failed. Try other names for its "
			    "attributes if HDF5 does not accept these", o->name);
	return NULL;
}
