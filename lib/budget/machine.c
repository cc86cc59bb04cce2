/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads the size of RAM and the limits of cgroups. A process may be in a v1 memory controller and
 * in a v2 hierarchy, and the limits of all levels apply.
 */
#include "budget/machine.h"

#include "base/sys.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A limit file holds a number, or "max". */
static size_t read_limit(const char *dir, const char *name)
{
	char path[PATH_MAX], text[64];
	size_t bytes = SIZE_MAX;
	FILE *f;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return bytes;
	f = fopen(path, "re");
	if (!f)
		return bytes;
	if (fgets(text, sizeof(text), f) && strncmp(text, "max", 3) != 0)
		bytes = strtoull(text, NULL, 10);
	fclose(f);
	return bytes;
}

/* The smallest limit from the process's own group up to the mount point. */
static size_t walk_up(const char *mount, const char *group, const char *name)
{
	char dir[PATH_MAX];
	size_t smallest = SIZE_MAX, root = strlen(mount);

	if (snprintf(dir, sizeof(dir), "%s%s", mount, group) >= (int)sizeof(dir))
		return smallest;
	for (;;) {
		char *slash;

		smallest = min_size(smallest, read_limit(dir, name));
		slash = strrchr(dir, '/');
		if (!slash || (size_t)(slash - dir) < root)
			return smallest;
		*slash = '\0';
	}
}

static size_t cgroup_limit(void)
{
	char line[PATH_MAX];
	size_t smallest = SIZE_MAX;
	FILE *f = fopen("/proc/self/cgroup", "re");

	if (!f)
		return smallest;
	while (fgets(line, sizeof(line), f)) {
		char *controllers = strchr(line, ':'), *group;

		line[strcspn(line, "\n")] = '\0';
		group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group)
			continue;
		*group++ = '\0';
		if (controllers[1] == '\0') {
			smallest = min_size(smallest, walk_up("/sys/fs/cgroup", group,
							      "memory.max"));
			smallest = min_size(smallest, walk_up("/sys/fs/cgroup/unified", group,
							      "memory.max"));
		} else if (strstr(controllers + 1, "memory")) {
			smallest = min_size(smallest, walk_up("/sys/fs/cgroup/memory", group,
							      "memory.limit_in_bytes"));
		}
	}
	fclose(f);
	return smallest;
}

size_t machine_ram(void)
{
	return (size_t)sysconf(_SC_PHYS_PAGES) * sys_page();
}

size_t machine_memory(void)
{
	return min_size(machine_ram(), cgroup_limit());
}
