/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * objects - object windows: the part of each rank is a set of chunks of one object. All one-sided
 * operations work on it. A version has the contents of all parts at a collective sync or at the end
 * of the window; MPI_Win_sync alone makes no version. The next window opens the newest version. A
 * window that does not match it is check_refused at all ranks, and failed calls leave nothing
 * behind.
 */
#include "object_window.h"

#include <ummap-mpi.h>

#define PART(of) ((size_t)(160 + 37 * (of)) * KIB + 13)
#define CHUNK "65536"
#define SEG "16K"

static uint64_t random_state;

static MPI_Info hints(const char *more, const char *value)
{
	MPI_Info info = object_hints(CHUNK, SEG);

	if (more && value)
		MPI_Info_set(info, more, value);
	else if (more)
		MPI_Info_delete(info, more);
	return info;
}

static void *open_window(size_t size, MPI_Win *win)
{
	return object_window(size, object_hints(CHUNK, SEG), win);
}

static void check_refused(size_t size, const char *more, const char *value, int class,
			  const char *words)
{
	MPI_Info info = hints(more, value);
	char *base;
	MPI_Win win;

	check_error(MPI_Win_allocate((MPI_Aint)size, 1, info, MPI_COMM_WORLD, &base, &win), class,
		    words);
	MPI_Info_free(&info);
}

static char value_at(int of, size_t i, int version)
{
	return (char)(of * 17 + version * 5 + (int)(i / 977) + 1);
}

static void store(char *base, int version)
{
	for (size_t i = 0; i < PART(rank); i++)
		base[i] = value_at(rank, i, version);
}

static void expect(const char *base, int of, int version)
{
	for (size_t i = 0; i < PART(of); i++)
		check(base[i] == value_at(of, i, version), "byte %zu of rank %d: %d, not %d", i, of,
		      base[i], value_at(of, i, version));
}

/* Checks the object as another program sees it: each rank has one row. */
static void expect_object(int version)
{
	struct umobject_stat st = { .struct_size = sizeof(st) };
	umobject_container *c;
	umobject_version *v;

	MPI_Barrier(MPI_COMM_WORLD);
	if (rank > 0)
		return;
	check(umobject_open(box, NULL, &c) == 0 && umobject_hold(c, "field", 0, &v) == 0, "%s",
	      umobject_errormsg());
	check(umobject_stat(v, &st) == 0 && st.shape.rank == 2 &&
	      st.shape.dims[0] == (uint64_t)ranks);
	check(st.shape.dims[1] == PART(ranks - 1) && st.shape.chunk[0] == 1 &&
	      st.shape.chunk[1] == 65536);
	for (int of = 0; of < ranks; of++) {
		char *row = malloc(PART(of));

		check(umobject_read(v, (uint64_t[]){ (uint64_t)of, 0 }, (uint64_t[]){ 1, PART(of) },
				    row) == 0,
		      "%s", umobject_errormsg());
		expect(row, of, version);
		free(row);
	}
	umobject_release(v);
	umobject_close(c);
}

static void test_versions(void)
{
	MPI_Win win;
	char *base = open_window(PART(rank), &win), *theirs = malloc(PART(ranks - 1));
	int next = (rank + 1) % ranks;

	check(base[0] == 0 && newest_version() == 0);
	check_hint(win, "alloc_type", "object");
	check_hint(win, "storage_alloc_object", object);
	store(base, 1);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	MPI_Win_unlock(rank, win);
	check(newest_version() == 0);
	check(ummpi_sync_all(MPI_COMM_WORLD, base) == MPI_SUCCESS);
	check(newest_version() == 1);
	expect_object(1);
	/* Without a change, a sync makes no version. */
	check(ummpi_sync_all(MPI_COMM_WORLD, base) == MPI_SUCCESS && newest_version() == 1);
	/* All kinds of operations change the part of another rank. */
	for (size_t i = 0; i < PART(next); i++)
		theirs[i] = value_at(next, i, 2);
	MPI_Win_lock_all(0, win);
	MPI_Put(theirs, (int)PART(next), MPI_CHAR, next, 0, (int)PART(next), MPI_CHAR, win);
	MPI_Win_flush(next, win);
	memset(theirs, 0, PART(next));
	MPI_Get(theirs, (int)PART(next), MPI_CHAR, next, 0, (int)PART(next), MPI_CHAR, win);
	MPI_Win_unlock_all(win);
	expect(theirs, next, 2);
	MPI_Barrier(MPI_COMM_WORLD);
	expect(base, rank, 2);
	expect_object(1);
	/* The end of the window makes a version, too. */
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	check(newest_version() == 2);
	expect_object(2);
	free(theirs);
}

/* A restarted window has the exact sums. */
static void test_restart(void)
{
	long one = 1, *sums;
	MPI_Win win;
	char *base = open_window(PART(rank), &win);

	expect(base, rank, 2);
	MPI_Barrier(MPI_COMM_WORLD);
	memset(base, 0, 64 * KIB);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(UMMPI_OP(MPI_SUM), win);
	for (int i = 0; i < 1000; i++)
		MPI_Put(&one, 1, MPI_LONG, i % ranks, 8 * (i % 8000), 1, MPI_LONG, win);
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	sums = open_window(PART(rank), &win);
	for (int i = 0; i < 1000; i++)
		check(sums[i] == (i % ranks == rank ? ranks : 0), "%d: %ld", i, sums[i]);
	check(MPI_Win_free(&win) == MPI_SUCCESS && newest_version() == 3);
}

/*
 * Versions are consistent while other ranks put into the parts: the counters of each rank only
 * grow.
 */
static void test_concurrent_puts(void)
{
	long last[4] = { 0 }, got[4];
	MPI_Win win;
	char *base = open_window(PART(rank), &win);
	int target = (rank + 1) % ranks;

	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	memset(base, 0, PART(rank));
	MPI_Win_unlock(rank, win);
	MPI_Barrier(MPI_COMM_WORLD);
	for (long round = 1; round <= (long)by_time(6, 60); round++) {
		long values[4] = { round, round, round, round };

		MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
		MPI_Put(values, 4, MPI_LONG, target,
			(MPI_Aint)(next_random(&random_state) % 19) * 8192, 4, MPI_LONG, win);
		MPI_Put(values, 4, MPI_LONG, target, 0, 4, MPI_LONG, win);
		MPI_Win_unlock(target, win);
		check(ummpi_sync_all(MPI_COMM_WORLD, base) == MPI_SUCCESS);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	base = open_window(PART(rank), &win);
	memcpy(got, base, sizeof(got));
	last[0] = (long)by_time(6, 60);
	check(got[0] == last[0] && got[3] == last[0], "%ld", got[0]);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

static void test_refused_windows(void)
{
	uint64_t before = newest_version();
	MPI_Info info;
	char *base, name[sizeof(object)];
	MPI_Win win;

	check_refused(PART(rank) + 1, NULL, NULL, MPI_ERR_INFO_VALUE, "rank 0 has");
	check_refused(PART(rank), "storage_alloc_filename", "/tmp/x", MPI_ERR_INFO_VALUE,
		"storage_alloc_filename with alloc_type=object: it is for windows in files");
	check_refused(PART(rank), "storage_alloc_driver", "posix", MPI_ERR_INFO_VALUE,
		"storage_alloc_driver with alloc_type=object");
	check_refused(PART(rank), "storage_alloc_engine", "kernel", MPI_ERR_INFO_VALUE,
		"kernel with alloc_type=object");
	check_refused(PART(rank), "storage_alloc_object", NULL, MPI_ERR_INFO_VALUE,
		"storage_alloc_object is not set");
	check_refused(PART(rank), "storage_alloc_object_chunk", "0", MPI_ERR_INFO_VALUE,
		      "storage_alloc_object_chunk is");
	check_refused(PART(rank), "storage_alloc_object", box, MPI_ERR_INFO_VALUE,
		      "is a container");
	check_refused(PART(rank), "storage_alloc_object", "/nowhere/at/all", MPI_ERR_NO_SUCH_FILE,
		      "no container is in");
	snprintf(name, sizeof(name), "%s/other", box);
	check_refused(PART(rank), "storage_alloc_object", name, MPI_ERR_INFO_VALUE,
		"no window has written it");
	if (ranks > 1) {
		snprintf(name, sizeof(name), "%s/field%d", box, rank);
		check_refused(PART(rank), "storage_alloc_object", name, MPI_ERR_INFO_VALUE,
			"the same object at all ranks");
		check_refused(PART(rank), "storage_alloc_object_chunk", rank ? "4096" : "8192",
			MPI_ERR_INFO_VALUE, "the same value at all ranks");
		check_refused(PART(rank), "alloc_type", rank ? "memory" : "object",
			      MPI_ERR_INFO_VALUE, "at some ranks only");
	}
	info = hints(NULL, NULL);
	check_error(MPI_Alloc_mem(1000, info, &base), MPI_ERR_INFO_VALUE, "MPI_Win_allocate only");
	check_error(MPI_Win_allocate_shared(1000, 1, info, MPI_COMM_WORLD, &base, &win),
		    MPI_ERR_INFO_VALUE, "MPI_Win_allocate only");
	MPI_Info_free(&info);
	check(newest_version() == before);
	/* The window has fewer bytes than the object. */
	base = open_window(PART(rank), &win);
	if (ranks > 1)
		check_error(ummpi_sync_all(MPI_COMM_SELF, base), MPI_ERR_ARG, "Try all ranks");
	base[0]++;
	/* A discarded window makes no version. */
	check(MPI_Win_free(&win) == MPI_SUCCESS && newest_version() == before + 1);
	info = hints("storage_alloc_discard", "true");
	check(MPI_Win_allocate((MPI_Aint)PART(rank), 1, info, MPI_COMM_WORLD, &base, &win) ==
	      MPI_SUCCESS);
	MPI_Info_free(&info);
	base[0]++;
	check(MPI_Win_free(&win) == MPI_SUCCESS && newest_version() == before + 1);
}

/* Some ranks have no bytes. */
static void test_empty_parts(void)
{
	size_t size = rank == ranks - 1 ? 100 * KIB : 0;
	MPI_Win win;
	char *base;

	snprintf(object, sizeof(object), "%s/few", box);
	for (int round = 0; round < 3; round++) {
		base = open_window(size, &win);
		if (size)
			check(base[77] == round, "%d", base[77]), base[77]++;
		check(ummpi_sync_all(MPI_COMM_WORLD, round == 1 && size ? base : NULL) ==
		      MPI_SUCCESS);
		check(MPI_Win_free(&win) == MPI_SUCCESS);
	}
	snprintf(object, sizeof(object), "%s/none", box);
	base = open_window(0, &win);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

/*
 * A chunk that is staged with new contents, and then changed back, has the old contents in the
 * version.
 */
static void test_reverted_change(void)
{
	MPI_Win win;
	char *base;

	snprintf(object, sizeof(object), "%s/turned", box);
	base = open_window(PART(rank), &win);
	store(base, 1);
	check(ummpi_sync_all(MPI_COMM_WORLD, base) == MPI_SUCCESS);
	base[70000]++;
	base[5]++;
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	base[70000]--;
	check(ummpi_sync_all(MPI_COMM_WORLD, base) == MPI_SUCCESS);
	base[5]--;
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	base = open_window(PART(rank), &win);
	expect(base, rank, 1);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

/* Pairs of ranks stand for jobs that replace the versions of each other. No commit fails. */
static void test_jobs_with_same_name(void)
{
	int in_job = rank < ranks / 2 * 2;
	MPI_Info info;
	MPI_Comm job;
	MPI_Win win;
	char *base;

	snprintf(object, sizeof(object), "%s/jobs", box);
	info = hints(NULL, NULL);
	MPI_Comm_split(MPI_COMM_WORLD, in_job ? rank / 2 : MPI_UNDEFINED, rank, &job);
	for (int round = 0; round < 2; round++) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (!in_job)
			continue;
		check(MPI_Win_allocate(PART(0), 1, info, job, &base, &win) == MPI_SUCCESS);
		check(base[0] == base[PART(0) - 1] && (round == 0 || base[0] >= 60), "%d, %d",
		      base[0], base[PART(0) - 1]);
		for (int i = 0; round == 0 && i < 60; i++) {
			base[0]++;
			base[PART(0) - 1]++;
			check(ummpi_sync_all(job, base) == MPI_SUCCESS, "%d", i);
		}
		check(MPI_Win_free(&win) == MPI_SUCCESS);
	}
	if (in_job)
		MPI_Comm_free(&job);
	MPI_Info_free(&info);
	MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	random_state = (uint64_t)rank + 1;
	name_box(folder);
	if (rank == 0) {
		struct umobject_attr attr = UMOBJECT_ATTR_INIT;
		struct umobject_shape shape = { .type = UMOBJECT_DOUBLE, .rank = 1, .dims = { 5 } };
		umobject_container *c;

		attr.flags = UMOBJECT_CREATE;
		check(umobject_open(box, &attr, &c) == 0 &&
		      umobject_put_array(c, "other", &shape, (double[5]){ 0 }) == 0);
		umobject_close(c);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	test_versions();
	test_restart();
	test_concurrent_puts();
	test_refused_windows();
	test_empty_parts();
	test_reverted_change();
	test_jobs_with_same_name();
	MPI_Finalize();
	return 0;
}
