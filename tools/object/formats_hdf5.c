/* SPDX-License-Identifier: BSD-3-Clause */
/* HDF5 datasets: FILE.h5:/name, or the dataset "data". */
#include "formats.h"
#include "object/hdf5_attribute.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static hid_t type_of(enum umobject_type type)
{
	const hid_t types[] = { H5I_INVALID_HID,   H5T_NATIVE_INT8,   H5T_NATIVE_UINT8,
				H5T_NATIVE_INT16,  H5T_NATIVE_UINT16, H5T_NATIVE_INT32,
				H5T_NATIVE_UINT32, H5T_NATIVE_INT64,  H5T_NATIVE_UINT64,
				H5T_NATIVE_FLOAT,  H5T_NATIVE_DOUBLE, H5T_NATIVE_LDOUBLE };

	return types[type];
}

/* The byte order in the file does not matter, because HDF5 converts it. */
static enum umobject_type type_in(hid_t set)
{
	hid_t stored = H5Dget_type(set), native = H5Tget_native_type(stored, H5T_DIR_ASCEND);
	enum umobject_type type;

	for (type = UMOBJECT_INT8; type <= UMOBJECT_LDOUBLE; type++)
		if (H5Tequal(native, type_of(type)) > 0)
			break;
	H5Tclose(native);
	H5Tclose(stored);
	return type <= UMOBJECT_LDOUBLE ? type : 0;
}

static int transfer(struct array *a, void *data, bool write, const uint64_t *start,
		    const uint64_t *count)
{
	hid_t space = H5Dget_space(a->set), memory = H5S_ALL, type = type_of(a->shape.type);
	hsize_t from[UMOBJECT_RANK_MAX], n[UMOBJECT_RANK_MAX];
	unsigned d;
	herr_t err;

	for (d = 0; d < a->shape.rank; d++) {
		from[d] = start[d];
		n[d] = count[d];
	}
	if (a->shape.rank) {
		H5Sselect_hyperslab(space, H5S_SELECT_SET, from, NULL, n, NULL);
		memory = H5Screate_simple((int)a->shape.rank, n, NULL);
	}
	err = write ? H5Dwrite(a->set, type, memory, space, H5P_DEFAULT, data) :
		      H5Dread(a->set, type, memory, space, H5P_DEFAULT, data);
	if (a->shape.rank)
		H5Sclose(memory);
	H5Sclose(space);
	return err < 0 ? array_fail(a, "HDF5 cannot %s %s", write ? "write" : "read", a->path) : 0;
}

static int hdf5_read(struct array *a, void *to, const uint64_t *start, const uint64_t *count)
{
	return transfer(a, to, false, start, count);
}

static int hdf5_write(struct array *a, const void *from, const uint64_t *start,
		      const uint64_t *count)
{
	return transfer(a, (void *)(uintptr_t)from, true, start, count);
}

static int add_attribute(struct array *a, const char *name, const void *value, size_t size)
{
	return hdf5_add_attribute(a->set, name, value, size) ?
		       0 :
		       array_fail(a, "HDF5 does not write the attribute %s to %s", name, a->path);
}

/* State of reading the attributes of a dataset. */
struct reader {
	struct array *a;
	const struct taker *t;
};

/* Returns the size of text without its padding. Only null-terminated text ends at its first zero:
 * with the other paddings, a zero in the middle is part of the text. */
static size_t text_size(hid_t type, const char *text, size_t size)
{
	H5T_str_t padding = H5Tget_strpad(type);
	char pad = padding == H5T_STR_SPACEPAD ? ' ' : '\0';

	if (padding == H5T_STR_NULLTERM)
		return strnlen(text, size);
	while (size && text[size - 1] == pad)
		size--;
	return size;
}

/* Reads a single text of variable length, for which HDF5 returns a pointer. */
static int take_text(const struct reader *r, const char *name, hid_t attribute, hid_t type,
		     hid_t space)
{
	char *text = NULL;
	int result;

	if (H5Aread(attribute, type, &text) < 0)
		return array_fail(r->a, "%s: the attribute %s cannot be read", r->a->path, name);
	result = r->t->take(r->t->arg, name, text ? text : "", text ? strlen(text) : 0);
	H5Dvlen_reclaim(type, space, H5P_DEFAULT, &text);
	return result;
}

/* Stores text as text, and other values as their bytes in memory. */
static int take_bytes(const struct reader *r, const char *name, hid_t attribute, hid_t type,
		      hid_t space)
{
	hssize_t n = H5Sget_simple_extent_npoints(space);
	size_t size = n > 0 ? (size_t)n * H5Tget_size(type) : 0;
	char *value = malloc(size + 1);
	int result;

	if (!value || (size && H5Aread(attribute, type, value) < 0))
		result = array_fail(r->a, "%s: the attribute %s cannot be read", r->a->path, name);
	else
		result = r->t->take(r->t->arg, name, value,
				    n == 1 && H5Tget_class(type) == H5T_STRING ?
					    text_size(type, value, size) :
					    size);
	free(value);
	return result;
}

static const char *unstorable(hid_t type);

static const char *unstorable_member(hid_t type)
{
	const char *reason = NULL;
	int i, n = H5Tget_nmembers(type);

	for (i = 0; i < n && !reason; i++) {
		hid_t member = H5Tget_member_type(type, (unsigned)i);

		reason = unstorable(member);
		H5Tclose(member);
	}
	return reason;
}

static const char *unstorable_element(hid_t type)
{
	hid_t element = H5Tget_super(type);
	const char *reason = unstorable(element);

	H5Tclose(element);
	return reason;
}

/* Returns why an attribute of this type cannot be stored: its bytes have pointers into the file or
 * into memory. NULL: it can be stored. */
static const char *unstorable(hid_t type)
{
	switch (H5Tget_class(type)) {
	case H5T_REFERENCE: return "it has references within its file";
	case H5T_VLEN: return "it has lists of variable length";
	case H5T_STRING:
		return H5Tis_variable_str(type) > 0 ?
			       "it is more than one text of variable length" :
			       NULL;
	case H5T_COMPOUND: return unstorable_member(type);
	case H5T_ARRAY: return unstorable_element(type);
	default: return NULL;
	}
}

static int take_value(const struct reader *r, const char *name, hid_t attribute, hid_t stored,
		      hid_t space)
{
	const char *reason;
	hid_t type;
	int result;

	if (H5Tis_variable_str(stored) > 0 && H5Sget_simple_extent_npoints(space) == 1)
		return take_text(r, name, attribute, stored, space);
	reason = unstorable(stored);
	if (reason)
		return r->t->leave_out(r->t->arg, name, reason);
	type = H5Tget_native_type(stored, H5T_DIR_ASCEND);
	result = take_bytes(r, name, attribute, type >= 0 ? type : stored, space);
	if (type >= 0)
		H5Tclose(type);
	return result;
}

static herr_t take_one(hid_t set, const char *name, const H5A_info_t *info, void *arg)
{
	hid_t attribute = H5Aopen(set, name, H5P_DEFAULT), stored = H5Aget_type(attribute),
	      space = H5Aget_space(attribute);
	int result = take_value(arg, name, attribute, stored, space);

	(void)info;
	H5Tclose(stored);
	H5Sclose(space);
	H5Aclose(attribute);
	return result;
}

static int attributes(struct array *a, const struct taker *t)
{
	struct reader r = { a, t };

	return H5Aiterate2(a->set, H5_INDEX_NAME, H5_ITER_INC, NULL, take_one, &r) < 0 ? -1 : 0;
}

static int hdf5_close(struct array *a)
{
	herr_t err = 0;

	if (a->set >= 0)
		err = H5Dclose(a->set);
	if (a->file >= 0 && H5Fclose(a->file) < 0)
		err = -1;
	return err < 0 ? array_fail(a, "HDF5 cannot write %s", a->path) : 0;
}

/* Splits a path into the file and the dataset. */
static char *split(const char *path, const char **set)
{
	char *file = strdup(path), *colon = file ? strstr(file, ":/") : NULL;

	*set = "data";
	if (colon) {
		*set = path + (colon - file) + 1;
		*colon = '\0';
	}
	return file;
}

static int begin(struct array *a)
{
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	a->read = hdf5_read;
	a->write = hdf5_write;
	a->close = hdf5_close;
	a->add_attribute = add_attribute;
	a->attributes = attributes;
	a->file = a->set = -1;
	return 0;
}

int hdf5_open(struct array *a)
{
	hsize_t dims[UMOBJECT_RANK_MAX];
	const char *name;
	char *file = split(a->path, &name);
	hid_t space;
	int rank, d;
	bool empty;

	begin(a);
	a->file = file ? H5Fopen(file, H5F_ACC_RDONLY, H5P_DEFAULT) : -1;
	free(file);
	if (a->file < 0)
		return array_fail(a, "%s is no HDF5 file, or cannot be opened", a->path);
	a->set = H5Dopen2(a->file, name, H5P_DEFAULT);
	a->shape.type = a->set >= 0 ? type_in(a->set) : 0;
	if (!a->shape.type) {
		array_fail(a,
			   a->set < 0 ? "%s has no dataset %s: FILE.h5:/name names one" :
					"%s: the dataset %s is not of numbers",
			   a->path, name);
		hdf5_close(a);
		return -1;
	}
	space = H5Dget_space(a->set);
	rank = H5Sget_simple_extent_dims(space, dims, NULL);
	empty = H5Sget_simple_extent_type(space) == H5S_NULL;
	H5Sclose(space);
	if (rank < 0 || empty) {
		array_fail(a, "%s: the dataset %s has no elements", a->path, name);
		hdf5_close(a);
		return -1;
	}
	a->shape.rank = (unsigned)rank;
	for (d = 0; d < rank; d++)
		a->shape.dims[d] = dims[d];
	return 0;
}

int hdf5_create(struct array *a)
{
	hsize_t dims[UMOBJECT_RANK_MAX];
	const char *name;
	char *file = split(a->path, &name);
	hid_t space, links = H5Pcreate(H5P_LINK_CREATE);
	unsigned d;

	begin(a);
	for (d = 0; d < a->shape.rank; d++)
		dims[d] = a->shape.dims[d];
	space = a->shape.rank ? H5Screate_simple((int)a->shape.rank, dims, NULL) :
				H5Screate(H5S_SCALAR);
	H5Pset_create_intermediate_group(links, 1);
	a->file = file ? H5Fcreate(file, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT) : -1;
	free(file);
	if (a->file >= 0)
		a->set = H5Dcreate2(a->file, name, type_of(a->shape.type), space, links,
				    H5P_DEFAULT, H5P_DEFAULT);
	H5Sclose(space);
	H5Pclose(links);
	if (a->set >= 0)
		return 0;
	hdf5_close(a);
	return array_fail(a, "HDF5 cannot make %s", a->path);
}
