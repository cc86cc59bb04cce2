/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables of drivers and policies. A new one is one line here. */
#include "plugin.h"

#include "log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

extern const struct ummap_driver ummap_driver_posix, ummap_driver_uring, ummap_driver_fault;
extern const struct ummap_policy ummap_policy_fifo, ummap_policy_lifo, ummap_policy_plru,
	ummap_policy_prnd, ummap_policy_wiro_f, ummap_policy_wiro_l;

static const struct ummap_driver *const drivers[] = {
	&ummap_driver_posix, &ummap_driver_fault,
#ifdef HAVE_LIBURING
	&ummap_driver_uring,
#endif
};

/* In the order of UMMAP_PTYPE_*. */
static const struct ummap_policy *const policies[] = {
	&ummap_policy_fifo, &ummap_policy_lifo, &ummap_policy_plru,
	&ummap_policy_prnd, &ummap_policy_wiro_f, &ummap_policy_wiro_l,
};

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

const struct ummap_driver *plugin_driver(const char *scheme)
{
	char known[128] = "";
	size_t len = 0;

	for (size_t i = 0; i < COUNT(drivers); i++) {
		if (strcmp(drivers[i]->scheme, scheme) == 0)
			return drivers[i];
		len += (size_t)snprintf(known + len, sizeof(known) - len, " %s", drivers[i]->scheme);
	}
	fail(EINVAL, "there is no driver \"%s\"; there are:%s", scheme, known);
	return NULL;
}

const struct ummap_policy *plugin_policy(const char *name, size_t name_len)
{
	char known[128] = "";
	size_t len = 0;

	for (size_t i = 0; i < COUNT(policies); i++) {
		if (strlen(policies[i]->name) == name_len && memcmp(policies[i]->name, name, name_len) == 0)
			return policies[i];
		len += (size_t)snprintf(known + len, sizeof(known) - len, " %s", policies[i]->name);
	}
	fail(EINVAL, "there is no policy \"%.*s\"; there are:%s", (int)name_len, name, known);
	return NULL;
}

const char *plugin_ptype(int ptype)
{
	if (ptype < 0 || (size_t)ptype >= COUNT(policies))
		return NULL;
	return policies[ptype]->name;
}
