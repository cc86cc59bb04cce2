/* SPDX-License-Identifier: BSD-3-Clause */
/* The URI of an HDF5 file: that of the property list, and the name that HDF5 receives. */
#ifndef HDF5_NAME_H
#define HDF5_NAME_H

/* Returns the URI, which the caller frees; or NULL with errno and the message of umerrormsg(3). */
char *hdf5_name(const char *uri, const char *name);

#endif
