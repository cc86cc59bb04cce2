/* SPDX-License-Identifier: BSD-3-Clause */
#include "kit/memcg.h"

/* Whether a line of /proc/self/cgroup has the memory controller (version 1) or is of version 2. */
static bool memcg_line(char *line, bool v2)
{
	char *controllers = strchr(line, ':'), *end;
	char *item;

	if (!controllers || !(end = strchr(++controllers, ':')))
		return false;
	*end = '\0';
	if (v2)
		return !*controllers;
	while ((item = strsep(&controllers, ",")))
		if (!strcmp(item, "memory"))
			return true;
	return false;
}

/* Finds this process's group in the hierarchy; "/" if it is unknown. */
static void memcg_own(bool v2, char *path, size_t room)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[PATH_MAX];

	snprintf(path, room, "/");
	while (f && fgets(line, sizeof(line), f)) {
		char *last = strrchr(line, ':');

		line[strcspn(line, "\n")] = '\0';
		if (last && memcg_line(line, v2))
			snprintf(path, room, "%s", last + 1);
	}
	if (f)
		fclose(f);
}

/* Finds the mount point of the hierarchy that limits memory. false: there is none. */
static bool memcg_mount(char *dir, size_t room, bool *v2)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	struct mntent *m;
	bool found = false;

	while (f && (m = getmntent(f))) {
		bool one = !strcmp(m->mnt_type, "cgroup") && hasmntopt(m, "memory");

		/* A hybrid setup mounts both versions. The controller is in version 1 then. */
		if (one || (!strcmp(m->mnt_type, "cgroup2") && !found)) {
			snprintf(dir, room, "%s", m->mnt_dir);
			*v2 = !one;
			found = true;
		}
		if (one)
			break;
	}
	if (f)
		endmntent(f);
	return found;
}

static bool memcg_write(const char *dir, const char *name, const char *value)
{
	char path[3 * PATH_MAX];
	int fd;
	bool done;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	done = write(fd, value, strlen(value)) == (ssize_t)strlen(value);
	close(fd);
	return done;
}

bool memcg_create(struct memcg *g, size_t limit)
{
	char mount[PATH_MAX], own[PATH_MAX], bytes[32];
	bool v2 = false;

	g->dir[0] = g->why[0] = '\0';
	snprintf(bytes, sizeof(bytes), "%zu", limit);
	if (!memcg_mount(mount, sizeof(mount), &v2)) {
		snprintf(g->why, sizeof(g->why), "no memory cgroup hierarchy is mounted");
		return false;
	}
	memcg_own(v2, own, sizeof(own));
	for (;;) {
		snprintf(g->dir, sizeof(g->dir), "%s%s/ummap-bench-%d", mount, own, (int)getpid());
		if (!mkdir(g->dir, 0755)) {
			if (memcg_write(g->dir, v2 ? "memory.max" : "memory.limit_in_bytes", bytes))
				return true;
			rmdir(g->dir);
		}
		if (!own[0])
			break;
		*strrchr(own, '/') = '\0';
	}
	snprintf(g->why, sizeof(g->why), "no memory cgroup can be made below %s: %s", mount,
		 strerror(errno));
	g->dir[0] = '\0';
	return false;
}

bool memcg_join(const struct memcg *g)
{
	return memcg_write(g->dir, "cgroup.procs", "0");
}

bool memcg_leave(const struct memcg *g)
{
	char above[sizeof(g->dir)];

	snprintf(above, sizeof(above), "%s", g->dir);
	*strrchr(above, '/') = '\0';
	return memcg_write(above, "cgroup.procs", "0");
}

void memcg_remove(struct memcg *g)
{
	if (g->dir[0] && rmdir(g->dir))
		fprintf(stderr, "%s: %s\n", g->dir, strerror(errno));
	g->dir[0] = '\0';
}
