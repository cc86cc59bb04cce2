/* SPDX-License-Identifier: BSD-3-Clause */
/* The public calls for drivers: they register a driver of the program, and open stores without a
 * mapping. */
#include "api/api.h"

#include "base/config.h"
#include "api/start.h"
#include "io/io.h"
#include "base/log.h"
#include "io/plugin.h"

#include <string.h>

/* Bytes of a driver table. The caller cannot mean a larger size. */
#define MAX_TABLE_BYTES 4096

/* Moves the handle and driver table of a new store to the caller. */
static void give_handle(struct store *store, struct ummap_driver *driver, void **h,
			struct ummap_geom *geom)
{
	size_t size = driver->struct_size;
	struct ummap_driver table;

	*geom = *io_geom(store);
	io_part(store, &table, h);
	memset(driver, 0, size);
	memcpy(driver, &table, min_size(size, sizeof(table)));
	driver->struct_size = size;
}

/* Opens the store `uri`; with `below`, the filters `uri` in front of it. */
static int open_handle(const char *uri, const struct io_below *below, int oflags,
		       struct ummap_driver *driver, void **h, struct ummap_geom *geom)
{
	size_t size = driver ? driver->struct_size : 0;
	struct store *store;
	struct guard g;
	int err;

	api_enter(&g);
	if (!uri || !driver || !h || !geom || (below && (!below->driver || !below->uri)))
		err = fail(EINVAL, "cannot open the store: an argument is NULL");
	else if (size < offsetof(struct ummap_driver, open) || size > MAX_TABLE_BYTES)
		err = fail(EINVAL, "cannot open the store: driver->struct_size is %zu. Try "
			   "sizeof(struct ummap_driver)", size);
	else if (oflags & ~(UMMAP_O_WRITE | UMMAP_O_CREATE | UMMAP_O_WRITERS))
		err = fail(EINVAL, "cannot open the store: oflags is %#x. Try UMMAP_O_WRITE, "
			   "UMMAP_O_CREATE and UMMAP_O_WRITERS only", oflags);
	else
		err = below ? plugin_check_driver(below->driver, false) : 0;
	if (!err)
		err = start_library();
	if (!err)
		err = below ? io_open_filters(uri, below, oflags, &store) :
			      io_open(uri, oflags, &store);
	if (!err)
		give_handle(store, driver, h, geom);
	return api_leave(&g, err);
}

int ummap_driver_open(const char *uri, int oflags, struct ummap_driver *driver, void **h,
		      struct ummap_geom *geom)
{
	return open_handle(uri, NULL, oflags, driver, h, geom);
}

int ummap_driver_open_filters(const char *filters, const struct ummap_driver *next,
			      const struct ummap_uri *next_uri, int oflags,
			      struct ummap_driver *driver, void **h, struct ummap_geom *geom)
{
	struct io_below below = { next, next_uri };

	return open_handle(filters, &below, oflags, driver, h, geom);
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
