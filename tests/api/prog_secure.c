/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A set-user-ID program of root that another user starts: no environment variable has an effect,
 * and no key of a URI makes the library write a file. Needs root, to create such a program.
 */
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/statvfs.h>

#include "common.h"

#define NOBODY 65534
#define SIZE (4 * MIB)

static char copy[320], stats[320], count[320];

static void refused(const char *uri, int error, const char *says)
{
	void *addr;

	check_fails(ummap_open(uri, KIB, 0, READ_WRITE, NULL, &addr), error);
	check(strstr(umerrormsg(), says), "%s", umerrormsg());
}

/* The set-user-ID program. Its arguments name the files. */
static int be_secure(char **files)
{
	char uri[400];
	uint8_t *m;

	check(getauxval(AT_SECURE) && getuid() == NOBODY && geteuid() == 0);
	m = map_file(temp_file(SIZE), SIZE, 0, READ_WRITE, 0);
	m[5] = 1;
	check(stat_of(m).dirty_bytes != 64 * KIB, "segments have the default size");
	check(umunmap(m, 1) == 0);
	snprintf(uri, sizeof(uri), "error+mem:1M?error.count=%s", files[1]);
	refused(uri, EPERM, "error.count");
	snprintf(uri, sizeof(uri), "trace+mem:1M?trace.file=%s", files[1]);
	refused(uri, EPERM, "trace.file");
	refused("mem:{rank}", EINVAL, "{rank}");
	exit(0);
}

static void start_it(void *unused)
{
	char driver[500];

	(void)unused;
	snprintf(driver, sizeof(driver),
		 "error+posix:?error.op=read&error.times=always&error.count=%s", count);
	set_env("UMMAP_STATS", stats);
	set_env("UMMAP_DRIVER", driver);
	set_env("UMMAP_SEG_SIZE", "64K");
	set_env("UMMAP_MEM_LIMIT", "nonsense");
	set_env("UMMAP_GROUP", "no/name");
	set_env("UMMAP_LOG", "nonsense");
	set_env("SLURM_PROCID", "1");
	check(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
	execl(copy, copy, stats, count, (char *)NULL);
	check(false, "%s", copy);
}

/* Creates a copy of this program that any user may start. */
static bool make_it(void)
{
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), to;
	struct statvfs fs;
	ssize_t n;

	check(chmod(temp_dir(), 0711) == 0);
	to = temp_named("secure", 0, copy);
	while ((n = sendfile(to, from, NULL, MIB)) > 0)
		;
	check(n == 0 && fchmod(to, 04755) == 0);
	check(fstatvfs(to, &fs) == 0);
	close(to);
	close(from);
	return !(fs.f_flag & ST_NOSUID) && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0;
}

int main(int argc, char **argv)
{
	if (argc == 3)
		return be_secure(argv + 1);
	if (SANITIZED || geteuid() != 0 || !make_it()) {
		printf("needs root, a file system for set-user-ID programs, and no sanitizer\n");
		return 77;
	}
	snprintf(stats, sizeof(stats), "%s/stats.json", temp_dir());
	snprintf(count, sizeof(count), "%s/count", temp_dir());
	check_exits(run_child(start_it, NULL), 0);
	check(access(stats, F_OK) != 0 && access(count, F_OK) != 0, "a file was written");
	return 0;
}
