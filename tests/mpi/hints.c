/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hints - valid hints take effect, and MPI_Win_get_info returns them. Invalid hints fail with
 * MPI_ERR_INFO_VALUE and a message at all ranks, even if only one rank gives them, and have no
 * other effect. Unknown hints are ignored.
 */
#include "common.h"

#define SIZE (256 * KIB)

static int allocate(MPI_Info info, void *base, MPI_Win *win)
{
	int code = MPI_Win_allocate(SIZE, 1, info, MPI_COMM_WORLD, base, win);

	MPI_Info_free(&info);
	return code;
}

/* ---- Invalid hints ---- */

static const struct bad {
	const char *name, *value;
	int class;
	const char *words;
} bad[] = {
	{ "alloc_type", "strage", MPI_ERR_INFO_VALUE, "it must be memory, storage or object" },
	{ "storage_alloc_filename", "part%d", MPI_ERR_INFO_VALUE, "%r" },
	{ "storage_alloc_filename", "/nowhere/part%r", MPI_ERR_NO_SUCH_FILE, "/nowhere/part" },
	{ "storage_alloc_offset", "-1", MPI_ERR_INFO_VALUE, "storage_alloc_offset is \"-1\"" },
	{ "storage_alloc_offset", "1X", MPI_ERR_INFO_VALUE, "a size" },
	{ "storage_alloc_offset", "99999999999999999999", MPI_ERR_INFO_VALUE, "a size" },
	{ "storage_alloc_factor", "1.5", MPI_ERR_INFO_VALUE, "a number from 0 to 1" },
	{ "storage_alloc_factor", "-0.1", MPI_ERR_INFO_VALUE, "a number from 0 to 1" },
	{ "storage_alloc_factor", "half", MPI_ERR_INFO_VALUE, "a number from 0 to 1" },
	{ "storage_alloc_factor", "nan", MPI_ERR_INFO_VALUE, "a number from 0 to 1" },
	{ "storage_alloc_order", "last", MPI_ERR_INFO_VALUE, "memory_first or storage_first" },
	{ "storage_alloc_unlink", "yes", MPI_ERR_INFO_VALUE, "true or false" },
	{ "storage_alloc_discard", "1", MPI_ERR_INFO_VALUE, "true or false" },
	{ "storage_alloc_segsize", "5000", MPI_ERR_INFO_VALUE, "a power of two" },
	{ "storage_alloc_segsize", "1K", MPI_ERR_INFO_VALUE, "a power of two" },
	{ "storage_alloc_syncfreq", "0", MPI_ERR_INFO_VALUE, "or never" },
	{ "storage_alloc_syncfreq", "1.5", MPI_ERR_INFO_VALUE, "or never" },
	{ "storage_alloc_policy", "best", MPI_ERR_INFO_VALUE, "cannot find the policy 'best'" },
	{ "storage_alloc_tiers", "hbm", MPI_ERR_INFO_VALUE, "UMMAP_TIERS" },
	{ "storage_alloc_driver", "tape", MPI_ERR_INFO_VALUE, "cannot find the driver 'tape'" },
	{ "storage_alloc_driver", "posix:?depth=1", MPI_ERR_INFO_VALUE, "depth" },
	{ "storage_alloc_driver", "mpiio", MPI_ERR_INFO_VALUE, "MPI_THREAD_MULTIPLE" },
	{ "storage_alloc_stripe", "64K", MPI_ERR_INFO_VALUE, "needs the driver mpiio" },
	{ "storage_alloc_stripe", "0", MPI_ERR_INFO_VALUE, "at least 1" },
	{ "storage_alloc_fencesync", "often", MPI_ERR_INFO_VALUE, "true or false" },
	{ "storage_alloc_engine", "steam", MPI_ERR_INFO_VALUE, "segv" },
	{ "storage_alloc_writers", "2", MPI_ERR_INFO_VALUE, "true or false" },
	{ "storage_alloc_on_full", "stop", MPI_ERR_INFO_VALUE, "wait or sigbus" },
	{ "storage_alloc_winsync", "never", MPI_ERR_INFO_VALUE, "memory, storage" },
	{ "access_style", "random,often", MPI_ERR_INFO_VALUE, "reverse_sequential" },
	{ "access_style", "random,", MPI_ERR_INFO_VALUE, "reverse_sequential" },
	{ "file_perm", "0999", MPI_ERR_INFO_VALUE, "octal" },
	{ "striping_factor", "0", MPI_ERR_INFO_VALUE, "at least 1" },
	{ "striping_unit", "wide", MPI_ERR_INFO_VALUE, "at least 1" },
	{ "striping_unit", "5G", MPI_ERR_INFO_VALUE, "stripe is" },
};

/* Gives the invalid hint at the ranks from `from` on. All ranks must fail. */
static void check_refused(const struct bad *b, int from)
{
	int fds = count_fds(), maps = count_maps();
	MPI_Info info = storage_hints("refused.%r", NULL);
	void *base = &base;
	MPI_Win win;

	if (rank >= from)
		MPI_Info_set(info, b->name, b->value);
	check_error(allocate(info, &base, &win), b->class, b->words);
	check(base == &base);
	check(count_fds() == fds && (SANITIZED || count_maps() <= maps + 1),
	      "%s=%s: %d of %d descriptors, %d of %d mappings", b->name, b->value, count_fds(), fds,
	      count_maps(), maps);
}

static void test_missing_name(void)
{
	MPI_Info info;
	void *base;
	MPI_Win win;

	MPI_Info_create(&info);
	MPI_Info_set(info, "alloc_type", "storage");
	check_error(allocate(info, &base, &win), MPI_ERR_INFO_VALUE, "storage_alloc_filename");
}

/* Makes hints for parts of one file, `apart` bytes apart. */
static MPI_Info parts(int apart)
{
	char offset[32];

	snprintf(offset, sizeof(offset), "%d", rank * apart);
	return storage_hints("same", "storage_alloc_offset", offset, NULL);
}

static void test_same_bytes(void)
{
	void *base, *other;
	MPI_Win win, more;

	check_error(allocate(storage_hints("same", NULL), &base, &win), MPI_ERR_INFO_VALUE, "same");
	check_error(allocate(parts(SIZE - 1), &base, &win), MPI_ERR_INFO_VALUE,
		    "storage_alloc_offset");
	/* A part that the kernel maps has no lock of its range. */
	check_error(allocate(storage_hints("kernels", "storage_alloc_engine", "kernel", NULL),
			     &base, &win),
		    MPI_ERR_INFO_VALUE, "has some of the same bytes");
	check(allocate(parts(SIZE), &base, &win) == MPI_SUCCESS);
	/* Another window of this process conflicts, too. */
	check_error(allocate(storage_hints("same", "storage_alloc_offset", rank ? "1M" : "100000",
					   NULL),
			     &other, &more),
		    MPI_ERR_INFO_VALUE, "another window");
	MPI_Win_free(&win);
}

/* All ranks map the whole file, and each stores to its own bytes. */
static void test_writers(void)
{
	MPI_Info info = storage_hints("writers", "storage_alloc_writers", "true", NULL);
	char path[MPI_MAX_INFO_VAL + 1];
	uint8_t *base, byte;
	int there, fd;
	MPI_Win win;

	MPI_Info_get(info, "storage_alloc_filename", MPI_MAX_INFO_VAL, path, &there);
	check(allocate(info, &base, &win) == MPI_SUCCESS);
	check_hint(win, "storage_alloc_writers", "true");
	for (int i = rank; i < 10000; i += ranks)
		base[i] = (uint8_t)(i % 251 + 1);
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_free(&win);
	MPI_Barrier(MPI_COMM_WORLD);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	check(fd >= 0, "%s", path);
	for (int i = 0; i < 10000; i++)
		check(pread(fd, &byte, 1, i) == 1 && byte == i % 251 + 1, "byte %d is %d", i, byte);
	close(fd);
}

static int handled;

static void count_call(MPI_Comm *comm, int *code, ...)
{
	check(*comm == MPI_COMM_WORLD && *code == MPI_ERR_INFO_VALUE);
	handled++;
}

static void test_error_handler(void)
{
	MPI_Errhandler h;
	void *base;
	MPI_Win win;

	MPI_Comm_create_errhandler(count_call, &h);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, h);
	check(allocate(storage_hints("x", "alloc_type", rank ? "storage" : "none", NULL), &base,
		       &win) == MPI_ERR_INFO_VALUE);
	check(handled == 1);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Errhandler_free(&h);
}

/* ---- Valid hints ---- */

static void test_all_hints(void)
{
	MPI_Info info = storage_hints(
		"good.%r", "storage_alloc_offset", "4KiB", "storage_alloc_factor", "0.25",
		"storage_alloc_order", "storage_first", "storage_alloc_unlink", "true",
		"storage_alloc_discard", "true", "storage_alloc_segsize", "0.015625MB",
		"storage_alloc_syncfreq", "30", "storage_alloc_policy", "plru",
		"storage_alloc_driver", "posix:?direct=never", "storage_alloc_engine", "auto",
		"access_style", "read_mostly,random", "file_perm", "0640", "striping_factor", "4",
		"striping_unit", "0.5 MiB", "storage_alloc_colour", "blue", NULL);
	char name[32], path[400];
	struct stat st;
	void *base;
	MPI_Win win;

	check(allocate(info, &base, &win) == MPI_SUCCESS);
	snprintf(name, sizeof(name), "good.%d", rank);
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	check_hint(win, "alloc_type", "storage");
	check_hint(win, "storage_alloc_filename", path);
	check_hint(win, "storage_alloc_offset", "4096");
	check_hint(win, "storage_alloc_factor", "0.25");
	check_hint(win, "storage_alloc_order", "storage_first");
	check_hint(win, "storage_alloc_unlink", "true");
	check_hint(win, "storage_alloc_discard", "true");
	check_hint(win, "storage_alloc_segsize", "16384");
	check_hint(win, "storage_alloc_winsync", "memory");
	check_hint(win, "storage_alloc_syncfreq", "30");
	check_hint(win, "storage_alloc_policy", "plru");
	check_hint(win, "storage_alloc_driver", "posix:?direct=never");
	check_hint(win, "access_style", "read_mostly,random");
	check_hint(win, "file_perm", "0640");
	check_hint(win, "striping_unit", "524288");
	check(strcmp(hint_in_use(win, "storage_alloc_engine"), "auto") != 0,
	      "the engine has been chosen");
	check(stat(path, &st) == 0 && (st.st_mode & 0777) == 0640, "%o", st.st_mode);
	MPI_Win_free(&win);
	check(!has_file(name));
}

/*
 * If all ranks are on one machine, the default is an engine whose memory they can access without
 * MPI.
 */
static void test_engines(void)
{
	const char *named = getenv("UMMAP_ENGINE");
	MPI_Info info = storage_hints("auto.%r", "storage_alloc_engine", "auto", NULL);
	void *base;
	MPI_Win win;

	check(allocate(info, &base, &win) == MPI_SUCCESS);
	if (named)
		check_hint(win, "storage_alloc_engine", named);
	else if (ranks > 1 && !getenv("MACHINES"))
		check_hint(win, "storage_alloc_engine", "segv");
	MPI_Win_free(&win);
	info = storage_hints("bus.%r", "storage_alloc_engine", "sigbus", NULL);
	if (!getenv("MACHINES")) {
		check(allocate(info, &base, &win) == MPI_SUCCESS);
		check_hint(win, "storage_alloc_engine", "sigbus");
		MPI_Win_free(&win);
	} else {
		MPI_Info_free(&info);
	}
}

static void test_defaults(void)
{
	void *base;
	MPI_Win win;

	check(allocate(storage_hints("default.%r", NULL), &base, &win) == MPI_SUCCESS);
	check_hint(win, "storage_alloc_offset", "0");
	check_hint(win, "storage_alloc_factor", "0");
	check_hint(win, "storage_alloc_order", "memory_first");
	check_hint(win, "storage_alloc_unlink", "false");
	check_hint(win, "storage_alloc_discard", "false");
	check_hint(win, "storage_alloc_segsize", "262144");
	check_hint(win, "storage_alloc_winsync", "storage");
	check_hint(win, "storage_alloc_syncfreq", "never");
	MPI_Win_free(&win);
}

/* One rank or all ranks use memory. */
static void test_memory(void)
{
	void *base;
	MPI_Win win;

	check(allocate(storage_hints("memory.%r", "alloc_type", "memory", "storage_alloc_factor",
				     "nonsense", NULL),
		       &base, &win) == MPI_SUCCESS);
	MPI_Win_free(&win);
	check(allocate(storage_hints("memory.%r", "alloc_type", rank ? "memory" : "storage", NULL),
		       &base, &win) == MPI_SUCCESS);
	check_hint(win, "alloc_type", rank ? "memory" : "storage");
	memset(base, rank + 1, SIZE);
	MPI_Win_free(&win);
	check(has_file("memory.0") && !has_file("memory.1"));
}

/* A fence makes the data of all ranks durable if one rank requests it. */
static void test_fence_hint(void)
{
	char name[32];
	uint8_t *base;
	MPI_Win win;
	int fd;

	check(allocate(storage_hints("fence.%r", "storage_alloc_fencesync", rank ? "false" : "true",
				     NULL),
		       &base, &win) == MPI_SUCCESS);
	check_hint(win, "storage_alloc_fencesync", "true");
	fill(base, SIZE, 0, (uint64_t)rank);
	check(MPI_Win_fence(0, win) == MPI_SUCCESS);
	snprintf(name, sizeof(name), "fence.%d", rank);
	fd = open_part(name);
	check_file(fd, 0, SIZE, 0, (uint64_t)rank);
	close(fd);
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	set_budget(8 * MIB);
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	check(ranks > 1);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	test_defaults();
	test_engines();
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		check_refused(&bad[i], 0);
		check_refused(&bad[i], ranks - 1);
	}
	test_missing_name();
	test_same_bytes();
	test_writers();
	test_error_handler();
	test_all_hints();
	test_memory();
	test_fence_hint();
	MPI_Finalize();
	return 0;
}
