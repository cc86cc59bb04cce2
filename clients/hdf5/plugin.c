/* SPDX-License-Identifier: BSD-3-Clause */
/* The library is a plug-in of HDF5, too: HDF5_DRIVER=ummap loads it from HDF5_PLUGIN_PATH. */
#include "hdf5/plugin.h"

#if H5_VERSION_GE(1, 13, 0)

H5PL_type_t H5PLget_plugin_type(void)
{
	return H5PL_TYPE_VFD;
}

const void *H5PLget_plugin_info(void)
{
	return &hdf5_class;
}

bool hdf5_configured(hid_t fapl, char *text, size_t room)
{
	ssize_t len = H5Pget_driver_config_str(fapl, text, room);

	return len > 0 && (size_t)len < room;
}

#else

bool hdf5_configured(hid_t fapl, char *text, size_t room)
{
	(void)fapl;
	(void)text;
	(void)room;
	return false;
}

#endif
