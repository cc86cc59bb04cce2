/* SPDX-License-Identifier: BSD-3-Clause */
/* common.h - ranks, hints, files and errors for MPI tests. */
#ifndef TESTS_MPI_COMMON_H
#define TESTS_MPI_COMMON_H

#include "../common.h"

#include <mpi.h>

static int rank, ranks;
static char folder[320]; /* folder for the files of this job */

/* Initializes MPI. Ends the process, and therefore the job, if a check fails. */
static inline void start_mpi(int *argc, char ***argv, int threads)
{
	int provided;

	check(MPI_Init_thread(argc, argv, threads, &provided) == MPI_SUCCESS &&
	      provided >= threads);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (rank == 0)
		snprintf(folder, sizeof(folder), "%s", temp_dir());
	MPI_Bcast(folder, sizeof(folder), MPI_CHAR, 0, MPI_COMM_WORLD);
}

/* Opens or creates a file of `folder`. */
static inline int open_in_folder(const char *name)
{
	char path[400];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	check(fd >= 0, "%s", path);
	return fd;
}

/* Makes the hints for a window in a file of `folder`, with more hints: name, value, ..., NULL. */
static inline MPI_Info __attribute__((sentinel)) storage_hints(const char *file, ...)
{
	char path[400];
	const char *name, *value;
	va_list args;
	MPI_Info info;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	MPI_Info_create(&info);
	MPI_Info_set(info, "alloc_type", "storage");
	MPI_Info_set(info, "storage_alloc_filename", path);
	va_start(args, file);
	while ((name = va_arg(args, const char *))) {
		value = va_arg(args, const char *);
		MPI_Info_set(info, name, value);
	}
	va_end(args);
	return info;
}

/* Opens a file in `folder`. Returns -1 if the file does not exist. */
static inline int open_part(const char *file)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static inline bool has_file(const char *file)
{
	int fd = open_part(file);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Returns the value of a hint by MPI_Win_get_info, or "". */
static inline const char *hint_in_use(MPI_Win win, const char *name)
{
	static char value[MPI_MAX_INFO_VAL + 1];
	MPI_Info used;
	int found;

	check(MPI_Win_get_info(win, &used) == MPI_SUCCESS);
	MPI_Info_get(used, name, MPI_MAX_INFO_VAL, value, &found);
	MPI_Info_free(&used);
	return found ? value : "";
}

#define check_hint(win, name, want) \
	check(strcmp(hint_in_use(win, name), want) == 0, "%s is \"%s\"", name, \
	      hint_in_use(win, name))

/* The call must return an error of the class, whose message has the words. */
#define check_error(call, class, words) \
	check_error_at((call), (class), (words), #call, __FILE__, __LINE__)

static inline void check_error_at(int code, int class, const char *words, const char *what,
				  const char *file, int line)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int got, len;

	check_at(code != MPI_SUCCESS, what, file, line, " succeeded");
	MPI_Error_class(code, &got);
	MPI_Error_string(code, text, &len);
	check_at(got == class, what, file, line, " class %d, not %d: %s", got, class, text);
	check_at(strstr(text, words) && (int)strlen(text) == len, what, file, line,
		 " says \"%s\", not \"%s\"", text, words);
}

#endif
