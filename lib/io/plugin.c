/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tables of drivers and policies that are built in, where a new one is one line; behind them, files. Runs
 * in public calls only, because a file may have to be loaded. Takes no lock.
 */
#include "io/plugin.h"

#include "base/config.h"
#include "io/load.h"
#include "base/log.h"
#include "base/sys.h"

#include <stdio.h>
#include <string.h>

extern const struct ummap_driver ummap_driver_posix, ummap_driver_uring, ummap_driver_pmem, ummap_driver_mem,
	ummap_driver_null, ummap_driver_fault, ummap_driver_trace;
extern const struct ummap_policy ummap_policy_fifo, ummap_policy_lifo, ummap_policy_plru,
	ummap_policy_prnd, ummap_policy_wiro_f, ummap_policy_wiro_l;

static const struct ummap_driver *const drivers[] = {
	&ummap_driver_posix, &ummap_driver_uring, &ummap_driver_pmem, &ummap_driver_mem, &ummap_driver_null,
	&ummap_driver_fault, &ummap_driver_trace,
};

/* In the order of UMMAP_PTYPE_*. */
static const struct ummap_policy *const policies[] = {
	&ummap_policy_fifo, &ummap_policy_lifo, &ummap_policy_plru,
	&ummap_policy_prnd, &ummap_policy_wiro_f, &ummap_policy_wiro_l,
};

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyz0123456789-"
#define POLICY_NAME_MAX 63

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* Words with a blank before each. */
static size_t add_word(char *list, size_t size, size_t len, const char *word)
{
	return min_size(size - 1, len + (size_t)snprintf(list + len, size - len, " %s", word));
}

/* Says what there is, and where a file was looked for. */
static void fail_missing(const char *kind, const char *name, const char *known)
{
	fail(EINVAL, "there is no %s \"%s\": built in are%s; ummap-%s-%s.so is neither in %s nor in a folder of "
	     "UMMAP_DRIVER_PATH (%s)", kind, name, known, kind, name, load_folder,
	     config.driver_path ? config.driver_path : "not set");
}

const struct ummap_driver *plugin_driver(const char *scheme)
{
	const struct ummap_driver *driver;
	char known[128] = "";
	size_t len = 0;

	for (size_t i = 0; i < COUNT(drivers); i++) {
		if (strcmp(drivers[i]->scheme, scheme) == 0)
			return drivers[i];
		len = add_word(known, sizeof(known), len, drivers[i]->scheme);
	}
	if (load_driver(scheme, config.driver_path, &driver) == 0 && !driver)
		fail_missing("driver", scheme, known);
	return driver;
}

int plugin_add_driver(const struct ummap_driver *driver)
{
	const char *scheme = driver->scheme;

	if (!scheme || !*scheme || scheme[strspn(scheme, NAME_CHARS)])
		return fail(EINVAL, "\"%s\" is no driver's name: it must be lower-case letters, digits and '-'",
			    scheme ? scheme : "");
	for (size_t i = 0; i < COUNT(drivers); i++) {
		if (strcmp(drivers[i]->scheme, scheme) == 0)
			return fail(EEXIST, "the driver \"%s\" is built in", scheme);
	}
	return load_add_driver(driver);
}

const struct ummap_policy *plugin_policy(const char *text, size_t name_len)
{
	const struct ummap_policy *policy;
	char known[128] = "", name[POLICY_NAME_MAX + 1];
	size_t len = 0;

	if (name_len == 0 || name_len > POLICY_NAME_MAX || strspn(text, NAME_CHARS) < name_len) {
		fail(EINVAL, "\"%s\" is no policy: it must be name or name:arguments, the name of at most %d lower-case "
		     "letters, digits and '-'", text, POLICY_NAME_MAX);
		return NULL;
	}
	snprintf(name, sizeof(name), "%.*s", (int)name_len, text);
	for (size_t i = 0; i < COUNT(policies); i++) {
		if (strcmp(policies[i]->name, name) == 0)
			return policies[i];
		len = add_word(known, sizeof(known), len, policies[i]->name);
	}
	if (load_policy(name, config.driver_path, &policy) == 0 && !policy)
		fail_missing("policy", name, known);
	return policy;
}

const char *plugin_ptype(int ptype)
{
	if (ptype < 0 || (size_t)ptype >= COUNT(policies))
		return NULL;
	return policies[ptype]->name;
}
