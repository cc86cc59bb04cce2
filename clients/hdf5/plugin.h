/* SPDX-License-Identifier: BSD-3-Clause */
/* Differences between versions of HDF5. */
#ifndef HDF5_PLUGIN_H
#define HDF5_PLUGIN_H

#include <hdf5.h>
#include <stdbool.h>

/* The first members of the class of a driver, which HDF5 has had since 1.13. The number is one of
 * those for drivers that are not registered with The HDF Group. */
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#include <H5PLextern.h>
#define HDF5_CLASS_HEAD .version = H5FD_CLASS_VERSION, .value = (H5FD_class_value_t)21837,
#else
#define HDF5_CLASS_HEAD
#endif

extern const H5FD_class_t hdf5_class;

/* Copies the text with which the user has configured the driver (HDF5_DRIVER_CONFIG). Returns
 * whether there is one. */
bool hdf5_configured(hid_t fapl, char *text, size_t room);

#endif
