/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts the driver "broken" into the table of a driver-conform that is linked for the tests (ld --wrap). */
#include "../sanitizers.h"

#include <string.h>
#include <ummap-driver.h>

extern const struct ummap_driver ummap_driver;

const struct ummap_driver *__real_plugin_driver(const char *scheme);
const struct ummap_driver *__wrap_plugin_driver(const char *scheme);

const struct ummap_driver *__wrap_plugin_driver(const char *scheme)
{
	return strcmp(scheme, ummap_driver.scheme) == 0 ? &ummap_driver : __real_plugin_driver(scheme);
}
