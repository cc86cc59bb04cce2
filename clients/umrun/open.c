/* SPDX-License-Identifier: BSD-3-Clause */
#include "umrun/open.h"

#include "common/fd_path.h"
#include "umrun/config.h"
#include "umrun/list.h"
#include "umrun/signals.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static int open_with_driver(open_call open, const char *driver, int fd, bool same,
			    struct ummap_attr *attr, void *arg)
{
	const char *keys = driver + strcspn(driver, "?");
	char uri[PATH_MAX + 256], key[24] = "";

	if (same)
		snprintf(key, sizeof(key), "%sfd=%d", *keys ? "&" : "?", fd);
	/* Both "trace+posix:?keys" and "trace+posix?keys" are accepted. */
	if (snprintf(uri, sizeof(uri), "%.*s:" FD_FOLDER "%d%s%s", (int)strcspn(driver, ":?"),
		     driver, fd, keys, key) >= (int)sizeof(uri)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	attr->flags = region_kernel_can_access ? UMMAP_KERNEL : 0;
	if (open(uri, attr, arg) == 0)
		return 0;
	if (!region_kernel_can_access || errno == EBUSY)
		return -1;
	/* This kernel does not report its own accesses: memory for system calls is pinned. */
	attr->flags = 0;
	if (open(uri, attr, arg) < 0)
		return -1;
	signals_require_pins();
	return 0;
}

int open_file(open_call open, int fd, bool same, struct ummap_attr *attr, void *arg)
{
	attr->policy = config.policy;
	if (config.driver)
		return open_with_driver(open, config.driver, fd, same, attr, arg);
	return open_with_driver(open, "uring", fd, same, attr, arg) == 0 ? 0 :
	       open_with_driver(open, "posix", fd, same, attr, arg);
}
