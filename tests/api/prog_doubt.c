/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file system that accepts writes and loses them: an ext4 with free space, on a device whose
 * storage, a tmpfs, is full. The kernel notices this when it writes back, reports it once, and the
 * next fsync(2) returns 0. umsync must go on failing, even after there is space. Needs root.
 */
#include "small_fs.h"

#define SEG (64 * KIB)
#define SEGS ((size_t)192)
#define SIZE (SEGS * SEG)
#define SPARE (2 * MIB) /* space of the tmpfs that is left, less than the file needs */
#define NEW 2

struct job {
	int around, root; /* folder of the tmpfs, and root of the file system on it */
};

/* Counts the segments that are on the device, without those in the page cache. */
static size_t count_durable(int fd)
{
	uint8_t *buf = aligned_alloc(4096, SEG), *want = malloc(SEG);
	char path[64];
	size_t n = 0;
	int direct;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	check(direct >= 0 && buf && want);
	for (size_t at = 0; at < SIZE; at += SEG) {
		fill(want, SEG, at, NEW);
		n += pread(direct, buf, SEG, (off_t)at) == (ssize_t)SEG &&
		     memcmp(buf, want, SEG) == 0;
	}
	close(direct);
	free(buf);
	free(want);
	return n;
}

static void lose(void *arg)
{
	struct job *j = arg;
	int fd = create(j->root, "data");
	size_t durable;
	uint8_t *m;

	set_env("UMMAP_DRIVER", "posix");
	set_env("UMMAP_DIRECT", "never");
	set_budget(SIZE / 6);
	check(fallocate(fd, 0, 0, SIZE) == 0 && syncfs(fd) == 0);
	fill_up(j->around, space(j->around) - SPARE);
	m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	fill(m, SIZE, 0, NEW);
	check(umsync(m, 0) == -1 && (errno == EIO || errno == ENOSPC), "a device that is full");
	make_space(j->around);
	check(stat_of(m).lost_bytes > 0);
	for (int tries = 0; tries < 3; tries++)
		check_fails(umsync(m, tries % 2), EIO);
	durable = count_durable(fd);
	printf("%zu of %zu segments are durable, %" PRIu64 " bytes count as lost\n", durable, SEGS,
	       stat_of(m).lost_bytes);
	check(durable < SEGS);
	check_fails(umunmap(m, 1), EIO);
	check(umunmap(m, 0) == 0);
}

/* Also the tmpfs is not visible in the file tree. */
static bool make_job(struct job *j)
{
	char dir[320], image[400];
	int file;

	snprintf(dir, sizeof(dir), "%s/memory", temp_dir());
	if (geteuid() != 0 || mkdir(dir, 0700) != 0 ||
	    mount("none", dir, "tmpfs", 0, "size=40M") != 0)
		return false;
	j->around = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(image, sizeof(image), "%s/image", dir);
	file = open(image, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	check(j->around >= 0 && file >= 0 && ftruncate(file, IMAGE) == 0);
	j->root = file_system_in(image, file, "-O ^has_journal");
	check(umount2(dir, MNT_DETACH) == 0 && rmdir(dir) == 0);
	return j->root >= 0;
}

int main(void)
{
	struct job j;

	if (!make_job(&j)) {
		printf("needs root, mkfs.ext4, a loop device and a tmpfs\n");
		return 77;
	}
	check_exits(run_child(lose, &j), 0);
	return 0;
}
