/* SPDX-License-Identifier: BSD-3-Clause */
/* mapreduce.h - functions for tests of ummap-mapreduce.h: input files, and calls that must succeed
 * or must fail. */
#ifndef TESTS_MPI_MAPREDUCE_H
#define TESTS_MPI_MAPREDUCE_H

#include "common.h"

#include <ummap-mapreduce.h>

static inline const char *path_of(const char *name)
{
	static char path[400];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

/* Makes an input file in the folder of the test; collective. */
static inline void make_file(const char *name, const void *data, size_t size)
{
	FILE *f = rank == 0 ? fopen(path_of(name), "w") : NULL;

	check(rank != 0 || (f && fwrite(data, 1, size, f) == size && fclose(f) == 0), "%s", name);
	MPI_Barrier(MPI_COMM_WORLD);
}

#define check_run(job) check_run_at((job), __FILE__, __LINE__)
static inline void check_run_at(ummr_job *job, const char *file, int line)
{
	int result = ummr_run(job);

	check_at(result == 0, "ummr_run", file, line, " %s", result ? ummr_error() : "");
}

static inline ummr_job *create_job(const struct ummr_config *config)
{
	ummr_job *job = NULL;

	check(ummr_create(MPI_COMM_WORLD, config, &job) == 0, "%s", ummr_error());
	return job;
}

/* Checks that a call fails with this errno, and that its message contains the words. */
#define check_refused(call, error, words) \
	check_refused_at((call), (error), (words), #call, __FILE__, __LINE__)

static inline void check_refused_at(int result, int error, const char *words, const char *call,
				    const char *file, int line)
{
	int code = errno;

	check_at(result == -1 && code == error, call, file, line, " returned %d, errno %d: %s",
		 result, code, ummr_error());
	check_at(strstr(ummr_error(), words), call, file, line, " says \"%s\", not \"%s\"",
		 ummr_error(), words);
}

#endif
