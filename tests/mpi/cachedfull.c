/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cachedfull - a file and its cache in a small file system that only this process sees. A near file
 * of the default size leaves half of the free space, and a file that cannot be preallocated keeps
 * its size.
 */
#include "common.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

/* Mounts a file system that ends with the process. */
static bool mount_small(const char *at)
{
	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mkdir(at, 0700) < 0)
		return false;
	setenv("AT", at, 1);
	return system("truncate -s 16M $AT.image && mkfs.ext4 -q -F -m 0 $AT.image && mount -o "
		      "loop $AT.image $AT && rm $AT.image") == 0;
}

static MPI_Offset free_bytes(const char *at)
{
	struct statvfs fs;

	check(statvfs(at, &fs) == 0);
	return (MPI_Offset)fs.f_bavail * (MPI_Offset)fs.f_frsize;
}

int main(int argc, char **argv)
{
	char small[500], path[600], byte = 'x';
	MPI_Offset before, size;
	struct stat st;
	MPI_Info info;
	MPI_File file;

	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	snprintf(small, sizeof(small), "%s/small", folder);
	snprintf(path, sizeof(path), "%s/file", small);
	if (!mount_small(small)) {
		printf("needs root, mkfs.ext4 and a loop device\n");
		fflush(stdout);
		MPI_Finalize();
		return 77;
	}
	MPI_Info_create(&info);
	MPI_Info_set(info, "pmem_path", small);
	before = free_bytes(small);
	check(MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDWR | MPI_MODE_CREATE, info, &file) ==
	      MPI_SUCCESS);
	MPI_Info_free(&info);
	check(free_bytes(small) > before * 4 / 10, "%lld of %lld are left",
	      (long long)free_bytes(small), (long long)before);
	check(MPI_File_write_at(file, 99, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	check_error(MPI_File_preallocate(file, 100 * MIB), MPI_ERR_NO_SPACE, "cannot resize");
	check(MPI_File_get_size(file, &size) == MPI_SUCCESS && size == 100);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	check(stat(path, &st) == 0 && st.st_size == 100, "%lld bytes", (long long)st.st_size);
	MPI_Finalize();
	return 0;
}
