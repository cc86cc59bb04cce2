/* SPDX-License-Identifier: BSD-3-Clause */
/* The public calls for drivers: one registers a driver of the program, the other opens a store
 * without a mapping, for tests of drivers. */
#include "api/api.h"

#include "base/config.h"
#include "api/start.h"
#include "io/io.h"
#include "base/log.h"
#include "io/plugin.h"

#include <string.h>

#define TABLE_MAX 4096 /* bytes of a table; a larger value is an error of the caller */

static int open_handle(const char *uri, int oflags, struct ummap_driver *driver, void **h,
		       struct ummap_geom *geom)
{
	size_t size = driver->struct_size;
	struct ummap_driver table;
	struct store *store;
	int err = start_library();

	if (!err)
		err = io_open(uri, oflags, &store);
	if (err)
		return err;
	*geom = *io_geom(store);
	io_part(store, &table, h);
	memset(driver, 0, size);
	memcpy(driver, &table, min_size(size, sizeof(table)));
	driver->struct_size = size;
	return 0;
}

int ummap_driver_open(const char *uri, int oflags, struct ummap_driver *driver, void **h,
		      struct ummap_geom *geom)
{
	struct guard g;
	int err;

	api_enter(&g);
	if (!uri || !driver || !h || !geom)
		err = fail(EINVAL, "cannot open the store: uri, driver, h or geom is NULL");
	else if (driver->struct_size < offsetof(struct ummap_driver, open) || driver->struct_size > TABLE_MAX)
		err = fail(EINVAL, "cannot open the store: driver->struct_size is %zu. Try "
			   "sizeof(struct ummap_driver)", driver->struct_size);
	else if (oflags & ~(UMMAP_O_WRITE | UMMAP_O_CREATE | UMMAP_O_WRITERS))
		err = fail(EINVAL, "cannot open the store: oflags is %#x. Try UMMAP_O_WRITE, "
			   "UMMAP_O_CREATE and UMMAP_O_WRITERS only", oflags);
	else
		err = open_handle(uri, oflags, driver, h, geom);
	return api_leave(&g, err);
}

int ummap_driver_register(const struct ummap_driver *driver)
{
	struct guard g;
	int err;

	api_enter(&g);
	if (!driver)
		err = fail(EINVAL, "cannot add the driver: it is NULL");
	else
		err = plugin_add_driver(driver);
	return api_leave(&g, err);
}
