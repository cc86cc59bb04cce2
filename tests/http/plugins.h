/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plugins.h - uses the drivers of the build folder. A driver that is installed on this machine
 * comes before those of UMMAP_DRIVER_PATH, so the tests register their drivers themselves.
 */
#ifndef TESTS_HTTP_PLUGINS_H
#define TESTS_HTTP_PLUGINS_H

#include <dlfcn.h>

#include "common.h"
#include "ummap-driver.h"

static inline void use_driver(const char *file)
{
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	const struct ummap_driver *driver = library ? dlsym(library, "ummap_driver") : NULL;

	check(driver, "%s", dlerror());
	check(ummap_driver_register(driver) == 0, "%s: %s", file, umerrormsg());
}

/* Commands that a test starts use the variable. */
static inline void use_plugins(void)
{
	set_env("UMMAP_DRIVER_PATH", HTTP_PLUGINS);
	use_driver(HTTP_PLUGINS "/ummap-driver-http.so");
	use_driver(HTTP_PLUGINS "/ummap-driver-https.so");
	use_driver(HTTP_PLUGINS "/ummap-driver-s3.so");
}

#endif
