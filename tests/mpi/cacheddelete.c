/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cacheddelete - the parts of a cache are removed with the file: by MPI_File_delete, by
 * MPI_MODE_DELETE_ON_CLOSE, and by owners that did not take part in the deletion, when they find
 * that the file does not exist. If another program has removed the file, dirty data stays in the
 * parts, because the file may have been renamed.
 *
 * `cacheddelete leave FOLDER` leaves a file and its cache in FOLDER, and `cacheddelete delete
 * FOLDER` deletes them. cacheddelete.sh runs all three.
 */
#include "common.h"

#include <dirent.h>
#include <stdlib.h>

static char path[400], other[400], near[400];
static MPI_File file;

static int open_cached(const char *name, int amode, const char *close)
{
	MPI_Info info;
	int code;

	MPI_Info_create(&info);
	MPI_Info_set(info, "pmem_path", near);
	MPI_Info_set(info, "pmem_size", "4M");
	MPI_Info_set(info, "pmem_close", close);
	code = MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE | amode, info,
			     &file);
	MPI_Info_free(&info);
	return code;
}

/* Writes a file with a cache, and closes it. */
static void write_and_close(const char *name, int amode, const char *close)
{
	int value = rank;

	check(open_cached(name, amode, close) == MPI_SUCCESS);
	check(MPI_File_write_at(file, rank * 100000, &value, 1, MPI_INT, MPI_STATUS_IGNORE) ==
	      MPI_SUCCESS);
	check(MPI_File_close(&file) == MPI_SUCCESS);
}

/* Returns the number of files of parts whose names begin with `name`. */
static int count_parts(const char *name)
{
	DIR *dir = opendir(near);
	const struct dirent *e;
	int n = 0;

	check(dir);
	while ((e = readdir(dir)))
		n += strncmp(e->d_name, name, strlen(name)) == 0;
	closedir(dir);
	return n;
}

static void expect_parts(const char *name, bool exist)
{
	int n;

	MPI_Barrier(MPI_COMM_WORLD);
	n = count_parts(name);
	check(exist ? n > 0 && n % 2 == 0 : n == 0, "%d files of the cache of %s", n, name);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void delete_file(const char *name, int by)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == by)
		check(MPI_File_delete(name, MPI_INFO_NULL) == MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void remove_file(const char *name)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		check(unlink(name) == 0);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void test_delete(void)
{
	write_and_close(path, 0, "flush");
	expect_parts("file", true);
	delete_file(path, ranks - 1);
	expect_parts("file", false);
	write_and_close(path, MPI_MODE_DELETE_ON_CLOSE, "flush");
	expect_parts("file", false);
	/* Dirty data is removed with the file, and a new file with the name is empty. */
	write_and_close(path, 0, "keep");
	delete_file(path, 0);
	expect_parts("file", false);
	write_and_close(path, 0, "flush");
	/* Deleting a link to the file, or a failed deletion, removes no parts. */
	if (rank == 0)
		check(symlink(path, other) == 0);
	delete_file(other, 0);
	check_error(MPI_File_delete(other, MPI_INFO_NULL), MPI_ERR_NO_SUCH_FILE, "");
	expect_parts("file", true);
	delete_file(path, 0);
	expect_parts("file", false);
}

static void test_delete_on_close(void)
{
	check(open_cached(path, 0, "flush") == MPI_SUCCESS);
	delete_file(path, 0);
	expect_parts("file", true);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	expect_parts("file", false);
}

/* A program that has not opened the file names the folder of the cache by a hint. */
static void delete_by_hint(void)
{
	MPI_Info info;

	expect_parts("file", true);
	MPI_Info_create(&info);
	MPI_Info_set(info, "pmem_path", near);
	if (rank == 0)
		check(MPI_File_delete(path, info) == MPI_SUCCESS);
	MPI_Info_free(&info);
	expect_parts("file", false);
}

/* At later opens, owners look for files of a few parts each. */
static void test_removed_files(void)
{
	write_and_close(path, 0, "flush");
	remove_file(path);
	expect_parts("file", true);
	for (int i = 0; i < 5; i++)
		write_and_close(other, 0, "flush");
	expect_parts("file", false);
	expect_parts("other", true);
	write_and_close(path, 0, "keep");
	remove_file(path);
	for (int i = 0; i < 5; i++)
		write_and_close(other, 0, "flush");
	expect_parts("file", true);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		char command[500];

		snprintf(command, sizeof(command), "rm '%s'/file-*", near);
		check(system(command) == 0);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	if (argc == 3)
		snprintf(folder, sizeof(folder), "%s", argv[2]);
	snprintf(path, sizeof(path), "%s/file", folder);
	snprintf(other, sizeof(other), "%s/other", folder);
	snprintf(near, sizeof(near), "%s/near", folder);
	if (argc == 3 && strcmp(argv[1], "delete") == 0) {
		delete_by_hint();
		MPI_Finalize();
		return 0;
	}
	if (rank == 0)
		check(mkdir(near, 0700) == 0);
	MPI_Barrier(MPI_COMM_WORLD);
	if (argc == 3) {
		write_and_close(path, 0, "keep");
		MPI_Finalize();
		return 0;
	}
	test_delete();
	test_delete_on_close();
	test_removed_files();
	/* Owners remove parts in MPI_Finalize, which ranks may leave at different times. */
	remove_file(other);
	expect_parts("other", true);
	MPI_Finalize();
	/* The process that has created the folder removes it when it ends. */
	for (unsigned i = 0; rank == 0 && i < 60000 && count_parts("other") > 0; i++)
		pause_ms(1);
	check(rank || count_parts("other") == 0);
	return 0;
}
