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
			    struct ummap_attr *attr, unsigned flags, void *arg)
{
	const unsigned tries[] = { UMMAP_KERNEL, flags, 0 };
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
	for (size_t i = region_kernel_can_access ? 0 : 1; i < 3; i++) {
		if (i == 1 && !flags)
			continue;
		attr->flags = tries[i];
		if (open(uri, attr, arg) == 0) {
			/* A kernel that does not report its own accesses: memory for system calls
			 * is pinned. */
			if (i > 0 && region_kernel_can_access)
				signals_require_pins();
			return 0;
		}
		if (errno == EBUSY)
			break;
	}
	return -1;
}

int open_file(open_call open, int fd, bool same, struct ummap_attr *attr, void *arg)
{
	unsigned flags = attr->flags;

	attr->policy = config.policy;
	if (config.driver)
		return open_with_driver(open, config.driver, fd, same, attr, flags, arg);
	return open_with_driver(open, "uring", fd, same, attr, flags, arg) == 0 ? 0 :
	       open_with_driver(open, "posix", fd, same, attr, flags, arg);
}
