/* SPDX-License-Identifier: BSD-3-Clause */
/* Attributes of objects as attributes of a dataset, for views and exported files. */
#ifndef OBJECT_HDF5_ATTRIBUTE_H
#define OBJECT_HDF5_ATTRIBUTE_H

#include <hdf5.h>
#include <stdbool.h>
#include <string.h>

/* Adds an attribute as text, if its value has no zero, or as opaque bytes. These have no tag,
 * because HDF5 reads them only by a type with the same tag. */
static inline bool hdf5_add_attribute(hid_t set, const char *name, const void *value, size_t size)
{
	bool text = !size || !memchr(value, 0, size);
	hid_t type = text ? H5Tcopy(H5T_C_S1) : H5Tcreate(H5T_OPAQUE, size),
		space = H5Screate(H5S_SCALAR), attribute;
	bool added;

	if (text) {
		H5Tset_size(type, size ? size : 1);
		H5Tset_strpad(type, H5T_STR_NULLPAD);
		H5Tset_cset(type, H5T_CSET_UTF8);
	}
	attribute = H5Acreate2(set, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
	added = attribute >= 0 && H5Awrite(attribute, type, size ? value : "") >= 0;
	if (attribute >= 0)
		H5Aclose(attribute);
	H5Sclose(space);
	H5Tclose(type);
	return added;
}

#endif
