/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All calls of the HDF5 library. It lays out files of which only the header and the end are kept.
 * The back ends write the data, because they know more ways to be fast and durable.
 *
 * Lock: hdf5_lock, around every call of HDF5, which is not safe for threads, and around the
 * reference counts of frames.
 */
#include "object/hdf5.h"

#include "object/error.h"
#include "object/hdf5_attribute.h"
#include "object/shape.h"

#include <fcntl.h>
#include <hdf5.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t hdf5_lock = PTHREAD_MUTEX_INITIALIZER;

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

/* Makes files in the format of HDF5 1.8 if it has the feature. Virtual datasets need 1.10. */
static hid_t new_access(void)
{
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);

	H5Pset_libver_bounds(fapl, H5F_LIBVER_V18, H5F_LIBVER_V110);
	return fapl;
}

/* Bytes for the metadata that HDF5 writes. */
#define METADATA_BYTES ((off_t)64 << 10)

/* Checks that HDF5 can write its metadata. After a failed close of a file, HDF5 crashes when the
 * process ends. */
static bool has_room(int fd, uint64_t bytes)
{
	if (ftruncate(fd, (off_t)bytes + METADATA_BYTES) < 0)
		return false;
	if (fallocate(fd, 0, 0, METADATA_BYTES) < 0 && errno != EOPNOTSUPP && errno != ENOSYS)
		return false;
	return ftruncate(fd, 0) == 0;
}

/* Creates a file for `bytes` bytes of data, which stay a hole. */
static int create_temporary_file(char path[static PATH_MAX], uint64_t bytes)
{
	const char *folder = getenv("TMPDIR");
	int fd;

	folder = folder && *folder ? folder : "/tmp";
	snprintf(path, PATH_MAX, "%.4000s/ummap-object-XXXXXX", folder);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return object_fail(errno, "cannot create the temporary file '%.600s' for HDF5: %m. "
				   "Try another folder in TMPDIR", path);
	if (has_room(fd, bytes))
		return fd;
	object_fail(errno, "cannot use the temporary file '%.600s' for HDF5: %m. Try another "
		    "folder in TMPDIR", path);
	unlink(path);
	close(fd);
	return -1;
}

/* ---- The frame of a chunk ---- */

/* Lays out the file without its data. *at becomes the offset of the data. */
static bool lay_out(const char *path, const struct frame *f, haddr_t *at)
{
	hid_t fcpl = H5Pcreate(H5P_FILE_CREATE), fapl = new_access();
	hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), space = space_of(f->rank, f->count);
	hid_t file, set = H5I_INVALID_HID;

	H5Pset_userblock(fcpl, f->user_block);
	H5Pset_layout(dcpl, H5D_CONTIGUOUS);
	H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
	H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER);
	file = H5Fcreate(path, H5F_ACC_TRUNC, fcpl, fapl);
	/* A process that is killed leaves no file. */
	unlink(path);
	if (file >= 0)
		set = H5Dcreate2(file, HDF5_DATASET, type_of(f->type), space, H5P_DEFAULT, dcpl,
				 H5P_DEFAULT);
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

/* The system's error, for which HDF5 has no code. */
static int storage_error(int error)
{
	return error == ENOSPC || error == EDQUOT || error == EFBIG || error == EMFILE ||
	       error == ENFILE || error == ENOMEM ? error : EIO;
}

static char *read_copy(int fd, uint64_t at, size_t size)
{
	char *bytes = malloc(size + 1);

	if (bytes && pread(fd, bytes, size, (off_t)at) == (ssize_t)size)
		return bytes;
	free(bytes);
	return NULL;
}

/* Reads the parts of the frame from a file whose data is `bytes` bytes at offset `at`. */
static int read_frame(int fd, uint64_t at, uint64_t bytes, struct frame *f)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size < at + bytes)
		return object_fail(EIO, "cannot lay out a chunk: HDF5 made its file shorter than "
				   "the data");
	f->front_size = at;
	f->back_size = (size_t)st.st_size - at - bytes;
	f->front = read_copy(fd, 0, f->front_size);
	f->back = read_copy(fd, at + bytes, f->back_size);
	return f->front && f->back ? 0 : fail_no_memory("lay out a chunk");
}

static int fill_frame_locked(struct frame *f, uint64_t bytes)
{
	char path[PATH_MAX];
	int fd = create_temporary_file(path, f->user_block + bytes), result;
	haddr_t at;
	bool done;

	if (fd < 0)
		return -1;
	errno = 0;
	H5E_BEGIN_TRY {
		done = lay_out(path, f, &at);
	} H5E_END_TRY;
	result = done ? read_frame(fd, at, bytes, f) :
		object_fail(storage_error(errno), "cannot lay out a chunk of this shape with HDF5 "
			    "in '%.600s': %m", path);
	close(fd);
	return result;
}

static void release_locked(struct frame *f)
{
	if (!f || --f->refs)
		return;
	free(f->front);
	free(f->back);
	free(f);
}

void frame_release(struct frame *f)
{
	pthread_mutex_lock(&hdf5_lock);
	release_locked(f);
	pthread_mutex_unlock(&hdf5_lock);
}

static bool frame_fits(const struct frame *f, const struct umobject_shape *shape,
		       const uint64_t *count, size_t user_block)
{
	return f && f->type == shape->type && f->rank == shape->rank &&
		f->user_block == user_block &&
		memcmp(f->count, count, shape->rank * sizeof(*count)) == 0;
}

static struct frame *make_frame_locked(const struct umobject_shape *shape, const uint64_t *count,
				       size_t user_block)
{
	struct frame *f = calloc(1, sizeof(*f));
	struct box box = { { 0 }, { 0 } };

	if (!f) {
		fail_no_memory("lay out a chunk");
		return NULL;
	}
	*f = (struct frame){ .refs = 1, .type = shape->type, .rank = shape->rank,
		.user_block = user_block };
	memcpy(f->count, count, shape->rank * sizeof(*count));
	memcpy(box.count, f->count, sizeof(box.count));
	if (fill_frame_locked(f, box_bytes(shape, &box)) == 0)
		return f;
	release_locked(f);
	return NULL;
}

struct frame *frame_fit(struct frame *frame, const struct umobject_shape *shape,
			const uint64_t *count, size_t user_block)
{
	/* The last frame that was made: many puts have chunks of one shape. */
	static struct frame *last;
	struct frame *made;

	if (frame_fits(frame, shape, count, user_block))
		return frame;
	pthread_mutex_lock(&hdf5_lock);
	release_locked(frame);
	if (!frame_fits(last, shape, count, user_block) &&
	    (made = make_frame_locked(shape, count, user_block))) {
		release_locked(last);
		last = made;
	}
	frame = frame_fits(last, shape, count, user_block) ? last : NULL;
	if (frame)
		frame->refs++;
	pthread_mutex_unlock(&hdf5_lock);
	return frame;
}

/* ---- Views ---- */

/* Adds a chunk to the parts of a virtual dataset. */
static bool add_part(hid_t dcpl, hid_t whole, const struct object *o, uint64_t number,
		     const char *file)
{
	hsize_t start[UMOBJECT_RANK_MAX], count[UMOBJECT_RANK_MAX];
	struct box box = shape_chunk(&o->shape, number);
	hid_t part = space_of(o->shape.rank, box.count);
	bool added;

	for (unsigned d = 0; d < o->shape.rank; d++) {
		start[d] = box.start[d];
		count[d] = box.count[d];
	}
	if (o->shape.rank)
		H5Sselect_hyperslab(whole, H5S_SELECT_SET, start, NULL, count, NULL);
	added = H5Pset_virtual(dcpl, whole, file, HDF5_DATASET, part) >= 0;
	H5Sclose(part);
	return added;
}

/* Doubles each %: in file names of virtual datasets, %b is the number of a block. */
static void escape_percent(const char *plain, char *text)
{
	for (; *plain; plain++) {
		if (*plain == '%')
			*text++ = '%';
		*text++ = *plain;
	}
	*text = '\0';
}

static bool add_parts(hid_t dcpl, hid_t whole, const struct object *o, name_file_fn *name_file,
		      void *arg)
{
	char plain[PATH_MAX], text[2 * PATH_MAX];

	for (size_t i = 0; i < o->nsources; i++) {
		const struct source *s = &o->sources[i];

		for (uint64_t number = s->first; number < s->first + s->count; number++) {
			name_file(arg, &s->id, number, plain, sizeof(plain));
			escape_percent(plain, text);
			if (!add_part(dcpl, whole, o, number, text))
				return false;
		}
	}
	return true;
}

static bool fill_view(hid_t file, const struct object *o, name_file_fn *name_file, void *arg)
{
	hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), space = space_of(o->shape.rank, o->shape.dims);
	hid_t set = H5I_INVALID_HID;
	bool filled;

	if (add_parts(dcpl, space, o, name_file, arg)) {
		H5Sselect_all(space);
		set = H5Dcreate2(file, HDF5_DATASET, type_of(o->shape.type), space, H5P_DEFAULT,
				 dcpl, H5P_DEFAULT);
	}
	filled = set >= 0;
	for (size_t i = 0; i < o->nattributes && filled; i++)
		filled = hdf5_add_attribute(set, o->attributes[i].name, o->attributes[i].value,
					    o->attributes[i].size);
	if (set >= 0)
		H5Dclose(set);
	H5Sclose(space);
	H5Pclose(dcpl);
	return filled;
}

/* A file in memory, which is complete when HDF5 has closed it: struct bytes. */
static void *image_resize(void *bytes, size_t size, H5FD_file_image_op_t op, void *arg)
{
	void *larger = realloc(bytes, size);

	(void)op;
	if (larger)
		*(struct bytes *)arg = (struct bytes){ larger, size };
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

static hid_t image_access(struct bytes *image)
{
	H5FD_file_image_callbacks_t calls = {
		.image_malloc = image_make, .image_realloc = image_resize, .image_free = image_keep,
		.udata_copy = same_image, .udata_free = leave_image, .udata = image
	};
	hid_t fapl = new_access();

	if (H5Pset_fapl_core(fapl, 1, false) >= 0 && H5Pset_file_image_callbacks(fapl, &calls) >= 0)
		return fapl;
	H5Pclose(fapl);
	return H5I_INVALID_HID;
}

static bool make_image(struct bytes *image, const struct object *o, name_file_fn *name_file,
		       void *arg)
{
	hid_t fapl = image_access(image), fcpl = H5Pcreate(H5P_FILE_CREATE), file = H5I_INVALID_HID;
	bool filled = false;

	/* No file can have this path. */
	if (fapl >= 0 && H5Pset_userblock(fcpl, VIEW_HEADER_BYTES) >= 0)
		file = H5Fcreate("/dev/null/view", H5F_ACC_TRUNC, fcpl, fapl);
	if (file >= 0) {
		filled = fill_view(file, o, name_file, arg);
		filled = H5Fclose(file) >= 0 && filled;
	}
	if (fapl >= 0)
		H5Pclose(fapl);
	if (fcpl >= 0)
		H5Pclose(fcpl);
	return filled;
}

struct bytes view_make(const struct object *o, name_file_fn *name_file, void *arg)
{
	struct bytes image = { NULL, 0 };
	bool filled;
	int error;

	pthread_mutex_lock(&hdf5_lock);
	errno = 0;
	H5E_BEGIN_TRY {
		filled = make_image(&image, o, name_file, arg);
	} H5E_END_TRY;
	error = storage_error(errno);
	pthread_mutex_unlock(&hdf5_lock);
	if (filled) {
		view_seal(&image, &o->id);
		return image;
	}
	free(image.data);
	if (error == ENOMEM)
		fail_no_memory("make a view of an object");
	else
		object_fail(EIO, "cannot make a view of '%s': HDF5 failed. Try other names for its "
			    "attributes if HDF5 does not accept these", o->name);
	return (struct bytes){ NULL, 0 };
}
