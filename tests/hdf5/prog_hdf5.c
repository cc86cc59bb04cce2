/* SPDX-License-Identifier: BSD-3-Clause */
/* prog_hdf5 - the virtual file driver for HDF5: its promises and its errors. Each test is a child,
 * and so is each process of a test that ends without closing its file. */
#include <ummap-hdf5.h>
#include <H5FDpublic.h>

#include "../common.h"
#include "../drivers/beside.h"
#include "../small_fs.h"

#define ROWS 5000

static const char *path_of(const char *name)
{
	return in_dir(name);
}

static hid_t access_to(const char *uri, bool latest)
{
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);

	check(H5Pset_fapl_ummap(fapl, uri, NULL) >= 0);
	if (latest)
		check(H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST) >= 0);
	return fapl;
}

static hid_t create_file(const char *uri, const char *path)
{
	hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access_to(uri, false));

	check(file >= 0, "%s", path);
	return file;
}

static hid_t open_by(const char *uri, const char *path, unsigned flags)
{
	hid_t fapl = uri ? access_to(uri, false) : H5Pcreate(H5P_FILE_ACCESS);

	return H5Fopen(path, flags, fapl);
}

/* A chunked dataset of numbers from `first` on. */
static hid_t create_rows(hid_t file, const char *name, int first)
{
	hsize_t rows = ROWS, most = H5S_UNLIMITED, chunk = 500;
	hid_t space = H5Screate_simple(1, &rows, &most), how = H5Pcreate(H5P_DATASET_CREATE), set;
	int data[ROWS];

	for (int i = 0; i < ROWS; i++)
		data[i] = first + i;
	check(H5Pset_chunk(how, 1, &chunk) >= 0);
	set = H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, how, H5P_DEFAULT);
	check(set >= 0);
	check(H5Dwrite(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
	return set;
}

static void put_rows(hid_t file, const char *name, int first)
{
	check(H5Dclose(create_rows(file, name, first)) >= 0);
}

static bool has_rows(hid_t file, const char *name, int first)
{
	static int data[ROWS];
	hid_t set = H5Lexists(file, name, H5P_DEFAULT) > 0 ? H5Dopen2(file, name, H5P_DEFAULT) : -1;
	bool same = set >= 0 &&
		    H5Dread(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;

	for (int i = 0; i < ROWS && same; i++)
		same = data[i] == first + i;
	if (set >= 0)
		H5Dclose(set);
	return same;
}

static void flush(hid_t file)
{
	check(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
}

static void close_file(hid_t file)
{
	check(H5Fclose(file) >= 0);
}

/* Ends the process without any call of HDF5 or of the library, like a crash. */
static void crash(void)
{
	kill(getpid(), SIGKILL);
}

static void run_crashing(void (*body)(void *))
{
	check_killed(run_child(body, NULL), SIGKILL);
}

static bool error_says(const char *words);

/* Checks that a call of HDF5 fails, and that its stack of errors has these words. */
#define refused(call, words) check((call) < 0 && error_says(words), "%s: no error with \"%s\"", \
				   #call, words)

static herr_t find_words(unsigned n, const H5E_error2_t *error, void *words)
{
	(void)n;
	return strstr(error->desc, words) != NULL;
}

static bool error_says(const char *words)
{
	return H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, find_words, (void *)(uintptr_t)words) > 0;
}

static uint64_t size_of(const char *path)
{
	struct stat st;

	check(stat(path, &st) == 0, "%s", path);
	return (uint64_t)st.st_size;
}

/* ---- Names ---- */

static void test_names(void *unused)
{
	const char *path = path_of("names.h5");
	char uri[400];
	hid_t file;

	(void)unused;
	snprintf(uri, sizeof(uri), "wal+posix:%s", path);
	file = create_file("wal+posix:", path);
	put_rows(file, "a", 1);
	close_file(file);
	file = open_by(uri, "names.h5", H5F_ACC_RDONLY);
	check(file >= 0 && has_rows(file, "a", 1));
	close_file(file);
	file = open_by("null:", uri, H5F_ACC_RDONLY);
	check(file >= 0 && has_rows(file, "a", 1), "the name is a URI");
	close_file(file);
	file = open_by(NULL, path, H5F_ACC_RDONLY);
	check(file >= 0 && has_rows(file, "a", 1), "the default driver reads the file");
	close_file(file);
	refused(open_by(uri, "other.h5", H5F_ACC_RDONLY), "URI without a path");
	refused(open_by("none", path, H5F_ACC_RDONLY), "no URI");
	refused(open_by("wal+none:", path, H5F_ACC_RDONLY), "none");
	refused(open_by("wal+posix:", path_of("no.h5"), H5F_ACC_RDONLY), "No such file");
	/* Characters that mean something in a URI. */
	path = path_of("50% {rank}?a=b&c.h5");
	file = create_file("posix:", path);
	close_file(file);
	check(size_of(path) > 0);
}

static void test_access(void *unused)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char policy[] = "lifo";
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), copy, file;

	(void)unused;
	attr.policy = policy;
	attr.seg_size = 8192;
	check(H5Pset_fapl_ummap(fapl, "posix:", &attr) >= 0);
	memset(policy, 'x', 4);
	copy = H5Pcopy(fapl);
	check(H5Pclose(fapl) >= 0);
	file = H5Fcreate(path_of("access.h5"), H5F_ACC_EXCL, H5P_DEFAULT, copy);
	check(file >= 0, "the policy was copied");
	fapl = H5Fget_access_plist(file);
	check(H5Pget_driver(fapl) == H5FD_UMMAP);
	refused(H5Fcreate(path_of("access.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, fapl), "already open");
	close_file(file);
	refused(H5Fcreate(path_of("access.h5"), H5F_ACC_EXCL, H5P_DEFAULT, fapl), "exists");
	attr.struct_size = 4;
	refused(H5Pset_fapl_ummap(fapl, "posix:", &attr), "struct_size");
}

/* The same file twice in one process: HDF5 uses one handle for both. */
static void test_twice(void *unused)
{
	const char *path = path_of("twice.h5");
	hid_t one, other;

	(void)unused;
	one = create_file("wal+posix:", path);
	other = open_by("wal+posix:", path, H5F_ACC_RDWR);
	check(other >= 0);
	put_rows(one, "a", 3);
	check(has_rows(other, "a", 3));
	close_file(one);
	put_rows(other, "b", 4);
	close_file(other);
	one = open_by("wal+posix:", path, H5F_ACC_RDONLY);
	check(has_rows(one, "a", 3) && has_rows(one, "b", 4));
	other = open_by("wal+posix:", path, H5F_ACC_RDONLY);
	check(has_rows(other, "b", 4));
}

/* ---- Forked children ---- */

/* A file that is open can be opened by any of its names, and its name can be given to others. */
static void test_other_names(void *unused)
{
	const char *folder = path_of("elsewhere");
	hid_t one, other, third;

	(void)unused;
	check(chdir(path_of("")) == 0);
	one = create_file("wal+posix:", "names.h5");
	put_rows(one, "a", 3);
	check(link("names.h5", "hard%link.h5") == 0 && symlink("names.h5", "soft.h5") == 0);
	other = open_by("wal+posix:", "hard%link.h5", H5F_ACC_RDWR);
	third = open_by("wal+posix:", "./soft.h5", H5F_ACC_RDWR);
	check(other >= 0 && third >= 0 && has_rows(other, "a", 3) && has_rows(third, "a", 3));
	close_file(other);
	close_file(third);
	/* Another file of this name is not the open one, and keeps its length. */
	check(mkdir(folder, 0700) == 0 && chdir(folder) == 0);
	other = create_file("wal+posix:", "names.h5");
	check(!has_rows(other, "a", 3));
	for (int i = 0; i < 20; i++) {
		char name[] = "a1";

		name[1] = (char)('a' + i);
		put_rows(other, name, i);
	}
	close_file(other);
	check(H5Ldelete(one, "a", H5P_DEFAULT) >= 0);
	close_file(one);
	other = open_by("wal+posix:", "names.h5", H5F_ACC_RDONLY);
	check(other >= 0 && has_rows(other, "at", 19));
	close_file(other);
}

static void use_inherited(void *file)
{
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	check(!has_rows(*(hid_t *)file, "a", 3));
	refused(H5Fflush(*(hid_t *)file, H5F_SCOPE_GLOBAL), "a parent of this process");
	_exit(0);
}

/* HDF5 closes the files when the process exits. */
static void exit_with_inherited(void *file)
{
	(void)file;
	exit(3);
}

/* A child cannot use an open file of its parent, and leaves the file alone. */
static void test_fork(void *unused)
{
	const char *path = path_of("fork.h5");
	hid_t file = create_file("wal+posix:", path);

	(void)unused;
	put_rows(file, "a", 3);
	flush(file);
	put_rows(file, "b", 4);
	check_exits(run_child(use_inherited, &file), 0);
	check_exits(run_child(exit_with_inherited, &file), 3);
	put_rows(file, "c", 5);
	close_file(file);
	file = open_by("wal+posix:", path, H5F_ACC_RDONLY);
	check(has_rows(file, "a", 3) && has_rows(file, "b", 4) && has_rows(file, "c", 5));
}

/* ---- Length ---- */

static uint64_t size_after_deletion(const char *uri, const char *path)
{
	hid_t fapl = uri ? access_to(uri, false) : H5P_DEFAULT;
	hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);

	put_rows(file, "a", 1);
	put_rows(file, "b", 1);
	flush(file);
	check(H5Ldelete(file, "b", H5P_DEFAULT) >= 0);
	close_file(file);
	return size_of(path);
}

/* The file becomes as long as with the default driver, also if it was longer. */
static void test_length(void *unused)
{
	uint64_t plain = size_after_deletion(NULL, path_of("plain.h5"));

	(void)unused;
	check(size_after_deletion("posix:", path_of("posix.h5")) == plain);
	check(size_after_deletion("wal+posix:", path_of("wal.h5")) == plain);
	check(size_after_deletion("wal+posix:", path_of("wal.h5")) == plain);
	check(access(path_of("wal.h5.wal"), F_OK) == -1, "no log is left");
}

/* Space that HDF5 allocates and does not write. */
static hid_t create_unwritten(hid_t file, hsize_t bytes)
{
	hid_t space = H5Screate_simple(1, &bytes, NULL), how = H5Pcreate(H5P_DATASET_CREATE), set;

	check(H5Pset_alloc_time(how, H5D_ALLOC_TIME_EARLY) >= 0);
	check(H5Pset_fill_time(how, H5D_FILL_TIME_NEVER) >= 0);
	set = H5Dcreate2(file, "space", H5T_NATIVE_CHAR, space, H5P_DEFAULT, how, H5P_DEFAULT);
	check(set >= 0);
	return set;
}

static void leave_unwritten(void *unused)
{
	hid_t file = create_file("wal+posix:", path_of("unwritten.h5"));

	(void)unused;
	create_unwritten(file, 10 * MIB);
	flush(file);
	crash();
}

static void test_unwritten(void *unused)
{
	hid_t file;

	(void)unused;
	run_crashing(leave_unwritten);
	file = open_by("wal+posix:", path_of("unwritten.h5"), H5F_ACC_RDWR);
	check(file >= 0, "the store is as long as the superblock says");
	check(H5Lexists(file, "space", H5P_DEFAULT) > 0);
	close_file(file);
	check(size_of(path_of("unwritten.h5")) >= 10 * MIB);
}

/* A file with a user block replaces one that has its superblock there. */
static void test_truncated(void *unused)
{
	const char *path = path_of("user.h5");
	hid_t how = H5Pcreate(H5P_FILE_CREATE), file = create_file("wal+posix:", path);
	unsigned char block[512], zeros[512] = { 0 };
	int fd;

	(void)unused;
	put_rows(file, "old", 1);
	close_file(file);
	check(H5Pset_userblock(how, sizeof(block)) >= 0);
	file = H5Fcreate(path, H5F_ACC_TRUNC, how, access_to("wal+posix:", false));
	check(file >= 0);
	put_rows(file, "new", 2);
	close_file(file);
	file = open_by("wal+posix:", path, H5F_ACC_RDONLY);
	check(file >= 0 && has_rows(file, "new", 2));
	check(H5Lexists(file, "old", H5P_DEFAULT) == 0);
	close_file(file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	check(read(fd, block, sizeof(block)) == sizeof(block));
	check(memcmp(block, zeros, sizeof(block)) == 0);
	close(fd);
}

/* Numbers of a chunk, which is written past the mapping, and ends within a block of the log. */
#define LONG_CHUNK 70001
#define LONG_CHUNKS 6

/* A dataset whose chunks follow each other in the file, and are not cached. */
static hid_t create_long(hid_t file)
{
	hsize_t rows = LONG_CHUNK * LONG_CHUNKS, chunk = LONG_CHUNK;
	hid_t space = H5Screate_simple(1, &rows, NULL), how = H5Pcreate(H5P_DATASET_CREATE), set;
	hid_t access = H5Pcreate(H5P_DATASET_ACCESS);

	check(H5Pset_chunk(how, 1, &chunk) >= 0 && H5Pset_chunk_cache(access, 0, 0, 1) >= 0);
	set = H5Dcreate2(file, "long", H5T_NATIVE_INT, space, H5P_DEFAULT, how, access);
	check(set >= 0);
	return set;
}

/* Writes chunks, or reads them and compares. */
static void use_long(hid_t set, unsigned chunk, unsigned n, int value, bool writes)
{
	static int data[LONG_CHUNK * LONG_CHUNKS];
	hsize_t start = (hsize_t)chunk * LONG_CHUNK, count = (hsize_t)n * LONG_CHUNK;
	hid_t space = H5Dget_space(set), memory = H5Screate_simple(1, &count, NULL);

	check(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL) >= 0);
	for (hsize_t i = 0; i < count && writes; i++)
		data[i] = value + (int)(start + i);
	if (writes)
		check(H5Dwrite(set, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, data) >= 0);
	else
		check(H5Dread(set, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, data) >= 0);
	for (hsize_t i = 0; i < count; i++)
		check(data[i] == value + (int)(start + i), "element %ju", (uintmax_t)(start + i));
	H5Sclose(memory);
	H5Sclose(space);
}

static void crash_after_long(void *unused)
{
	hid_t file = create_file("wal+posix:", path_of("long.h5")), set = create_long(file);

	(void)unused;
	use_long(set, 0, 1, 3, true);
	use_long(set, 1, 2, 3, true);
	/* A read, and a write that does not continue the last one. */
	use_long(set, 2, 1, 3, false);
	use_long(set, 3, 1, 3, true);
	put_rows(file, "a", 7);
	use_long(set, 4, 1, 9, true);
	use_long(set, 4, 1, 3, true);
	use_long(set, 5, 1, 3, true);
	flush(file);
	use_long(set, 0, LONG_CHUNKS, 5, true);
	crash();
}

static void test_long(void *unused)
{
	hid_t file, set;

	(void)unused;
	run_crashing(crash_after_long);
	file = open_by("wal+posix:", path_of("long.h5"), H5F_ACC_RDWR);
	check(file >= 0 && has_rows(file, "a", 7));
	set = H5Dopen2(file, "long", H5P_DEFAULT);
	use_long(set, 0, LONG_CHUNKS, 3, false);
	/* The chunks were not logged: the file has them before the log is applied. */
	check(size_of(path_of("long.h5.wal")) < MIB);
	H5Dclose(set);
	close_file(file);
}

/* More than the addresses that are reserved at first. */
static void write_far(hsize_t bytes)
{
	hid_t file = create_file("posix:", path_of("far.h5")), set = create_unwritten(file, bytes);
	hsize_t at = bytes - 1, one = 1;
	hid_t space = H5Dget_space(set), memory = H5Screate_simple(1, &one, NULL);
	char byte = 77;

	check(H5Sselect_elements(space, H5S_SELECT_SET, 1, &at) >= 0);
	check(H5Dwrite(set, H5T_NATIVE_CHAR, memory, space, H5P_DEFAULT, &byte) >= 0);
	H5Dclose(set);
	put_rows(file, "a", 5);
	close_file(file);
	file = open_by("posix:", path_of("far.h5"), H5F_ACC_RDWR);
	set = H5Dopen2(file, "space", H5P_DEFAULT);
	byte = 0;
	check(H5Dread(set, H5T_NATIVE_CHAR, memory, space, H5P_DEFAULT, &byte) >= 0 && byte == 77);
	check(has_rows(file, "a", 5));
	H5Dclose(set);
	close_file(file);
	unlink(path_of("far.h5"));
}

static void test_far(void *unused)
{
	(void)unused;
	write_far((hsize_t)200 * GIB);
}

static void test_few_addresses(void *unused)
{
	struct rlimit limit = { 4 * GIB, 4 * GIB };

	(void)unused;
	check(setrlimit(RLIMIT_AS, &limit) == 0);
	write_far(100 * MIB);
}

/* ---- Crashes ---- */

static void crash_unflushed(void *unused)
{
	hid_t file = create_file("wal+posix:", path_of("crash.h5"));

	(void)unused;
	put_rows(file, "a", 1);
	flush(file);
	put_rows(file, "b", 2);
	check(H5Ldelete(file, "a", H5P_DEFAULT) >= 0);
	crash();
}

static void test_crash(void *unused)
{
	hid_t file;

	(void)unused;
	run_crashing(crash_unflushed);
	refused(open_by("posix:", path_of("crash.h5"), H5F_ACC_RDONLY), "ummap wal");
	file = open_by("wal+posix:", path_of("crash.h5"), H5F_ACC_RDONLY);
	check(has_rows(file, "a", 1) && !has_rows(file, "b", 2));
}

/* H5Dflush must not commit: the links and the other objects are not written yet. */
static void crash_after_dflush(void *unused)
{
	hid_t file = create_file("wal+posix:", path_of("dflush.h5")), set;

	(void)unused;
	put_rows(file, "a", 1);
	flush(file);
	for (int i = 0; i < 50; i++) {
		char name[16];

		snprintf(name, sizeof(name), "new%d", i);
		set = create_rows(file, name, i);
		check(H5Dflush(set) >= 0);
	}
	crash();
}

static uint64_t newest_commit(const char *path)
{
	uint64_t oldest, newest;
	char uri[400];
	void *base;

	snprintf(uri, sizeof(uri), "wal+posix:%s", path);
	check(ummap_open(uri, 1, 0, PROT_READ, NULL, &base) == 0);
	check(umcommits(base, &oldest, &newest) == 0 && umunmap(base, 0) == 0);
	return newest;
}

static void test_dflush(void *unused)
{
	H5G_info_t info;
	hid_t file;

	(void)unused;
	run_crashing(crash_after_dflush);
	check(newest_commit(path_of("dflush.h5")) == 1);
	file = open_by("wal+posix:", path_of("dflush.h5"), H5F_ACC_RDWR);
	check(file >= 0 && has_rows(file, "a", 1));
	check(H5Gget_info(file, &info) >= 0 && info.nlinks == 1);
}

/* ---- A writer with readers (SWMR) ---- */

static void append(hid_t set, hsize_t rows)
{
	hsize_t start = rows - 1, one = 1;
	hid_t space, memory = H5Screate_simple(1, &one, NULL);
	int value = (int)rows;

	check(H5Dset_extent(set, &rows) >= 0);
	space = H5Dget_space(set);
	check(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &one, NULL) >= 0);
	check(H5Dwrite(set, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, &value) >= 0);
	H5Sclose(space);
	H5Sclose(memory);
}

static void crash_swmr(void *how)
{
	hid_t fapl = access_to("wal+posix:", true);
	hid_t file = H5Fcreate(path_of("swmr.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, fapl), set;

	set = create_rows(file, "a", 1);
	if (how) {
		H5Dclose(set);
		close_file(file);
		file = H5Fopen(path_of("swmr.h5"), H5F_ACC_RDWR | H5F_ACC_SWMR_WRITE, fapl);
		set = H5Dopen2(file, "a", H5P_DEFAULT);
		check(set >= 0);
	} else {
		check(H5Fstart_swmr_write(file) >= 0);
	}
	for (hsize_t rows = ROWS + 1; rows <= 3 * ROWS; rows++)
		append(set, rows);
	check(H5Dflush(set) >= 0);
	append(set, 3 * ROWS + 1);
	crash();
}

/* The log is applied as by `ummap wal apply`. */
static void apply_log(const char *path)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[400];
	void *base;

	snprintf(uri, sizeof(uri), "wal+posix:%s", path);
	check(ummap_open(uri, 1, 0, READ_WRITE, &attr, &base) == 0 && umunmap(base, 0) == 0);
}

static void check_swmr(const char *uri)
{
	hid_t file = open_by(uri, path_of("swmr.h5"), H5F_ACC_RDWR), set, space;
	static int data[3 * ROWS + 1];
	hsize_t rows;

	check(file >= 0, "%s", uri ? uri : "the default driver");
	set = H5Dopen2(file, "a", H5P_DEFAULT);
	space = H5Dget_space(set);
	check(H5Sget_simple_extent_dims(space, &rows, NULL) == 1 && rows == 3 * ROWS);
	check(H5Dread(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
	for (int i = 0; i < 3 * ROWS; i++)
		check(data[i] == i + 1, "row %d is %d", i, data[i]);
	H5Dclose(set);
	/* Another test opens the file in the same state. */
	if (!uri)
		close_file(file);
}

static void test_swmr(void *how)
{
	check_killed(run_child(crash_swmr, how), SIGKILL);
	apply_log(path_of("swmr.h5"));
	check_swmr(NULL);
	check_killed(run_child(crash_swmr, how), SIGKILL);
	check_swmr("wal+posix:");
}

/* ---- Commits ---- */

static void crash_after_commits(void *unused)
{
	hid_t file = create_file("wal+posix:?wal.keep=8", path_of("commits.h5"));
	char name[2] = "a";

	(void)unused;
	for (int i = 0; i < 5; i++, name[0]++) {
		put_rows(file, name, i);
		flush(file);
	}
	crash();
}

/* Each flush is one commit, and opens by its number. */
static void test_commits(void *unused)
{
	char uri[64], name[2];
	hid_t file;

	(void)unused;
	run_crashing(crash_after_commits);
	for (int commit = 5; commit > 0; commit--) {
		snprintf(uri, sizeof(uri), "wal+posix:?wal.commit=%d", commit);
		file = open_by(uri, path_of("commits.h5"), H5F_ACC_RDONLY);
		check(file >= 0, "%s", uri);
		for (int i = 0; i < 5; i++) {
			snprintf(name, sizeof(name), "%c", 'a' + i);
			check(has_rows(file, name, i) == (i < commit), "%s in commit %d", name,
			      commit);
		}
		close_file(file);
	}
	refused(open_by("wal+posix:?wal.commit=6", path_of("commits.h5"), H5F_ACC_RDONLY),
		"commit 6");
}

/* ---- Other stores ---- */

static void test_cow(void *unused)
{
	const char *path = path_of("cow.h5");
	hid_t file = create_file("posix:", path);

	(void)unused;
	put_rows(file, "a", 1);
	close_file(file);
	file = open_by("cow+posix:", path, H5F_ACC_RDWR);
	put_rows(file, "b", 2);
	check(H5Ldelete(file, "a", H5P_DEFAULT) >= 0);
	close_file(file);
	file = open_by("posix:", path, H5F_ACC_RDONLY);
	check(has_rows(file, "a", 1) && !has_rows(file, "b", 2));
	close_file(file);
	file = open_by("cow+posix:", path, H5F_ACC_RDONLY);
	check(!has_rows(file, "a", 1) && has_rows(file, "b", 2));
	close_file(file);
}

/* Opens the driver without a file of HDF5, makes the file longer or shorter, and writes a byte. */
static H5FD_t *open_raw(const char *uri, const char *path, haddr_t end, haddr_t at)
{
	H5FD_t *file = H5FDopen(path, H5F_ACC_RDWR, access_to(uri, false), HADDR_UNDEF);

	check(file && H5FDset_eoa(file, H5FD_MEM_DRAW, end) >= 0);
	check(H5FDwrite(file, H5FD_MEM_DRAW, H5P_DEFAULT, at, 1, "x") >= 0);
	return file;
}

static void close_raw(H5FD_t *file)
{
	check(H5FDtruncate(file, H5P_DEFAULT, true) >= 0);
	check(H5FDflush(file, H5P_DEFAULT, true) >= 0 && H5FDclose(file) >= 0);
}

#define LONG 300000

/* Bytes of a longer file do not come back. */
static void test_shrunk(void *uri)
{
	const char *path = path_of("shrunk.h5");
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	static uint8_t bytes[LONG];
	H5FD_t *file;

	file_fill(fd, 0, LONG, 0, 1);
	close_raw(open_raw(uri, path, 100001, 0));
	file = open_raw(uri, path, LONG, LONG - 1);
	for (int again = 0; again < 2; again++) {
		check(H5FDread(file, H5FD_MEM_DRAW, H5P_DEFAULT, 0, LONG, bytes) >= 0);
		check(bytes[0] == 'x' && bytes[LONG - 1] == 'x');
		check_bytes(bytes + 1, 100000, 1, 1);
		check_zeros(bytes + 100001, LONG - 1 - 100001);
		close_raw(file);
		if (!again)
			file = open_raw(uri, path, LONG, 0);
	}
	close(fd);
}

/* A file that replaces a longer one is as long as HDF5 needs, also when the changes are in the
 * store. */
static void test_replaced(void *unused)
{
	const char *path = path_of("replaced.h5");
	char words[600];
	uint64_t length;
	hid_t file = create_file("posix:", path);

	(void)unused;
	for (int i = 0; i < 5; i++)
		put_rows(file, (char[]){ (char)('a' + i), '\0' }, i);
	close_file(file);
	length = size_of(path);
	file = create_file("cow+posix:", path);
	put_rows(file, "a", 7);
	close_file(file);
	check(size_of(path) == length, "the store is unchanged");
	snprintf(words, sizeof(words), "commit '%s'", path);
	check_tool("cow", words, 0, "");
	check(size_of(path) < length / 2, "%ju bytes", (uintmax_t)size_of(path));
	file = open_by(NULL, path, H5F_ACC_RDONLY);
	check(has_rows(file, "a", 7) && !has_rows(file, "b", 1));
	close_file(file);
}

static void test_fixed(void *unused)
{
	hid_t file = create_file("mem:4M", "4M");

	(void)unused;
	put_rows(file, "a", 1);
	check(has_rows(file, "a", 1));
	create_unwritten(file, 8 * MIB);
	refused(H5Fflush(file, H5F_SCOPE_GLOBAL), "mem");
}

/* ---- Errors of the storage ---- */

static void test_failed_flush(void *unused)
{
	const char *path = path_of("failed.h5");
	hid_t file = create_file("wal+posix:", path);

	(void)unused;
	put_rows(file, "a", 1);
	close_file(file);
	file = open_by("error+wal+posix:?error.op=flush&error.nth=1", path, H5F_ACC_RDWR);
	put_rows(file, "b", 2);
	refused(H5Fflush(file, H5F_SCOPE_GLOBAL), "Input/output error");
	close_file(file);
	file = open_by("wal+posix:", path, H5F_ACC_RDONLY);
	check(has_rows(file, "a", 1));
}

#define NUMBERS (256 * KIB)

static int numbers[NUMBERS];

static void write_numbers(hid_t set, int first)
{
	for (size_t i = 0; i < NUMBERS; i++)
		numbers[i] = first + (int)i;
	H5Dwrite(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers);
}

static bool has_numbers(hid_t file, int first)
{
	hid_t set = H5Dopen2(file, "a", H5P_DEFAULT);
	size_t i = 0;

	check(H5Dread(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers) >= 0);
	while (i < NUMBERS && numbers[i] == first + (int)i)
		i++;
	H5Dclose(set);
	return i == NUMBERS;
}

/* Overwrites the dataset of a store whose reads fail from a certain one on. */
static void overwrite_numbers(const char *path, int nth, int first)
{
	char uri[100];
	hid_t file, set;

	snprintf(uri, sizeof(uri), "error+wal+posix:?error.op=read&error.times=always&"
		 "error.nth=%d", nth);
	H5E_BEGIN_TRY {
		file = open_by(uri, path, H5F_ACC_RDWR);
		set = H5Dopen2(file, "a", H5P_DEFAULT);
		write_numbers(set, first);
		H5Dclose(set);
		H5Fflush(file, H5F_SCOPE_GLOBAL);
		H5Fclose(file);
	} H5E_END_TRY;
}

/* HDF5 may have lost the bytes of a write that failed, so there is no commit after it. */
static void test_failed_write(void *unused)
{
	const char *path = path_of("write.h5");
	hsize_t count = NUMBERS;
	hid_t file = create_file("wal+posix:", path), space = H5Screate_simple(1, &count, NULL);
	hid_t set = H5Dcreate2(file, "a", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT,
			       H5P_DEFAULT);
	int first = 0;

	(void)unused;
	write_numbers(set, 0);
	H5Dclose(set);
	close_file(file);
	for (int nth = 1; nth < 26; nth++) {
		overwrite_numbers(path, nth, first + 1000);
		file = open_by("wal+posix:", path, H5F_ACC_RDONLY);
		check(file >= 0, "nth %d", nth);
		if (has_numbers(file, first + 1000))
			first += 1000;
		check(has_numbers(file, first), "nth %d", nth);
		close_file(file);
	}
	check(first > 0, "the last rounds have no errors");
}

static void crash_on_full_disk(void *root)
{
	char path[64];
	hid_t file;
	char name[16];
	int i;

	snprintf(path, sizeof(path), "/proc/self/fd/%d/full.h5", *(int *)root);
	file = create_file("wal+posix:", path);
	put_rows(file, "a", 1);
	flush(file);
	for (i = 0; i < 3000; i++) {
		snprintf(name, sizeof(name), "b%d", i);
		put_rows(file, name, i);
		if (i % 50 == 49 && H5Fflush(file, H5F_SCOPE_GLOBAL) < 0)
			break;
	}
	check(i < 3000 && error_says("No space left"), "the disk becomes full");
	crash();
}

static void test_full_disk(void *root)
{
	char path[64];
	H5G_info_t info;
	hid_t file;

	snprintf(path, sizeof(path), "/proc/self/fd/%d/full.h5", *(int *)root);
	check_killed(run_child(crash_on_full_disk, root), SIGKILL);
	file = open_by("wal+posix:", path, H5F_ACC_RDONLY);
	check(file >= 0 && has_rows(file, "a", 1));
	check(H5Gget_info(file, &info) >= 0 && info.nlinks % 50 == 1, "%ju links",
	      (uintmax_t)info.nlinks);
	for (int i = 0; i < (int)info.nlinks - 1; i++) {
		char name[16];

		snprintf(name, sizeof(name), "b%d", i);
		check(has_rows(file, name, i), "%s", name);
	}
	close_file(file);
}

/* Words of the names of the tests that run; NULL: all tests. */
static const char *wanted;

static void run(const char *name, void (*test)(void *), void *arg)
{
	int status;

	if (wanted && !strstr(name, wanted))
		return;
	status = run_child(test, arg);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: status %#x", name, status);
}

int main(int argc, char **argv)
{
	int root;

	(void)argc;
	wanted = argv[1];
	set_group();
	run("names", test_names, NULL);
	run("access", test_access, NULL);
	run("twice", test_twice, NULL);
	run("other-names", test_other_names, NULL);
	run("fork", test_fork, NULL);
	run("length", test_length, NULL);
	run("unwritten", test_unwritten, NULL);
	run("truncated", test_truncated, NULL);
	run("long", test_long, NULL);
	run("far", test_far, NULL);
	if (!SANITIZED)  /* sanitizers take address space */
		run("few addresses", test_few_addresses, NULL);
	run("crash", test_crash, NULL);
	run("dflush", test_dflush, NULL);
	run("swmr", test_swmr, NULL);
	run("swmr by flag", test_swmr, "flag");
	run("commits", test_commits, NULL);
	run("cow", test_cow, NULL);
	run("shrunk with cow", test_shrunk, "cow+posix:");
	run("shrunk with wal", test_shrunk, "wal+posix:");
	run("replaced", test_replaced, NULL);
	run("fixed", test_fixed, NULL);
	run("failed flush", test_failed_flush, NULL);
	run("failed write", test_failed_write, NULL);
	root = small_file_system();
	if (root >= 0)
		run("full disk", test_full_disk, &root);
	return 0;
}
